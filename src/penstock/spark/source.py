"""The data source that Spark knows as `penstock`."""

from dataclasses import replace

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ..errors import Refused
from .batch import BatchReader
from .columns import ddl
from .filters import FilteredBatchReader
from .options import SourceOptions, UsedBy, asks_registry, parse_columns, parse_options
from .stream import StreamReader


class PenstockSource(DataSource):
    """Reads topics as tables and as streams."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        # Spark does not say here whether it plans a batch or a stream; the columns are the same.
        columns = ddl(parse_columns(self.options))
        if not asks_registry(self.options):
            return columns
        from .typed import TypedValues

        options = parse_options(self.options, None)
        assert options.subject is not None, "a schema is asked for"
        with options.connect() as client:
            values = TypedValues.of_version(client, options.subject, options.version)
        return f"{columns}, {values.ddl}"

    def reader(self, schema: StructType) -> DataSourceReader:
        options = _planned(parse_options(self.options, UsedBy.BATCH), schema)
        return FilteredBatchReader(options) if options.is_filtered else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(_planned(parse_options(self.options, UsedBy.STREAM), schema))


def _planned(options: SourceOptions, schema: StructType) -> SourceOptions:
    """The options with the id of the schema that the columns were planned with. Refused: it has changed since."""
    if options.subject is None:
        return options
    from pyspark.sql.pandas.types import from_arrow_type

    from .typed import DATA, TypedValues

    with options.connect() as client:
        values = TypedValues.of_version(client, options.subject, options.version)
    if from_arrow_type(values.shape.arrow) != schema[DATA].dataType:
        raise Refused(f"subject {options.subject} has changed; schemaVersion pins a version")
    return replace(options, schema_id=values.schema_id)
