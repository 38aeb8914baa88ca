"""`spark.read.format("penstock")`: the messages that are there now, or a part of them."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .connecting import connect
from .kept_worker import leave_loaded_alone
from .offsets import OffsetRange, split
from .options import Mode, SourceOptions
from .starting import Survey, batch_ranges

if TYPE_CHECKING:
    import pyarrow as pa

    from .decoding import Stored


class Task(InputPartition):
    """What one task has to read."""

    def __init__(self, wanted: OffsetRange) -> None:
        self.wanted = wanted


class BatchReader(DataSourceReader):
    """Plans on the driver; `read` runs on the executors."""

    def __init__(self, options: SourceOptions) -> None:
        self.asked = options

    def partitions(self) -> list[InputPartition]:
        leave_loaded_alone()
        # Spark turns an empty list into one task without a range.
        return [Task(one) for one in split(self._ranges(), self.asked.tasks_min)]

    def _ranges(self) -> Iterable[OffsetRange]:
        with connect(self.asked) as client:
            return batch_ranges(Survey(client, self.asked), self.asked)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        if not isinstance(partition, Task):
            return iter(())  # There was nothing to plan.
        return read_task(self.asked, partition.wanted, self._is_wanted)

    def _is_wanted(self, stored: "Stored") -> bool:
        """Whether a stored batch may hold messages that somebody wants to see."""
        return True


def read_task(
    options: SourceOptions,
    wanted: OffsetRange,
    is_wanted: "Callable[[Stored], bool] | None" = None,
) -> "Iterator[pa.RecordBatch]":
    """The messages of a range, as Spark takes them."""
    from .decoding import Decoder
    from .files import FileReader
    from .reading import RangeReader

    leave_loaded_alone()
    decoder = Decoder(wanted.topic, wanted.partition, options.columns)
    with connect(options) as client:
        reader = RangeReader(client, wanted, is_loss_fatal=options.is_loss_fatal)
        files = FileReader(options.data_dir) if options.mode is Mode.FILES else None
        yield from decoder.record_batches(filter(is_wanted, reader.stored(files)))
