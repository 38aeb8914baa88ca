"""The state of a partition beside its messages: groups, repeats, letters. Sum of the journal and of the batches."""

from collections.abc import Callable, Iterable
from typing import Any, get_args

import numpy as np

from ...api.groups import Mode
from ...api.principals import NO_KEY
from ...codec import Columns, Head, Origin
from ...codec.body import Body, Column
from ...codec.compression import Compression
from ...codec.decode import (
    delay_ids,
    delay_keys,
    due_times,
    expired_among,
    offsets_of,
    open_body,
)
from ...codec.head import BODY_BYTES_MAX, KINDS, PRIORITIES_SHIFT
from ...codec.numbers import as_array
from ...config import TopicConfig
from ...delivery import Delivery
from ...delivery.commands import history
from ...delivery.delay_records import DelayRecord
from ...delivery.delays import DelayEpoch, Delays
from ...delivery.image import in_pieces
from ...delivery.lane_turns import LANES, Rate
from ...delivery.lanes import NORMAL, Lanes
from ...delivery.offsets import offsets_of as runs_to_offsets
from ...delivery.offsets import runs_in_pieces
from ...delivery.records import Buried, Claimed, ClaimImage, CommitClaimed, Moved, Reopened
from ...log.log import AppendResult
from ...model import PRODUCER_NONE, Buffer
from ...ports import Entropy
from ...schedules import ScheduleRecord, Schedules, is_schedule
from ...transactions import CommitNames, Coordinator, Stagings
from ...transactions.commit_records import (
    CommitNameRecord,
    NamedStagingsDecided,
    NamedStagingsEnded,
)
from ...transactions.names import STAGING_ID_FIRST
from ...transactions.records import (
    NO_PART,
    CoordinatorRecord,
    StagingLogMade,
    StagingProducerImage,
    StagingRecord,
    TransactionDecided,
)
from ...transactions.stagings import NAMED_NUMBER, TransactionKey
from .dedup import Dedup
from .group_owners import GroupOwners
from .outbox import Burial, Channel, Decision, Letter, NamedDecision, Outbox, Redrive
from .producers import Producer, Producers, Sent
from .records import (
    Arrived,
    CommitNoted,
    Covered,
    DedupImage,
    DelayLogMade,
    Forwarded,
    GroupClosed,
    GroupOpened,
    LaneImage,
    LettersImage,
    ModeSet,
    OutboxImage,
    PartitionRecord,
    ProducerImage,
    Redriven,
    Returned,
    StartMoved,
)

_MS = 1_000_000
# To walk through an enumeration takes as long as to make all else of an empty machine.
_CHANNELS = tuple(Channel)
# A holder of a lease that a power cut made us forget must not be taken for the holder of a later one. Records that
# were not durable may be some thousands; among this many numbers they are not met again.
_LEASE_NUMBER_BITS = 40
_LETTER_BYTES = 128
# What most batches are: straight from a producer, and of no special priority.
USUAL_KIND = 1 << NORMAL << PRIORITIES_SHIFT
_KEY_BYTES = 24
_ID_BYTES = 9


