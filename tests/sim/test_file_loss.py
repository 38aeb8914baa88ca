"""Lost files and old parts in a simulated node: planted bugs that hide them are found."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.api.health import EventKind
from penstock.broker import leftovers
from penstock.broker.catalogue import Catalogue
from penstock.broker.directories import remove_partitions, remove_topic
from penstock.broker.partition import PartitionId
from penstock.broker.partition.opening import NewPartitions
from penstock.broker.partition.slots import Fault
from penstock.sim.file_loss import LOST, OLDER
from penstock.sim.parameters import draw_parameters
from penstock.sim.violation import Checker, Violation
from penstock.sim.world import World

Patch = pytest.MonkeyPatch
SEEDS = 12


def lost_partition_comes_back_empty(patch: Patch) -> None:
    original = Catalogue._open_known

    def open_known(self, facts, number, now):
        found = original(self, facts, number, now)
        if not isinstance(found, Fault):
            return found
        self.recovery = [one for one in self.recovery if one.kind is not EventKind.PARTITION_FAULTY]
        directory = facts.partition_directory(number)
        remove_partitions(self.disk, [directory])
        identities = {directory: PartitionId(facts.topic_id, number)}
        new = NewPartitions(self.disk, identities, self.context(facts))
        new.make_files()
        made = new.open_next(now)
        self.changes.enrol(made)
        return made

    patch.setattr(Catalogue, "_open_known", open_known)


def faulty_partition_is_told_to_no_one(patch: Patch) -> None:
    original = Catalogue._open_known

    def open_known(self, facts, number, now):
        before = [*self.recovery]
        found = original(self, facts, number, now)
        if isinstance(found, Fault):
            self.recovery = before
        return found

    patch.setattr(Catalogue, "_open_known", open_known)


def unknown_topic_is_removed(patch: Patch) -> None:
    patch.setattr(leftovers, "set_aside", lambda disk, path: remove_topic(disk, path) or path)


PLANTS = (
    lost_partition_comes_back_empty,
    faulty_partition_is_told_to_no_one,
    unknown_topic_is_removed,
)


def first_violation(seeds: int) -> Violation | None:
    for seed in range(seeds):
        parameters = replace(
            draw_parameters(seed), fault_every_ms=800, is_lying=False, file_losses_per_start=2
        )
        try:
            World(seed, parameters=parameters).run(20)
        except Violation as violation:
            return violation
    return None


@pytest.mark.tier("test")
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_damage_that_is_hidden_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    violation = first_violation(SEEDS)
    assert violation is not None, f"not found in {SEEDS} seeds"
    assert violation.checker is Checker.DAMAGE_TOLD, str(violation)


@pytest.mark.tier("test")
def test_both_kinds_are_tried_and_some_are_lived_with(effort) -> None:
    tried, outcomes = Counter[str](), Counter[str]()
    for seed in range(effort(check=2, test=8, torture=200)):
        world = World(seed)
        world.run(20)
        tried += world.file_losses.tried
        outcomes += world.file_losses.outcomes
    assert tried[LOST]
    assert tried[OLDER]
    assert outcomes[f"{LOST}: faulty"]
