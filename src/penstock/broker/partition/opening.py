"""Opening a partition: its logs, the state that the messages still support, and what neither has in a snapshot."""

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

from ...codec import HEAD_BYTES, Head, Origin
from ...config import LogConfig, TopicConfig
from ...errors import DamagedBatch, NoSpace
from ...log import Log, Recovery
from ...log.creation import NewLogs
from ...log.journal import ReplayResult
from ...log.opening import Examination, KnownEnd, examine
from ...log.snapshot import offsets_among
from ...model import Epoch, LogEnd, LogId, Offset
from ...ports import Disk
from ..topics import PartitionEnds
from .context import PartitionContext, PartitionId
from .damage import behind
from .machine import PartitionMachine
from .partition import Now, Partition
from .side_log import SideLog

_READ_BYTES = 1 << 20
# State logs are small and are cut by snapshots, never by age.
STATE_CONFIG = LogConfig(segment_size_bytes=8 << 20, retention_hours=-1)
_HOUR_NS = 3600 * 1_000_000_000
_GRACE_NS = _HOUR_NS


@dataclass(frozen=True, slots=True)
class Opening:
    """What opening a partition found."""

    messages: Recovery
    state: Recovery
    replayed: ReplayResult
    delayed: Recovery | None = None
    staging: Recovery | None = None
    # Where the delay log ends, if messages or state speak of delayed messages beyond; below zero if not.
    delays_lost_from: int = -1
    # Indexes of the history that were missing, damaged or stale.
    journeys_unusable: Sequence[str] = ()


def open_partition(
    disk: Disk,
    directory: str,
    identity: PartitionId,
    context: PartitionContext,
    *,
    now: Now,
    ends: PartitionEnds,
) -> tuple[Partition, Opening]:
    """Open a partition that reached to `ends`: messages first, then the state that they still support.

    Damaged, Refused: it is not whole, or of another version. Its files are closed again.
    """
    logs = {
        "messages": (context.config.log_config(), ends.messages),
        "state": (STATE_CONFIG, ends.state),
    }
    names, state_names = disk.list(directory), disk.list(f"{directory}/state")
    snapshots = offsets_among(state_names)
    with ExitStack() as opened:
        # All are looked at before any is changed: a partition that cannot be opened stays as it is.
        delayed = _side_log(
            disk, directory, identity, context, "delayed", end=ends.delayed, names=names
        )
        opened.callback(delayed.discard)

        def is_supported(head: Head) -> bool:
            """Whether the delayed messages are there that a batch of messages came with."""
            is_alone = head.is_control or head.origin is not Origin.DECIDED_AT
            return is_alone or head.origin_sequence < delayed.end_offset

        examined: list[Examination] = []
        for kind, (config, end) in logs.items():
            one = examine(
                disk,
                f"{directory}/{kind}",
                log_id=log_id_of(identity, kind),
                config=config,
                may_create=False,
                known=KnownEnd(*end) if end else None,
                # What is before the oldest snapshot is history: a restart does without.
                needed_from=0 if kind == "messages" else min(snapshots, default=0),
                is_supported=is_supported,
                reign=context.reign,
                is_opened_around_damage=kind == "messages",
            )
            opened.callback(one.log.discard)
            examined.append(one)
        context.require_meta(examined[0].log)
        staging = _side_log(disk, directory, identity, context, "staging", names=names)
        opened.callback(staging.discard)
        delayed.finish()
        staging.finish()
        (messages, found), (state, state_found) = (one.finish() for one in examined)
        machine = _machine(identity, context, now)
        opened.callback(machine.forget_groups)
        partition = Partition(identity, context, (messages, state, delayed, staging), machine)
        opened.callback(context.changes.forget, partition)
        unusable = partition.history.unusable(state_names)
        replayed, delays_lost_from = _recover(partition, context, ends.snapshot, snapshots, now)
        opened.pop_all()
    context.changes.enrol(partition)
    for damage in found.batches_damaged:
        context.damage.found(context.topic, identity.number, damage)
    side_logs = delayed.recovery, staging.recovery
    return partition, Opening(found, state_found, replayed, *side_logs, delays_lost_from, unusable)


