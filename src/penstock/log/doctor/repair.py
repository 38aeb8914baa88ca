"""Repairs a damaged log without destroying anything.

Safe to interrupt anywhere. While files are being changed the identity has another name, so that a log that is half
repaired cannot be opened; the next repair finds, by the offsets, what is left to do.

 1  identity becomes identity.repairing
 2  what is cut is copied into files of its own; files that go as a whole only get another name
 3  indexes of all files that change are removed: one that fits no more must never be believed
 4  segments are written anew, each in one step; those with a wrong name are parked, then named
 5  new segments stand for offsets that no file held
 6  everything is synced, indexes and the checkpoint are written
 7  the identity gets its name back
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum

from ...codec import Compression, seed_of, stamp
from ...codec.body import Body
from ...codec.encode import assemble
from ...codec.head import NO_MARKS
from ...config import LogConfig
from ...errors import NoSpace
from ...model import Offset
from ...ports import File
from ..cuts import CutNames, copy_out, pieces_of
from ..identity import write_identity
from ..layout import (
    CHECKPOINT,
    IDENTITY,
    INDEX,
    INDEXES,
    PARKED,
    REPAIRING,
    TEMPORARY,
    base_offset_of,
    remove_if_there,
    replace_file,
    segment_path,
)
from ..segment import Segment
from .repair_plan import FilePlan, Fill, RepairPlan, Span
from .verify import ReadProgress

_STAND_IN_BYTES_MAX = 1024


class RepairAction(Enum):
    """The ways in which a repair changes a file."""

    CUT = "cut"  # Bytes moved out of a segment.
    PUT_ASIDE = "put aside"  # A whole segment moved out of the log.
    RENAMED = "renamed"
    FILLED = "filled"  # An empty range written for lost offsets.
    INDEXED = "indexed"
    CHECKPOINTED = "checkpointed"
    IDENTIFIED = "identified"


@dataclass(frozen=True, slots=True)
class Change:
    """One change by a repair. `kept_as` is the path that has the bytes now; empty if all were zero."""

    deed: RepairAction
    path: str
    position: int = 0
    size: int = 0
    kept_as: str = ""
    first_offset: int | None = None
    next_offset: int | None = None
    reason: str = ""


def changes_of(plan: RepairPlan) -> Iterator[Change]:
    """Yields the changes of a plan, for users to read."""
    for one in plan.files:
        deed = RepairAction.PUT_ASIDE if one.is_put_aside else RepairAction.CUT
        for cut in one.cuts:
            size = cut.end - cut.position
            yield Change(deed, one.file.path, cut.position, size, cut.kept_as, reason=cut.reason)
        if one.is_moved:
            yield Change(RepairAction.RENAMED, one.file.path, kept_as=one.path)
        yield from (_filled(one.path, fill) for fill in one.fills)
    for fill in plan.new_segments:
        yield _filled(segment_path(plan.directory, fill.first_offset), fill)
    for base in sorted(plan.stale_indexes):
        yield Change(RepairAction.INDEXED, segment_path(plan.directory, base, INDEX))
    if plan.checkpoint is not None:
        yield Change(RepairAction.CHECKPOINTED, f"{plan.directory}/{CHECKPOINT}")
    if not plan.is_identity_good:
        yield Change(RepairAction.IDENTIFIED, f"{plan.directory}/{IDENTITY}")


def _filled(path: str, fill: Fill) -> Change:
    return Change(
        RepairAction.FILLED, path, first_offset=fill.first_offset, next_offset=fill.next_offset
    )


def repair_steps(plan: RepairPlan, config: LogConfig) -> Generator[ReadProgress, None, None]:
    """Run a plan, in steps. On return everything is durable."""
    assert not plan.obstacles
    if plan.is_needed:
        yield from _Repair(plan, config).steps()


class _Repair:
    def __init__(self, plan: RepairPlan, config: LogConfig) -> None:
        self.plan, self.config = plan, config
        self.disk, self.directory = plan.disk, plan.directory
        self.seed = seed_of(plan.log_id)

    def steps(self) -> Iterator[ReadProgress]:
        changed = [one for one in self.plan.files if one.is_changed]
        total, done = sum(one.file.size for one in changed), 0
        self._begin()
        for one in changed:
            self._copy_cuts(one)
            yield ReadProgress(done, 2 * total)
            done += one.file.size
        self._remove_indexes(changed)
        for one in changed:
            self._change(one)
            yield ReadProgress(done, 2 * total)
            done += one.file.size
        self._unpark()
        for fill in self.plan.new_segments:
            self._write_new_segment(fill)
        yield ReadProgress(done, 2 * total)
        self._settle()
        self._end()

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def _begin(self) -> None:
        """Rename the identity. A wrong one is set aside once there is a right one."""
        disk = self.disk
        if self.plan.is_identity_good:
            disk.rename(self._path(IDENTITY), self._path(REPAIRING))
        else:
            write_identity(disk, self.directory, self.plan.log_id, REPAIRING)
            self._put_away(IDENTITY)
        disk.sync_directory(self.directory)

    def _put_away(self, name: str) -> None:
        """Rename a small file that is damaged, if it exists."""
        path = self._path(name)
        if self.disk.exists(path):
            with closing(self.disk.open(path)) as file:
                size = file.size()
                kept_as = CutNames(self.disk).name_for(f"{path}.cut-0", file, 0, size)
            self._move_away(path, kept_as)

    def _move_away(self, path: str, kept_as: str) -> None:
        if kept_as:
            self.disk.rename(path, kept_as)
        else:
            self.disk.remove(path)

    def _copy_cuts(self, one: FilePlan) -> None:
        if not one.is_rewritten:
            return
        with closing(self.disk.open(one.file.path)) as file:
            for cut in one.cuts:
                if cut.kept_as:
                    copy_out(self.disk, file, cut.position, cut.end, path=cut.kept_as)

    def _remove_indexes(self, changed: list[FilePlan]) -> None:
        bases = {base for one in changed for base in (one.file.base_offset, one.base_offset)}
        for base in bases | self.plan.stale_indexes:
            for suffix in INDEXES:
                remove_if_there(self.disk, segment_path(self.directory, base, suffix))
        # Makes the copies of what is cut durable as well, before the segments change.
        self.disk.sync_directory(self.directory)

    def _change(self, one: FilePlan) -> None:
        path = one.file.path
        if one.is_put_aside:
            self._move_away(path, one.cuts[0].kept_as)
        elif not one.is_rewritten:
            self.disk.rename(path, one.path + PARKED)
        elif one.is_moved:
            self._write_anew(one, one.path + PARKED)
            self.disk.sync_directory(self.directory)
            self.disk.remove(path)
        else:
            self._write_anew(one, path)
        self.disk.sync_directory(self.directory)

    def _write_anew(self, one: FilePlan, path: str) -> None:
        """Write the parts of a segment to a new file, which replaces the old one when it is durable."""
        temporary = path + TEMPORARY
        with closing(self.disk.open(one.file.path)) as old:
            try:
                with closing(self.disk.create(temporary)) as new:
                    for part in one.parts:
                        self._write_part(part, old, new)
                    new.sync()
            except NoSpace:
                self.disk.remove(temporary)
                raise
        self.disk.rename(temporary, path)

    def _write_part(self, part: Span | Fill, old: File, new: File) -> None:
        if isinstance(part, Fill):
            new.append(stand_in(part, self.seed))
            return
        for piece in pieces_of(old, part.position, part.end):
            new.append(piece)

    def _unpark(self) -> None:
        for name in self.disk.list(self.directory):
            if name.endswith(PARKED):
                self.disk.rename(self._path(name), self._path(name.removesuffix(PARKED)))
        self.disk.sync_directory(self.directory)

    def _write_new_segment(self, fill: Fill) -> None:
        path = segment_path(self.directory, fill.first_offset)
        name = path.rpartition("/")[2]
        replace_file(self.disk, self.directory, name, stand_in(fill, self.seed))

    def _settle(self) -> None:
        """Sync everything, and write indexes and the checkpoint."""
        changed = {one.base_offset for one in self.plan.files if one.is_changed}
        changed |= {fill.first_offset for fill in self.plan.new_segments}
        names = self.disk.list(self.directory)
        found = (base_offset_of(name) for name in names)
        start = self.plan.start_offset
        bases = sorted(base for base in found if base is not None and base >= start)
        for base in bases:
            segment = Segment(
                self.disk, self.directory, base, self.seed, self.config.index_interval_bytes
            )
            segment.size = segment.file.size()
            segment.file.sync()
            # The last one may do without an index, and may not be the last any more.
            is_unindexed = base != bases[-1] and not segment.has_saved_index
            if is_unindexed or base in changed | self.plan.stale_indexes:
                segment.write_index()
            segment.close()
        self._write_checkpoint(bases)

    def _write_checkpoint(self, bases: list[Offset]) -> None:
        checkpoint = self.plan.checkpoint
        if checkpoint is None:
            return
        if not self.plan.is_checkpoint_readable:
            self._put_away(CHECKPOINT)
            # Or the new one could take its place while it still has that name.
            self.disk.sync_directory(self.directory)
        if bases:
            size = self.disk.size(segment_path(self.directory, bases[-1]))
            checkpoint = replace(checkpoint, segment=bases[-1], position=size)
        replace_file(self.disk, self.directory, CHECKPOINT, checkpoint.to_bytes(self.seed))

    def _end(self) -> None:
        self.disk.rename(self._path(REPAIRING), self._path(IDENTITY))
        self.disk.sync_directory(self.directory)


def stand_in(fill: Fill, seed: int) -> bytes:
    """Returns an empty batch for lost offsets. Everything before it is durable, and its head says so."""
    last_delta = fill.next_offset - fill.first_offset - 1
    span = fill.append_time, fill.append_time, last_delta
    encoded = assemble(
        Body(0), span, NO_MARKS, compression=Compression.NONE, size_max=_STAND_IN_BYTES_MAX
    )
    head = stamp(
        encoded.head,
        base_offset=fill.first_offset,
        epoch=fill.epoch,
        append_time=fill.append_time,
        unsynced=0,
        seed=seed,
    )
    return b"".join((head, *encoded.body))
