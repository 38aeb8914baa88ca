"""Opening a log: find out how far it reaches, cut what a crash tore, refuse what the disk damaged.

Only what follows the last checkpoint is read. The first batch there that does not verify is either torn, and then
nobody was promised it or anything behind it, or damaged, and then it must not go away silently. A later head decides:
if it was written when the broken batch was durable already, this is damage.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from ..codec import seed_of
from ..codec.head import UNSYNCED_MAX
from ..config import LogConfig
from ..errors import Damaged, DamagedBatch, DamagedFile, PenstockError, Refused
from ..model import Epoch, LogId, Offset
from ..ports import Disk
from .checkpoint import Checkpoint, EpochStart, read_checkpoint
from .cuts import CutNames, copy_out
from .identity import claim
from .layout import (
    CHECKPOINT,
    INDEX,
    TEMPORARY,
    base_offset_of,
    cut_path,
    indexed_offset_of,
    remove_segment,
    replace_file,
    segment_path,
)
from .log import Log
from .scan import Broken, Found, find_heads, walk_verified
from .segment import Segment

# How many bytes a step reads at the most before it lets the caller breathe.
_STEP_BYTES = 4 << 20


class CheckpointState(Enum):
    """What the checkpoint file was worth."""

    USED = "used"
    MISSING = "missing"
    DAMAGED = "damaged"


@dataclass(slots=True)
class Recovery:
    """What opening a log found and did."""

    checkpoint: CheckpointState = CheckpointState.USED
    was_closed: bool = False
    scanned_bytes: int = 0
    cut_bytes: int = 0
    cut_at: tuple[str, int] | None = None
    cut_reason: str = ""
    set_aside: list[str] = field(default_factory=list)
    # Nothing was there before.
    is_new: bool = False
    segments_damaged: list[DamagedBatch] = field(default_factory=list)
    indexes_rebuilt: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """The log was closed properly, and nothing had to be read or cut."""
        return self.was_closed and not self.scanned_bytes and not self.cut_at


class KnownEnd(NamedTuple):
    """How far a log is known to have been durable, from where on it was kept then, and where its last epoch began.

    With an `epoch_start` below zero what is in the log counts, whatever it is.
    """

    epoch: int
    offset: int
    start: int
    epoch_start: int = -1


@dataclass(frozen=True, slots=True)
class Examined:
    """A log that was read as far as needed and not changed yet; made by `examine`."""

    log: Log
    recovery: Recovery
    broken: "Place | None"

    def finish(self) -> tuple[Log, Recovery]:
        """Cut what a crash tore, remove what it left over, and make all that is durable."""
        try:
            _remove_leftovers(self.log)
            if self.broken is not None:
                _cut(self.log, *self.broken, self.recovery)
            _settle(self.log, self.recovery)
        except PenstockError:
            self.log.discard()
            raise
        for segment in self.log.segments[:-1]:
            segment.unload_index()
        return self.log, self.recovery


def open_log(
    disk: Disk,
    directory: str,
    *,
    log_id: LogId,
    config: LogConfig,
    may_create: bool = True,
    known: KnownEnd | None = None,
) -> tuple[Log, Recovery]:
    """Open a log, or create it in an empty directory if it `may_create` one. On return everything it holds is durable.

    Damaged, Refused: it cannot be opened, is of another version, or does not reach as far as `known`; nothing of it was
    changed.
    """
    return examine(
        disk, directory, log_id=log_id, config=config, may_create=may_create, known=known
    ).finish()


def examine(
    disk: Disk,
    directory: str,
    *,
    log_id: LogId,
    config: LogConfig,
    may_create: bool = True,
    known: KnownEnd | None = None,
) -> Examined:
    """The first half of `open_log`: everything that may refuse, and no change to a log that is there."""
    steps = _examining(
        disk, directory, log_id=log_id, config=config, may_create=may_create, known=known
    )
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            examined: Examined = finished.value
            return examined


def opening(
    disk: Disk, directory: str, *, log_id: LogId, config: LogConfig
) -> Generator[int, None, tuple[Log, Recovery]]:
    """`open_log` in steps; each yields how many bytes it has read."""
    examined = yield from _examining(disk, directory, log_id=log_id, config=config, may_create=True)
    return examined.finish()


def _examining(
    disk: Disk,
    directory: str,
    *,
    log_id: LogId,
    config: LogConfig,
    may_create: bool,
    known: KnownEnd | None = None,
) -> Generator[int, None, Examined]:
    claim(disk, directory, log_id, may_create=may_create)
    recovery = Recovery()
    found = (base_offset_of(name) for name in disk.list(directory))
    bases = sorted(base for base in found if base is not None)
    if not bases and not may_create:
        raise DamagedFile(directory, "the segments are missing, and there were some before")
    recovery.is_new = not bases
    checkpoint = _start_from(disk, directory, seed_of(log_id), bases, recovery)
    log = Log(disk, directory, log_id, config, checkpoint)
    try:
        _add_segments(log, checkpoint, [one for one in bases if one >= checkpoint.start_offset])
        broken = yield from _scan(log, checkpoint, recovery)
        if broken is not None:
            _refuse_damage(log, *broken)
        if known is not None:
            _require_known(log, recovery, known)
        _check_sealed(log, checkpoint, recovery)
    except PenstockError:
        log.discard()
        raise
    return Examined(log, recovery, broken)


def _require_known(log: Log, recovery: Recovery, known: KnownEnd) -> None:
    """Refuse a log that has lost what was durable. One that a repair made shorter is in a later epoch."""
    if log.epoch <= known.epoch and log.end_offset < known.offset:
        reason = f"it ends at offset {log.end_offset}, and was durable to {known.offset}"
        raise DamagedFile(log.segments[-1].path, reason)
    # The start may have moved since, but only a checkpoint could say so.
    if recovery.checkpoint is not CheckpointState.USED and log.start_offset > known.start:
        reason = f"the segments from offset {known.start} to {log.start_offset - 1} are missing"
        raise DamagedFile(segment_path(log.directory, known.start), reason)
    if known.epoch > log.epoch:
        is_other = known.epoch_start < known.offset or log.end_offset > known.offset
        if known.epoch_start >= 0 and is_other:
            # Offsets that a crash took may have been given again since, to other messages.
            reason = (
                f"it is in epoch {log.epoch} at offset {log.end_offset}, and was durable to {known.offset} in epoch "
                f"{known.epoch}: it is an older copy"
            )
            raise DamagedFile(log.segments[-1].path, reason)
        # Nothing was written in it, and the checkpoint that knew of it is lost.
        log.begin_epoch(Epoch(known.epoch))


def _check_sealed(log: Log, checkpoint: Checkpoint, recovery: Recovery) -> None:
    """Find sealed segments, of those that are not read now, that do not reach to where the next one begins."""
    for segment, following in pairwise(log.segments):
        if segment.base_offset >= checkpoint.segment:
            return
        if segment.is_index_whole(following.base_offset):
            continue
        try:
            index = segment.index()
        except (Damaged, Refused) as error:
            damage = DamagedBatch(segment.path, 0, str(error), next_offset=following.base_offset)
            recovery.segments_damaged.append(damage)
            continue
        if not segment.is_index_saved:
            recovery.indexes_rebuilt.append(segment.path_of(INDEX))
        end = max(index.next_offset, segment.base_offset)
        if end != following.base_offset:
            reason = (
                f"it ends at offset {end}, and the next one there is begins at "
                f"{following.base_offset}"
            )
            damage = DamagedBatch(
                segment.path, index.size, reason, next_offset=following.base_offset
            )
            recovery.segments_damaged.append(damage)


def _remove_leftovers(log: Log) -> None:
    """What an interrupted change left goes: temporary files, indexes without a segment, segments before the start."""
    names = log.disk.list(log.directory)
    bases = [base for name in names if (base := base_offset_of(name)) is not None]
    for name in names:
        if name.endswith(TEMPORARY) or indexed_offset_of(name) not in {None, *bases}:
            log.disk.remove(f"{log.directory}/{name}")
    for base in bases:
        if base < log.start_offset:
            remove_segment(log.disk, log.directory, base)


def _start_from(
    disk: Disk, directory: str, seed: int, bases: list[Offset], recovery: Recovery
) -> Checkpoint:
    """The checkpoint, or one that makes the scan start at the first byte."""
    found = None
    try:
        found = read_checkpoint(disk, directory, seed)
        recovery.checkpoint = CheckpointState.USED if found else CheckpointState.MISSING
    except DamagedFile:
        if not bases:
            raise  # There was a log, and nothing is left that says how far it reached.
        recovery.checkpoint = CheckpointState.DAMAGED
    if found is not None:
        recovery.was_closed = found.is_closed
        return found
    first = bases[0] if bases else Offset(0)
    fresh = Checkpoint(first, first, 0, first, 0, first, (EpochStart(Epoch(0), first),))
    if not bases:
        replace_file(disk, directory, CHECKPOINT, fresh.to_bytes(seed))
    return fresh


def _add_segments(log: Log, checkpoint: Checkpoint, bases: list[Offset]) -> None:
    """Segments as the files say. What the checkpoint vouches for has to be there."""
    for base in bases:
        segment = log.new_segment(base)
        segment.size = log.disk.size(segment.path)
        segment.synced_size = segment.size if base < checkpoint.segment else 0
        log.segments.append(segment)
    durable = {checkpoint.start_offset: 0, checkpoint.segment: checkpoint.position}
    for base, position in durable.items():
        path = segment_path(log.directory, base)
        if base not in bases:
            # A fresh log, or one just rolled: its file may not have reached the disk, and holds nothing.
            if base == checkpoint.segment == checkpoint.offset and position == 0 and not bases:
                continue
            raise DamagedFile(path, "the segment is missing")
        size = log.disk.size(path)
        if size < position:
            raise DamagedFile(path, f"{position - size} of {position} durable bytes are missing")


Place = tuple[int, Broken]
"""Number of a segment in the log's list, and what is broken there."""


