"""The tasks of an archive: ranges of offsets, planned by pure functions, and archived on the executors."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa

from ...api.error_reply import ErrorReply
from ...client.fetch import LIMIT_MAX_BATCHES, PREFETCH_BYTES, FetchRequest
from ...client.synchronous.prefetch import Prefetch
from ...codec.arrow import int64s_of
from ...errors import DamagedBatch, PenstockError, Refused
from ...model import TopicPartition
from ..typed import TypedValues
from .manifest import GAPS_LISTED_MAX, Gap, LakeFile, Span
from .remote import Remote
from .rows import SCHEMA, gaps_in, lake_rows
from .schema import Column, columns_of
from .task_files import Staging, TaskFiles

EXPIRED, COMPACTED, DAMAGED, MISSING = "expired", "compacted", "damaged", "missing"


@dataclass(frozen=True, slots=True)
class RangeTask:
    """Offsets `start` to `end` (not included) of a partition: one task."""

    topic: str
    partition: int
    start: int
    end: int
    log: int
    is_compacted: bool = False
    skips_damage: bool = False

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def request(self, at: int) -> FetchRequest:
        """Returns the request for the messages from an offset on."""
        return FetchRequest(
            self.topic,
            self.partition,
            offset=at,
            limit=min(LIMIT_MAX_BATCHES, self.end - at),
            max_bytes=PREFETCH_BYTES,
        )

    def request_below_end(self, at: int) -> FetchRequest | None:
        return self.request(at) if at < self.end else None

    def empty_span(self) -> Span:
        """Returns the span of a task that has read nothing."""
        return Span(
            topic=self.topic,
            partition=self.partition,
            start=self.start,
            end=self.start,
            rows=0,
            log=self.log,
        )


class RangeResult(msgspec.Struct, frozen=True):
    """What a task returns: its span with all gaps, its files, and their columns; or why the topic cannot be read."""

    span: Span
    files: list[LakeFile]
    columns: list[Column] = []
    error: ErrorReply | None = None


def share(waiting: Mapping[TopicPartition, int], messages_max: int) -> dict[TopicPartition, int]:
    """Returns how many messages of each partition go into one commit: all, or equal shares of the limit."""
    left, given = messages_max, dict.fromkeys(waiting, 0)
    while left > 0:
        hungry = [one for one in waiting if given[one] < waiting[one]]
        if not hungry:
            break
        each = max(left // len(hungry), 1)
        for one in hungry[:left]:
            more = min(each, waiting[one] - given[one])
            given[one] += more
            left -= more
    return {one: count for one, count in given.items() if count}


def cut(task: RangeTask, messages_max: int) -> list[RangeTask]:
    """Returns tasks of nearly equal size for a range, none above the limit."""
    count = task.end - task.start
    pieces = -(-count // messages_max)
    borders = [task.start + count * one // pieces for one in range(pieces + 1)]
    return [replace(task, start=start, end=end) for start, end in pairwise(borders)]


def join_spans(parts: list[Span]) -> list[Span]:
    """Returns one span for each partition, joined from those of its tasks. Refused: they do not follow each other."""
    found: dict[TopicPartition, Span] = {}
    for part in sorted(parts, key=lambda one: (one.name, one.start)):
        before = found.get(part.name)
        if before is None:
            found[part.name] = part
            continue
        if before.end != part.start or before.log != part.log:
            raise Refused(f"{part.name}: tasks left something out before offset {part.start}")
        gaps = [*before.gaps, *part.gaps]
        found[part.name] = Span(
            topic=part.topic,
            partition=part.partition,
            start=before.start,
            end=part.end,
            rows=before.rows + part.rows,
            log=part.log,
            gap_offsets=before.gap_offsets + part.gap_offsets,
            gaps=gaps[:GAPS_LISTED_MAX],
        )
    return list(found.values())


class _RangeProgress:
    """How far a range is read, and its gaps."""

    def __init__(self, task: RangeTask) -> None:
        self.task, self.next = task, task.start
        self.rows = self.gap_offsets = 0
        self.gaps: list[Gap] = []

    def missed(self, start: int, end: int, reason: str) -> None:
        end = min(end, self.task.end)
        if start >= end:
            return
        self.gap_offsets += end - start
        if len(self.gaps) < GAPS_LISTED_MAX:
            self.gaps.append(Gap(start, end, reason))
        self.next = end

    def saw(self, offsets: "np.ndarray") -> None:
        if not len(offsets):
            return
        reason = COMPACTED if self.task.is_compacted else MISSING
        for start, end in gaps_in(offsets, self.next):
            self.missed(start, end, reason)
        self.rows += len(offsets)
        self.next = int(offsets[-1]) + 1

    def span(self) -> Span:
        task = self.task
        return Span(
            topic=task.topic,
            partition=task.partition,
            start=task.start,
            end=task.end,
            rows=self.rows,
            log=task.log,
            gap_offsets=self.gap_offsets,
            gaps=self.gaps,
        )


def archive_range(task: RangeTask, remote: Remote, staging: Staging) -> RangeResult:
    """Read a range and write it into staging. Returns its span and files."""
    reading = _RangeProgress(task)
    with remote.connect() as client:
        values, schema = None, SCHEMA
        if staging.schema_id is not None:
            values = TypedValues.of_id(client, staging.schema_id)
            schema = values.added_to(SCHEMA)
        files = TaskFiles(staging, task.name, task.log, schema)
        prefetch = Prefetch(client.connector)
        try:
            while reading.next < task.end:
                _step(prefetch, reading, files, values)
        finally:
            prefetch.drop()
    return RangeResult(reading.span(), files.close(), columns_of(schema))


def _step(
    prefetch: Prefetch, reading: _RangeProgress, files: TaskFiles, values: TypedValues | None
) -> None:
    task, at = reading.task, reading.next
    try:
        fetched = prefetch.fetch(task.request(at), task.request_below_end)
    except PenstockError as error:
        reason = DAMAGED if error.code == DamagedBatch.code else EXPIRED
        reading.missed(at, _behind(error, at, task), reason)
        return
    if fetched.seed != task.log:
        raise Refused(f"{task.name} was deleted and made again while it was archived")
    for first, following in fetched.skipped:
        reading.missed(max(first, reading.next), following, DAMAGED)
    if fetched:
        # One copy: many small batches would each pay for every column.
        found = pa.concat_batches(fetched.record_batches())
        below = int(np.searchsorted(int64s_of(found.column("offset")), task.end))
        part = found.slice(0, below)
        reading.saw(int64s_of(part.column("offset")))
        rows = [lake_rows(part, task.partition, task.log)]
        for one in rows if values is None else values.added(rows, SCHEMA.names):
            files.add(one)
    # Compaction may have removed all messages up to the next offset.
    reading.missed(reading.next, fetched.next_offset, COMPACTED if task.is_compacted else MISSING)
    if reading.next <= at:
        raise Refused(f"{task.name}: the broker has nothing at offset {at}, below its end")


def _behind(error: PenstockError, at: int, task: RangeTask) -> int:
    """Returns the offset behind messages that were removed or are damaged. Raises all other errors again."""
    if error.code == DamagedBatch.code and task.skips_damage:
        following = error.fields.get("next_offset")
    elif error.code == "OFFSET_OUT_OF_RANGE":
        following = error.fields.get("start")  # Retention ran between planning and reading.
    else:
        raise error
    if not isinstance(following, int) or following <= at:
        raise error
    return following
