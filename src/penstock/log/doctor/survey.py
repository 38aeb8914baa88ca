"""Walking a whole log, damaged or not: which batches make up its chain of offsets, where the chain breaks, and what a
break means.

What a break means is settled as in `opening`: below the checkpoint everything was durable; behind it a later head
decides, if it was written when the missing offsets were durable already. Without one, the rest was torn by a crash and
was promised to nobody.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...codec import HEAD_BYTES, Head, read_head
from ...codec.head import UNSYNCED_MAX
from ...errors import Damaged, FileMissing, MalformedBatch, Refused
from ...model import Epoch, Offset
from ...ports import Disk, File
from ..checkpoint import Checkpoint, EpochStart
from ..layout import PARKED, base_offset_of
from ..scan import find_heads
from .pieces import Kind, Piece, is_foreign, pieces_in

_HEADS_TRIED = 8


@dataclass(slots=True, eq=False)
class LogFile:
    """A file that holds batches, or should.

    `first_offset` is where the batches in it begin, as far as they can be read; None if none can.
    """

    path: str
    base_offset: Offset
    size: int
    first_offset: int | None
    is_readable: bool = True

    @property
    def rank(self) -> tuple[int, bool, str]:
        """Order in the log: by content, because a name is easily changed; right names before wrong ones."""
        first = self.base_offset if self.first_offset is None else self.first_offset
        return first, first != self.base_offset, self.path


class Fault(NamedTuple):
    """Bytes that are not part of the chain."""

    file: LogFile
    position: int
    end: int
    kind: Kind
    reason: str


class Kept(NamedTuple):
    """A batch that is part of the chain."""

    file: LogFile
    position: int
    head: Head


class FileEnd(NamedTuple):
    """All of a file was seen."""

    file: LogFile
    is_whole: bool


@dataclass(slots=True, eq=False)
class Break:
    """A place where the chain stops at `end_offset`, and goes on at `next_offset` if anywhere.

    Without faults there is nothing wrong with any byte: offsets are missing. They are equal if nothing is missing and
    there is only something that does not belong in between.
    """

    end_offset: int
    epoch: int
    append_time: int
    vouched_to: int
    faults: list[Fault] = field(default_factory=list)
    goes_on_at: Kept | None = None
    next_offset: int | None = None

    @property
    def is_damage(self) -> bool:
        """What is missing was durable once; or nothing is, and a crash does not write past what it tore."""
        return self.vouched_to > self.end_offset or self.next_offset == self.end_offset

    @property
    def start(self) -> tuple[LogFile, int] | None:
        """The first place that is not part of the chain any more; None if all files ended well."""
        if self.faults:
            return self.faults[0].file, self.faults[0].position
        return None if self.goes_on_at is None else self.goes_on_at[:2]


Event = Kept | Break | FileEnd


def find_files(disk: Disk, directory: str, seed: int) -> list[LogFile]:
    """The files of a log in the order of their contents."""
    found = []
    for name in disk.list(directory):
        base = base_offset_of(name.removesuffix(PARKED))
        if base is not None:
            with suppress(FileMissing):  # Retention, in a log that somebody has open.
                found.append(_look_at(disk, f"{directory}/{name}", base, seed))
    return sorted(found, key=lambda file: file.rank)


def _look_at(disk: Disk, path: str, base: Offset, seed: int) -> LogFile:
    try:
        handle = disk.open(path)
    except FileMissing:
        raise
    except (Damaged, Refused):  # A link, a directory, or not ours to read.
        return LogFile(path, base, 0, None, is_readable=False)
    with closing(handle) as file:
        size = file.size()
        return LogFile(path, base, size, _first_offset(file, size, seed))


def _first_offset(file: File, size: int, seed: int) -> int | None:
    """Where the content of a file starts: at the first head that the next one follows, for a single one may be a
    stray that the disk wrote to the wrong place."""
    try:
        first = read_head(file.read(0, HEAD_BYTES), seed=seed)
        if (
            read_head(file.read(first.length, HEAD_BYTES), seed=seed).base_offset
            == first.next_offset
        ):
            return first.base_offset
    except MalformedBatch:
        pass
    heads = [found.head for found in islice(find_heads(file, 0, size, seed=seed), _HEADS_TRIED)]
    pairs = pairwise(heads)
    followed = (one.base_offset for one, other in pairs if other.base_offset == one.next_offset)
    return next(followed, heads[0].base_offset if heads else None)


class Survey:
    """One walk. `run` yields what it meets; breaks come when it is clear what they mean, the others at once.

    Afterwards `torn` is the break from which on the log was torn, if it was.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        seed: int,
        checkpoint: Checkpoint | None,
        parse_bytes_max: int,
    ) -> None:
        self.disk, self.directory, self.seed = disk, directory, seed
        self.checkpoint, self.parse_bytes_max = checkpoint, parse_bytes_max
        self.files = find_files(disk, directory, seed)
        self.start_offset = self._start()
        self.leftovers = [file for file in self.files if self._is_leftover(file)]
        self.files = [file for file in self.files if file not in self.leftovers]
        self.end_offset: int = self.start_offset
        self.epoch: int = 0
        self.epoch_max: int = 0
        self.append_time = 0
        self.torn: Break | None = None
        self._broken: Break | None = None
        self._doubts: list[Break] = []
        self._faulty: set[LogFile] = set()

    @property
    def durable_end(self) -> int:
        """Up to here the checkpoint says that everything was durable."""
        return self.start_offset if self.checkpoint is None else self.checkpoint.offset

    def _start(self) -> Offset:
        if self.checkpoint is not None:
            return self.checkpoint.start_offset
        if not self.files:
            return Offset(0)
        first, _, _ = self.files[0].rank
        return Offset(min(first, self.files[0].base_offset))

    def _is_leftover(self, file: LogFile) -> bool:
        """Retention was done with it and did not come to remove it."""
        return max(file.base_offset, file.rank[0]) < self.start_offset and file.is_readable

    def run(self) -> Iterator[Event]:
        for number, file in enumerate(self.files):
            following = (later.first_offset for later in self.files[number + 1 :])
            limit = next((first for first in following if first is not None), None)
            yield from self._walk(file, limit)
            yield FileEnd(file, file not in self._faulty)
        yield from self._finish()

    def _walk(self, file: LogFile, limit: int | None) -> Iterator[Event]:
        """The pieces of one file. `limit` is where the next one starts: no batch in here reaches that far."""
        try:
            handle = self.disk.open(file.path)
        except (Damaged, Refused) as error:
            self._add_fault(Fault(file, 0, 0, Kind.FILE, str(error)))
            return
        with closing(handle):
            if (fault := self._fault_of(file, handle)) is not None:
                self._add_fault(fault)
                return
            later = _LaterOffsets(handle, file.size, self.seed, limit)
            for piece in pieces_in(
                handle, file.size, seed=self.seed, parse_bytes_max=self.parse_bytes_max
            ):
                yield from self._take(file, piece, later)

    def _fault_of(self, file: LogFile, handle: File) -> Fault | None:
        """What is wrong with a file as a whole."""
        if file.size == 0 and file.base_offset != self.end_offset:
            reason = f"an empty segment where offset {self.end_offset} is due"
            return Fault(file, 0, 0, Kind.ORDER, reason)
        if file.first_offset is None and is_foreign(handle):
            reason = "its batches were written by another log"
            return Fault(file, 0, file.size, Kind.FOREIGN, reason)
        return None

    def _take(self, file: LogFile, piece: Piece, later: "_LaterOffsets") -> Iterator[Event]:
        head, kind, reason = piece.head, piece.kind, piece.reason
        if head is not None:
            self.epoch_max = max(self.epoch_max, head.epoch)
        if head is not None and kind is None and (reason := self._misplaced(piece, head, later)):
            kind = Kind.ORDER
            if piece.position == 0 and head.base_offset != file.base_offset:
                # Not torn, whatever else: somebody copied or renamed a segment.
                kind, reason = Kind.NAME, f"it starts at offset {head.base_offset}"
        if kind is not None:
            self._add_fault(Fault(file, piece.position, piece.end, kind, reason))
            if head is not None:
                yield from self._vouch(head)
            return
        assert head is not None
        yield from self._keep(Kept(file, piece.position, head))

    def _keep(self, kept: Kept) -> Iterator[Event]:
        head = kept.head
        if self._broken is None and head.base_offset > self.end_offset:
            self._begin_break()
        if self._broken is not None:
            self._broken.goes_on_at, self._broken.next_offset = kept, head.base_offset
            self._broken = None
        self.end_offset, self.epoch = head.next_offset, head.epoch
        self.append_time = head.append_time
        yield from self._vouch(head)
        yield kept

    def _misplaced(self, piece: Piece, head: Head, later: "_LaterOffsets") -> str:
        """Why a whole batch is not the next one of the chain; empty if it is."""
        due = self.end_offset
        epoch, append_time = self._floor()
        if head.epoch < epoch or head.append_time < append_time:
            return "it is older than the batch before it"
        is_early = head.base_offset > due and later.has_any(
            due, head.base_offset, behind=piece.position
        )
        if head.base_offset < due or is_early:
            return f"offset {head.base_offset} where {due} is due"
        return ""

    def _floor(self) -> tuple[int, int]:
        """Epoch and append time that the next batch has at the least."""
        checkpoint = self.checkpoint
        if checkpoint is None or self.end_offset < checkpoint.offset:
            return self.epoch, self.append_time
        return (
            max(self.epoch, checkpoint.epochs[-1].epoch),
            max(self.append_time, checkpoint.append_time),
        )

    def _add_fault(self, fault: Fault) -> None:
        if self._broken is None:
            self._begin_break()
        assert self._broken is not None
        self._broken.faults.append(fault)
        self._faulty.add(fault.file)

    def _begin_break(self) -> None:
        epoch, append_time = self._floor()
        self._broken = Break(self.end_offset, epoch, append_time, self.durable_end)
        self._doubts.append(self._broken)

    def _vouch(self, head: Head) -> Iterator[Break]:
        # A count that was too large for its field says nothing.
        is_known = head.unsynced < UNSYNCED_MAX
        for doubt in self._doubts:
            if is_known and head.epoch >= doubt.epoch:
                doubt.vouched_to = max(doubt.vouched_to, head.durable_end)
        yield from self._settled()

    def _settled(self) -> Iterator[Break]:
        """Breaks that are known to be damage and to have an end, oldest first."""
        while self._doubts and self._doubts[0].is_damage and self._doubts[0] is not self._broken:
            yield self._doubts.pop(0)

    def _finish(self) -> Iterator[Event]:
        if self._broken is None and self.end_offset < self.durable_end:
            self._begin_break()
        if self._broken is not None and self._broken.is_damage:
            # Nothing follows. What is known to have been durable must not be written again.
            self.end_offset = self._broken.next_offset = self._broken.vouched_to
            self._broken = None
        yield from self._settled()
        if self._doubts:
            self.torn = self._doubts[0]


