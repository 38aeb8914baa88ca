"""Schedules under faults: no occurrence twice, none lost. Repeat one by hand: `world(seed).run(SECONDS)`."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.broker.partition import occurrences
from penstock.broker.partition.timetable import Timetable
from penstock.schedules import Schedules, is_schedule
from penstock.sim.parameters import ALWAYS_FAULTS, draw_parameters
from penstock.sim.violation import Checker, Violation
from penstock.sim.world import World

SECONDS = 20


def world(seed: int) -> World:
    parameters = draw_parameters(seed)
    # The clock steps again and again: without that, little falls due in some seconds.
    faults = (*ALWAYS_FAULTS, "restart", "cut in a call", *["clock step"] * 6)
    changed = replace(
        parameters,
        schedule_owners=2,
        file_losses_per_start=0,
        kinds_of_faults=faults,
        fault_every_ms=800,
    )
    return World(seed, parameters=changed)


def occurrences_in(one: World) -> int:
    books = one.books.by_partition.values()
    return sum(is_schedule(stored.source) for book in books for stored in book.stored)


def test_no_occurrence_comes_twice_and_none_is_lost(effort: Callable[..., int]) -> None:
    published = restarts = 0
    for seed in range(effort(check=1, test=5, torture=1000)):
        one = world(seed)
        one.run(SECONDS)
        published += occurrences_in(one)
        restarts += one.restarts
    assert published > 30
    assert restarts > 10


def forget_marks(patch: pytest.MonkeyPatch) -> None:
    """A restart does not know what was published behind the last snapshot."""
    published = Schedules.published
    counts: Counter[int] = Counter()

    def forgetful(self: Schedules, source: int, due_ns: int) -> None:
        counts[source] += 1
        if counts[source] % 7:
            published(self, source, due_ns)
        else:
            published(self, source, due_ns - 3_600_000_000_000)

    patch.setattr(Schedules, "published", forgetful)


def lose_the_first(patch: pytest.MonkeyPatch) -> None:
    """Of several that are due at once only the latest comes, also where all should."""
    original = Timetable.occurrences

    def latest_only(self, schedule, now_ns, count_max):
        return original(self, schedule, now_ns, count_max)[-1:]

    patch.setattr(Timetable, "occurrences", latest_only)


def fire_early(patch: pytest.MonkeyPatch) -> None:
    """An occurrence comes a second before it is due."""
    fire = occurrences.fire
    patch.setattr(
        occurrences,
        "fire",
        lambda partition, now: fire(partition, now._replace(wall_ns=now.wall_ns + 1_000_000_000)),
    )


@pytest.mark.parametrize("plant", [forget_marks, lose_the_first, fire_early])
def test_a_planted_bug_is_found(plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation) as caught:
        run_some()
    assert caught.value.checker is Checker.SCHEDULE


def run_some() -> None:
    for seed in range(6):
        world(seed).run(SECONDS)
