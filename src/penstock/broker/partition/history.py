"""The records of a partition that are about one message, found in its state log without reading all of it.

The state log keeps its records for some time after a snapshot has made them unnecessary. Every record is noted here
when it is written; an index says which blocks of the log speak of which messages (`journeys.index`). The index of the
active segment is in memory and saved with every snapshot; those of the others are files.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, NamedTuple, TypeVar

from pyroaring import BitMap64

from ...codec import Head
from ...delivery.delay_records import DelayCancelled, DelayMoved, DelaysLost
from ...delivery.offsets import Runs, offsets_of
from ...delivery.records import (
    Absent,
    Acked,
    AckedLate,
    Buried,
    Claimed,
    ClaimsEnded,
    Committed,
    Expired,
    Extended,
    Leased,
    Moved,
    Overtaken,
    Released,
    Reopened,
    Retried,
    Rewound,
)
from ...errors import Damaged, DamagedBatch, DamagedFile, NoSpace, Refused, UnsupportedFormat
from ...journeys.index import (
    ARRIVALS,
    BLOCK_RECORDS,
    DELAYS,
    GROUPS,
    LETTERS,
    SegmentIndex,
    read_index,
)
from ...log import Log
from ...log.layout import JOURNEY_INDEX, read_file, remove_if_there, segment_path
from ...log.records import RecordFormat
from ...transactions.commit_records import NamedStagingsEnded
from ...transactions.records import StagingsEnded
from .records import Forwarded, GroupClosed, GroupOpened, PartitionRecord, Redriven, Returned

# Behind every message.
_NOWHERE = (1 << 63) - 1
# About a block, as most are.
_READ_BYTES = 8 * 1024
# Blocks of the indexes that were asked for lately: three MiB or so. Look-ups go through all segments in turn, so a
# number of indexes would keep none of a log that has more small segments than that.
_BLOCKS_KEPT = 32 * 1024
# A look-up builds at most one index that is missing, which takes half a second, and says what it left out.
_BUILDS_A_LOOKUP = 1
# To look at the keys of so many blocks costs about as much as a record.
_BLOCKS_AN_ENTRY = 4


R = TypeVar("R")
Told = Generator[int, Any, R]
"""What tells of messages entry by entry, as `broker.walks` has it: it yields how many it has looked at."""


def told_at_once(telling: Told[R]) -> R:
    """What it returns, in one go."""
    while True:
        try:
            next(telling)
        except StopIteration as end:
            told: R = end.value
            return told


class Entry(NamedTuple):
    """A record of the history: where, when, and those of the same decision."""

    offset: int
    at_ns: int
    record: PartitionRecord
    batch: Sequence[PartitionRecord]


class Gap(NamedTuple):
    """A part of the history that a look-up could not read, in offsets of the state log."""

    first: int
    end: int
    reason: str


class HistoryStart(NamedTuple):
    """When the oldest record was written, and where the messages ended then: of those before, earlier ones may be gone.

    Times would not tell: a wall clock may be set back between a message and its records.
    """

    at_ns: int
    message_end: int


class History:
    """`note` is told of every batch of records; `about` finds them again."""

    def __init__(self, log: Log, form: RecordFormat[PartitionRecord]) -> None:
        self._log, self._form = log, form
        self._active: SegmentIndex | None = None
        # Records that are noted and in no block yet, and how many they are.
        self._pending: list[Sequence[PartitionRecord]] = []
        self._pending_count = 0
        self._sealed: OrderedDict[int, SegmentIndex] = OrderedDict()

    def begin(self) -> None:
        """Take up the saved index of the active segment, before anything else is appended to it."""
        if self._active is None:
            base = self._log.segments[-1].base_offset
            self._active = SegmentIndex(base)
            if self._log.disk.exists(segment_path(self._log.directory, base, JOURNEY_INDEX)):
                saved = self._saved(base, self._log.end_offset)
                if saved is None:
                    self._remove_saved(base)
                self._active = saved or self._active

    def replayed(self, offset: int, records: Sequence[PartitionRecord]) -> None:
        """Note records that a restart reads again; those of a sealed segment are in its own index."""
        if offset >= self._log.segments[-1].base_offset:
            self.note(offset, records)

    def note(self, offset: int, records: Sequence[PartitionRecord]) -> None:
        """Take note of records that the state log has from `offset` on."""
        active = self._active
        if active is None or active.base_offset != self._log.segments[-1].base_offset:
            active = self._next_segment()
        if offset != active.covered + self._pending_count:
            # Known already; or something before it is not, and a look-up will read it all.
            return
        self._pending.append(records)
        self._pending_count += len(records)
        if self._pending_count >= BLOCK_RECORDS:
            self._fold(active)

    def _next_segment(self) -> SegmentIndex:
        sealed, self._active = self._active, None
        if sealed is not None:
            self._fold(sealed)
            self._save(sealed)
        self.begin()
        assert self._active is not None
        return self._active

    def _fold(self, index: SegmentIndex) -> None:
        """Make a block of what is pending."""
        if not self._pending:
            return
        keys = BitMap64()
        for records in self._pending:
            for record in records:
                add_keys(record, keys)
        index.add(index.covered + self._pending_count, keys)
        self._pending, self._pending_count = [], 0

    def save(self) -> None:
        """Write the index of the active segment, so that a restart need not build it."""
        if self._active is None:
            return
        active = self._active
        if active.base_offset != self._log.segments[-1].base_offset:
            active = self._next_segment()
        self._fold(active)
        self._save(active)

    def _save(self, index: SegmentIndex) -> None:
        path = segment_path(self._log.directory, index.base_offset, JOURNEY_INDEX)
        # Without room, or with a link in its place, the next look-up after a restart builds it again.
        with suppress(NoSpace, Damaged, Refused), closing(self._log.disk.create(path)) as file:
            file.append(index.to_bytes(self._log.seed))

    def _remove_saved(self, base_offset: int) -> None:
        """Remove what is not to be believed, durably: it may speak of records that a crash took, and once the log is as
        long again it would be believed."""
        path = segment_path(self._log.directory, base_offset, JOURNEY_INDEX)
        with suppress(NoSpace, Damaged, Refused):
            if remove_if_there(self._log.disk, path):
                self._log.disk.sync_directory(self._log.directory)

    def _saved(self, base_offset: int, end: int) -> SegmentIndex | None:
        """The index in the file of a segment that ends there, if there is one to be believed.

        One that knows more than the log was made before a crash took the end of the log.
        """
        path = segment_path(self._log.directory, base_offset, JOURNEY_INDEX)
        try:
            content = read_file(self._log.disk, path)
        except (Damaged, Refused):
            return None
        saved = read_index(content, base_offset, seed=self._log.seed)
        return None if saved is None or saved.covered > end else saved

    def unusable(self, names: Collection[str]) -> list[str]:
        """Files of indexes that are damaged, stale, or missing beside a full segment; a look-up makes each again.

        The directory has these `names`.
        """
        found = []
        for number, segment in enumerate(self._log.segments):
            path = segment_path(self._log.directory, segment.base_offset, JOURNEY_INDEX)
            is_expected = number + 1 < len(self._log.segments) or _name_of(path) in names
            if is_expected and self._saved(segment.base_offset, self._log.end_of(number)) is None:
                found.append(path)
        return found

    def about(self, *keys: int) -> Iterator[Entry | Gap | None]:
        """The records that speak of one of these keys, in their order, and what could not be read in between; None for
        a batch of others that was read.

        Between any two of them the log may grow, and retention may remove what has not been read.
        """
        wanted = BitMap64(keys)
        builds, last = _BUILDS_A_LOOKUP, self._log.end_offset
        offset = self._log.segments[0].base_offset
        while offset < last:
            number = self._log.segment_number(offset)
            index, end = self._index_of(number), self._log.end_of(number)
            if index.covered < end and builds == 0:
                yield Gap(index.base_offset, end, "not indexed yet: ask again")
            else:
                builds -= index.covered < end
                # Once more, if another look-up has built less of it meanwhile.
                while index.covered < end:
                    yield from self._build(index, end)
                for number, block in enumerate([*index.blocks]):
                    if block.may_hold(wanted):
                        yield from self._read(block.first, block.end, wanted)
                    elif number % _BLOCKS_AN_ENTRY == 0:
                        yield None
            offset = max(end, self._log.segments[0].base_offset)

    def _index_of(self, number: int) -> SegmentIndex:
        self.begin()
        base = self._log.segments[number].base_offset
        if self._active is not None and base == self._active.base_offset:
            self._fold(self._active)
            return self._active
        if base in self._sealed:
            self._sealed.move_to_end(base)
            return self._sealed[base]
        index = self._saved(base, self._log.end_of(number)) or SegmentIndex(base)
        self._sealed[base] = index
        kept = sum(len(one.blocks) for one in self._sealed.values())
        while kept > _BLOCKS_KEPT and len(self._sealed) > 1:
            _, oldest = self._sealed.popitem(last=False)
            kept -= len(oldest.blocks)
        return index

    def _build(self, index: SegmentIndex, end: int) -> Iterator[None]:
        """Read the records of a segment that its index does not know; yields after each batch.

        Another look-up may do the same meanwhile: what the first has read counts.
        """
        known = index.covered
        blocks: list[tuple[int, BitMap64 | None]] = []
        keys, count, reached = BitMap64(), 0, known
        for batch in self.batches(known, end):
            if isinstance(batch, Gap):
                if count:
                    blocks.append((batch.first, keys))
                blocks.append((batch.end, None))
                keys, count, reached = BitMap64(), 0, batch.end
                continue
            head, records = batch
            for record in records:
                add_keys(record, keys)
            count, reached = count + len(records), head.next_offset
            if count >= BLOCK_RECORDS:
                blocks.append((reached, keys))
                keys, count = BitMap64(), 0
            yield None
        if count or reached < end:
            # Retention may have removed the rest.
            blocks.append((end, keys))
        if index.covered == known:
            for block_end, block_keys in blocks:
                index.add(block_end, block_keys)
            self._save(index)

    def _read(self, first: int, end: int, wanted: BitMap64) -> Iterator[Entry | Gap | None]:
        for batch in self.batches(first, end):
            if isinstance(batch, Gap):
                yield batch
                continue
            head, records = batch
            for number, record in enumerate(records):
                keys = BitMap64()
                add_keys(record, keys)
                if keys.intersect(wanted):
                    yield Entry(head.base_offset + number, head.append_time, record, records)
            yield None

    def batches(self, offset: int, end: int) -> Iterator[tuple[Head, list[PartitionRecord]] | Gap]:
        """Batches of records from `offset` up to `end`, and what lies between them and cannot be read.

        Between any two of them retention may remove some.
        """
        end = min(end, self._log.end_offset)
        while (offset := max(offset, self._log.start_offset)) < end:
            try:
                run = self._log.read(offset, bytes_max=_READ_BYTES)
            except (DamagedBatch, DamagedFile) as damage:
                after = damage.next_offset if isinstance(damage, DamagedBatch) else None
                after = min(after or end, end)
                yield Gap(offset, after, str(damage))
                offset = after
                continue
            position = 0
            for head in run.heads:
                batch = run.data[position : position + head.length]
                position += head.length
                if head.base_offset >= end:
                    return
                try:
                    yield head, [*self._form.from_batch(batch, head, self._log.directory)]
                except (DamagedFile, UnsupportedFormat) as error:
                    yield Gap(head.base_offset, head.next_offset, str(error))
            offset = run.next_offset

    @property
    def size(self) -> int:
        """Bytes of the state log, which is all of the history there is."""
        return self._log.size

    def start(self) -> HistoryStart:
        """Where the oldest record is that the log still has."""
        if self._log.start_offset == 0:
            return HistoryStart(0, 0)
        try:
            head = self._log.head_at(self._log.start_offset)
        except (DamagedBatch, DamagedFile):
            return HistoryStart(self._log.append_time, _NOWHERE)
        return HistoryStart(head.append_time, head.origin_sequence)


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


def add_keys(record: PartitionRecord, keys: BitMap64) -> None:
    """Add everything that a record speaks of. One that is not about single messages adds nothing."""
    add = _ADD.get(type(record))
    if add is not None:
        add(record, keys)


def _add_runs(record: Any, keys: BitMap64) -> None:
    runs: Runs = record.runs
    if isinstance(runs, bytes):
        keys |= BitMap64.deserialize(runs)
    elif runs:
        keys.add_range(runs[0], runs[0] + runs[1])


def _add_buried(record: Buried, keys: BitMap64) -> None:
    keys.add(record.offset)


def _add_finished_below(record: Committed | Overtaken, keys: BitMap64) -> None:
    keys.add_range(record.floor, record.offset)


def _add_rewound(record: Rewound, keys: BitMap64) -> None:
    start, end = min(record.offset, record.floor), max(record.offset, record.cursor)
    keys.add_range(start, min(end, ARRIVALS))


def _add_redriven(record: Redriven, keys: BitMap64) -> None:
    keys.add(record.letter.offset)
    keys.add(LETTERS + record.letter.sequence)


def _add_forwarded(record: Forwarded, keys: BitMap64) -> None:
    keys.add(LETTERS + record.sequence)
    if record.offset >= 0:
        keys.add(ARRIVALS + record.offset)


def _add_returned(record: Returned, keys: BitMap64) -> None:
    keys.add(LETTERS + record.sequence)


def _add_group(record: GroupOpened | GroupClosed, keys: BitMap64) -> None:
    keys.add(GROUPS + record.group)


def _add_delay(record: DelayCancelled | DelayMoved, keys: BitMap64) -> None:
    keys.add(DELAYS + record.id)


def _add_delays_lost(record: DelaysLost, keys: BitMap64) -> None:
    # All between the first and the last: a look-up reads a block too many, and nothing more.
    lost = offsets_of(record.runs)
    if lost:
        keys.add_range(DELAYS + lost.min(), DELAYS + lost.max() + 1)


def _add_stagings_ended(record: StagingsEnded | NamedStagingsEnded, keys: BitMap64) -> None:
    for first, count in record.runs:
        keys.add_range(first, first + count)


_ADD: dict[type, Callable[[Any, BitMap64], None]] = {
    **dict.fromkeys(
        (
            *(Leased, Acked, Retried, Released, Extended, Expired, Reopened, Absent, Moved),
            *(AckedLate, Claimed, ClaimsEnded),
        ),
        _add_runs,
    ),
    Buried: _add_buried,
    Committed: _add_finished_below,
    Overtaken: _add_finished_below,
    Rewound: _add_rewound,
    Redriven: _add_redriven,
    Forwarded: _add_forwarded,
    Returned: _add_returned,
    GroupOpened: _add_group,
    GroupClosed: _add_group,
    DelayCancelled: _add_delay,
    DelayMoved: _add_delay,
    DelaysLost: _add_delays_lost,
    StagingsEnded: _add_stagings_ended,
    NamedStagingsEnded: _add_stagings_ended,
}
