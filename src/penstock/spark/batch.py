"""`spark.read.format("penstock")`: the messages that are there now, or a part of them."""

import gc
import os
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .broker_ends import BrokerEnds, batch_ranges
from .offsets import OffsetRange, split
from .options import Mode, SourceOptions
from .worker_errors import brief_errors

if TYPE_CHECKING:
    import pyarrow as pa


# Spark sets it in workers that it uses again, and in no other process.
_REUSED_WORKER = "SPARK_REUSE_WORKER"


@cache
def freeze_loaded_modules() -> None:
    """Exclude what a worker of Spark has loaded so far from garbage collection. Does nothing in other processes.

    Spark uses a worker for many tasks and collects garbage after each one. Most of what the collector looks at are
    modules, which stay until the process ends: 20 ms for every task. Objects without references are freed as before.
    """
    if _REUSED_WORKER in os.environ:
        gc.freeze()


class Task(InputPartition):
    """The range that one task of Spark reads. `topic_id`: of which topic."""

    def __init__(self, wanted: OffsetRange, topic_id: int | None = None) -> None:
        self.wanted, self.topic_id = wanted, topic_id


class BatchReader(DataSourceReader):
    """Plans on the driver; `read` runs on the executors."""

    def __init__(self, options: SourceOptions) -> None:
        self.asked = options

    @brief_errors()
    def partitions(self) -> list[InputPartition]:
        freeze_loaded_modules()
        with self.asked.connect() as client:
            ends = BrokerEnds(client, self.asked)
            ranges = batch_ranges(ends, self.asked)
        # Spark keeps the tasks with the table, for all queries of it, also of a topic that was made again since. It
        # turns an empty list into one task without a range.
        pieces = split(ranges, self.asked.tasks_min)
        return [Task(piece, ends.ids[piece.topic]) for piece in pieces]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        if not isinstance(partition, Task):
            return iter(())  # `partitions` returned an empty list.
        return read_task(self.asked, partition.wanted, partition.topic_id)


def read_task(
    options: SourceOptions, wanted: OffsetRange, topic_id: int | None = None
) -> "Iterator[pa.RecordBatch]":
    """Returns the messages of a range as record batches of Arrow. Runs on the executors.

    DataLoss: messages are gone, or the topic is not the one with this id, and that is fatal. If not, there are no rows.
    """
    from .decoder import Decoder
    from .file_reader import FileReader
    from .range_reader import RangeReader

    freeze_loaded_modules()
    columns = options.columns
    if options.schema_id is not None:
        # The id of a schema may be in a header.
        columns = (*columns, *(one for one in ("value", "headers") if one not in columns))
    decoder = Decoder(wanted.topic, wanted.partition, columns)
    with brief_errors(), options.connect() as client:
        reader = RangeReader(client, wanted, is_loss_fatal=options.is_loss_fatal)
        if topic_id is not None and not reader.is_of_topic(topic_id):
            return
        files = FileReader(options.data_dir) if options.mode is Mode.FILES else None
        found = decoder.record_batches(reader.stored(files))
        if options.schema_id is not None:
            from .typed import TypedValues

            found = TypedValues.of_id(client, options.schema_id).added(found, options.columns)
        yield from found
