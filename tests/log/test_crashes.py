"""Pull the plug at every operation of what a log does, in every way, and see that no promise is broken."""

import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from penstock.log import Log
from penstock.log.compaction import compact
from penstock.log.trim import retain
from penstock.model import Offset
from penstock.sim import CrashCounts, Model, SimDisk, check_crashes

from .worlds import NOW_NS, SECOND_NS, MayStartAt, World, acked_sync, judge, open_tiny

Scenario = Callable[[World, random.Random, SimDisk], None]
HOUR_NS = 3600 * SECOND_NS


def appending(world: World, chance: random.Random, disk: SimDisk) -> None:
    log, _ = open_tiny(disk)
    for _ in range(6):
        # More than a sector, so that a head may survive without its body.
        world.append(log, chance.randint(1, 3), filler=chance.choice((b"", b"-" * 600)))
        if chance.random() < 0.4:
            acked_sync(disk, log)


def rolling(world: World, chance: random.Random, disk: SimDisk) -> None:
    log, _ = open_tiny(disk)
    for _ in range(7):
        world.append(log, chance.randint(2, 6))
        if chance.random() < 0.3:
            acked_sync(disk, log)
    acked_sync(disk, log)


def checkpointing(world: World, chance: random.Random, disk: SimDisk) -> None:
    log, _ = open_tiny(disk)
    for _ in range(4):
        world.append(log, chance.randint(1, 4))
        acked_sync(disk, log, with_checkpoint=chance.random() < 0.7)
    log.close()
    log, _ = open_tiny(disk)
    world.append(log, 1)


def retaining(world: World, chance: random.Random, disk: SimDisk) -> None:
    log, _ = open_tiny(disk)
    for number in range(6):
        world.append(log, chance.randint(2, 5), now_ns=NOW_NS + number * HOUR_NS)
        if chance.random() < 0.5:
            acked_sync(disk, log)
    for segment in log.segments:
        disk.mark(MayStartAt(segment.base_offset))
    retain(log, now_ns=NOW_NS + 6 * HOUR_NS, keep_from=Offset(chance.randint(0, log.end_offset)))
    world.append(log, 1, now_ns=NOW_NS + 6 * HOUR_NS)
    acked_sync(disk, log)


def recovering(world: World, chance: random.Random, disk: SimDisk) -> None:
    """Recovery is a scenario too: it cuts a torn tail, and the plug is pulled while it does."""
    log, _ = open_tiny(disk)
    for _ in range(4):
        world.append(log, chance.randint(1, 4))
        if chance.random() < 0.5:
            acked_sync(disk, log)
    acked_sync(disk, log)
    world.append(log, 2)
    _tear(disk, log, chance)
    recovered, _ = open_tiny(disk)
    world.forget(recovered.end_offset)
    world.append(recovered, 2)
    acked_sync(disk, recovered)


def compacting_keys(world: World, chance: random.Random, disk: SimDisk) -> None:
    log, _ = open_tiny(disk)
    for _ in range(5):
        world.append(log, chance.randint(2, 5), keys=3)
        if chance.random() < 0.5:
            acked_sync(disk, log)
    acked_sync(disk, log)
    compact(log, now_ns=NOW_NS)
    world.append(log, 2, keys=3)
    acked_sync(disk, log)


def _tear(disk: SimDisk, log: Log, chance: random.Random) -> None:
    """As if the last write had reached the disk in part."""
    file = disk.open(log.segments[-1].path)
    file.truncate(file.size() - chance.randint(1, 100))


SCENARIOS: dict[str, Scenario] = {
    "append": appending,
    "roll": rolling,
    "checkpoint": checkpointing,
    "retention": retaining,
    "recovery": recovering,
    "compaction": compacting_keys,
}


def enumerate_states(
    scenario: Scenario, states: int, *, models: Sequence[Model], subsets: int
) -> CrashCounts:
    """Run a scenario with one seed after the other until so many states were seen."""
    counts, seed = CrashCounts(), 0
    while counts.distinct < states:
        world, chance = World(), random.Random(seed)
        counts.add(
            check_crashes(
                partial(scenario, world, chance),
                partial(judge, world),
                entropy=random.Random(seed),
                models=models,
                subsets=subsets,
            )
        )
        seed += 1
    return counts


# A compaction alone has thousands of states; the gate keeps the scenarios that end in seconds.
LONG = {"compaction", "append"}
MARKED = [
    pytest.param(name, marks=[pytest.mark.tier("test")] if name in LONG else [])
    for name in SCENARIOS
]


@pytest.mark.parametrize("name", MARKED)
def test_no_crash_breaks_a_promise(name: str, effort: Callable[..., int]) -> None:
    states = effort(check=100, test=3_000, torture=400_000)
    counts = enumerate_states(
        SCENARIOS[name],
        states,
        models=tuple(Model)[: effort(check=1, test=2, torture=2)],
        subsets=effort(check=2, test=3, torture=6),
    )
    assert counts.distinct >= states
