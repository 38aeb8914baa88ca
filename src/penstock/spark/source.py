"""The data source that Spark knows as `penstock`."""

from dataclasses import replace

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ..errors import Refused
from .batch import BatchReader
from .columns import ddl
from .option_reader import UsedBy
from .options import SourceOptions, asks_registry, parse_columns, parse_options
from .sink import BatchWriter, StreamWriter
from .sink_columns import check_sink_columns
from .sink_options import SinkOptions, parse_sink_options
from .stream import StreamReader
from .worker_errors import brief_errors


class PenstockSource(DataSource):
    """Reads topics as tables and as streams, and writes both into topics."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    @brief_errors()
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

    @brief_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        options = _planned(parse_options(self.options, UsedBy.BATCH), schema)
        options.require_broker()
        return BatchReader(options)

    @brief_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = _planned(parse_options(self.options, UsedBy.STREAM), schema)
        options.require_broker()
        return StreamReader(options)

    @brief_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise Refused("a topic cannot be overwritten, only added to: use mode append")
        options = self._sink_options(schema, UsedBy.BATCH)
        options.require_broker()
        if options.topic is not None:
            with options.connect() as client:
                client.topic(options.topic)
        return BatchWriter(options)

    @brief_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise Refused(
                "a topic cannot be overwritten: output mode complete is not for it, use append"
            )
        # Spark asks again for every commit and abort, also when the broker is away or the topic gone. An abort that
        # fails would hide why the batch did, so it is the tasks that find a topic missing.
        return StreamWriter(self._sink_options(schema, UsedBy.STREAM))

    def _sink_options(self, schema: StructType, used_by: UsedBy) -> SinkOptions:
        """Returns the options of a query that writes these columns. Refused: an option or a column is wrong."""
        options = parse_sink_options(self.options, used_by)
        check_sink_columns(schema, has_topic=options.topic is not None)
        return options


def _planned(options: SourceOptions, schema: StructType) -> SourceOptions:
    """The options with the id of the schema that the columns were planned with. Refused: it has changed since."""
    own = schema.fieldNames() if options.subject is None else schema.fieldNames()[:-2]
    if tuple(own) != options.columns:
        raise Refused(
            f"the columns are those of the option columns, {', '.join(options.columns)}: .schema(...) is not taken"
        )
    if options.subject is None:
        return options
    from pyspark.sql.pandas.types import from_arrow_type

    from .typed import DATA, TypedValues

    with options.connect() as client:
        values = TypedValues.of_version(client, options.subject, options.version)
    if from_arrow_type(values.shape.arrow) != schema[DATA].dataType:
        raise Refused(f"subject {options.subject} has changed; schemaVersion pins a version")
    return replace(options, schema_id=values.schema_id)
