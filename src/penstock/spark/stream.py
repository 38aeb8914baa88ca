"""`spark.readStream.format("penstock")`: new messages, in micro-batches that can be repeated.

Spark's checkpoint decides about progress. The broker stores two things for a query: where it first began, until its
first batch is done, and its progress as a group, so that its lag is visible.
"""

import logging
import math
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..api.queries import ForgetQueryStart, KeepQueryStart
from ..client import Client
from ..errors import NotFound, OffsetOutOfRange, Unavailable
from .batch import Task, read_task
from .broker_ends import BrokerEnds, resolve
from .losses import topic_deleted
from .offsets import (
    Advance,
    StreamOffset,
    TopicEndsByName,
    ends_up_to,
    ids_of,
    ranges_between,
    split,
)
from .options import SourceOptions
from .progress import offsets_by_topic
from .reader_report import ReaderReport
from .worker_errors import brief_errors

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, Any]
_LOG = logging.getLogger("penstock.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in a process beside the driver; `read` runs on the executors, in copies of this object."""

    def __init__(self, options: SourceOptions) -> None:
        self.asked = options
        self._client: Client | None = None
        self._ends: BrokerEnds | None = None
        self._first: StreamOffset | None = None
        self._target: StreamOffset | None = None
        self._seen: TopicEndsByName | None = None
        # Where the group is.
        self._done: StreamOffset | None = None
        is_reported = options.is_reported and options.query is not None
        self._report = ReaderReport(options, options.query or "") if is_reported else None
        # When the last micro-batch was planned. The first one waits for nothing, as with Kafka's source.
        self._planned_at_s = -math.inf
        self._has_start_kept = options.query is not None
        # Whether Spark has planned a batch, whose end is in its checkpoint then.
        self._is_planned = False

    def __getstate__(self) -> SourceOptions:
        return self.asked

    def __setstate__(self, options: SourceOptions) -> None:
        self.__init__(options)  # type: ignore[misc]  # An executor begins with nothing but the options.

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = self.asked.client()
        return self._client

    def _found(self) -> TopicEndsByName:
        if self._ends is None:
            self._ends = BrokerEnds(self.client, self.asked)
        with self.asked.naming_key():
            return self._ends.query()

    # Where to begin

    @brief_errors()
    def initialOffset(self) -> Json:
        """Returns where the stream begins. Spark asks more than once, also after a crash; the answer stays."""
        if self._first is None:
            with self.asked.naming_key():
                self._first = self._begin()
        return self._first.to_json()

    def _begin(self) -> StreamOffset:
        ends = BrokerEnds(self.client, self.asked)
        offsets = resolve(ends, self.asked, self.asked.start, "startingOffsets")
        ids = ids_of(ends.query())
        if self.asked.query is not None and offsets:
            start = KeepQueryStart(self.asked.query, offsets, ids, self._words())
            kept = self.client.execute(start)
            offsets, ids = dict(kept.offsets), dict(kept.ids)
        return StreamOffset(offsets, ids, is_first=True)

    def _words(self) -> str:
        """Returns topics and start as text, by which the broker knows a query that was changed."""
        return f"{self.asked.topics} from {tuple(self.asked.start)}"[:1000]

    # How far to go

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self.asked.rows_a_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    @brief_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        found = self._found()
        latest = {
            f"{name}/{number}": ends.latest
            for name, topic in found.items()
            for number, ends in topic.partitions.items()
        }
        self._target = StreamOffset(latest, ids_of(found))

    @brief_errors()
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Returns the end of the next micro-batch. One call to the broker: Spark asks 100 times a second when idle."""
        begun = StreamOffset.from_json(start)
        try:
            found = self._found()
        except NotFound as error:
            known = {key.rpartition("/")[0] for key in begun.next}
            missing = known & set(self.asked.topics.fixed_names() or ())
            is_deleted = missing and not begun.is_first
            raise (topic_deleted(min(missing)) if is_deleted else error) from None
        self._seen = found
        if self._is_planned or not begun.is_first:
            self._forget_start()
        rules = Advance(
            self.asked.topics,
            is_loss_fatal=self.asked.is_loss_fatal,
            rows_max=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
        )
        self._batch_done(begun)
        if self._target is not None:
            # Spark sets the target before it asks for the start, which may be the latest offset by then.
            found = ends_up_to(found, self._target, begun)
        end = rules.from_start(begun, found)
        is_run_to_end = self._target is not None
        if self._report is not None:
            self._report.seen(self.client, begun, found, is_last=is_run_to_end and end == begun)
        if not is_run_to_end and self._waits_for_more(begun, end):
            return start
        return end.to_json()

    def _waits_for_more(self, begun: StreamOffset, end: StreamOffset) -> bool:
        """Whether a micro-batch would be smaller than the least, and the last one is not too long ago."""
        least, now_s = self.asked.rows_a_trigger_min, time.monotonic()
        if least is None or end == begun:
            return False
        rows = sum(one.end - one.start for one in ranges_between(begun, end))
        is_due = now_s - self._planned_at_s >= self.asked.trigger_delay_s
        if rows < least and not is_due:
            return True
        self._planned_at_s = now_s
        return False

    def reportLatestOffset(self) -> Json | None:
        """Returns the ends of the topics as `latestOffset` last saw them, or None before that."""
        if self._seen is None:
            return None
        latest = {
            f"{name}/{number}": ends.latest
            for name, topic in self._seen.items()
            for number, ends in topic.partitions.items()
            if self.asked.topics.takes(name, int(number))
        }
        return StreamOffset(latest, ids_of(self._seen)).to_json()

    # The work

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        self._is_planned = True
        begun, planned = StreamOffset.from_json(start), StreamOffset.from_json(end)
        if self._report is not None:
            self._report.planned(begun, planned)
        ranges = ranges_between(begun, planned)
        return [
            Task(one, planned.ids.get(one.topic)) for one in split(ranges, self.asked.tasks_min)
        ]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, Task), "we planned it"
        return read_task(self.asked, partition.wanted, partition.topic_id)

    def _batch_done(self, done: StreamOffset) -> None:
        """Move the group to `done`, once: Spark plans a batch when the one before is in its checkpoint.

        It asks for another one after the last batch of `availableNow`, too. It calls `commit` later, and then never.
        """
        if done.is_first or done == self._done:
            return
        self._done = done
        try:
            if self.asked.group is not None and done.next:
                self.client.commit(self.asked.group, offsets_by_topic(done.next))
        # NotFound, OffsetOutOfRange: a topic of the batch was deleted since, or made again.
        except (Unavailable, NotFound, OffsetOutOfRange) as error:
            _LOG.warning("progress of group %s not published: %s", self.asked.group, error)

    def _forget_start(self) -> None:
        """Have the broker forget where the query began: Spark's checkpoint has the end of its first batch."""
        if self.asked.query is None or not self._has_start_kept:
            return
        # NotFound: the query went on after a restart, or the reply to this call was lost.
        with suppress(NotFound):
            self.client.execute(ForgetQueryStart(self.asked.query))
        self._has_start_kept = False

    def stop(self) -> None:
        if self._report is not None:
            self._report.stopped()
        if self._client is not None:
            self._client.close()
            self._client = None
            self._ends = None