class PartitionMachine:
    """`apply` takes journal records, `apply_batch` takes what the messages themselves show."""

    def __init__(
        self,
        config: TopicConfig,
        *,
        now_ns: int,
        topic_id: int = 0,
        group_owners: GroupOwners | None = None,
    ) -> None:
        self.now_ns, self.topic_id = now_ns, topic_id
        # Of all partitions of the node.
        self.group_owners = group_owners or GroupOwners()
        self.groups: dict[int, Delivery] = {}
        self.names: dict[int, str] = {}
        self.numbers: dict[str, int] = {}
        # The keys that made groups; one that was made without keys is not in it.
        self.owners: dict[int, str] = {}
        # How groups read; one that no consumer has used yet is not in it.
        self.modes: dict[int, Mode] = {}
        # Groups that clients commit offsets for, each with the text of the last commit.
        self.notes: dict[int, str] = {}
        self.next_group = 1
        self.lease_base = 1
        self.outbox = Outbox()
        self.arrived: dict[Channel, dict[int, int]] = {channel: {} for channel in _CHANNELS}
        self.producers = Producers()
        self.dedup = Dedup(window_ns=0, keys_max=1)
        self.delays = Delays()
        self.has_delay_log = False
        self.schedules = Schedules()
        self.stagings, self.has_staging_log = Stagings(), False
        # Sequences of stagings go on whatever becomes of them, so they count apart from those of messages.
        self.staging_producers = Producers()
        # Only a partition of `__transactions` has producers in it.
        self.coordinator = Coordinator()
        self.commit_names = CommitNames()
        # Epoch and first id of delayed messages that a batch of the message log names, until they are taken in.
        self.named_delays: set[tuple[int, int]] = set()
        self.lanes = Lanes()
        self.covered = 0
        # Messages below it were deleted, wherever files begin.
        self.start = 0
        self.count_from_here()
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        self.dedup.window_ns = config.dedup_window_ms * _MS
        self.dedup.keys_max = config.dedup_keys_max

    def count_from_here(self) -> None:
        """After a replay: what came before the start is not what comes now."""
        # By lane, on the clock that stamps batches.
        self.enqueued = [Rate() for _ in range(LANES)]
        self.stagings.count_from_here()

    def begin_leases(self, entropy: Entropy) -> None:
        """After a start: number leases above all that an earlier run can have used."""
        known = max((delivery.next_lease for delivery in self.groups.values()), default=1)
        self.lease_base = known + entropy.getrandbits(_LEASE_NUMBER_BITS)
        for delivery in self.groups.values():
            delivery.lease_base = self.lease_base
            # No member waits that could have heard of it.
            delivery.leases.lowered.clear()

    def apply_batch(self, body: Buffer, head: Head) -> None:
        """Take note of a batch that was appended, or is read again after a restart. `body` follows its head."""
        self.apply_head(head)
        if head.priorities.bit_count() > 1:
            opened = open_body(body, head, size_max=BODY_BYTES_MAX, start=0)
            offsets = np.asarray(offsets_of(opened, head), dtype=np.int64)
            priorities = as_array(opened.number(Column.PRIORITIES), opened.count, np.uint8)
            self.lanes.add(offsets, priorities)
            for lane, count in enumerate(np.bincount(priorities, minlength=LANES).tolist()):
                if count:
                    self.enqueued[lane].add(count, head.append_time)
        if head.origin is Origin.DELAY:
            # Its idempotency keys are those of the delay log, and count from then.
            self._apply_fired(body, head)
        elif _may_have_keys(body, head):
            opened = open_body(body, head, size_max=BODY_BYTES_MAX, start=0)
            if Column.IDEMPOTENCY_KEYS in opened.blobs:
                keys = opened.blob(Column.IDEMPOTENCY_KEYS).items(opened.count, None)
                self.dedup.add(keys, offsets_of(opened, head), head.append_time)

    def _apply_fired(self, body: Buffer, head: Head) -> None:
        if head.message_count:
            opened = open_body(body, head, size_max=BODY_BYTES_MAX, start=0)
            ids, is_late = delay_ids(opened, head), expired_among(opened, head.append_time)
            self.delays.fired(ids.tolist(), head.origin_source, ids[is_late].tolist())
            if Column.IDEMPOTENCY_KEYS in opened.blobs:
                self._keep_keys_of_lost(ids.tolist(), opened, head)

    def _keep_keys_of_lost(self, ids: list[int], body: Body, head: Head) -> None:
        """What fired and was lost where it had waited is known by its key from here on."""
        is_lost = [self.delays.is_lost(one, head.origin_source) for one in ids]
        if any(is_lost):
            keys = body.blob(Column.IDEMPOTENCY_KEYS).items(body.count, None)
            lost = [key if gone else None for key, gone in zip(keys, is_lost, strict=True)]
            self.dedup.add(lost, offsets_of(body, head), head.append_time)

    def apply_scheduled(
        self, columns: Columns, appended: AppendResult, epochs: Iterable[DelayEpoch]
    ) -> None:
        """Take note of a batch that was just appended to the delay log."""
        self.named_delays.discard((appended.head.epoch, appended.base_offset))
        first, end = appended.base_offset, appended.next_offset
        self.delays.follow(end, epochs)
        ids = np.arange(first, end, dtype=np.int64)
        if isinstance(columns.due_at, int):
            dues = np.full(end - first, columns.due_at, dtype=np.int64)
        else:
            dues = np.asarray(columns.due_at, dtype=np.int64)
        self.delays.scheduled(ids, dues, columns.delay_keys)
        if columns.idempotency_keys is not None:
            self.dedup.add(columns.idempotency_keys, (~ids).tolist(), appended.append_time)

    def apply_delayed(self, packed: Buffer, head: Head, *, is_held: bool = False) -> None:
        """Take note of a batch of the delay log. The caller has told `delays` how far that log reaches.

        One that came with a batch of messages counts only if that is there and names it: see `append_with_delays`.
        `is_held`: it does not fire before it is released.
        """
        is_named = (head.epoch, head.base_offset) in self.named_delays
        self.named_delays.discard((head.epoch, head.base_offset))
        if head.transaction_id:
            self.stagings.scheduled(head)
        if head.message_count and (head.origin is not Origin.DECIDED_AT or is_named):
            body = open_body(packed, head, size_max=BODY_BYTES_MAX, start=0)
            ids = np.asarray(offsets_of(body, head), dtype=np.int64)
            self.delays.scheduled(ids, due_times(body), delay_keys(body), is_held=is_held)
            if Column.IDEMPOTENCY_KEYS in body.blobs:
                keys = body.blob(Column.IDEMPOTENCY_KEYS).items(body.count, None)
                self.dedup.add(keys, (~ids).tolist(), head.append_time)
        self.delays.covered = head.next_offset

    def apply_head(self, head: Head) -> None:
        """Take note of what the head of a batch says."""
        if head.transaction_id:
            self.stagings.published(head)
        elif head.producer_id != PRODUCER_NONE:
            self.producers.add(head)
        if head.attributes & KINDS == USUAL_KIND:
            self.enqueued[NORMAL].add(head.message_count, head.append_time)
            self.covered = head.base_offset + head.last_delta + 1
            return
        if head.origin is Origin.OUTBOX and is_schedule(head.origin_source):
            self.schedules.published(head.origin_source, head.origin_sequence)
        elif head.origin is Origin.OUTBOX:
            self._note_arrival(Channel.MESSAGES, head.origin_source, head.origin_sequence)
        elif head.origin is Origin.DECIDED_AT:
            self.named_delays.add((head.origin_source, head.origin_sequence))
        priorities, next_offset = head.priorities, head.next_offset
        if priorities.bit_count() == 1:
            priority = priorities.bit_length() - 1
            self.lanes.add_run(head.base_offset, next_offset, priority)
            self.enqueued[priority].add(head.message_count, head.append_time)
        self.covered = next_offset

    def apply_staged(self, head: Head) -> None:
        """Take note of a batch of the staging log."""
        self.stagings.staged(head)
        is_named = head.producer_id >= STAGING_ID_FIRST
        if is_named and self.stagings.is_over(TransactionKey(head.producer_id, NAMED_NUMBER)):
            return  # No client says this id again.
        if head.message_count:
            self.staging_producers.add(head)

    def apply(self, record: PartitionRecord, now_ns: int = 0) -> None:
        """Follow a decision, made at a time; in a replay no time passes."""
        self.now_ns = max(self.now_ns, now_ns)
        special = _APPLY.get(type(record))
        if special is not None:
            special(self, record)
        else:
            self.groups[record.group].apply(record, self.now_ns)  # type: ignore[arg-type]  # All others are deliveries'.

    def _opened(self, record: GroupOpened) -> None:
        delivery = Delivery(record.group, record.start, now_ns=self.now_ns)
        delivery.lease_base, delivery.active_at_ns = self.lease_base, record.at_ns
        self.groups[record.group] = delivery
        self.names[record.group] = record.name
        self.numbers[record.name] = record.group
        if record.owner:
            self.owners[record.group] = record.owner
        self.group_owners.opened(self.topic_id, record.name, record.owner)
        self.next_group = max(self.next_group, record.group + 1)

    def forget_groups(self) -> None:
        """The partition is not used any more, so its groups do not count."""
        for name in self.numbers:
            self.group_owners.closed(self.topic_id, name)

    def _closed(self, record: GroupClosed) -> None:
        del self.groups[record.group]
        name = self.names.pop(record.group)
        del self.numbers[name]
        self.group_owners.closed(self.topic_id, name)
        self.owners.pop(record.group, None)
        self.modes.pop(record.group, None)
        self.notes.pop(record.group, None)

    def _mode_set(self, record: ModeSet) -> None:
        self.modes[record.group] = record.mode
        if record.mode is Mode.UNDECIDED:
            del self.modes[record.group]
        self.groups[record.group].is_strict = record.mode is Mode.STRICT

    def _commit_noted(self, record: CommitNoted) -> None:
        self.notes[record.group] = record.note

    def _buried(self, record: Buried) -> None:
        delivery = self.groups[record.group]
        if record.sequence >= 0:
            life = history(delivery, record.offset, record.lease)
            self.outbox.add(
                Burial(
                    record.sequence,
                    record.offset,
                    self.names[record.group],
                    record.reason,
                    record.error,
                    life.attempts,
                    life.first_delivery_ns,
                    life.last_delivery_ns,
                    life.member,
                    record.at_ns,
                )
            )
        delivery.apply(record)

    def _redriven(self, record: Redriven) -> None:
        self.groups[record.group].apply(Moved(record.group, (record.letter.offset, 1)))
        self.outbox.add(record.letter)

    def _returned(self, record: Returned) -> None:
        letter = self.outbox.pending[record.sequence]
        assert isinstance(letter, Redrive), "nothing else returns"
        self.groups[record.group].apply(Reopened(record.group, (letter.offset, 1)))
        self.outbox.done(record.sequence)

    def _forwarded(self, record: Forwarded) -> None:
        self.outbox.done(record.sequence)
        self.coordinator.arrived(record.sequence)
        self.commit_names.arrived(record.sequence)

    def _arrived(self, record: Arrived) -> None:
        self._note_arrival(Channel.STATE, record.source, record.sequence)

    def _note_arrival(self, channel: Channel, source: int, sequence: int) -> None:
        arrived = self.arrived[channel]
        arrived[source] = max(arrived.get(source, 0), sequence)

    def _outbox_image(self, record: OutboxImage) -> None:
        self.outbox.next_sequence = record.next_sequence
        self.arrived[Channel.MESSAGES].update(record.arrived_messages)
        self.arrived[Channel.STATE].update(record.arrived_records)

    def _letters_image(self, record: LettersImage) -> None:
        self.outbox.pending.update((letter.sequence, letter) for letter in record.letters)

    def _dedup_image(self, record: DedupImage) -> None:
        self.dedup.restore(record.keys)

    def _producer_image(self, record: ProducerImage | StagingProducerImage) -> None:
        is_plain = isinstance(record, ProducerImage)
        producer = Producer(record.epoch, record.next_sequence)
        producer.recent.extend(Sent(*sent) for sent in record.recent)
        producers = self.producers if is_plain else self.staging_producers
        producers.by_id[record.producer_id] = producer

    def _coordinated(self, record: CoordinatorRecord) -> None:
        self.coordinator.apply(record, self.now_ns)

    def _decided(self, record: TransactionDecided) -> None:
        participants = self.coordinator.producers[record.producer_id].participants
        for place, (participant, count) in enumerate(
            zip(participants, record.counts, strict=True), record.first_sequence
        ):
            if count != NO_PART:
                key = record.producer_id, record.number
                self.outbox.add(Decision(place, *key, *participant, record.is_commit, count))
        self._coordinated(record)

    def _named(self, record: CommitNameRecord) -> None:
        self.commit_names.apply(record, self.now_ns)

    def _named_decided(self, record: NamedStagingsDecided) -> None:
        parts = self.commit_names.parts(record.published, record.dropped)
        for place, ((participant, part), count) in enumerate(
            zip(parts.items(), record.counts, strict=True), record.first_sequence
        ):
            published, dropped = tuple(part.published), tuple(part.dropped)
            commit = record.sequence if published else -1
            self.outbox.add(
                NamedDecision(
                    place, record.name_id, commit, *participant, published, dropped, count
                )
            )
        self._named(record)

    def _named_ended(self, record: NamedStagingsEnded) -> None:
        self.stagings.apply(record)
        for staging_id in (*record.published, *record.dropped):
            self.staging_producers.by_id.pop(staging_id, None)

    def _staging(self, record: StagingRecord) -> None:
        self.stagings.apply(record)

    def _claimed(self, record: Claimed | ClaimImage | CommitClaimed) -> None:
        self.groups[record.group].apply(record, self.now_ns)
        self.stagings.answered(TransactionKey(record.producer_id, record.number), record.group)

    def _staging_log_made(self, record: StagingLogMade) -> None:
        self.has_staging_log = True

    def _delay(self, record: DelayRecord) -> None:
        self.delays.apply(record)

    def _schedule(self, record: ScheduleRecord) -> None:
        self.schedules.apply(record)

    def _delay_log_made(self, record: DelayLogMade) -> None:
        self.has_delay_log = True

    def _lane_image(self, record: LaneImage) -> None:
        self.lanes.restore(record.priority, runs_to_offsets(record.runs))

    def _start_moved(self, record: StartMoved) -> None:
        self.start = max(self.start, record.offset)

    def _covered(self, record: Covered) -> None:
        self.covered, self.next_group = record.offset, record.next_group

    def snapshot(self) -> Iterable[PartitionRecord]:
        yield Covered(0, self.covered, self.next_group)
        if self.start:
            yield StartMoved(0, self.start)
        arrived = (tuple(self.arrived[channel].items()) for channel in Channel)
        yield OutboxImage(0, self.outbox.next_sequence, *arrived)
        for letters in in_pieces(self.outbox.pending.values(), _letter_bytes):
            yield LettersImage(0, letters)
        for keys in in_pieces(self.dedup.items(), lambda item: len(item[0]) + _KEY_BYTES):
            yield DedupImage(0, keys)
        for producer_id, producer in self.producers.by_id.items():
            recent = tuple((*sent,) for sent in producer.recent)
            yield ProducerImage(0, producer_id, producer.epoch, producer.next_sequence, recent)
        for producer_id, producer in self.staging_producers.by_id.items():
            recent = tuple((*sent,) for sent in producer.recent)
            yield StagingProducerImage(
                0, producer_id, producer.epoch, producer.next_sequence, recent
            )
        yield from self.coordinator.snapshot()
        yield from self.commit_names.snapshot()
        if self.has_staging_log:
            yield StagingLogMade(0)
        yield from self.stagings.snapshot()
        if self.has_delay_log:
            yield DelayLogMade(0)
        yield from self.delays.snapshot()
        yield from self.schedules.snapshot()
        for priority, lane in self.lanes.special.items():
            for runs in runs_in_pieces(lane):
                yield LaneImage(0, priority, runs)
        for number, delivery in self.groups.items():
            floor, at_ns = delivery.progress.floor, delivery.active_at_ns
            owner = self.owners.get(number, NO_KEY)
            yield GroupOpened(number, self.names[number], floor, at_ns, owner)
            if number in self.modes:
                yield ModeSet(number, self.modes[number])
            if number in self.notes:
                yield CommitNoted(number, self.notes[number])
            yield from delivery.snapshot()


