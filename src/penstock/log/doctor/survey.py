"""Walks a whole log, damaged or not: which batches make up its chain of offsets, where the chain breaks, and what a
break means.

What a break means is settled as in `opening`: below the checkpoint everything was durable; behind it a later head
decides, if it was written when the missing offsets were durable already. Without one, a crash tore the rest, and no
client was told that it is durable.
"""

import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...codec import HEAD_BYTES, Head, read_head, verify
from ...codec.checksum import checksum
from ...codec.decode import open_body
from ...codec.head import ALIGNMENT, MAGIC, UNSYNCED_MAX
from ...errors import (
    Damaged,
    FileMissing,
    MalformedBatch,
    Refused,
    TooLarge,
    UnsupportedFormat,
)
from ...model import Epoch, Offset
from ...ports import Disk, File
from ..checkpoint import Checkpoint, EpochStart
from ..layout import PARKED, base_offset_of
from ..scan import Window, find_heads

_HEADS_TRIED = 8
_READ_BYTES = 1 << 20
_START = struct.Struct("<II")
_CHECKSUM = struct.Struct("<I")


class ProblemKind(Enum):
    """The kinds of problems in a log or a data directory."""

    BATCH = "batch"  # Bytes that are no whole batch of this log.
    BODY = "body"  # The checksums are right, and the content makes no sense.
    FORMAT = (
        "format"  # Written by a version that we do not know. Not damage, and not ours to touch.
    )
    ORDER = "order"  # A whole batch that does not belong here.
    GAP = "gap"  # Offsets that are in no file.
    NAME = "name"  # A segment under another name than that of its first offset.
    FOREIGN = "foreign"  # A segment of another log.
    FILE = "file"  # One that is left over, strange, or cannot be read.
    CUT = "cut"  # What a recovery or a repair took out.
    IDENTITY = "identity"
    CHECKPOINT = "checkpoint"
    INDEX = "index"
    SNAPSHOT = "snapshot"
    META = "meta"  # Which topics there are cannot be read.
    PARTITION = "partition"  # One that meta knows is missing, or a part of it.
    UNKNOWN = "unknown"  # A directory that meta does not know.
    SET_ASIDE = "set_aside"  # What a start did not know, and kept.


class Piece(NamedTuple):
    """Bytes from `position` to `end`: a whole batch, or something else if it has a `kind`.

    A head that verifies is there also when its body does not.
    """

    position: int
    end: int
    head: Head | None
    kind: ProblemKind | None = None
    reason: str = ""


def pieces_in(file: File, size: int, *, seed: int, parse_bytes_max: int = 0) -> Iterator[Piece]:
    """All bytes of a file, in order. Batches are checked by both checksums.

    The columns are looked at too in bodies that unpack to `parse_bytes_max` at the most.
    """
    window = Window(file, size, _READ_BYTES)
    position = 0
    while position < size:
        piece = _piece_at(window, position, seed)
        if piece.kind is None:
            piece = _parsed(window, piece, parse_bytes_max)
        yield piece
        position = piece.end


def _piece_at(window: Window, position: int, seed: int) -> Piece:
    try:
        head = read_head(window.at(position, HEAD_BYTES), seed=seed)
    except UnsupportedFormat as error:
        return Piece(
            position, _next_head(window, position, seed), None, ProblemKind.FORMAT, error.reason
        )
    except MalformedBatch as error:
        return Piece(
            position, _next_head(window, position, seed), None, ProblemKind.BATCH, error.reason
        )
    end = position + head.length
    try:
        verify(window.at(position, head.length), seed=seed)
    except MalformedBatch as error:
        # The head is right, so its length is; unless the body was written over, and another batch starts in there.
        end = min(end, _next_head(window, position, seed, end + HEAD_BYTES))
        return Piece(position, end, head, ProblemKind.BATCH, error.reason)
    return Piece(position, end, head)


def _parsed(window: Window, piece: Piece, bytes_max: int) -> Piece:
    head = piece.head
    assert head is not None
    if head.body_size > bytes_max:
        return piece
    try:
        open_body(window.at(piece.position, head.length), head, size_max=bytes_max)
    except UnsupportedFormat as error:
        return piece._replace(kind=ProblemKind.FORMAT, reason=error.reason)
    except (MalformedBatch, TooLarge) as error:
        return piece._replace(kind=ProblemKind.BODY, reason=str(error))
    return piece


