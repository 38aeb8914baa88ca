"""How tests ask for journeys, and what happens to the broker before they ask."""

import pytest

from penstock.api.journeys import (
    DescribeJourney,
    Journey,
)

from .world import TOPIC, World

STOPS = {
    "running": lambda world: None,
    "restarted": World.restart,
    "killed": World.kill,
}
EVERY_STOP = pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS.keys())


def journey(world: World, offset: int = 0, *, topic: str = TOPIC, partition: int = 0) -> Journey:
    return world.execute(DescribeJourney(topic, partition, offset))


def told(found: Journey, group: str | None = None) -> list[str]:
    return [one.event_type.value for one in found.spans if group is None or one.group == group]
