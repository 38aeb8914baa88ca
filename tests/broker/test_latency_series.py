"""Latencies of groups: so many series in all and of a key, the rest together, and places that are given back."""

from penstock.api.consume import Poll
from penstock.api.groups import CloseGroup
from penstock.api.journeys import DescribeJourneys
from penstock.api.principals import Principal, Role
from penstock.config import LimitsConfig

from .world import HOUR_MS, TOPIC, World

ANN, BEN = (Principal(name, Role.CONSUMER, key_id=f"pk-{name}") for name in ("ann", "ben"))


def filled(**limits: int) -> World:
    world = World(limits=LimitsConfig(**limits))
    world.topic(2, group_retention_hours=1)
    for partition in (0, 1):
        world.publish(b"x", b"y", partition=partition)
    return world


def poll(world: World, by: Principal, group: str, topic: str = TOPIC) -> None:
    """One message, as a new member."""
    command = Poll(topic, group, f"m-{group}", 1)
    assert len(world.node.execute(command, by, world.now()).outcome()) == 1


def counts(world: World) -> dict[str, int]:
    """Deliveries by group."""
    return {
        lane.group: lane.first_delivery.count for lane in world.execute(DescribeJourneys()).latency
    }


def test_a_key_has_so_many_series_and_the_rest_is_counted_together() -> None:
    world = filled(latency_series_per_key_max=2)
    for group in ("a", "b", "c", "d"):
        poll(world, ANN, group)
    poll(world, BEN, "e")
    assert counts(world) == {"a": 1, "b": 1, "e": 1, "other": 2}
    # Whoever polls, a group is in the share of the key that made it.
    poll(world, BEN, "c")
    assert counts(world) == {"a": 1, "b": 1, "e": 1, "other": 3}


def test_a_group_that_is_deleted_or_idle_gives_its_series_back() -> None:
    world = filled(latency_series_max=2)
    for group in ("a", "b", "c"):
        poll(world, ANN, group)
    assert counts(world) == {"a": 1, "b": 1, "other": 1}
    world.node.execute(CloseGroup("a"), Principal("root", Role.ADMIN), world.now()).outcome()
    poll(world, ANN, "c")
    assert counts(world) == {"b": 1, "c": 1, "other": 1}
    world.wait(2 * HOUR_MS)
    world.sweep()
    assert counts(world) == {"other": 1}
    world.publish(b"z", partition=0)
    poll(world, ANN, "d")
    assert counts(world) == {"d": 1, "other": 1}


def test_a_topic_that_is_deleted_gives_its_series_back() -> None:
    world = filled(latency_series_max=1)
    poll(world, ANN, "a")
    world.delete()
    world.topic(1)
    world.publish(b"x")
    poll(world, ANN, "b")
    assert counts(world) == {"b": 1}


def test_a_group_and_topic_called_like_the_rest_are_among_it() -> None:
    world = filled(latency_series_max=1)
    world.topic(1, "other")
    world.publish(b"x", topic="other")
    poll(world, ANN, "a")
    poll(world, ANN, "b")
    poll(world, ANN, "other", "other")
    assert counts(world) == {"a": 1, "other": 2}
