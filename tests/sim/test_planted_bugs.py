"""Bugs that such brokers have had, planted one at a time: a named checker has to find each within so many seeds.

A simulation that cannot fail proves nothing. The table in docs/simulation.md lists the same bugs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyroaring import BitMap64

from penstock.api.publish import Published
from penstock.broker import groups as broker_groups
from penstock.broker.catalogue import Catalogue
from penstock.broker.keys import KeyRevoked, Keys, KeyStored
from penstock.broker.memberships import Memberships
from penstock.broker.meta import MetaRecord
from penstock.broker.partition import (
    Now,
    Partition,
    consumption,
    forwarding,
    history,
    opening,
    removal,
)
from penstock.broker.partition import machine as partition_machine
from penstock.broker.partition.batch_cache import CachedBatch
from penstock.broker.partition.dedup import Kept
from penstock.broker.partition.machine import PartitionMachine
from penstock.broker.partition.outbox import Letter, Outbox
from penstock.broker.partition.producers import Producers, Sent
from penstock.broker.partition.records import Forwarded, GroupOpened, LaneImage, PartitionRecord
from penstock.codec import Encoded, Head
from penstock.delivery import AnswerResult, Delivery, commands, strict
from penstock.delivery import machine as delivery_machine
from penstock.delivery.offsets import offsets_of
from penstock.delivery.progress import Progress
from penstock.delivery.records import (
    Acked,
    Cause,
    Committed,
    FailuresImage,
    OffsetsImage,
    OffsetsKind,
    Released,
    Retried,
)
from penstock.groups import Membership
from penstock.groups import commands as group_commands
from penstock.groups import records as group_records
from penstock.log.journal import Journal
from penstock.model import Priority, TopicPartition
from penstock.schemas import Registry
from penstock.schemas.records import VersionRemoved, VersionStored
from penstock.sim.driver import PendingReply, SimDriver
from penstock.sim.parameters import draw_parameters, with_assigned
from penstock.sim.violation import Checker, Violation
from penstock.sim.world import World

from .scenes import Scene, any_life, letters_leave_late, many_dead_letters, without_history

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Bug:
    """`checkers` may find it, whichever comes first, and one of them has to within `seeds`."""

    plant: Callable[[Patch], None]
    checkers: frozenset[Checker]
    seeds: int
    # Three times the faults find most bugs sooner; some need a node that lives a little longer.
    is_stormy: bool = True
    # Needs an assigned group, which most seeds do not have.
    is_assigned: bool = False
    # What a seed draws, turned into a life in which the bug can show.
    scene: Scene = any_life

    @property
    def name(self) -> str:
        return self.plant.__name__


BUGS: list[Bug] = []


def bug(
    seeds: int,
    *checkers: Checker,
    is_stormy: bool = True,
    is_assigned: bool = False,
    scene: Scene = any_life,
) -> Callable[[Callable[[Patch], None]], None]:
    def add(plant: Callable[[Patch], None]) -> None:
        BUGS.append(Bug(plant, frozenset(checkers), seeds, is_stormy, is_assigned, scene))

    return add


def patch_record(patch: Patch, kind: type, apply: Callable[[Delivery, Any], None]) -> None:
    patch.setitem(delivery_machine._APPLY, kind, apply)


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

    def apply_batches(messages: Any, machine: PartitionMachine, config: Any) -> None:
        original(messages, machine, config)
        forget(machine)

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
    original = Journal.synced

    class Lazy:
        """A message log whose second sync, the one before the release, does nothing."""

        def __init__(self, log: Any) -> None:
            self.synced, self.sync = log.synced, lambda: None

    def synced(journal: Journal[Any], messages: Any, plan: Any) -> None:
        original(journal, Lazy(messages), plan)  # type: ignore[arg-type]  # Enough of a log for this.

    patch.setattr(Journal, "synced", synced)


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


@bug(4, Checker.OWNED_ONCE, is_assigned=True)
def partition_owned_twice(patch: Patch) -> None:
    def readable(membership: Membership, member: str) -> list[TopicPartition]:
        return sorted(one for one, to in membership.target.items() if to == member)

    patch.setattr(Membership, "readable", readable)


@bug(4, Checker.OWNED_ONCE, is_assigned=True)
def partition_given_before_it_is_released(patch: Patch) -> None:
    original = group_commands._rebalance

    def rebalance(*args: Any) -> group_commands.Records:
        records = original(*args)
        taken = [
            group_records.PartitionsReleased(one.member, one.partitions, True, args[3].time.at_ns)
            for one in records
            if isinstance(one, group_records.ReleaseAsked)
        ]
        free = [partition for one in taken for partition in one.partitions]
        target = records[-1].target
        return (*records[:-1], *taken, *group_commands._give(target, free), records[-1])

    patch.setattr(group_commands, "_rebalance", rebalance)


@bug(6, Checker.FENCED, Checker.OWNED_ONCE, is_assigned=True)
def revoke_acknowledged_by_a_zombie(patch: Patch) -> None:
    def require_current(membership: Membership, member: str, generation: int | None) -> None:
        group_commands.require_member(membership, member)

    patch.setattr(group_commands, "require_current", require_current)


@bug(6, Checker.FENCED, is_assigned=True)
def commit_by_a_former_owner(patch: Patch) -> None:
    patch.setattr(group_commands, "require_owner", lambda *_: None)


@bug(6, Checker.FENCED, is_assigned=True, is_stormy=True)
def generations_come_again_after_a_restart(patch: Patch) -> None:
    patch.setattr(Catalogue, "reserve_generations", lambda *_: None)


@bug(6, Checker.COMMIT_SAFE, Checker.SURPRISE, is_assigned=True)
def floor_moves_back(patch: Patch) -> None:
    def commit(delivery: Delivery, offset: int, *, member: str) -> commands.Records:
        return (Committed(delivery.group, offset, delivery.progress.floor, member),)

    def finish_below(progress: Progress, offset: int) -> None:
        progress.floor = offset

    patch.setattr(broker_groups, "decide_commit", commit)
    patch.setattr(Progress, "finish_below", finish_below)


@bug(12, Checker.STRICT_ORDER, is_assigned=True)
def strict_order_goes_on_behind_a_failure(patch: Patch) -> None:
    patch.setattr(strict, "choose", commands.choose)


@bug(10, Checker.LEASE_EXCLUSIVE, Checker.STRICT_ORDER, is_assigned=True)
def former_owner_keeps_its_leases(patch: Patch) -> None:
    patch.setattr(Memberships, "_end_leases", lambda *_: None)


@bug(8, Checker.LANE_ORDER)
def lanes_forgotten_at_restart(patch: Patch) -> None:
    patch.setitem(partition_machine._APPLY, LaneImage, lambda *_: None)


@bug(8, Checker.LANE_ORDER, Checker.LIVENESS)
def lane_skipped_at_restart(patch: Patch) -> None:
    original = Delivery.__init__

    def begin(delivery: Delivery, group: int, start: int, *, now_ns: int) -> None:
        original(delivery, group, start, now_ns=now_ns)
        delivery.hints.starts[Priority.LOW] = start + 20

    patch.setattr(Delivery, "__init__", begin)


@bug(8, Checker.LEASE_EXCLUSIVE, Checker.COMMIT_SAFE, Checker.RECOVERY, Checker.ATTEMPTS)
def what_priority_let_pass_forgotten_at_restart(patch: Patch) -> None:
    original = delivery_machine._APPLY[OffsetsImage]

    def restore(delivery: Delivery, record: OffsetsImage) -> None:
        if record.offsets_are is not OffsetsKind.AHEAD:
            original(delivery, record)

    patch_record(patch, OffsetsImage, restore)


@bug(4, Checker.KEYS)
def keys_lost_in_a_snapshot(patch: Patch) -> None:
    patch.setattr(Keys, "snapshot", lambda _: ())


@bug(4, Checker.KEYS)
def key_answered_before_it_is_durable(patch: Patch) -> None:
    original = Catalogue.record_meta

    def record(catalogue: Catalogue, records: Sequence[MetaRecord], now: Now) -> None:
        is_about_keys = any(isinstance(one, KeyStored | KeyRevoked) for one in records)
        (Catalogue._append if is_about_keys else original)(catalogue, records, now)

    patch.setattr(Catalogue, "record_meta", record)


@bug(4, Checker.SCHEMAS)
def versions_lost_in_a_snapshot(patch: Patch) -> None:
    patch.setattr(Registry, "snapshot", lambda _: ())


@bug(4, Checker.SCHEMAS)
def schema_answered_before_it_is_durable(patch: Patch) -> None:
    original = Catalogue.record_meta

    def record(catalogue: Catalogue, records: Sequence[MetaRecord], now: Now) -> None:
        is_about_schemas = any(isinstance(one, VersionStored) for one in records)
        (Catalogue._append if is_about_schemas else original)(catalogue, records, now)

    patch.setattr(Catalogue, "record_meta", record)


@bug(4, Checker.SCHEMAS)
def schema_id_given_again(patch: Patch) -> None:
    original = Registry._remove

    def remove(registry: Registry, record: VersionRemoved) -> None:
        original(registry, record)
        registry.next_id = max(registry.schemas, default=0) + 1

    patch.setattr(Registry, "_remove", remove)


@bug(4, Checker.JOURNEY)
def index_of_journeys_forgets_acks(patch: Patch) -> None:
    original = history.add_keys

    def add_keys(record: PartitionRecord, keys: BitMap64) -> None:
        if not isinstance(record, Acked):
            original(record, keys)

    patch.setattr(history, "add_keys", add_keys)


@bug(4, Checker.JOURNEY)
def expired_lease_told_as_a_nack(patch: Patch) -> None:
    patch.setattr(commands, "Cause", SimpleNamespace(**_CAUSES | {"LEASE_EXPIRED": Cause.NACKED}))


_CAUSES = {one.name: one for one in Cause}


def run(planted: Bug, seed: int) -> None:
    # Those of delays and of lost files are planted elsewhere.
    is_about_keys = Checker.KEYS in planted.checkers
    parameters = replace(
        draw_parameters(seed),
        delay_producers=0,
        administrators=int(is_about_keys),
        schema_registrants=int(Checker.SCHEMAS in planted.checkers),
        file_losses_per_start=0,
    )
    parameters = planted.scene(parameters)
    if planted.is_assigned:
        parameters = with_assigned(parameters, seed)
    if planted.is_stormy:
        World(seed, parameters=replace(parameters, fault_every_ms=800)).run(20)
    else:
        World(seed, parameters=replace(parameters, fault_every_ms=4000)).run(60)


def first_violation(planted: Bug) -> Violation | None:
    for seed in range(planted.seeds):
        try:
            run(planted, seed)
        except Violation as violation:
            return violation
    return None


@pytest.mark.tier("test")
@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.name)
def test_a_planted_bug_is_found(planted: Bug, monkeypatch: Patch) -> None:
    planted.plant(monkeypatch)
    violation = first_violation(planted)
    assert violation is not None, f"not found in {planted.seeds} seeds"
    assert violation.checker in planted.checkers, str(violation)


def test_at_least_ten_bugs_are_planted() -> None:
    assert len(BUGS) >= 10
    assert len({planted.name for planted in BUGS}) == len(BUGS)