def _machine(identity: PartitionId, context: PartitionContext, now: Now) -> PartitionMachine:
    return PartitionMachine(
        context.config,
        now_ns=now.monotonic_ns,
        topic_id=identity.topic_id,
        group_owners=context.group_owners,
    )


class NewPartitions:
    """Partitions in directories that are not there yet. `make_files` needs no lock of the node, `open_next` does.

    All files are written before any is synced: the disk then syncs many at once, and each directory once. Until then a
    crash may leave any part of them.
    """

    def __init__(
        self, disk: Disk, directories: Mapping[str, PartitionId], context: PartitionContext
    ) -> None:
        self._disk, self._directories, self._context = disk, directories, context
        # Of partitions that are durable and not open yet.
        self._logs: deque[tuple[str, PartitionId, list[Log]]] = deque()

    def make_files(self) -> None:
        """Make the files of all, durably. If that fails, they are closed again, and what there is of them stays."""
        context, directories = self._context, self._directories
        configs = {"messages": context.config.log_config(), "state": STATE_CONFIG}
        with ExitStack() as files, ExitStack() as opened:
            opened.callback(self._logs.clear)
            new = NewLogs(self._disk, files)
            for directory, identity in directories.items():
                logs: list[Log] = []
                for kind, config in configs.items():
                    path, log_id = f"{directory}/{kind}", log_id_of(identity, kind)
                    log = new.create(path, log_id=log_id, config=config, reign=context.reign)
                    opened.callback(log.discard)
                    logs.append(log)
                self._logs.append((directory, identity, logs))
            parents = {directory.rpartition("/")[0]: None for directory in directories}
            new.sync([*directories, *parents])
            opened.pop_all()

    def open_next(self, now: Now) -> Partition:
        """The next partition whose files are made. `enrol` has it take part."""
        directory, identity, logs = self._logs.popleft()
        context = self._context
        for log in logs:
            context.reign.opened(log)
        messages, state = logs
        side_logs = (
            _side_log(self._disk, directory, identity, context, "delayed"),
            _side_log(self._disk, directory, identity, context, "staging"),
        )
        machine = _machine(identity, context, now)
        partition = Partition(identity, context, (messages, state, *side_logs), machine)
        _recover(partition, context, -1, (), now)
        return partition

    def discard(self) -> None:
        """Let go of the files of those that were not opened."""
        for *_, logs in self._logs:
            for log in logs:
                log.discard()
        self._logs.clear()


def _side_log(
    disk: Disk,
    directory: str,
    identity: PartitionId,
    context: PartitionContext,
    kind: str,
    *,
    end: tuple[int, ...] = (),
    names: Sequence[str] = (),
) -> SideLog:
    return SideLog(
        disk,
        f"{directory}/{kind}",
        log_id_of(identity, kind),
        segment_bytes=context.config.segment_size_bytes,
        on_damage=partial(context.damage.found, context.topic, identity.number),
        known=KnownEnd(*end) if end else None,
        reign=context.reign,
        is_absent=kind not in names,
    )


def _recover(
    partition: Partition,
    context: PartitionContext,
    known_snapshot: int,
    snapshots: Sequence[Offset],
    now: Now,
) -> tuple[ReplayResult, int]:
    """Bring the state of a partition to where its logs are: journal, messages, delayed messages.

    Returns what the journal showed, and where the delay log ends if something speaks of ids beyond, below zero if not.
    """
    messages, delayed, machine = partition.messages, partition.delayed, partition.machine
    machine.delays.follow(delayed.end_offset, delayed.epochs())
    replayed = partition.journal.recover(
        machine,
        message_end=LogEnd(
            Epoch(max(messages.epoch, context.begun_in_all_logs)), messages.end_offset
        ),
        known_snapshot=known_snapshot,
        snapshots=snapshots,
        note=partition.history.replayed,
    )
    partition.entries_behind = replayed.records
    partition.history.begin()
    partition.newest_snapshot = -1 if replayed.snapshot is None else replayed.snapshot
    partition.newest_covers = machine.covered
    if partition.newest_snapshot <= known_snapshot:
        # Also on a full disk, where nothing can be recorded: room comes from what may be removed.
        partition.ends_noted()
    messages.hidden_below = Offset(machine.start)
    skipped = _apply_batches(partition)
    machine.count_from_here()
    delays_lost_from = _apply_delayed(partition, skipped)
    _apply_staged(partition)
    machine.delays.wheel.advance(now.wall_ns)
    machine.begin_leases(partition.entropy)
    partition.note_activity()
    _grant_grace(machine, partition.config, now)
    with suppress(NoSpace):
        # A sweep that was interrupted may have gone on where a group still was. On a full disk polls find out.
        partition.overtake(now)
    return replayed, delays_lost_from


