"""Opening a log: find out how far it reaches, cut what a crash tore, refuse what the disk damaged.

Only what follows the last checkpoint is read. The first batch there that does not verify is either torn, and then no
client was told that it or anything behind it is durable; or it is damaged, and then it must not be cut silently. A
later head decides: if it was written when the broken batch was durable already, this is damage. A log of messages can
do without one batch: it is opened around it, and only reading that batch is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from ..codec import Head, seed_of
from ..codec.head import UNSYNCED_MAX
from ..config import LogConfig
from ..errors import Damaged, DamagedBatch, DamagedFile, PenstockError, Refused
from ..model import Epoch, LogId, Offset
from ..ports import Disk
from .checkpoint import Checkpoint, EpochStart, read_checkpoint
from .closed import ClosedLog
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
from .reign import ALONE, Reign, go_on
from .scan import BrokenBatch, StoredBatch, find_heads, next_head, walk_batches
from .segment import Segment


class CheckpointState(Enum):
    """The state of the checkpoint file."""

    USED = "used"
    MISSING = "missing"
    DAMAGED = "damaged"


@dataclass(slots=True)
class Recovery:
    """The result of opening a log."""

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
    # The log was opened around them.
    batches_damaged: list[DamagedBatch] = field(default_factory=list)
    indexes_rebuilt: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """The log was closed properly, and nothing had to be read or cut."""
        return self.was_closed and not self.scanned_bytes and not self.cut_at


class KnownEnd(NamedTuple):
    """The end up to which a log was durable as meta knows it, its start then, and where its last epoch began.

    With an `epoch_start` below zero the log itself decides.
    """

    epoch: int
    offset: int
    start: int
    epoch_start: int = -1


@dataclass(frozen=True, slots=True)
class Examination:
    """A log that was read as far as needed and not changed yet; made by `examine`."""

    log: Log
    recovery: Recovery
    broken: "Place | None"
    # What the directory held, and the segments among it.
    names: list[str]
    bases: list[Offset]

    def finish(self) -> tuple[Log, Recovery]:
        """Cut what a crash tore, remove leftovers, and sync. Returns the log and what was done."""
        try:
            _remove_leftovers(self.log, self.names, self.bases)
            self.log.reign.found(self.log.epoch)
            if self.broken is not None:
                _cut(self.log, *self.broken, self.recovery)
            _settle(self.log, self.recovery)
        except PenstockError:
            self.log.discard()
            raise
        self.log.reign.opened(self.log)
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
    reign: Reign = ALONE,
    is_opened_around_damage: bool = False,
) -> tuple[Log, Recovery]:
    """Open a log, or create it in an empty directory if it `may_create` one. On return all of it is durable.

    Damaged, Refused: it cannot be opened, is of another version, or does not reach as far as `known`; nothing of it was
    changed.
    """
    return examine(
        disk,
        directory,
        log_id=log_id,
        config=config,
        may_create=may_create,
        known=known,
        reign=reign,
        is_opened_around_damage=is_opened_around_damage,
    ).finish()


def examine(
    disk: Disk,
    directory: str,
    *,
    log_id: LogId,
    config: LogConfig,
    may_create: bool = True,
    known: KnownEnd | None = None,
    needed_from: int = 0,
    is_supported: Callable[[Head], bool] = lambda _: True,
    reign: Reign = ALONE,
    is_opened_around_damage: bool = False,
) -> Examination:
    """Read a log as far as needed, without a change to one that exists. Raises everything that `open_log` may raise.

    Segments that end before `needed_from` are kept as history only: what is wrong with them is told, and does not keep
    the log from being opened. A batch behind the checkpoint that is not `is_supported`, because another log has lost
    what it came with, counts as torn. If it `is_opened_around_damage`, damaged batches there stay where they are, and
    reading them is refused.
    """
    closed = reign.take_closed(directory)
    if closed is not None and closed.log_id == log_id:
        log = Log(disk, directory, log_id, config, closed.checkpoint, reign=reign)
        return _examine_closed(log, closed, known, needed_from)
    recovery, names = Recovery(), disk.list(directory)
    if claim(disk, directory, log_id, names, may_create=may_create):
        names = disk.list(directory)
    bases = sorted(base for base in map(base_offset_of, names) if base is not None)
    if not bases and not may_create:
        raise DamagedFile(directory, "the segments are missing, and there were some before")
    recovery.is_new = not bases
    checkpoint = _start_from(
        disk, directory, seed_of(log_id), bases, recovery, needed_from=needed_from
    )
    if bases and checkpoint.start_offset < bases[0] <= needed_from:
        # The history has lost its oldest segments: the log begins with the first that is there.
        path = segment_path(directory, checkpoint.start_offset)
        lost = DamagedBatch(path, 0, "the segment is missing", next_offset=bases[0])
        recovery.segments_damaged.append(lost)
        checkpoint = replace(checkpoint, start_offset=bases[0], epochs=_from(checkpoint, bases[0]))
    log = Log(disk, directory, log_id, config, checkpoint, reign=reign)
    if recovery.checkpoint is CheckpointState.USED:
        log.saved_checkpoint = checkpoint
    try:
        _add_segments(log, checkpoint, [one for one in bases if one >= checkpoint.start_offset])
        broken = _scan(
            log, checkpoint, recovery, is_supported, is_around_damage=is_opened_around_damage
        )
        if broken is not None and (proof := _proof_of_damage(log, *broken)) is not None:
            raise proof.fresh()
        if known is not None:
            _require_known(log, recovery, known, needed_from)
    except PenstockError:
        log.discard()
        raise
    _check_sealed(log, checkpoint, recovery)
    if recovery.is_new:
        # Its checkpoint was written since.
        names = disk.list(directory)
    return Examination(log, recovery, broken, names, bases)


def _examine_closed(
    log: Log, closed: ClosedLog, known: KnownEnd | None, needed_from: int
) -> Examination:
    """An `Examination` of a log that this process has closed. It has removed the leftovers before, too."""
    recovery = Recovery(was_closed=True)
    log.saved_checkpoint, log.settled_to = closed.saved, closed.saved.segment
    for base_offset, size in closed.segments:
        segment = log.new_segment(base_offset)
        segment.size = segment.synced_size = size
        log.segments.append(segment)
    if known is not None:
        _require_known(log, recovery, known, needed_from)
    _check_sealed(log, closed.checkpoint, recovery)
    return Examination(log, recovery, None, [], [])


def _require_known(log: Log, recovery: Recovery, known: KnownEnd, needed_from: int) -> None:
    """DamagedFile: the log has lost what was durable. A log that a repair made shorter is in a later epoch."""
    if log.epoch <= known.epoch and log.end_offset < known.offset:
        reason = f"it ends at offset {log.end_offset}, and was durable to {known.offset}"
        raise DamagedFile(log.segments[-1].path, reason)
    # The start may have moved since, but only a checkpoint could say so.
    is_start_needed = log.start_offset > max(known.start, needed_from)
    if recovery.checkpoint is not CheckpointState.USED and is_start_needed:
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
    """Record sealed segments that are not read now and end before the next one begins."""
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


def _remove_leftovers(log: Log, names: list[str], bases: list[Offset]) -> None:
    """Remove what an interrupted change left: temporary files, indexes without a segment, segments before the start."""
    segments = {*bases}
    for name in names:
        indexed = indexed_offset_of(name)
        if name.endswith(TEMPORARY) or not (indexed is None or indexed in segments):
            log.disk.remove(f"{log.directory}/{name}")
    for base in bases:
        if base < log.first_base:
            remove_segment(log.disk, log.directory, base)


def _from(checkpoint: Checkpoint, start: Offset) -> tuple[EpochStart, ...]:
    """Returns the epochs of a log that begins at `start`."""
    older = [one for one in checkpoint.epochs if one.offset <= start]
    newer = [one for one in checkpoint.epochs if one.offset > start]
    return EpochStart(older[-1].epoch, start), *newer


def _start_from(
    disk: Disk,
    directory: str,
    seed: int,
    bases: list[Offset],
    recovery: Recovery,
    *,
    needed_from: int,
) -> Checkpoint:
    """Returns the checkpoint, or one that makes the scan start with the first segment that is needed."""
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
    needed = max((base for base in bases if base <= needed_from), default=first)
    fresh = Checkpoint(first, needed, 0, needed, 0, first, (EpochStart(Epoch(0), first),))
    if not bases:
        replace_file(disk, directory, CHECKPOINT, fresh.to_bytes(seed))
    return fresh


def _add_segments(log: Log, checkpoint: Checkpoint, bases: list[Offset]) -> None:
    """Add a segment for each file. Damaged: a segment is missing that the checkpoint has."""
    for base in bases:
        segment = log.new_segment(base)
        segment.size = log.disk.size(segment.path)
        segment.synced_size = segment.size if base < checkpoint.segment else 0
        log.segments.append(segment)
    durable = {checkpoint.start_offset: 0, checkpoint.segment: checkpoint.position}
    sizes = {segment.base_offset: segment.size for segment in log.segments}
    for base, position in durable.items():
        path = segment_path(log.directory, base)
        if base not in sizes:
            # A fresh log, or one just rolled: its file may not have reached the disk, and holds nothing.
            if base == checkpoint.segment == checkpoint.offset and position == 0 and not bases:
                continue
            raise DamagedFile(path, "the segment is missing")
        if sizes[base] < position:
            missing = position - sizes[base]
            raise DamagedFile(path, f"{missing} of {position} durable bytes are missing")


Place = tuple[int, BrokenBatch]
"""Number of a segment in the log's list, and what is broken there."""