def _letter_bytes(letter: Letter) -> int:
    if isinstance(letter, Burial):
        return _LETTER_BYTES + len(letter.error)
    if isinstance(letter, Decision):
        return _LETTER_BYTES
    if isinstance(letter, NamedDecision):
        return _LETTER_BYTES + _ID_BYTES * (len(letter.published) + len(letter.dropped))
    return _LETTER_BYTES + (0 if letter.edit is None else letter.edit.size)


def _may_have_keys(body: Buffer, head: Head) -> bool:
    """Whether the batch has idempotency keys, by one byte; a compressed one has to be opened to know."""
    if head.message_count == 0 or head.is_verbatim:
        return False
    if head.compression is not Compression.NONE:
        return True
    return bool(body[Column.IDEMPOTENCY_KEYS])


_APPLY: dict[type, Callable[[PartitionMachine, Any], None]] = {
    GroupOpened: PartitionMachine._opened,
    GroupClosed: PartitionMachine._closed,
    ModeSet: PartitionMachine._mode_set,
    CommitNoted: PartitionMachine._commit_noted,
    StartMoved: PartitionMachine._start_moved,
    Buried: PartitionMachine._buried,
    **dict.fromkeys((Claimed, ClaimImage, CommitClaimed), PartitionMachine._claimed),
    Redriven: PartitionMachine._redriven,
    Returned: PartitionMachine._returned,
    Forwarded: PartitionMachine._forwarded,
    Arrived: PartitionMachine._arrived,
    OutboxImage: PartitionMachine._outbox_image,
    LettersImage: PartitionMachine._letters_image,
    DedupImage: PartitionMachine._dedup_image,
    ProducerImage: PartitionMachine._producer_image,
    Covered: PartitionMachine._covered,
    LaneImage: PartitionMachine._lane_image,
    DelayLogMade: PartitionMachine._delay_log_made,
    **dict.fromkeys(get_args(DelayRecord), PartitionMachine._delay),
    **dict.fromkeys(get_args(ScheduleRecord), PartitionMachine._schedule),
    **dict.fromkeys(get_args(CoordinatorRecord), PartitionMachine._coordinated),
    TransactionDecided: PartitionMachine._decided,
    **dict.fromkeys(get_args(CommitNameRecord), PartitionMachine._named),
    NamedStagingsDecided: PartitionMachine._named_decided,
    NamedStagingsEnded: PartitionMachine._named_ended,
    **dict.fromkeys(get_args(StagingRecord), PartitionMachine._staging),
    StagingProducerImage: PartitionMachine._producer_image,
    StagingLogMade: PartitionMachine._staging_log_made,
}
