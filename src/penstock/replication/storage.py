"""The logs of a data directory as a follower has them: opened without machines, cut, set aside, synced in order."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from ..codec import seed_of
from ..config import LogConfig
from ..errors import Damaged, DamagedFile, FileMissing, NoSpace, PenstockError, Refused
from ..log import Log, Recovery, SyncPlan, open_log
from ..log.checkpoint import NO_META, Checkpoint, EpochStart, MetaMark, read_checkpoint
from ..log.closed import UNCHECKED_BYTES_MAX, ClosedLogs
from ..log.creation import NewLogs
from ..log.identity import read_identity
from ..log.layout import (
    CHECKPOINT,
    IDENTITY,
    JOURNEY_INDEX,
    TEMPORARY,
    remove_if_there,
    remove_settings,
    segment_path,
)
from ..log.opening import set_aside as set_aside_bytes
from ..log.reign import FollowingReign
from ..log.snapshot import read_snapshot, remove_snapshot, snapshot_offsets
from ..log.trim import release, truncate
from ..model import Epoch, LogId, Offset
from ..ports import Disk, File
from .frames import LogFacts
from .log_paths import LEAVING, log_paths
from .reconcile import META, facts_of, in_order

SET_ASIDE = "set-aside"
# New ones have three files each open until they are synced: together far fewer than a disk keeps open.
_LOGS_AT_ONCE = 100

# Calls all of these, at the same time where it can; for each, what it has failed with.
RunSyncs = Callable[[Sequence[Callable[[], None]]], Sequence[PenstockError | None]]


class SetAside(NamedTuple):
    """Something that was taken out of a log, or a whole log, and where it is now."""

    path: str
    kept_in: str
    reason: str
    offsets: range


class ClosedStorage(NamedTuple):
    """What a replica that is about to lead knows: the ends that are committed, by path, and its logs."""

    committed: dict[str, int]
    closed_logs: ClosedLogs


def _one_by_one(syncs: Sequence[Callable[[], None]]) -> Sequence[PenstockError | None]:
    """In turn; a failure ends the plan at once."""
    for sync in syncs:
        sync()
    return ()


class ReceivedSnapshot(NamedTuple):
    """All of a snapshot, in a file that has not its name yet."""

    path: str
    file: File


class StoragePlan(msgspec.Struct, eq=False):
    """What makes everything durable that was appended so far. `parts` ends with meta, if something came for it.

    `snapshots` get their names when everything is durable that they speak of.
    """

    parts: Sequence[tuple[Log, SyncPlan]]
    sequence: int
    received_bytes: int
    disk: Disk | None = None
    snapshots: Sequence[ReceivedSnapshot] = ()

    def run(self, run_syncs: RunSyncs = _one_by_one) -> None:
        """Sync all logs, and then meta, which says how far they are. Raises the first failure.

        Logs may be synced in any order: the kernel may write any page before it is asked to, so a start rests on none.
        """
        plans = [plan for log, plan in self.parts if log.directory != META]
        meta = [plan for log, plan in self.parts if log.directory == META]
        for each in (plans, meta):
            for failure in run_syncs([plan.sync_files for plan in each if plan.has_files]):
                if failure is not None:
                    raise failure.fresh()
            for plan in each:
                plan.write_checkpoint()
        if self.disk is not None and self.snapshots:
            _install(self.disk, self.snapshots)


def _install(disk: Disk, snapshots: Sequence[ReceivedSnapshot]) -> None:
    """Give snapshots their names, durably: one round of syncs for all of them."""
    disk.sync_all([snapshot.file for snapshot in snapshots], [])
    for snapshot in snapshots:
        snapshot.file.close()
        disk.rename(snapshot.path + TEMPORARY, snapshot.path)
    disk.sync_all([], [*dict.fromkeys(path.rpartition("/")[0] for path, _ in snapshots)])


class Storage:
    """`logs` by path. `aside` has all that was set aside since the start, `is_whole` is False once a log was."""

    def __init__(self, disk: Disk, closed: ClosedLogs | None = None) -> None:
        """`closed` has logs that this process has closed when it led."""
        self.disk = disk
        self._closed = closed or ClosedLogs()
        self._reign = FollowingReign(self._closed)
        self.logs: dict[str, Log] = {}
        self.aside: list[SetAside] = []
        self.mark = MetaMark(NO_META)
        self.was_clean = True
        self._dirty: dict[str, Log] = {}
        self._received: list[ReceivedSnapshot] = []
        # Logs that were made since the last `settle`, and directories in which logs came or went.
        self._new: NewLogs | None = None
        self._new_files = ExitStack()
        self._new_paths: dict[str, None] = {}
        self._changed: dict[str, None] = {}
        # Logs that were removed since then, and have their files still.
        self._leaving: dict[str, None] = {}

    def open(
        self,
        committed: Mapping[str, int] = MappingProxyType({}),
        on_damage: Callable[[], None] = lambda: None,
    ) -> bool:
        """Open every log that there is. False: one was damaged, and is set aside to be fetched again; or it ends
        before what this node knows to be `committed`, by path, and was durable here: the rest comes again.
        `on_damage` is called before anything is set aside, so that it can be noted that something will be missing. What
        a crash left of one that was being made goes: nothing was in it.
        """
        is_whole = True
        for path in [*log_paths(self.disk)]:
            if path.endswith(LEAVING):
                self._unlink(path)
                continue
            try:
                log, found = self._open(path)
            except (Damaged, Refused) as error:
                if self._is_unfinished(path):
                    self._unlink(path)
                    continue
                on_damage()
                self.set_log_aside(path, str(error))
                is_whole = False
                continue
            if found.segments_damaged:
                log.discard()
                on_damage()
                self.set_log_aside(path, str(found.segments_damaged[0]))
                is_whole = False
                continue
            if log.end_offset < committed.get(path, 0):
                # What is damaged at the very end of a log looks like a batch that a crash tore.
                reason = (
                    f"it ends at offset {log.end_offset}, and was committed to {committed[path]}"
                )
                lost = range(log.end_offset, committed[path])
                self.aside.append(SetAside(path, ", ".join(found.set_aside), reason, lost))
                is_whole = False
            self.was_clean &= found.is_clean
            self._add(log)
        self._closed.clear()
        self._forget_journeys()
        self.note_meta_end()
        return is_whole

    def _open(self, path: str) -> tuple[Log, Recovery]:
        closed = self._closed.get(path)
        log_id = read_identity(self.disk, path) if closed is None else closed.log_id
        log, found = open_log(
            self.disk,
            path,
            log_id=log_id,
            config=LogConfig(retention_hours=-1),
            may_create=closed is None and self._is_fresh(path, log_id),
            reign=self._reign,
        )
        if closed is None:
            try:
                self._require_snapshots(log)
            except DamagedFile:
                log.discard()
                raise
        return log, found

    def _is_unfinished(self, path: str) -> bool:
        """Whether a crash came while the log was made: then it has no whole identity, and no batch."""
        try:
            read_identity(self.disk, path)
        except DamagedFile:
            names = {*self.disk.list(path)} - {IDENTITY, CHECKPOINT}
            return all(self.disk.size(f"{path}/{name}") == 0 for name in names)
        return False

    def _is_fresh(self, path: str, log_id: LogId) -> bool:
        """Whether nothing was written to a log since it was made, or closed without a message: the first sync says in
        the checkpoint that it is open. Then its segment need not have reached the disk."""
        with suppress(Damaged, Refused):
            found = read_checkpoint(self.disk, path, seed_of(log_id))
            return (
                found is not None
                and found.is_closed
                and found.position == 0
                and found.offset == found.start_offset
            )
        return False

    def _add(self, log: Log) -> None:
        log.meta = self.mark
        self.logs[log.directory] = log

    def _forget_journeys(self) -> None:
        """The index of a log's newest segment may know records that a crash took, or that are cut; once others have
        come in their places it would be believed."""
        newest = {path: log.segments[-1].base_offset for path, log in self.logs.items()}
        changed = [
            path
            for path, base in newest.items()
            if remove_if_there(self.disk, segment_path(path, base, JOURNEY_INDEX))
        ]
        if changed:
            self.disk.sync_all([], changed)

    def facts(self) -> dict[str, LogFacts]:
        return {path: facts_of(self.logs[path]) for path in sorted(self.logs, key=in_order)}

    def make(self, facts: LogFacts) -> Log:
        """Make a log that begins where another node's does, durably."""
        log = self.begin(facts)
        self.settle()
        return log

    def begin(self, facts: LogFacts) -> Log:
        """Make a log that begins where another node's does; it is durable, and may be written to, after `settle`."""
        if facts.path in self._leaving:
            self.settle()
        if self._new is None:
            self._new = NewLogs(self.disk, self._new_files)
        try:
            log = self._new.create(
                facts.path,
                log_id=LogId(facts.log_id),
                config=_config_of(facts),
                reign=self._reign,
                at=facts.start,
                epochs=[_first_epoch(facts, facts.start)],
            )
        except NoSpace:
            self._new = None
            self._new_files.close()
            self._new_paths[facts.path] = None
            self._give_up(self._new_paths)
            raise
        self._new_paths[facts.path] = None
        self._changed.update(dict.fromkeys([*_parents(facts.path), ""]))
        self._add(log)
        if len(self._new_paths) >= _LOGS_AT_ONCE:
            self.settle()
        return log

    def settle(self) -> None:
        """Make durable which logs there are now: those that were made, and that removed ones are gone.

        Many come and go together, and their directories are synced once.
        """
        leaving, self._leaving = self._leaving, {}
        if leaving:
            self.disk.sync_all([], [*{path.rpartition("/")[0]: None for path in leaving}])
            for path in leaving:
                self._unlink(path + LEAVING)
        new, self._new = self._new, None
        paths, self._new_paths = self._new_paths, {}
        changed, self._changed = self._changed, {}
        there = [path for path in changed if not path or self.disk.exists(path)]
        try:
            with self._new_files:
                if new is not None:
                    new.sync(there)
                else:
                    self.disk.sync_all([], there)
        except NoSpace:
            self._give_up(paths)
            raise

    def _give_up(self, new: dict[str, None]) -> None:
        """Remove logs that could not be made whole. They come again with the next connection."""
        for path in new:
            if path in self.logs:
                self.logs.pop(path).discard()
            self._unlink(path)
        new.clear()

    def configure(self, log: Log, facts: LogFacts) -> None:
        """Roll segments as the leader does."""
        log.config = _config_of(facts)

    def appended(self, log: Log) -> None:
        self._dirty[log.directory] = log

    @property
    def is_dirty(self) -> bool:
        return bool(self._dirty)

    @property
    def has_changed(self) -> bool:
        """Whether logs were made or removed since the last `settle`."""
        return bool(self._changed)

    def plan_sync(self, sequence: int, received_bytes: int) -> StoragePlan:
        if self.has_changed:
            self.settle()
        dirty = [self._dirty[path] for path in sorted(self._dirty, key=in_order)]
        self._dirty = {}
        parts = [(log, log.plan_sync()) for log in dirty]
        received, self._received = self._received, []
        return StoragePlan(parts, sequence, received_bytes, self.disk, received)

    def synced(self, plan: StoragePlan) -> None:
        for log, part in plan.parts:
            log.synced(part)
        if META in self.logs:
            meta = self.logs[META]
            self.mark.end = meta.end._replace(offset=meta.durable_end)

    def received(self, snapshot: ReceivedSnapshot) -> None:
        """Install a snapshot with the next sync."""
        self._received.append(snapshot)

    def forget_received(self) -> None:
        """What another leader says may cut what these snapshots speak of."""
        for snapshot in self._received:
            snapshot.file.close()
        self._received.clear()

    def sync(self) -> None:
        plan = self.plan_sync(0, 0)
        plan.run()
        self.synced(plan)

    def cut(self, log: Log, offset: int, reason: str) -> None:
        """End a log at an offset. What is cut stays in files beside it; snapshots that know more go first.

        NoSpace: the log is as it was. Files of what would have been cut may be there, and are used by the next try.
        """
        if offset == log.end_offset:
            return
        log.sync()
        end = log.end_offset
        for one in snapshot_offsets(self.disk, log.directory):
            if one > offset:
                remove_snapshot(self.disk, log.directory, one)
        number, found = log.place_of_batch(offset)
        aside: list[SetAside] = []
        for later in range(number, len(log.segments)):
            position = found.position if later == number else 0
            kept = set_aside_bytes(self.disk, log.segments[later], position)
            if kept is not None:
                first = max(offset, log.segments[later].base_offset)
                offsets = range(first, log.end_of(later) if later + 1 < len(log.segments) else end)
                aside.append(SetAside(log.directory, kept, reason, offsets))
        self.disk.sync_directory(log.directory)
        # What comes next may be older than what is cut: another node's clock has stamped it.
        kept_to = found.head.base_offset
        is_empty = kept_to == log.first_base
        before, log.append_time = (
            log.append_time,
            (0 if is_empty else log.head_at(kept_to - 1).append_time),
        )
        try:
            truncate(log, offset)
        except NoSpace:
            log.append_time = before
            raise
        self.aside += aside

    def forget_unused_epochs(self, log: Log, leader: LogFacts) -> None:
        """An epoch that began here, and in which nothing was written, is none of the leader's: what comes may be of an
        earlier one."""
        kept = [one for one in log.epochs if one.offset < log.end_offset]
        if not kept:
            kept = [_first_epoch(leader, log.first_base)]
        if kept != log.epochs:
            # With the old checkpoint a restart would take what comes for older than the log, and cut it.
            _require_checkpoint(log, replace(log.checkpoint(), epochs=tuple(kept)))

    def forget_snapshots_beyond(self, state: Log, message_end: int) -> None:
        """Remove snapshots of a state that speaks of messages which are cut now."""
        for offset in snapshot_offsets(self.disk, state.directory):
            with suppress(DamagedFile):
                found = read_snapshot(self.disk, state.directory, offset, seed=state.seed)  # type: ignore[var-annotated]  # No record of it is read.
                if found.message_end.offset > message_end:
                    remove_snapshot(self.disk, state.directory, offset)

    def forget_meta(self, end: int) -> None:
        """Before meta is cut at its new end: no checkpoint may know more of it than there will be."""
        self.mark.end = NO_META
        for path in sorted(self.logs, key=in_order):
            log = self.logs[path]
            saved = log.saved_checkpoint
            if saved is None or saved.meta_end.offset > end:
                _require_checkpoint(log, log.checkpoint())

    def note_meta_end(self) -> None:
        if META in self.logs:
            self.mark.end = self.logs[META].end

    def set_log_aside(self, path: str, reason: str) -> None:
        """Move the directory of a log to `set-aside/`, durably. An empty one only goes."""
        if self.has_changed:
            self.settle()
        log = self.logs.pop(path, None)
        self._dirty.pop(path, None)
        offsets = range(0)
        if log is not None:
            offsets = range(log.first_base, log.end_offset)
            log.discard()
        self.disk.make_directories(SET_ASIDE)
        wanted, number = path.replace("/", "-"), 1
        name, taken = wanted, {*self.disk.list(SET_ASIDE)}
        while name in taken:
            number += 1
            name = f"{wanted}-{number}"
        self.disk.move(path, f"{SET_ASIDE}/{name}")
        self.disk.sync_directory(SET_ASIDE)
        self.disk.sync_directory(path.rpartition("/")[0])
        self._remove_empty(_parents(path))
        self.aside.append(SetAside(path, f"{SET_ASIDE}/{name}", reason, offsets))

    def begin_at(self, log: Log, start: int) -> None:
        """Follow the leader's retention: drop whole segments below its start."""
        if len(log.segments) > 1 and log.segments[1].base_offset <= start:
            self.sync()
            release(log, below=Offset(start))
        _drop_old_snapshots(self.disk, log)

    def remove(self, path: str) -> None:
        """Let go of a log that the leader has removed. Its files go with the next `settle`."""
        if path in self._new_paths:
            self.settle()
        log = self.logs.pop(path, None)
        self._dirty.pop(path, None)
        if log is not None:
            log.discard()
        # By another name first: a crash that leaves some files leaves no log that seems to be damaged.
        self.disk.move(path, path + LEAVING)
        self._leaving[path] = None
        self._changed[path.rpartition("/")[0]] = None

    def _unlink(self, path: str) -> None:
        for name in self.disk.list(path):
            with suppress(Refused):
                self.disk.remove(f"{path}/{name}")
        self._remove_empty([path, *_parents(path)])

    def _remove_empty(self, directories: Iterable[str]) -> None:
        """Remove those in which nothing is left, inner ones first."""
        for directory in directories:
            if directory.count("/") < 2:
                break  # The directory of a namespace stays.
            with suppress(Refused, FileMissing):
                remove_settings(self.disk, directory)
                self.disk.remove_directory(directory)
                self._changed[directory.rpartition("/")[0]] = None

    def scrub(self, path: str) -> Iterator[int]:
        """Read all of a log, a piece at a time: how many bytes each had. DamagedBatch, DamagedFile."""
        log = self.logs[path]
        self._require_snapshots(log)
        offset = log.start_offset
        # Between two pieces a leader may remove the log, or one of the same path may come in its place.
        while self.logs.get(path) is log and offset < log.end_offset:
            run = log.read(max(offset, log.start_offset), bytes_max=1 << 20)
            offset = run.next_offset
            yield len(run.data)

    def _require_snapshots(self, log: Log) -> None:
        """DamagedFile: a snapshot cannot be read."""
        for offset in snapshot_offsets(self.disk, log.directory):
            read_snapshot(self.disk, log.directory, offset, seed=log.seed)

    def close(self) -> None:
        """Make everything durable, and close the files. Only where the next start would read much behind the
        checkpoint another one is written."""
        self.sync()
        for log in self.logs.values():
            if log.bytes_unchecked > UNCHECKED_BYTES_MAX:
                log.close()
        self.discard()

    def hand_over(self) -> ClosedLogs:
        """Make everything durable, and close the files. Returns the logs for the one that opens them next in this
        process: no checkpoint is written, and nothing has to be read again."""
        self.sync()
        closed = ClosedLogs()
        for log in self.logs.values():
            closed.put(log)
        self.discard()
        return closed

    def discard(self) -> None:
        self._new_files.close()
        for log in self.logs.values():
            log.discard()
        self.logs.clear()


def _require_checkpoint(log: Log, checkpoint: Checkpoint) -> None:
    """Write a checkpoint that the log may not go on without. NoSpace: the old one stays, and so does the log."""
    log.sync()
    log.replace_checkpoint(checkpoint)


def _first_epoch(facts: LogFacts, start: int) -> EpochStart:
    """The epoch that another node's log was in at an offset."""
    older = [one.epoch for one in facts.epochs if one.offset <= start]
    return EpochStart(Epoch(older[-1] if older else facts.epochs[0].epoch), Offset(start))


def _drop_old_snapshots(disk: Disk, log: Log) -> None:
    """Remove all snapshots but the two newest, which is what the leader keeps."""
    for offset in snapshot_offsets(disk, log.directory)[:-2]:
        remove_snapshot(disk, log.directory, offset)


def _config_of(facts: LogFacts) -> LogConfig:
    usual = LogConfig(retention_hours=-1)
    size = facts.segment_bytes or usual.segment_size_bytes
    interval = facts.index_interval_bytes or min(usual.index_interval_bytes, size)
    return LogConfig(segment_size_bytes=size, index_interval_bytes=interval, retention_hours=-1)


def _parents(path: str) -> Iterable[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