def _scan(
    log: Log,
    checkpoint: Checkpoint,
    recovery: Recovery,
    is_supported: Callable[[Head], bool],
    *,
    is_around_damage: bool,
) -> Place | None:
    """Add every whole batch behind the checkpoint. Returns the first that is not whole, or None.

    `is_around_damage`: those that are proven to be damaged are passed over.
    """
    for number, segment in enumerate(log.segments):
        if segment.base_offset < checkpoint.segment:
            continue
        start = checkpoint.position if segment.base_offset == checkpoint.segment else 0
        while True:
            try:
                _scan_segment(log, segment, start, recovery, is_supported)
                break
            except BrokenBatch as broken:
                is_passed = is_around_damage and broken.is_malformed
                damage = _proof_of_damage(log, number, broken) if is_passed else None
                if damage is None:
                    return number, broken.with_traceback(None)
                recovery.batches_damaged.append(damage)
                start = _pass_over(log, number, broken)
    return None


def _scan_segment(
    log: Log,
    segment: Segment,
    start: int,
    recovery: Recovery,
    is_supported: Callable[[Head], bool],
) -> None:
    if start == 0 and segment.base_offset != log.end_offset:
        raise BrokenBatch(0, f"it should start at offset {log.end_offset}")
    if start == segment.size:
        return  # It need not even be opened.
    for found in walk_batches(segment.file, start, segment.size, seed=log.seed):
        if not is_supported(found.head):
            raise BrokenBatch(found.position, "a crash took what it came with in another log")
        _take_over(log, found)
        recovery.scanned_bytes += found.head.length


