"""Bugs of delayed delivery, planted one at a time: fired twice, lost, early, or after a cancel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from penstock.broker.partition import Now, Partition, cleanup, delayed_messages, firing, opening
from penstock.broker.partition.machine import PartitionMachine
from penstock.delivery import delays as delay_machine
from penstock.delivery.delay_records import DelayCancelled, DelayKeys, DelayKind, PendingDelays
from penstock.delivery.delays import Delays
from penstock.delivery.timing_wheel import TimingWheel
from penstock.log import Log
from penstock.sim.driver import PendingReply
from penstock.sim.parameters import draw_parameters
from penstock.sim.violation import Checker, Violation
from penstock.sim.world import World

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Bug:
    """`checkers` may find it, whichever comes first, and one of them has to within `seeds`."""

    plant: Callable[[Patch], None]
    checkers: frozenset[Checker]
    seeds: int

    @property
    def name(self) -> str:
        return self.plant.__name__


BUGS: list[Bug] = []


def bug(seeds: int, *checkers: Checker) -> Callable[[Callable[[Patch], None]], None]:
    def add(plant: Callable[[Patch], None]) -> None:
        BUGS.append(Bug(plant, frozenset(checkers), seeds))

    return add


@bug(4, Checker.DELAY)
def fired_again_after_a_restart(patch: Patch) -> None:
    original = opening._apply_batches

    def apply_batches(partition: Partition) -> list[range]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(PartitionMachine, "_apply_fired", lambda *_: None)
            return original(partition)

    patch.setattr(opening, "_apply_batches", apply_batches)


@bug(4, Checker.DELAY)
def lost_at_a_restart(patch: Patch) -> None:
    original = opening._apply_delayed

    def apply_delayed(partition: Partition, skipped: Sequence[range]) -> int:
        partition.machine.delays.covered = partition.delayed.end_offset
        return original(partition, skipped)

    patch.setattr(opening, "_apply_delayed", apply_delayed)


@bug(4, Checker.DELAY, Checker.RECOVERY)
def lost_in_a_snapshot(patch: Patch) -> None:
    patch.setitem(delay_machine._APPLY, PendingDelays, lambda delays, record: None)


@bug(4, Checker.DELAY)
def a_tick_early(patch: Patch) -> None:
    original = TimingWheel.due

    def due(wheel: TimingWheel, now_ns: int, limit: int) -> Any:
        return original(wheel, now_ns + 10_000_000, limit)

    patch.setattr(TimingWheel, "due", due)


@bug(12, Checker.DELAY)
def everything_near_is_due_though_the_clock_was_set_back(patch: Patch) -> None:
    original = TimingWheel.due

    def due(wheel: TimingWheel, now_ns: int, limit: int) -> Any:
        return original(wheel, max(now_ns, wheel.now_tick * 10_000_000), limit)

    patch.setattr(TimingWheel, "due", due)
    patch.setattr(TimingWheel, "_turn_back", lambda wheel, tick: None)


@bug(12, Checker.DELAY, Checker.LIVENESS)
def due_by_the_clock_that_never_steps(patch: Patch) -> None:
    original, skews = firing.fire, {}

    def fire(partition: Partition, now: Now) -> int:
        skew_ns = skews.setdefault(partition, now.wall_ns - now.monotonic_ns)
        return original(partition, Now(now.monotonic_ns + skew_ns, now.monotonic_ns))

    patch.setattr(firing, "fire", fire)


@bug(4, Checker.DELAY)
def cancelled_and_fired(patch: Patch) -> None:
    def cancelled(delays: Delays, record: DelayCancelled) -> None:
        delays.counts[DelayKind.CANCELLED] += 1

    patch.setitem(delay_machine._APPLY, DelayCancelled, cancelled)


@bug(4, Checker.DELAY)
def cancelled_after_it_fired(patch: Patch) -> None:
    patch.setattr(delayed_messages, "_require_pending", lambda *_: None)


@bug(40, Checker.DELAY, Checker.LIVENESS)
def an_id_that_comes_again_is_born_fired(patch: Patch) -> None:
    def is_about(delays: Delays, identity: int, epoch: int) -> bool:
        return True

    patch.setattr(Delays, "_is_about", is_about)


@bug(6, Checker.DELAY, Checker.SURPRISE)
def cleared_away_while_it_waits(patch: Patch) -> None:
    original = cleanup.release

    def release(log: Log, *, below: int) -> None:
        original(log, below=log.end_offset)

    patch.setattr(cleanup, "release", release)


@bug(12, Checker.DELAY, Checker.RECOVERY)
def business_keys_lost_in_a_snapshot(patch: Patch) -> None:
    patch.setitem(delay_machine._APPLY, DelayKeys, lambda delays, record: None)


@bug(6, Checker.NO_ACKED_LOSS)
def said_to_wait_before_that_is_durable(patch: Patch) -> None:
    original = PendingReply.is_due

    def is_due(waiting: PendingReply, partition: Partition) -> bool:
        return original(replace(waiting, delayed_at=0), partition)

    patch.setattr(PendingReply, "is_due", is_due)


@bug(12, Checker.NO_DUP)
def idempotency_keys_of_delays_forgotten_at_restart(patch: Patch) -> None:
    original = PartitionMachine.apply_delayed

    def apply_delayed(machine: PartitionMachine, batch: Any, head: Any, **options: Any) -> None:
        before = dict(machine.dedup.kept)
        original(machine, batch, head, **options)
        machine.dedup.kept.clear()
        machine.dedup.kept.update(before)

    patch.setattr(PartitionMachine, "apply_delayed", apply_delayed)


def first_violation(planted: Bug) -> Violation | None:
    for seed in range(planted.seeds):
        parameters = replace(
            draw_parameters(seed), delay_producers=3, fault_every_ms=800, file_losses_per_start=0
        )
        try:
            World(seed, parameters=parameters).run(20)
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


@pytest.mark.tier("test")
def test_delays_happen_in_a_world_without_bugs() -> None:
    world = World(2, parameters=replace(draw_parameters(2), delay_producers=3))
    world.run(20)
    entries = [
        one for book in world.books.by_partition.values() for one in book.delays.entries.values()
    ]
    assert sum(one.fired_at >= 0 for one in entries) > 10
    assert any(one.is_cancelled for one in entries)
