"""The data source that Spark knows as `penstock`."""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from .batch import BatchReader
from .columns import ddl
from .filters import FilteredBatchReader
from .options import UsedBy, parse_columns, parse_options
from .stream import StreamReader


class PenstockSource(DataSource):
    """Reads topics as tables and as streams."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        # Spark does not say here whether it plans a batch or a stream; the columns are the same.
        return ddl(parse_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options, UsedBy.BATCH)
        return FilteredBatchReader(options) if options.is_filtered else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(parse_options(self.options, UsedBy.STREAM))