def _scan(
    log: Log, checkpoint: Checkpoint, recovery: Recovery
) -> Generator[int, None, Place | None]:
    """Take over every whole batch behind the checkpoint; stop at the first that is not."""
    for number, segment in enumerate(log.segments):
        if segment.base_offset < checkpoint.segment:
            continue
        start = checkpoint.position if segment.base_offset == checkpoint.segment else 0
        try:
            if start == 0 and segment.base_offset != log.end_offset:
                raise Broken(0, f"it should start at offset {log.end_offset}")
            step_end = start + _STEP_BYTES
            for found in walk_verified(segment.file, start, segment.size, seed=log.seed):
                _take_over(log, found)
                recovery.scanned_bytes += found.head.length
                if found.position >= step_end:
                    yield recovery.scanned_bytes
                    step_end = found.position + _STEP_BYTES
        except Broken as broken:
            return number, broken
    return None


def _take_over(log: Log, found: Found) -> None:
    head = found.head
    if head.base_offset != log.end_offset:
        raise Broken(found.position, f"offset {head.base_offset} instead of {log.end_offset}")
    if head.epoch < log.epoch or head.append_time < log.append_time:
        raise Broken(found.position, "it is older than the batch before it")
    if head.epoch > log.epoch:
        log.begin_epoch(Epoch(head.epoch))
    log.end_offset, log.append_time = Offset(head.next_offset), head.append_time


