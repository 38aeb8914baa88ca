"""Bugs that such brokers have had, planted one at a time: a named checker has to find each within so many seeds.

A simulation that cannot fail proves nothing. The table in docs/simulation.md lists the same bugs.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyroaring import BitMap64

from penstock.api.publish import Published
from penstock.broker.partition import (
    Now,
    Partition,
    consumption,
    forwarding,
    opening,
    removal,
)
from penstock.broker.partition import machine as partition_machine
from penstock.broker.partition.batch_cache import CachedBatch
from penstock.broker.partition.dedup import Kept
from penstock.broker.partition.machine import PartitionMachine
from penstock.broker.partition.outbox import Letter, Outbox
from penstock.broker.partition.producers import Producers, Sent
from penstock.broker.partition.records import Forwarded, GroupOpened
from penstock.codec import Encoded, Head
from penstock.delivery import AnswerResult, Delivery, commands
from penstock.delivery.offsets import offsets_of
from penstock.delivery.progress import Progress
from penstock.delivery.records import (
    FailuresImage,
    OffsetsImage,
    Released,
    Retried,
)
from penstock.log.journal import Journal
from penstock.sim.driver import PendingReply, SimDriver
from penstock.sim.violation import Checker

from .planting import Bug, Patch, patch_record, planter, require_found
from .scenes import letters_leave_late, many_dead_letters, without_history

BUGS: list[Bug] = []
bug = planter(BUGS)


@bug(4, Checker.ATTEMPTS)
def attempt_counted_at_expiry(patch: Patch) -> None:
    original = Delivery._retried

    def retried(delivery: Delivery, record: Retried) -> None:
        known = [one for one in offsets_of(record.runs) if one in delivery.failures]
        original(delivery, record)
        for offset in known:
            delivery.failures[offset].attempts += 1

    patch.setattr(Delivery, "_count_attempts", lambda *_: None)
    patch_record(patch, Retried, retried)


@bug(4, Checker.LEASE_EXCLUSIVE)
def stale_receipt_accepted(patch: Patch) -> None:
    original = commands.ack

    def ack(delivery: Delivery, number: int, offsets: BitMap64) -> commands.Answer:
        for lease in delivery.leases.by_number.values():
            if lease.offsets() & offsets:
                number = lease.number
        return original(delivery, number, offsets)

    patch.setattr(commands, "ack", ack)


@bug(6, Checker.DLQ_ATOMIC)
def dead_letter_before_its_intent_is_durable(patch: Patch) -> None:
    def due(source: Partition) -> Iterator[Letter]:
        outbox = source.machine.outbox
        yield from (one for key, one in outbox.pending.items() if key not in outbox.sent)

    patch.setattr(forwarding, "_due", due)


@bug(4, Checker.COMMIT_SAFE)
def floor_passes_a_lease(patch: Patch) -> None:
    def finish(progress: Progress, offsets: BitMap64) -> None:
        if offsets:
            progress.finish_below(offsets.max() + 1)

    patch.setattr(Progress, "finish", finish)


@bug(6, Checker.LEASE_EXCLUSIVE, Checker.SURPRISE)
def groups_share_leases(patch: Patch) -> None:
    original = PartitionMachine._opened

    def opened(machine: PartitionMachine, record: GroupOpened) -> None:
        original(machine, record)
        first = next(iter(machine.groups.values()))
        machine.groups[record.group].leases = first.leases

    patch.setitem(partition_machine._APPLY, GroupOpened, opened)


@bug(12, Checker.NO_DUP)
def dedup_forgotten_at_restart(patch: Patch) -> None:
    forget_at_start(patch, lambda machine: machine.dedup.kept.clear())


@bug(6, Checker.NO_DUP)
def sequences_forgotten_at_restart(patch: Patch) -> None:
    forget_at_start(patch, lambda machine: machine.producers.by_id.clear())


@bug(40, Checker.DLQ_ATOMIC)
def arrived_letters_forgotten_at_restart(patch: Patch) -> None:
    def forget(machine: PartitionMachine) -> None:
        for arrived in machine.arrived.values():
            arrived.clear()

    forget_at_start(patch, forget)


def forget_at_start(patch: Patch, forget: Callable[[PartitionMachine], object]) -> None:
    original = opening._apply_batches

    def apply_batches(partition: Partition) -> list[range]:
        skipped = original(partition)
        forget(partition.machine)
        return skipped

    patch.setattr(opening, "_apply_batches", apply_batches)


@bug(40, Checker.NO_ACKED_LOSS)
def duplicate_answered_before_the_original_is_durable(patch: Patch) -> None:
    original = Partition.append

    def append(partition: Partition, encoded: Encoded, now: Now) -> Published:
        published = original(partition, encoded, now)
        return published._replace(durable_at=0) if published.is_duplicate else published

    patch.setattr(Partition, "append", append)


@bug(40, Checker.COMMIT_SAFE)
def reused_offset_born_finished(patch: Patch) -> None:
    patch.setattr(Journal, "_drop_beyond", lambda journal, start, message_end: None)


@bug(4, Checker.LEASE_EXCLUSIVE)
def nack_keeps_the_lease(patch: Patch) -> None:
    def retried(delivery: Delivery, record: Retried) -> None:
        for offset in offsets_of(record.runs):
            delivery._failure(offset, delivery.leases.by_number[record.lease])
            delivery.wait(offset, delivery.now_ns)

    patch_record(patch, Retried, retried)


@bug(12, Checker.LEASE_EXCLUSIVE)
def expired_lease_still_ackable(patch: Patch) -> None:
    def ack(
        partition: Partition, delivery: Delivery, lease: int, offsets: BitMap64, now: Now
    ) -> AnswerResult:
        outcome = commands.ack(delivery, lease, offsets)
        partition.record(outcome.records, now)
        return outcome.reply

    patch.setattr(consumption, "ack", ack)


@bug(6, Checker.NO_ACKED_LOSS, Checker.LEASE_EXCLUSIVE)
def reply_released_before_the_sync(patch: Patch) -> None:
    patch.setattr(PendingReply, "is_due", lambda waiting, partition: True)


@bug(12, Checker.DLQ_ATOMIC, scene=letters_leave_late)
def retention_past_an_outbox_pin(patch: Patch) -> None:
    patch.setattr(Outbox, "pinned_from", lambda outbox: None)


@bug(40, Checker.NO_ACKED_LOSS)
def retention_past_unread_messages(patch: Patch) -> None:
    patch.setattr(removal, "keep_from", lambda partition, _now: partition.messages.end_offset)


@bug(6, Checker.ATTEMPTS)
def attempts_lost_in_a_snapshot(patch: Patch) -> None:
    patch_record(patch, FailuresImage, lambda delivery, record: None)


@bug(4, Checker.COMMIT_SAFE)
def acks_lost_in_a_snapshot(patch: Patch) -> None:
    patch_record(patch, OffsetsImage, lambda delivery, record: None)


@bug(20, Checker.DLQ_ATOMIC, is_stormy=False, scene=without_history)
def state_let_go_ahead_of_its_messages(patch: Patch) -> None:
    original = Journal.snapshot_written

    def snapshot_written(journal: Journal[Any], snapshot: Any, sync_others: Any) -> None:
        original(journal, snapshot, lambda: None)

    patch.setattr(Journal, "snapshot_written", snapshot_written)


@bug(6, Checker.LEASE_EXCLUSIVE)
def receipts_come_again_after_a_crash(patch: Patch) -> None:
    patch.setattr(PartitionMachine, "begin_leases", lambda machine, entropy: None)


@bug(12, Checker.EXPIRY)
def expired_message_delivered(patch: Patch) -> None:
    patch.setattr(CachedBatch, "expired", lambda opened, now_ns: ())


@bug(12, Checker.LEASE_EXCLUSIVE, Checker.ATTEMPTS)
def leases_measured_on_the_wall_clock(patch: Patch) -> None:
    def now(driver: SimDriver) -> Now:
        wall_ns = driver.schedule.clock.now_ns()
        return Now(wall_ns, wall_ns)

    patch.setattr(SimDriver, "now", now)


@bug(24, Checker.DLQ_ATOMIC, scene=many_dead_letters)
def letter_done_before_its_copy_is_durable(patch: Patch) -> None:
    def arrived(source: Partition, _resolve: object) -> list[Forwarded]:
        sent = source.machine.outbox.sent
        return [Forwarded(0, sequence, one.offset) for sequence, one in sent.items()]

    patch.setattr(forwarding, "_arrived", arrived)


@bug(6, Checker.IN_FLIGHT)
def in_flight_limits_ignored(patch: Patch) -> None:
    patch.setattr(commands, "room_for", lambda delivery, member, config, *, limit: limit)


@bug(12, Checker.NO_DUP)
def old_epoch_not_fenced(patch: Patch) -> None:
    original = Producers.repeat_of

    def repeat_of(producers: Producers, head: Head) -> Sent | None:
        known = producers.by_id.get(head.producer_id)
        if known is not None and head.producer_epoch < known.epoch:
            return None
        return original(producers, head)

    patch.setattr(Producers, "repeat_of", repeat_of)


@bug(12, Checker.ATTEMPTS)
def disconnect_keeps_every_attempt(patch: Patch) -> None:
    def released(delivery: Delivery, record: Released) -> None:
        offsets = offsets_of(record.runs)
        lease = delivery.leases.take(record.lease, offsets)
        delivery.ready |= offsets
        for offset in offsets:
            delivery._failure(offset, lease)

    patch_record(patch, Released, released)


@bug(6, Checker.NO_DUP)
def idempotency_key_not_looked_up(patch: Patch) -> None:
    def find(dedup: object, key: bytes, now_ns: int) -> Kept | None:
        return None

    patch.setattr("penstock.broker.partition.dedup.Dedup.find", find)


@pytest.mark.tier("test")
@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.name)
def test_a_planted_bug_is_found(planted: Bug, monkeypatch: Patch) -> None:
    require_found(planted, monkeypatch)


def test_at_least_ten_bugs_are_planted() -> None:
    assert len(BUGS) >= 10
    assert len({planted.name for planted in BUGS}) == len(BUGS)
