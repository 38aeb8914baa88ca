"""A data source that has nothing to do but to hand out Arrow batches that are ready: the most that Spark can take in.

Workers of Spark import it, so that it is a module of its own.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.spark.columns import DEFAULT_COLUMNS, ddl
from penstock.spark.decoder import arrow_schema

VALUE_BYTES = 100
KEYS = 1000
ROWS_A_BATCH = 10_000
TASKS = 2


@cache
def ready_batch(rows: int) -> pa.RecordBatch:
    """Rows like those that the broker is filled with.

    Made once in a worker: to make 10,000 rows from lists for every task, and to collect what is left of them, took a
    sixth of the worker's time. That is no part of returning ready rows, and favoured the other contender.
    """
    filled = {
        "key": [b"%04d" % (row % KEYS) for row in range(rows)],
        "value": [b"%0*d" % (VALUE_BYTES, row) for row in range(rows)],
        "topic": ["bench"] * rows,
        "partition": [0] * rows,
        "offset": list(range(rows)),
        "timestamp": [1_700_000_000_000_000] * rows,
        "timestampType": [0] * rows,
        "priority": [2] * rows,
    }
    schema = arrow_schema(DEFAULT_COLUMNS)
    arrays = [pa.array(filled.get(one.name, [None] * rows), one.type) for one in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def ready_batches(rows: int) -> Iterator[pa.RecordBatch]:
    whole = ready_batch(min(ROWS_A_BATCH, rows))
    for first in range(0, rows, ROWS_A_BATCH):
        yield whole.slice(0, min(ROWS_A_BATCH, rows - first))


class Rows(InputPartition):
    def __init__(self, count: int) -> None:
        self.count = count


class StandIn(DataSource):
    """Options: `rows` in all of a batch, `rowsPerTrigger` of a stream."""

    @classmethod
    def name(cls) -> str:
        return "standin"

    def schema(self) -> str:
        return ddl(DEFAULT_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Batch(int(self.options["rows"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Stream(int(self.options["rows"]), int(self.options["rowsPerTrigger"]))


class _Batch(DataSourceReader):
    def __init__(self, rows: int) -> None:
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        return [Rows(self.rows // TASKS) for _ in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows), "we planned it"
        return ready_batches(partition.count)


class _Stream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads `rows` in all, some at a time, and then is idle."""

    def __init__(self, rows: int, rows_a_trigger: int) -> None:
        self.rows, self.rows_a_trigger = rows, rows_a_trigger

    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: the number of rows is fixed."""

    def initialOffset(self) -> dict[str, Any]:
        return {"row": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"row": min(start["row"] + self.rows_a_trigger, self.rows)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [Rows((end["row"] - start["row"]) // TASKS) for _ in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows), "we planned it"
        return ready_batches(partition.count)


class Discarding(DataSource):
    """Takes Arrow batches and discards them: the least that a sink can do."""

    @classmethod
    def name(cls) -> str:
        return "discarding"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _Discard()


class _Discard(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