def _refuse_damage(log: Log, number: int, broken: Broken) -> None:
    """Raise if a later head proves that what is broken here was durable once."""
    if broken.is_unknown:
        # Whole, and not for us: cutting it off would take away what a later version promised.
        path = log.segments[number].path
        raise DamagedBatch(path, broken.position, broken.reason, next_offset=None)
    for later, segment in enumerate(log.segments[number:], number):
        # What is broken may be that offsets are missing; then the batch in their place bears witness itself.
        start = broken.position if later == number else 0
        for found in find_heads(segment.file, start, segment.size, seed=log.seed):
            head = found.head
            # A count that was too large for its field says nothing.
            is_known = head.unsynced < UNSYNCED_MAX
            if is_known and head.epoch >= log.epoch and head.durable_end > log.end_offset:
                raise DamagedBatch(
                    log.segments[number].path,
                    broken.position,
                    broken.reason,
                    next_offset=head.base_offset,
                )


def _cut(log: Log, number: int, broken: Broken, recovery: Recovery) -> None:
    """End the log before the broken batch. What is cut is kept in a file beside it."""
    segment = log.segments[number]
    recovery.cut_at, recovery.cut_reason = (segment.path, broken.position), broken.reason
    while len(log.segments) > number + 1:
        _put_away(log, log.segments.pop(), recovery)
    if broken.position == 0 and segment.base_offset != log.end_offset:
        _put_away(log, log.segments.pop(), recovery)
        return
    recovery.cut_bytes += segment.size - broken.position
    if (kept := set_aside(log.disk, segment, broken.position)) is not None:
        recovery.set_aside.append(kept)
    segment.file.truncate(broken.position)
    segment.file.sync()
    segment.size = broken.position
    log.disk.sync_directory(log.directory)


def _put_away(log: Log, segment: Segment, recovery: Recovery) -> None:
    """Take a whole segment out of the log."""
    wanted = cut_path(log.directory, segment.base_offset, 0)
    kept = CutNames(log.disk).name_for(wanted, segment.file, 0, segment.size)
    segment.close()
    recovery.cut_bytes += segment.size
    if kept:
        log.disk.rename(segment.path, kept)
        recovery.set_aside.append(kept)
    remove_segment(log.disk, log.directory, segment.base_offset)
    log.disk.sync_directory(log.directory)


def set_aside(disk: Disk, segment: Segment, position: int) -> str | None:
    """Copy the bytes from `position` on into a file of their own, unless there is nothing in them."""
    wanted = cut_path(segment.directory, segment.base_offset, position)
    path = CutNames(disk).name_for(wanted, segment.file, position, segment.size)
    if not path:
        return None
    copy_out(disk, segment.file, position, segment.size, path=path)
    disk.sync_directory(segment.directory)
    return path


def _settle(log: Log, recovery: Recovery) -> None:
    """Make what was found durable before anybody is told about it, and open a new epoch if in doubt."""
    if recovery.is_clean and log.segments:
        log.durable_end = log.end_offset
        for segment in log.segments:
            segment.synced_size = segment.size
        # The next sync also takes back that the log is closed.
        log.changed_checkpoint()
        return
    if not log.segments:
        log.add_segment(log.end_offset)
    log.begin_epoch(Epoch(log.epoch + 1))
    log.changed_directory()
    log.sync(with_checkpoint=True)
