"""The data source that Spark knows as `penstock`."""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from .batch import BatchReader
from .columns import ddl
from .filtering import FilteringReader
from .options import For, parse_columns, parse_options
from .stream import StreamReader


class PenstockSource(DataSource):
    """Reads topics as tables and as streams."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        # Whether it is for a batch or a stream is not known here, and does not matter for the columns.
        return ddl(parse_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options, For.BATCH)
        return FilteringReader(options) if options.is_filtered else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(parse_options(self.options, For.STREAM))