def _grant_grace(machine: PartitionMachine, config: TopicConfig, now: Now) -> None:
    """Members could not ask while we were down: no group is forgotten before they have had the time to come back."""
    retention_ns = int(config.group_retention_hours * _HOUR_NS)
    for delivery in machine.groups.values():
        at_least_ns = now.wall_ns - max(0, retention_ns - _GRACE_NS)
        delivery.active_at_ns = max(delivery.active_at_ns, at_least_ns)


def log_id_of(identity: PartitionId, kind: str) -> LogId:
    name = f"{identity.topic_id}/{identity.number}/{kind}"
    return LogId(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little"))


def _apply_batches(partition: Partition) -> list[range]:
    """Take in what the messages show and no snapshot knew. Returns the offsets that were skipped as damaged.

    Producers and idempotency keys of a damaged batch are not known any more. What readers do at it is the topic's
    setting; the partition serves. DamagedBatch: it is of a later version.
    """
    messages, machine = partition.messages, partition.machine
    skipped: list[range] = []
    offset = max(machine.covered, messages.start_offset)
    while offset < messages.end_offset:
        try:
            run = messages.read(offset, bytes_max=_READ_BYTES)
        except DamagedBatch as damage:
            if damage.next_offset is None:
                raise
            skipped.append(range(offset, damage.next_offset))
            offset = damage.next_offset
            continue
        position = 0
        for head in run.heads:
            machine.apply_batch(run.data[position + HEAD_BYTES : position + head.length], head)
            position += head.length
        offset = run.next_offset
        _note_replayed(partition, len(run.heads), len(run.data))
    return skipped


def _note_replayed(partition: Partition, entries: int, size: int) -> None:
    partition.entries_behind += entries
    partition.bytes_behind += size


def _apply_staged(partition: Partition) -> None:
    """Take in what the staging log shows and no snapshot knew, after the messages, which know what was published.

    DamagedBatch: a transaction that is open, or decided, may have it.
    """
    staging, machine = partition.staging, partition.machine
    staging.require(machine.stagings.covered, is_made=machine.has_staging_log)
    for head, _ in staging.batches_from(machine.stagings.covered):
        machine.apply_staged(head)
        _note_replayed(partition, 1, head.length)


def _apply_delayed(partition: Partition, skipped: Sequence[range]) -> int:
    """Take in what the delay log shows and no snapshot knew, after the messages, which know what has fired.

    The batch that delayed messages came with may be among the `skipped` ones: they are not lost with it.
    Returns where the log ends if messages or state speak of ids beyond, below zero if not.
    """
    delayed, machine, config = partition.delayed, partition.machine, partition.config
    delays = machine.delays
    is_made = machine.has_delay_log or delays.lost_epoch >= 0
    delayed.require(delays.covered, is_made=is_made)
    is_read = False
    while not is_read:
        try:
            for head, batch in delayed.batches_from(delays.covered):
                if any(head.origin_sequence in one for one in skipped):
                    machine.named_delays.add((head.epoch, head.base_offset))
                machine.apply_delayed(batch[HEAD_BYTES:], head)
                _note_replayed(partition, 1, head.length)
            is_read = True
        except DamagedBatch as damage:
            first, end = max(delays.covered, delayed.start_offset), behind(damage, config)
            delays.lost(range(first, end))
            delays.covered = end
    # Only what is finished leaves the front, so an old snapshot that lists it as pending is behind.
    delays.forget_below(delayed.start_offset)
    machine.dedup.sort()
    if delays.lost_epoch < 0:
        return -1
    delayed.begin_epoch_after(delays.lost_epoch)
    delays.follow(delayed.end_offset, delayed.epochs())
    return delayed.end_offset
