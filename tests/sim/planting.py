"""How a bug is planted in the node, and looked for by simulated lives."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from penstock.delivery import Delivery
from penstock.delivery import machine as delivery_machine
from penstock.sim.parameters import draw_parameters, with_assigned
from penstock.sim.violation import Checker, Violation
from penstock.sim.world import World

from .scenes import Scene, any_life

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


def planter(bugs: list[Bug]) -> Callable[..., Callable[[Callable[[Patch], None]], None]]:
    """Returns a decorator that adds a bug to a list: `@bug(seeds, *checkers)`, and fields of `Bug` by name."""

    def bug(
        seeds: int,
        *checkers: Checker,
        is_stormy: bool = True,
        is_assigned: bool = False,
        scene: Scene = any_life,
    ) -> Callable[[Callable[[Patch], None]], None]:
        def add(plant: Callable[[Patch], None]) -> None:
            bugs.append(Bug(plant, frozenset(checkers), seeds, is_stormy, is_assigned, scene))

        return add

    return bug


def patch_record(patch: Patch, kind: type, apply: Callable[[Delivery, Any], None]) -> None:
    patch.setitem(delivery_machine._APPLY, kind, apply)


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


def require_found(planted: Bug, patch: Patch) -> None:
    """Plant a bug; one of its checkers has to find it within its seeds."""
    planted.plant(patch)
    violation = first_violation(planted)
    assert violation is not None, f"not found in {planted.seeds} seeds"
    assert violation.checker in planted.checkers, str(violation)
