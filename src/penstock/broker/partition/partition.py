"""One partition: its message log, its state log, and the machine that both make up.

Everything that changes goes through `append` (messages) or `record` (state), and is in the page cache and applied
when they return. Durability comes with the plans of `plan_sync`; replies that promise it wait for
`messages.durable_end`, or for the journal's.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ...api.dead_letters import DEAD_LETTER_SUFFIX
from ...api.groups import Mode
from ...api.principals import NO_KEY
from ...api.publish import Published
from ...codec import Columns, Compression, Encoded, Head, Marks, Origin, encode
from ...codec.head import KINDS
from ...config import OFF, OnDamage, TopicConfig
from ...delivery import Delivery
from ...delivery.commands import overtake
from ...delivery.records import Acked, Buried
from ...errors import NotFound
from ...log import AppendResult, Log
from ...log.journal import HistoryLimits, Journal
from ...log.records import RecordFormat
from ...log.snapshot import SnapshotPlan
from ...model import PRODUCER_NONE
from ...transactions.commit_records import NamedStagingsDecided
from ...transactions.records import StagingLogMade, TransactionDecided
from ..topics import INTERNAL_PREFIX, PartitionEnds
from .agenda import NEVER_NS
from .batch_cache import LogCache
from .context import PartitionContext, PartitionId
from .delay_prefetch import Prefetch
from .delivery_times import DeliveryTimes
from .history import History
from .machine import USUAL_KIND, PartitionMachine
from .pins import Pins
from .plan import PartitionPlan
from .records import (
    DelayLogMade,
    GroupClosed,
    GroupOpened,
    ModeSet,
    PartitionRecord,
    Redriven,
)
from .side_log import SideLog
from .timetable import Timetable

FORMAT: RecordFormat[PartitionRecord] = RecordFormat(PartitionRecord, version=5, oldest=1)
_READ_BYTES = 1 << 20
_HOUR_NS = 3600 * 1_000_000_000
# What is followed by letters to other partitions, or by records in them.
_INTENTS = frozenset({Buried, Redriven, TransactionDecided, NamedStagingsDecided})


class Now(NamedTuple):
    """Two times that never mix: what is stored, and what measures waiting."""

    wall_ns: int
    monotonic_ns: int


class HeldSnapshot(NamedTuple):
    """A snapshot that is not written yet, and the ends of the logs that it speaks of."""

    content: SnapshotPlan
    covers: int
    ends: Sequence[tuple[Log, int]]


# As calling the classes does it, without a call of its own.
now_of: Callable[[tuple[int, int]], Now] = partial(tuple.__new__, Now)
_published: Callable[[tuple[int, int, bool, int, bool]], Published] = partial(
    tuple.__new__, Published
)


class Partition:
    """Made by `opening`, new or from its files."""

    def __init__(
        self,
        identity: PartitionId,
        context: PartitionContext,
        logs: tuple[Log, Log, SideLog, SideLog],
        machine: PartitionMachine,
    ) -> None:
        self.identity, self.machine, self.number = identity, machine, identity.number
        self.topic, self.limits, self.entropy = context.topic, context.limits, context.entropy
        self.messages, state_log, self.delayed, self.staging = logs
        self.journal: Journal[PartitionRecord] = Journal(state_log, FORMAT)
        self.history = History(state_log, FORMAT)
        self.damage, self.changes = context.damage, context.changes
        self._note_ends = context.note_ends
        self.messages.on_damage = partial(self.damage.found, self.topic, self.number)
        state_log.on_damage = self.messages.on_damage
        self.cache = LogCache(self.messages, context.cache)
        self.prefetch = Prefetch(context.prefetch)
        self.timetable = Timetable(machine.schedules, context.zones)
        self.times = DeliveryTimes(self.topic, context.latencies)
        # The offset of the newest snapshot in the state log; below zero: there is none.
        self.newest_snapshot = -1
        self.reign = context.reign
        # Made, and to be written once all that it speaks of is committed.
        self._held: HeldSnapshot | None = None
        # Messages below it are in the newest snapshot, as far as state needs them.
        self.newest_covers = 0
        # The same for the newest one that meta knows of, so that its loss is missed: they may be removed.
        self.snapshot_covers = 0
        self.pins = Pins()
        # What lies behind the newest snapshot, for the `ReplayBudget` of the node.
        self.entries_behind = self.bytes_behind = 0
        # The same, when the snapshot was made that is to be written next.
        self._taken_behind = 0, 0
        # When groups were active last, as far as the newest snapshot and the records behind it know.
        self.activity: dict[int, int] = {}
        self.configure(context.config)

    def configure(self, config: TopicConfig) -> None:
        """Take new settings; they hold from the next command on."""
        rules = config.delivery_config()
        if self.topic.endswith(DEAD_LETTER_SUFFIX):
            # A dead letter of a dead letter stays where it is.
            rules = replace(rules, dlq_enabled=False)
        self.config, self.rules = config, rules
        # Most topics have no such limit, and then no publish has to count bytes.
        self.has_backlog_limit = config.max_backlog_messages >= 0 or config.max_backlog_bytes >= 0
        self.compression = Compression[config.compression.upper()]
        self.messages.config = config.log_config()
        self.machine.configure(config)
        hours = config.journey_retention_hours
        age_ns = math.inf if hours == OFF else hours * _HOUR_NS
        self.journal.history = HistoryLimits(
            age_ns, config.journey_retention_bytes if age_ns else 0
        )
        if config.on_damage is OnDamage.SKIP and self.machine.delays.stuck:
            self.machine.delays.try_again()
            self.changes.touched[self, 0] = None

    def next_due_ns(self, now: Now, *, is_firing: bool) -> float:
        """When something happens here by itself, on the clock that measures waiting; or infinity.

        Not `is_firing`: delayed and recurring messages do not count.
        """
        firing_ns = self.next_firing_ns(now) if is_firing else NEVER_NS
        groups_ns = (one.next_due_ns() for one in self.machine.groups.values())
        return min(firing_ns, min(groups_ns, default=NEVER_NS))

    def next_firing_ns(self, now: Now) -> float:
        """When a delayed or recurring message is due next; never, if there is none."""
        walls_ns = (self.machine.delays.next_ns(), self.timetable.next_ns())
        wall_ns = min((one for one in walls_ns if one is not None), default=None)
        return NEVER_NS if wall_ns is None else now.monotonic_ns + max(0, wall_ns - now.wall_ns)

    @property
    def is_dirty(self) -> bool:
        """Whether a sync would change anything."""
        messages, delayed, state = self.messages, self.delayed, self.journal.log
        return (
            messages.end_offset > messages.durable_end
            or state.end_offset > state.durable_end
            or delayed.end_offset > delayed.durable_end
            or self.staging.end_offset > self.staging.durable_end
        )

    def has_more_than(self, plan: PartitionPlan) -> bool:
        """Whether something was written since a plan was made."""
        delayed_to = 0 if plan.delayed is None else plan.delayed.up_to
        staging_to = 0 if plan.staging is None else plan.staging.up_to
        return (
            self.messages.end_offset > plan.messages.up_to
            or self.journal.log.end_offset > plan.state.up_to
            or self.delayed.end_offset > delayed_to
            or self.staging.end_offset > staging_to
        )

    def append(self, encoded: Encoded, now: Now) -> Published:
        """Append a batch whose body is known to be good, or find that its producer sent it before.

        OutOfSequence: it is neither a producer's next batch nor one of its last. NoSpace: nothing happened.
        """
        head, machine = encoded.head, self.machine
        # A staging was numbered when it was staged.
        if head.producer_id != PRODUCER_NONE and not head.transaction_id:
            repeat = machine.producers.repeat_of(head)
            if repeat is not None:
                end = repeat.base_offset + repeat.message_count
                return Published(self.number, repeat.base_offset, True, end)
        self.changes.unsynced[self] = None
        appended = self.messages.append(encoded, now_ns=now.wall_ns)
        self._apply_appended(encoded, appended.head)
        self.changes.touched[self, 0] = None
        return _published((self.number, appended.base_offset, False, appended.next_offset, False))

    def append_staged(self, batches: Sequence[Encoded], now: Now) -> None:
        """Append batches of the staging log to the messages, with one write for as many as a segment takes.

        NoSpace: those that are not written stay where they are.
        """
        rest = batches
        self.changes.unsynced[self] = None
        while rest:
            heads = self.messages.append_run(rest, now_ns=now.wall_ns)
            for encoded, head in zip(rest, heads, strict=False):
                self._apply_appended(encoded, head)
            self.changes.touched[self, 0] = None
            rest = rest[len(heads) :]

    def _apply_appended(self, encoded: Encoded, head: Head) -> None:
        # Of most batches the head alone says all that the machine has to know.
        is_usual = head.attributes & KINDS == USUAL_KIND
        is_in_head = is_usual or (
            head.priorities.bit_count() == 1 and head.origin is not Origin.DELAY
        )
        if is_in_head and not encoded.has_idempotency_keys:
            self.machine.apply_head(head)
        else:
            self.machine.apply_batch(encoded.whole_body(), head)
        self.entries_behind += 1
        self.bytes_behind += head.length

    def schedule(self, columns: Columns, now: Now) -> Published:
        """Append messages with due times to the delay log, as one batch."""
        encoded = encode(columns, compression=self.compression, limits=self.limits)
        self.make_delay_log(now)
        self.changes.unsynced[self] = None
        appended = self.delayed.append(encoded, now_ns=now.wall_ns)
        self._scheduled(columns, appended)
        return Published(
            self.number, appended.base_offset, False, appended.next_offset, is_delayed=True
        )

    def schedule_staged(self, encoded: Encoded, now: Now) -> None:
        """Append a staging of delayed messages to the delay log. NoSpace: nothing happened.

        They fire once the delay log is durable: if it lost one that had fired, its transaction would schedule it again.
        """
        self.make_delay_log(now)
        self.changes.unsynced[self] = None
        appended = self.delayed.append(encoded, now_ns=now.wall_ns)
        self.machine.delays.follow(appended.next_offset, self.delayed.epochs())
        self.machine.apply_delayed(encoded.whole_body(), appended.head, is_held=True)
        self._note_scheduled(appended)

    def stage(self, encoded: Encoded, now: Now, *, may_begin_anywhere: bool = False) -> Head | None:
        """Append a batch of a transaction to the staging log; None: it repeats one that its producer staged before.

        OutOfSequence: it is neither a producer's next staging nor one of its last. TransactionEnded: its transaction is
        over here. NoSpace: nothing happened.
        """
        producers = self.machine.staging_producers
        if producers.repeat_of(encoded.head, may_begin_anywhere=may_begin_anywhere) is not None:
            return None
        self.machine.stagings.require_open(encoded.head)
        if not self.machine.has_staging_log:
            self.staging.make()
            self.record((StagingLogMade(0),), now)
        self.changes.unsynced[self] = None
        head = self.staging.append(encoded, now_ns=now.wall_ns).head
        self.machine.apply_staged(head)
        self.changes.touched[self, 0] = None
        self.bytes_behind += head.length
        self.entries_behind += 1
        return head

    def make_delay_log(self, now: Now) -> None:
        """Have a delay log, durably, before anything goes there."""
        if not self.machine.has_delay_log:
            self.delayed.make()
            self.record((DelayLogMade(0),), now)

    def _scheduled(self, columns: Columns, appended: AppendResult) -> None:
        self.machine.apply_scheduled(columns, appended, self.delayed.epochs())
        self._note_scheduled(appended)

    def _note_scheduled(self, appended: AppendResult) -> None:
        self.bytes_behind += appended.head.length
        self.entries_behind += 1
        self.changes.touched[self, 0] = None

    def append_with_delays(self, encoded: Encoded, columns: Columns, now: Now) -> Published:
        """Append a batch, and with it the delayed messages that its marks name: both or neither, also after a crash.

        The delayed ones are written first, and count only once the batch that names them is in the message log. If
        that fails they stay where they are, and never were. NoSpace.
        """
        decided_at = self.messages.end
        marks = Marks(
            origin=Origin.DECIDED_AT,
            origin_source=decided_at.epoch,
            origin_sequence=decided_at.offset,
        )
        delayed = encode(columns, compression=self.compression, limits=self.limits, marks=marks)
        self.changes.unsynced[self] = None
        appended = self.delayed.append(delayed, now_ns=now.wall_ns)
        published = self.append(encoded, now)
        self._scheduled(columns, appended)
        return published

    def backlog_start(self) -> int:
        """The first offset that the slowest group has not finished; without a group, the first there is."""
        lowest = [one.progress.lowest_unfinished() for _, one in self.user_groups()]
        return max(min(lowest, default=0), self.messages.start_offset)

    def user_groups(self) -> list[tuple[str, Delivery]]:
        """Groups by name, without our own."""
        return [
            (name, self.machine.groups[number])
            for name, number in self.machine.numbers.items()
            if not name.startswith(INTERNAL_PREFIX)
        ]

    def record(self, records: Sequence[PartitionRecord], now: Now) -> None:
        """Journal the records of one decision and apply them. NoSpace: nothing happened."""
        if not records:
            return
        decided_at = self.messages.end
        self.changes.unsynced[self] = None
        offset = self.journal.append(records, decided_at=decided_at, now_ns=now.wall_ns)
        self.history.note(offset, records)
        self.entries_behind += 1
        machine = self.machine
        for one in records:
            if type(one) is Acked:
                self.times.acked(machine.groups[one.group], one.lease, one.runs, now.wall_ns)
            machine.apply(one, now.monotonic_ns)
            self.changes.touched[self, one.group] = None
            if type(one) in _INTENTS:
                self._note_intent(one)

    def _note_intent(self, record: PartitionRecord) -> None:
        self.changes.sending[self] = None
        recorded_at, end = self.machine.outbox.recorded_at, self.journal.log.end_offset
        if isinstance(record, TransactionDecided | NamedStagingsDecided):
            recorded_at.update(dict.fromkeys(record.letters(), end))
            return
        assert isinstance(record, Buried | Redriven), "one of the intents"
        sequence = record.sequence if isinstance(record, Buried) else record.letter.sequence
        if sequence >= 0:
            recorded_at[sequence] = end

    def open_group(
        self,
        name: str,
        start: int,
        now: Now,
        *,
        owner: str = NO_KEY,
        mode: Mode = Mode.UNDECIDED,
    ) -> Delivery:
        """The group's delivery; a new group starts at `start`, is the key's with the id `owner`, and reads in a mode.

        One that another partition of the topic has already is of the key that made it there.
        """
        number = self.machine.numbers.get(name)
        if number is None:
            number = self.machine.next_group
            owner = self.machine.group_owners.owner(self.identity.topic_id, name, owner)
            opened = GroupOpened(number, name, start, now.wall_ns, owner)
            # One record less is half of what it takes to open a group on a thousand partitions.
            self.record(
                (opened,) if mode is Mode.UNDECIDED else (opened, ModeSet(number, mode)), now
            )
        return self.machine.groups[number]

    def close_group(self, name: str, now: Now) -> None:
        delivery = self.group(name)
        self.record((GroupClosed(delivery.group, name),), now)
        if not self.machine.group_owners.knows(self.identity.topic_id, name):
            self.times.forget_group(name)
        self.changes.loads.update(
            [(self.topic, name, member) for member in delivery.leases.held_by]
        )
        # For consumers that wait in it, a group of the same name begins anew.
        self.changes.touched[self, 0] = None

    def group(self, name: str) -> Delivery:
        """NotFound: there is none, or it is one of our own."""
        number = self.machine.numbers.get(name)
        if number is None or name.startswith(INTERNAL_PREFIX):
            raise NotFound("group", name)
        return self.machine.groups[number]

    def plan_sync(self) -> PartitionPlan:
        """Make everything durable."""
        return self._plan()

    @property
    def is_snapshot_held(self) -> bool:
        """Whether a snapshot waits for other nodes to have what it speaks of."""
        return self._held is not None

    @property
    def is_snapshot_due(self) -> bool:
        """Whether the snapshot that waits may be written now."""
        return self._held is not None and self._is_committed_to(self._held.ends)

    def plan_snapshot(self) -> PartitionPlan:
        """Plan a sync with a snapshot.

        Where other nodes have these logs, too, the snapshot waits for a later plan, until they have all that it speaks
        of: what may still be cut is in no snapshot.
        """
        self.hold_snapshot()
        return self._plan()

    def hold_snapshot(self) -> None:
        """Make a snapshot that a later plan writes."""
        if self._held is None or self.is_committed:
            self._taken_behind = self.entries_behind, self.bytes_behind
            self.note_activity()
            self.entries_behind = self.bytes_behind = 0
            content = self.journal.snapshot_plan(self.messages, self.machine)
            self._held = HeldSnapshot(content, self.messages.end_offset, self._log_ends())

    def _plan(self) -> PartitionPlan:
        # A start reads what is behind the checkpoints, too, to see whether it is whole.
        is_due, messages, state = self.is_snapshot_due, self.messages, self.journal.log
        plan = PartitionPlan(
            messages.plan_sync(with_checkpoint=is_due and _has_more(messages)),
            state.plan_sync(with_checkpoint=is_due and _has_more(state)),
            None,
            self.delayed.plan_sync(),
            self.staging.plan_sync(),
        )
        self.add_held(plan)
        return plan

    def add_held(self, plan: PartitionPlan) -> None:
        """Have a plan write the snapshot that waits, if it may be written now."""
        if self._held is not None and self.is_snapshot_due:
            plan.snapshot, plan.covers = self._held.content, self._held.covers
            self._held = None

    def _log_ends(self) -> Sequence[tuple[Log, int]]:
        logs = (self.messages, self.journal.log, self.delayed.log, self.staging.log)
        return [(log, log.end_offset) for log in logs if log is not None]

    @property
    def is_committed(self) -> bool:
        """Whether nothing of it may still be cut: always, unless other nodes have its logs, too."""
        return self._is_committed_to(self._log_ends())

    def _is_committed_to(self, ends: Sequence[tuple[Log, int]]) -> bool:
        reign = self.reign
        return not reign.is_shared or all(reign.committed_end(log) >= end for log, end in ends)

    def synced(self, plan: PartitionPlan) -> None:
        self.delayed.synced(plan.delayed)
        self.staging.synced(plan.staging)
        self.messages.synced(plan.messages)
        self.journal.log.synced(plan.state)
        if plan.snapshot is None:
            return
        if not plan.is_snapshot_written:
            self.entries_behind += self._taken_behind[0]
            self.bytes_behind += self._taken_behind[1]
            return
        self.newest_covers, self.newest_snapshot = plan.covers, plan.snapshot.offset
        self.journal.snapshot_written(plan.snapshot, self._sync_others)
        self.history.save()

    def _sync_others(self) -> None:
        """What removes a segment of the state log syncs that to its end, and it may speak of what came since."""
        self.delayed.sync()
        self.staging.sync()
        self.messages.sync()

    def ends_noted(self) -> None:
        """Called once meta knows the newest snapshot, durably."""
        self.snapshot_covers = self.newest_covers

    def ends(self) -> PartitionEnds:
        """How far everything is durable now."""
        delayed = self.delayed.log
        return PartitionEnds(
            self.identity.topic_id,
            self.number,
            _end_of(self.messages),
            _end_of(self.journal.log),
            () if delayed is None else _end_of(delayed),
            self.newest_snapshot,
        )

    def sync(self) -> None:
        self._perform(self.plan_sync())

    def take_snapshot(self) -> bool:
        """Make everything durable, here and now, with a snapshot if there is room for one."""
        return self._perform(self.plan_snapshot())

    def cover(self, now: Now) -> bool:
        """Take a snapshot and have meta know of it, both durably: what only it makes up for may be removed then.

        False: there is no room for it. If meta did not know of it and it was lost, an older snapshot would serve in its
        place, without what was removed since.
        """
        # With followers, only what they have, too, may be removed: then there is nothing that is not committed.
        is_settled = self.is_committed
        has_snapshot = self._is_in_snapshot or self.take_snapshot()
        return has_snapshot and self._note_ends(self, now) and is_settled

    @property
    def _is_in_snapshot(self) -> bool:
        """Whether the newest snapshot has all there is, durably."""
        is_behind = self.entries_behind or self.bytes_behind or self._held is not None
        return self.newest_snapshot >= 0 and not is_behind and not self.is_dirty

    def _perform(self, plan: PartitionPlan) -> bool:
        plan.run()
        self.synced(plan)
        return plan.is_snapshot_written

    def overtake(self, now: Now) -> None:
        """Tell the groups that are behind the start of the log that what lies between is gone."""
        records: list[PartitionRecord] = []
        for delivery in self.machine.groups.values():
            records.extend(overtake(delivery, self.messages.start_offset))
        self.record(records, now)

    def discard(self) -> None:
        """Let go of the files without another write."""
        self.machine.forget_groups()
        self.changes.forget(self)
        self.cache.clear()
        self.prefetch.clear()
        self.messages.discard()
        self.delayed.discard()
        self.staging.discard()
        self.journal.log.discard()

    def note_activity(self) -> None:
        """A restart knows from here on when groups were active until now."""
        self.activity = {one.group: one.active_at_ns for one in self.machine.groups.values()}


def _has_more(log: Log) -> bool:
    """Whether the log has more than its checkpoint on the disk knows of."""
    return log.saved_checkpoint is None or log.end_offset > log.saved_checkpoint.offset


def _end_of(log: Log) -> tuple[int, int, int, int]:
    return log.epoch, log.durable_end, log.start_offset, log.epochs[-1].offset