class _LaterOffsets:
    """Which offsets start a batch further on in a file.

    A batch that skips some is a stray if they come after all: now and then a disk writes to the wrong place.
    """

    def __init__(self, file: File, size: int, seed: int, limit: int | None) -> None:
        self._file, self._size, self._seed = file, size, seed
        self._limit = limit
        self._positions: npt.NDArray[np.int64] | None = None
        self._offsets: npt.NDArray[np.int64] | None = None

    def has_any(self, first: int, end: int, *, behind: int) -> bool:
        """Is one from `first` up to `end` further on than at `behind`, or in a later file?"""
        if self._limit is not None and first <= self._limit < end:
            return True
        if self._positions is None or self._offsets is None:
            heads = find_heads(self._file, behind, self._size, seed=self._seed)
            pairs = np.array([(at, head.base_offset) for at, head in heads], np.int64)
            self._positions, self._offsets = pairs.reshape(-1, 2).T
        offsets = self._offsets[np.searchsorted(self._positions, behind, side="right") :]
        return bool(((offsets >= first) & (offsets < end)).any())


def note_epoch(epochs: list[EpochStart], head: Head) -> None:
    """Add the epoch of the next batch to a list of where epochs begin."""
    if not epochs or head.epoch > epochs[-1].epoch:
        epochs.append(EpochStart(Epoch(head.epoch), Offset(head.base_offset)))