def _next_head(window: Window, position: int, seed: int, limit: int | None = None) -> int:
    """Returns the position of the next head of this log behind `position`, or the end of the file."""
    start = (position // ALIGNMENT + 1) * ALIGNMENT
    end = window.end if limit is None else min(limit, window.end)
    following = next(find_heads(window.file, start, end, seed=seed), None)
    return window.end if following is None else following.position


def is_foreign(file: File) -> bool:
    """Do the first two heads of a file, which are none of this log, belong to one and the same other log?

    A seed adds to a CRC something that depends on nothing but the length of the data, so two heads give it away.
    """
    first = file.read(0, HEAD_BYTES)
    if len(first) < HEAD_BYTES:
        return False
    magic, length = _START.unpack_from(first)
    second = file.read(length, HEAD_BYTES)
    if magic != MAGIC or length < HEAD_BYTES or len(second) < HEAD_BYTES:
        return False
    return _START.unpack_from(second)[0] == MAGIC and _trace(first) == _trace(second)


def _trace(head: bytes) -> int:
    """Returns what the seed has added to the checksum of a head."""
    fields = len(head) - _CHECKSUM.size
    found: int = _CHECKSUM.unpack_from(head, fields)[0]
    return found ^ checksum(head[:fields])


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
    kind: ProblemKind
    reason: str


class ChainedBatch(NamedTuple):
    """A batch that is part of the chain."""

    file: LogFile
    position: int
    head: Head


class FileEnd(NamedTuple):
    """The end of a file."""

    file: LogFile
    is_whole: bool


@dataclass(slots=True, eq=False)
class ChainBreak:
    """A place where the chain stops at `end_offset`, and goes on at `next_offset` if anywhere.

    Without faults there is nothing wrong with any byte: offsets are missing. They are equal if nothing is missing and
    there is only something that does not belong in between.
    """

    end_offset: int
    epoch: int
    append_time: int
    vouched_to: int
    faults: list[Fault] = field(default_factory=list)
    goes_on_at: ChainedBatch | None = None
    next_offset: int | None = None

    @property
    def is_damage(self) -> bool:
        """Whether the missing offsets were durable once; or none is missing, and then it was not a crash either."""
        return self.vouched_to > self.end_offset or self.next_offset == self.end_offset

    @property
    def start(self) -> tuple[LogFile, int] | None:
        """The first position that is not part of the chain, or None if all files end well."""
        if self.faults:
            return self.faults[0].file, self.faults[0].position
        return None if self.goes_on_at is None else self.goes_on_at[:2]


Event = ChainedBatch | ChainBreak | FileEnd


def find_files(disk: Disk, directory: str, seed: int) -> list[LogFile]:
    """Returns the files of a log in the order of their contents."""
    found = []
    for name in disk.list(directory):
        base = base_offset_of(name.removesuffix(PARKED))
        if base is not None:
            with suppress(FileMissing):  # Retention of a broker that has the log open removed it.
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
    """Returns the first offset in a file, from the first head that the next one follows. A single one may be a stray
    that the disk wrote to the wrong place."""
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
        self.torn: ChainBreak | None = None
        self._broken: ChainBreak | None = None
        self._doubts: list[ChainBreak] = []
        self._faulty: set[LogFile] = set()

    @property
    def durable_end(self) -> int:
        """The end up to which everything was durable, by the checkpoint."""
        return self.start_offset if self.checkpoint is None else self.checkpoint.offset

    def _start(self) -> Offset:
        if self.checkpoint is not None:
            return self.checkpoint.start_offset
        if not self.files:
            return Offset(0)
        first, _, _ = self.files[0].rank
        return Offset(min(first, self.files[0].base_offset))

    def _is_leftover(self, file: LogFile) -> bool:
        """Whether retention has let go of a file and not removed it."""
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
            self._add_fault(Fault(file, 0, 0, ProblemKind.FILE, str(error)))
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
        """Returns what is wrong with a file as a whole, or None."""
        if file.size == 0 and file.base_offset != self.end_offset:
            reason = f"an empty segment where offset {self.end_offset} is due"
            return Fault(file, 0, 0, ProblemKind.ORDER, reason)
        if file.first_offset is None and is_foreign(handle):
            reason = "its batches were written by another log"
            return Fault(file, 0, file.size, ProblemKind.FOREIGN, reason)
        return None

    def _take(self, file: LogFile, piece: Piece, later: "_LaterOffsets") -> Iterator[Event]:
        head, kind, reason = piece.head, piece.kind, piece.reason
        if head is not None:
            self.epoch_max = max(self.epoch_max, head.epoch)
        if head is not None and kind is None and (reason := self._misplaced(piece, head, later)):
            kind = ProblemKind.ORDER
            if piece.position == 0 and head.base_offset != file.base_offset:
                # Not torn: a segment was copied or renamed.
                kind, reason = ProblemKind.NAME, f"it starts at offset {head.base_offset}"
        if kind is not None:
            self._add_fault(Fault(file, piece.position, piece.end, kind, reason))
            if head is not None:
                yield from self._vouch(head)
            return
        assert head is not None
        yield from self._keep(ChainedBatch(file, piece.position, head))

    def _keep(self, kept: ChainedBatch) -> Iterator[Event]:
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
        """Returns why a whole batch is not the next one of the chain, or an empty text if it is."""
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
        """The least epoch and append time of the next batch."""
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
        self._broken = ChainBreak(self.end_offset, epoch, append_time, self.durable_end)
        self._doubts.append(self._broken)

    def _vouch(self, head: Head) -> Iterator[ChainBreak]:
        # A count that was too large for its field says nothing.
        is_known = head.unsynced < UNSYNCED_MAX
        for doubt in self._doubts:
            if is_known and head.epoch >= doubt.epoch:
                doubt.vouched_to = max(doubt.vouched_to, head.durable_end)
        yield from self._settled()

    def _settled(self) -> Iterator[ChainBreak]:
        """Yields breaks that are known to be damage and to have an end, oldest first."""
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
    """The offsets at which batches start further on in a file.

    A batch that skips some is a stray if they come after all: now and then a disk writes to the wrong place.
    """

    def __init__(self, file: File, size: int, seed: int, limit: int | None) -> None:
        self._file, self._size, self._seed = file, size, seed
        self._limit = limit
        self._positions: npt.NDArray[np.int64] | None = None
        self._offsets: npt.NDArray[np.int64] | None = None

    def has_any(self, first: int, end: int, *, behind: int) -> bool:
        """Whether an offset from `first` to `end` starts a batch behind position `behind`, or in a later file."""
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
