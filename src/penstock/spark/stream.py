"""`spark.readStream.format("penstock")`: what arrives, in micro-batches that can be repeated.

Spark's checkpoint is the truth about progress. The broker keeps two things for a query: where it first began, until its
first batch is done, and its progress as a group, for people to look at.
"""

import logging
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

from ..client import Client
from ..client.queries import forget_start, keep_start
from ..errors import NotFound, Unreachable
from .batch import Task, read_task
from .connecting import connect
from .losses import topic_gone
from .offsets import Advance, Found, StreamOffset, capped, ids_of, ranges_between, split
from .options import SourceOptions
from .starting import Survey, resolve

if TYPE_CHECKING:
    import pyarrow as pa

Json = dict[str, Any]
_LOG = logging.getLogger("penstock.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in a process beside the driver; `read` runs on the executors, in copies of this."""

    def __init__(self, options: SourceOptions) -> None:
        self.asked = options
        self._client: Client | None = None
        self._survey: Survey | None = None
        self._first: StreamOffset | None = None
        self._target: StreamOffset | None = None
        self._seen: Found | None = None
        self._has_start_kept = options.query is not None

    def __getstate__(self) -> SourceOptions:
        return self.asked

    def __setstate__(self, options: SourceOptions) -> None:
        self.__init__(options)  # type: ignore[misc]  # An executor begins with nothing but the options.

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = connect(self.asked)
        return self._client

    def _found(self) -> Found:
        if self._survey is None:
            self._survey = Survey(self.client, self.asked)
        return self._survey.found()

    # Where to begin

    def initialOffset(self) -> Json:
        """Asked for more than once, and again after a crash; the answer must not change meanwhile."""
        if self._first is None:
            self._first = self._begin()
        return self._first.to_json()

    def _begin(self) -> StreamOffset:
        survey = Survey(self.client, self.asked)
        offsets = resolve(survey, self.asked, self.asked.start, "startingOffsets")
        ids = ids_of(survey.found())
        if self.asked.query is not None and offsets:
            kept = self.client.run(keep_start(self.asked.query, self._words(), offsets, ids))
            offsets, ids = kept.offsets, kept.ids
        return StreamOffset(offsets, ids, is_first=True)

    def _words(self) -> str:
        """What was asked for, to tell a query that goes on from one that was changed."""
        return f"{self.asked.topics} from {tuple(self.asked.start)}"[:1000]

    # How far to go

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self.asked.rows_a_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        found = self._found()
        latest = {
            f"{name}/{number}": ends.latest
            for name, topic in found.items()
            for number, ends in topic.partitions.items()
        }
        self._target = StreamOffset(latest, ids_of(found))

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """One call to the broker, some numbers compared: it runs about a hundred times a second when idle."""
        begun = StreamOffset.from_json(start)
        try:
            found = self._found()
        except NotFound as error:
            known = {key.rpartition("/")[0] for key in begun.next}
            gone = known & set(self.asked.topics.fixed_names() or ())
            raise (topic_gone(min(gone)) if gone and not begun.is_first else error) from None
        self._seen = found
        rules = Advance(
            self.asked.topics,
            is_loss_fatal=self.asked.is_loss_fatal,
            rows_max=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
        )
        seen = found if self._target is None else capped(found, self._target)
        return rules.from_start(begun, seen).to_json()

    def reportLatestOffset(self) -> Json | None:
        """How far the topics reach, whatever a trigger may take; from the last look."""
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
        ranges = ranges_between(StreamOffset.from_json(start), StreamOffset.from_json(end))
        return [Task(one) for one in split(ranges, self.asked.tasks_min)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, Task), "we planned it"
        return read_task(self.asked, partition.wanted)

    def commit(self, end: Json) -> None:
        """A batch is done. Spark knows that already; this is for those who look at the broker."""
        done = StreamOffset.from_json(end)
        try:
            self._forget_start()
            if self.asked.group is not None and done.next:
                self.client.commit(self.asked.group, _by_topic(done))
        except Unreachable as error:
            _LOG.warning("progress of group %s not published: %s", self.asked.group, error)

    def _forget_start(self) -> None:
        if self.asked.query is None or not self._has_start_kept:
            return
        # It is not there if the query went on after a restart, or if this was done and not heard of.
        with suppress(NotFound):
            self.client.run(forget_start(self.asked.query))
        self._has_start_kept = False

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
            self._survey = None


def _by_topic(done: StreamOffset) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for key, offset in done.next.items():
        topic, _, partition = key.rpartition("/")
        found.setdefault(topic, {})[int(partition)] = offset
    return found
