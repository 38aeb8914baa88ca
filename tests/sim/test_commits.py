"""Named commits under faults: no promise is broken, and each of some planted bugs is found.

Repeat one by hand: `world(seed).run(SECONDS)`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from penstock.broker.commits import NamedCommits
from penstock.broker.partition import named_staging
from penstock.broker.partition.machine import PartitionMachine
from penstock.sim.parameters import draw_parameters
from penstock.sim.violation import Checker, Violation
from penstock.sim.world import World
from penstock.transactions import names as name_machine
from penstock.transactions.commit_records import (
    CommitNameImage,
    NamedStagingGrown,
    NamedStagingOpened,
    NamedStagingsEnded,
)
from penstock.transactions.names import CommitNames

Effort = Callable[..., int]
Patch = pytest.MonkeyPatch
SECONDS = 20
SHARDS = 2


def world(seed: int) -> World:
    parameters = draw_parameters(seed)
    return World(seed, parameters=replace(parameters, commit_writers=3, file_losses_per_start=0))


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_commit_is_whole_and_there_once_whatever_goes_wrong(
    shard: int, effort: Effort
) -> None:
    committed = 0
    for seed in range(shard, effort(check=2, test=6, torture=2000), SHARDS):
        one = world(seed)
        one.run(SECONDS)
        committed += sum(writer.committed for writer in one.population.commit_writers)
    assert committed > 0


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


@bug(6, Checker.NAMED_COMMIT, Checker.RECOVERY, Checker.SURPRISE, Checker.TRANSACTION)
def a_named_commit_is_forgotten_at_a_restart(patch: Patch) -> None:
    original = CommitNames._image

    def image(names: CommitNames, record: CommitNameImage, now_ns: int) -> None:
        original(names, record, now_ns)
        names.by_id[record.name_id].sequence = -1

    patch.setitem(name_machine._APPLY, CommitNameImage, image)


@bug(6, Checker.NAMED_COMMIT, Checker.LIVENESS)
def a_staging_is_collected_too_early(patch: Patch) -> None:
    patch.setattr(name_machine, "STAGING_LIFE_NS", 300_000_000)
    patch.setattr(name_machine, "_MINUTE_NS", 0)


@bug(6, Checker.NAMED_COMMIT)
def a_late_staging_is_accepted(patch: Patch) -> None:
    patch.setattr(CommitNames, "require_next", lambda *_: None)


@bug(6, Checker.NAMED_COMMIT, Checker.LIVENESS, Checker.RECOVERY, Checker.SURPRISE)
def stagings_are_lost_in_a_snapshot(patch: Patch) -> None:
    original = PartitionMachine.snapshot

    def snapshot(machine: PartitionMachine) -> Any:
        lost = (NamedStagingOpened, NamedStagingGrown)
        return [one for one in original(machine) if not isinstance(one, lost)]

    patch.setattr(PartitionMachine, "snapshot", snapshot)


@bug(6, Checker.TRANSACTION, Checker.NAMED_COMMIT)
def losers_are_published_too(patch: Patch) -> None:
    original = NamedCommits.commit

    def commit(commits: NamedCommits, name: Any, *rest: Any) -> bool:
        patch.setattr(CommitNames, "losers", lambda *_: [])
        command, listed, now = rest
        for one in name.stagings.values():
            if one.sequence == command.sequence:
                count = sum(staged.message_count for _, staged in commits.staged(one))
                listed[one.staging_id] = count
        return original(commits, name, command, listed, now)

    patch.setattr(NamedCommits, "commit", commit)


@bug(6, Checker.TRANSACTION, Checker.NAMED_COMMIT)
def a_repeat_is_committed_again(patch: Patch) -> None:
    patch.setattr(CommitNames, "is_committed", lambda *_: False)


@bug(12, Checker.NAMED_COMMIT)
def a_repeat_that_differs_passes(patch: Patch) -> None:
    patch.setattr(CommitNames, "require_same", lambda *_: None)


@bug(12, Checker.TRANSACTION, Checker.NAMED_COMMIT, Checker.LIVENESS, Checker.SURPRISE)
def what_a_start_finds_is_dropped_though_a_commit_may_come(patch: Patch) -> None:
    def agree(_: NamedCommits, partition: Any, staging_id: int, now: Any) -> None:
        partition.record((NamedStagingsEnded(0, 0, -1, (), (staging_id,), ()),), now)

    patch.setattr(NamedCommits, "agree", agree)


@bug(12, Checker.TRANSACTION, Checker.NAMED_COMMIT)
def a_letter_that_comes_again_publishes_again(patch: Patch) -> None:
    original = named_staging.apply_named_decision

    def twice(source: Any, destination: Any, letter: Any, now: Any) -> None:
        for one in letter.published:
            unpublished = named_staging.staged_here(destination, one).unpublished()
            named_staging.publish_stagings(destination, unpublished, now)
            named_staging.staged_here(destination, one).published.clear()
        original(source, destination, letter, now)

    patch.setattr("penstock.broker.partition.forwarding.apply_named_decision", twice)


def violation_of(seed: int) -> Violation | None:
    try:
        world(seed).run(SECONDS)
    except Violation as violation:
        return violation
    except LookupError as error:
        return Violation(Checker.SURPRISE, f"a start failed: {error!r}")
    return None


@pytest.mark.tier("test")
@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.name)
def test_a_planted_bug_is_found(planted: Bug, monkeypatch: Patch) -> None:
    planted.plant(monkeypatch)
    violation = next(filter(None, map(violation_of, range(planted.seeds))), None)
    assert violation is not None, f"not found in {planted.seeds} seeds"
    assert violation.checker in planted.checkers, violation