def _pass_over(log: Log, number: int, broken: BrokenBatch) -> int:
    """Let the log go on behind a damaged batch. Returns the position in the segment to scan on from."""
    segment = log.segments[number]
    following = next_head(
        segment.file,
        broken.position + 1,
        segment.size,
        seed=log.seed,
        offset_min=log.end_offset + 1,
    )
    if following is None:
        # What proves the damage is in a later segment.
        log.end_offset = log.end_of(number)
        return segment.size
    log.end_offset = Offset(following.head.base_offset)
    return following.position


def _take_over(log: Log, found: StoredBatch) -> None:
    head = found.head
    if head.base_offset != log.end_offset:
        raise BrokenBatch(found.position, f"offset {head.base_offset} instead of {log.end_offset}")
    if head.epoch < log.epoch or head.append_time < log.append_time:
        raise BrokenBatch(found.position, "it is older than the batch before it")
    if head.epoch > log.epoch:
        log.note_epoch(Epoch(head.epoch))
    log.end_offset, log.append_time = Offset(head.next_offset), head.append_time


def _proof_of_damage(log: Log, number: int, broken: BrokenBatch) -> DamagedBatch | None:
    """Returns the damage if a later head proves that the broken batch was durable once, or None."""
    if broken.is_unknown:
        # A whole batch of a later version: it must not be cut.
        path = log.segments[number].path
        return DamagedBatch(path, broken.position, broken.reason, next_offset=None)
    for later, segment in enumerate(log.segments[number:], number):
        # If only offsets are missing, the batch behind them is the proof itself.
        start = broken.position if later == number else 0
        for found in find_heads(segment.file, start, segment.size, seed=log.seed):
            head = found.head
            # A count that was too large for its field says nothing.
            is_known = head.unsynced < UNSYNCED_MAX
            if is_known and head.epoch >= log.epoch and head.durable_end > log.end_offset:
                return DamagedBatch(
                    log.segments[number].path,
                    broken.position,
                    broken.reason,
                    next_offset=head.base_offset,
                )
    return None


def _cut(log: Log, number: int, broken: BrokenBatch, recovery: Recovery) -> None:
    """End the log before the broken batch. The bytes that are cut stay in a file beside it."""
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
    """Copy the bytes from `position` on into a new file. Returns its path, or None if they are blank."""
    wanted = cut_path(segment.directory, segment.base_offset, position)
    path = CutNames(disk).name_for(wanted, segment.file, position, segment.size)
    if not path:
        return None
    copy_out(disk, segment.file, position, segment.size, path=path)
    disk.sync_directory(segment.directory)
    return path


def _settle(log: Log, recovery: Recovery) -> None:
    """Sync what was found before any caller sees it. A log that was cut or made goes on in a new epoch, durably, if the
    reign gives one; of any other one no checkpoint is written.
    """
    saved = log.saved_checkpoint
    is_changed = recovery.cut_at is not None or not log.segments
    if not log.segments:
        log.add_segment(log.end_offset)
    if saved is None or is_changed or not (recovery.is_clean or log.reign.has_one_epoch):
        go_on(log, log.epoch)
        log.changed_directory()
        log.sync(with_checkpoint=True)
        return
    if log.segments[-1].base_offset > log.settled_to:
        # It may have been begun after the last sync.
        log.changed_directory()
    if recovery.scanned_bytes:
        log.count_unchecked(log.bytes_behind(saved))
        log.sync()
        return
    log.durable_end = log.end_offset
    for segment in log.segments:
        segment.synced_size = segment.size
    log.count_unchecked(log.bytes_behind(saved))
    if not log.reign.has_one_epoch:
        # The next sync also takes back that the log is closed.
        log.changed_checkpoint()
