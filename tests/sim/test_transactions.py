"""Transactions under faults: no promise is broken, and each of some planted bugs is found.

Repeat one by hand: `world(seed).run(SECONDS)`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from pyroaring import BitMap64

from penstock.api.principals import Principal
from penstock.broker.partition import cleanup, forwarding, opening, staging
from penstock.broker.partition import machine as partition_machine
from penstock.broker.partition.machine import PartitionMachine
from penstock.broker.partition.outbox import Decision
from penstock.broker.partition.partition import Partition
from penstock.broker.transactions import Transactions
from penstock.delivery import Delivery, claims
from penstock.delivery.leases import Leases
from penstock.delivery.records import ClaimsEnded
from penstock.sim.parameters import draw_parameters
from penstock.sim.transaction_book import TransactionFate
from penstock.sim.violation import Checker, Violation
from penstock.sim.world import World
from penstock.transactions import coordinator as coordinator_machine
from penstock.transactions import stagings as staging_machine
from penstock.transactions.coordinator import Coordinator
from penstock.transactions.records import (
    CoordinatedProducer,
    StagedTransaction,
    StagingProducerImage,
    TransactionDecided,
)
from penstock.transactions.stagings import Staged, Staging, Stagings

Effort = Callable[..., int]
Patch = pytest.MonkeyPatch
SECONDS = 20
SHARDS = 2


def world(seed: int) -> World:
    parameters = draw_parameters(seed)
    return World(
        seed, parameters=replace(parameters, transaction_producers=3, file_losses_per_start=0)
    )


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_transaction_is_whole_or_absent_whatever_goes_wrong(
    shard: int, effort: Effort
) -> None:
    committed = aborted = 0
    for seed in range(shard, effort(check=2, test=8, torture=2000), SHARDS):
        one = world(seed)
        one.run(SECONDS)
        committed += sum(producer.committed for producer in one.population.transaction_producers)
        aborted += sum(producer.aborted for producer in one.population.transaction_producers)
    assert committed > aborted > 0


def consuming(seed: int) -> World:
    """Producers that consume, and writers of named commits whose tasks do."""
    parameters = replace(
        draw_parameters(seed),
        transaction_producers=2,
        commit_writers=2,
        file_losses_per_start=0,
        has_transaction_inputs=True,
    )
    return World(seed, parameters=parameters)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_input_is_acked_with_its_outputs_whatever_goes_wrong(
    shard: int, effort: Effort
) -> None:
    acked = 0
    for seed in range(shard, effort(check=2, test=4, torture=2000), SHARDS):
        one = consuming(seed)
        one.run(SECONDS)
        acked += sum(
            len(done.inputs)
            for done in one.books.transactions.transactions
            if done.fate is TransactionFate.COMMITTED
        )
    assert acked > 0


def delaying(seed: int) -> World:
    """Producers that delay some of their messages."""
    parameters = replace(
        draw_parameters(seed),
        transaction_producers=3,
        has_transaction_delays=True,
        file_losses_per_start=0,
    )
    return World(seed, parameters=parameters)


@dataclass(frozen=True, slots=True)
class Bug:
    """`checkers` may find it, whichever comes first, and one of them has to within `seeds`."""

    plant: Callable[[Patch], None]
    checkers: frozenset[Checker]
    seeds: int
    make: Callable[[int], World]

    @property
    def name(self) -> str:
        return self.plant.__name__


BUGS: list[Bug] = []
# More take minutes.
SEEDS_MAX = 100


def bug(
    seeds: int, *checkers: Checker, make: Callable[[int], World] = world
) -> Callable[[Callable[[Patch], None]], None]:
    def add(plant: Callable[[Patch], None]) -> None:
        BUGS.append(Bug(plant, frozenset(checkers), seeds, make))

    return add


# Sequences go on in an epoch, so the next transaction, which begins with 0, may be refused first.
@bug(6, Checker.TRANSACTION, Checker.FENCED, Checker.SURPRISE, Checker.NO_DUP)
def the_epoch_is_not_raised(patch: Patch) -> None:
    original = Coordinator.decided

    def decided(coordinator: Coordinator, producer: Any, *rest: Any, **options: Any) -> Any:
        found = original(coordinator, producer, *rest, **options)
        return TransactionDecided(
            *(found.group, found.producer_id, found.number, found.is_commit, producer.epoch),
            *(found.first_sequence, found.counts, found.reason, found.at_ns),
        )

    patch.setattr(Coordinator, "decided", decided)


# Rare: the node syncs the stagings of a tick together with what it decides.
@bug(400, Checker.TRANSACTION, Checker.LIVENESS, Checker.NO_DUP)
def decided_before_the_stagings_are_durable(patch: Patch) -> None:
    patch.setattr(Transactions, "_is_staged", lambda *_: True)


@bug(6, Checker.TRANSACTION)
def published_before_the_decision_is_durable(patch: Patch) -> None:
    original = forwarding._due

    def due(source: Partition) -> Any:
        outbox = source.machine.outbox
        for sequence, letter in outbox.pending.items():
            if isinstance(letter, Decision):
                outbox.recorded_at.pop(sequence, None)
        return original(source)

    patch.setattr(forwarding, "_due", due)


@bug(6, Checker.TRANSACTION)
def aborted_and_published(patch: Patch) -> None:
    def all_commit(source: Partition, destination: Partition, letters: Any, now: Any) -> None:
        stagings = destination.machine.stagings
        for letter in letters:
            here = stagings.open.get((letter.producer_id, letter.number), Staged())
            wrong = Decision(
                *(letter.sequence, letter.producer_id, letter.number, letter.topic_id),
                *(letter.partition, True, here.message_count),
            )
            staging.apply_decisions(source, destination, [wrong], now)

    patch.setattr(forwarding, "apply_decisions", all_commit)


@bug(12, Checker.TRANSACTION)
def a_letter_that_comes_again_publishes_again(patch: Patch) -> None:
    patch.setattr(Stagings, "published", lambda *_: None)
    original = staging.apply_decisions

    def twice(source: Partition, destination: Partition, letters: Any, now: Any) -> None:
        stagings, some = destination.machine.stagings, [*letters]
        for letter in some:
            here = stagings.open.get((letter.producer_id, letter.number))
            if letter.is_commit and here is not None:
                staging.publish_stagings(destination, here.unpublished(), now)
        original(source, destination, some, now)

    patch.setattr(forwarding, "apply_decisions", twice)


@bug(6, Checker.TRANSACTION, Checker.LIVENESS, Checker.SURPRISE)
def stagings_are_collected_while_their_transaction_is_open(patch: Patch) -> None:
    original = cleanup._clear

    def clear(partition: Partition, side: Any, live: BitMap64, *rest: Any) -> Any:
        return original(partition, side, BitMap64(), *rest)

    def clear_staged(partition: Partition, now: Any) -> None:
        if partition.staging.log is not None:
            partition.staging.log.roll()
            clear(partition, partition.staging, BitMap64(), cleanup._nothing_else)

    patch.setattr("penstock.sim.driver.clear_staged", clear_staged)


@bug(6, Checker.RECOVERY, Checker.TRANSACTION, Checker.LIVENESS)
def an_open_transaction_is_lost_in_a_snapshot(patch: Patch) -> None:
    patch.setitem(staging_machine._APPLY, StagedTransaction, lambda *_: None)


@bug(6, Checker.RECOVERY, Checker.TRANSACTION, Checker.NO_DUP)
def sequences_of_stagings_are_lost_in_a_snapshot(patch: Patch) -> None:
    patch.setitem(partition_machine._APPLY, StagingProducerImage, lambda *_: None)


@bug(6, Checker.TRANSACTION, Checker.NO_DUP)
def sequences_of_stagings_are_forgotten_at_a_start(patch: Patch) -> None:
    original = opening._recover

    def recover(partition: Partition, *rest: Any) -> Any:
        found = original(partition, *rest)
        partition.machine.staging_producers.by_id.clear()
        return found

    patch.setattr(opening, "_recover", recover)


@bug(6, Checker.TRANSACTION, Checker.LIVENESS, Checker.NO_DUP)
def stagings_are_lost_at_a_start(patch: Patch) -> None:
    patch.setattr(opening, "_apply_staged", lambda *_: None)


@bug(6, Checker.TRANSACTION, Checker.RECOVERY, Checker.SURPRISE, Checker.LIVENESS)
def producers_are_lost_in_a_snapshot(patch: Patch) -> None:
    patch.setitem(coordinator_machine._APPLY, CoordinatedProducer, lambda *_: None)


@bug(6, Checker.OWNER, Checker.RECOVERY)
def the_owner_of_a_producer_is_lost_in_a_snapshot(patch: Patch) -> None:
    original = Coordinator._image

    def image(machine: Coordinator, record: CoordinatedProducer, now_ns: int) -> None:
        original(machine, msgspec.structs.replace(record, owner=""), now_ns)

    patch.setitem(coordinator_machine._APPLY, CoordinatedProducer, image)


@bug(2, Checker.OWNER)
def an_owner_is_compared_by_name(patch: Patch) -> None:
    patch.setattr(
        Principal, "owns", lambda by, owner: by.name in ("local", owner.removeprefix("pk-"))
    )


# A decided one whose stagings are gone is damaged, and stays where it is.
@bug(8, Checker.TRANSACTION, Checker.LIVENESS)
def what_a_crash_kept_of_a_staging_is_dropped_though_its_transaction_is_open(patch: Patch) -> None:
    original = Transactions.resume

    def resume(transactions: Transactions, now: Any) -> None:
        for partition in transactions._node.partitions():
            machine: PartitionMachine = partition.machine
            for key in [*machine.stagings.open]:
                machine.stagings.open[key].stagings = dict[int, Staging]()
        original(transactions, now)

    patch.setattr(Transactions, "resume", resume)


@bug(4, Checker.NO_DUP, Checker.LIVENESS, make=delaying)
def delays_of_a_commit_are_scheduled_again(patch: Patch) -> None:
    patch.setattr(Stagings, "scheduled", lambda *_: None)


@bug(4, Checker.TRANSACTION, make=consuming)
def outputs_are_published_and_their_inputs_given_back(patch: Patch) -> None:
    original = claims.end

    def end(*arguments: Any, is_commit: bool, **options: Any) -> Any:
        return original(*arguments, is_commit=False, **options)

    patch.setattr(claims, "end", end)


@bug(4, Checker.TRANSACTION, Checker.LEASE_EXCLUSIVE, make=consuming)
def inputs_of_what_was_aborted_are_acked(patch: Patch) -> None:
    original = claims.end

    def end(*arguments: Any, is_commit: bool, **options: Any) -> Any:
        return original(*arguments, is_commit=True, **options)

    patch.setattr(claims, "end", end)


@bug(8, Checker.LEASE_EXCLUSIVE, Checker.TRANSACTION, make=consuming)
def an_attempt_that_is_dropped_gives_back_what_another_has(patch: Patch) -> None:
    patch.setattr(Leases, "_claimed_by_others", lambda *_: BitMap64())


@bug(8, Checker.LEASE_EXCLUSIVE, Checker.TRANSACTION, Checker.ATTEMPTS, make=consuming)
def a_member_that_leaves_takes_along_what_its_transaction_has(patch: Patch) -> None:
    def disown(delivery: Delivery, member: str) -> Any:
        held = [
            key
            for key, some in delivery.leases.claims.items()
            if any(one.member == member for one in some)
        ]
        return tuple(ClaimsEnded(delivery.group, *key, False) for key in held)

    patch.setattr(claims, "disown", disown)


def found_in(make: Callable[[int], World], seeds: int) -> Violation | None:
    for seed in range(seeds):
        try:
            make(seed).run(SECONDS)
        except Violation as violation:
            return violation
    return None


def tiered(planted: Bug) -> Any:
    """Bugs that need hundreds of seeds are for the long runs."""
    tier = "torture" if planted.seeds > SEEDS_MAX else "test"
    return pytest.param(planted, id=planted.name, marks=pytest.mark.tier(tier))


@pytest.mark.parametrize("planted", [tiered(one) for one in BUGS])
def test_a_planted_bug_is_found(planted: Bug, monkeypatch: Patch) -> None:
    planted.plant(monkeypatch)
    violation = found_in(planted.make, planted.seeds)
    assert violation is not None, f"not found in {planted.seeds} seeds"
    assert violation.checker in planted.checkers, violation
