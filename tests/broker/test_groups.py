"""Groups as a whole: where they start, how they are reset, how far behind they are, when they are forgotten."""

import pytest

from penstock.api.answers import Kind
from penstock.api.groups import CloseGroup, ListGroups, ListInFlight, PlanReset
from penstock.api.start import EARLIEST, LATEST, Start
from penstock.errors import GroupBusy, NotFound, OffsetOutOfRange, Refused, StaleReceipt

from .world import GROUP, HOUR_MS, TOPIC, Answered, World, values

STOPS = pytest.mark.parametrize("stop", ["restart", "kill"])


def numbered(count: int = 10, **settings: object) -> World:
    """Messages 0, 1, 2, ..., one batch and one second each."""
    world = World()
    world.topic(**settings)
    for number in range(count):
        world.publish(b"%d" % number)
        world.now(1000)
    return world


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (EARLIEST, 0),
        (LATEST, 10),
        (Start.at_offset(4), 4),
        (Start.at_offset(10), 10),
        (Start.at_time(0), 0),
        (Start.at_time(2**62), 10),
    ],
)
def test_a_group_starts_where_it_is_told_to(start, first) -> None:
    world = numbered()
    world.group(start=start)
    world.publish(b"10")
    assert values(world.drain()) == [b"%d" % number for number in range(first, 11)]


def test_a_start_by_time_is_the_first_message_appended_then_or_later() -> None:
    world = numbered()
    begin_ns = world.wall_ns - 10_000 * 1_000_000
    for delta_ns, first in ((0, 0), (1, 1), (3_000_000_000, 3), (3_500_000_000, 4)):
        world.group(f"g{first}", start=Start.at_time(begin_ns + delta_ns))
        assert len(world.drain(group=f"g{first}")) == 10 - first


@pytest.mark.parametrize("offset", [-1, 11])
def test_a_start_outside_of_the_log_is_refused_and_nothing_is_opened(offset) -> None:
    world = numbered()
    with pytest.raises(OffsetOutOfRange):
        world.group(start=Start.at_offset(offset))
    assert world.execute(ListGroups()) == {}


def test_a_start_says_nothing_to_a_group_that_exists() -> None:
    world = numbered()
    world.group()
    world.ack(*world.poll(3))
    world.group(start=LATEST)
    assert world.lag(GROUP)[0].floor == 3


@STOPS
@pytest.mark.parametrize(
    ("to", "floor"), [(EARLIEST, 0), (LATEST, 10), (Start.at_offset(6), 6), (Start.at_time(1), 0)]
)
def test_a_reset_starts_again_and_voids_receipts_and_attempts(stop, to, floor) -> None:
    world = numbered()
    world.group()
    for _ in range(2):
        held = world.poll(8)
        world.nack(*held[:2])
        world.ack(*held[2:])
        world.wait(4000)
    (old, *_) = world.poll(1)
    assert old.attempts == 3
    with pytest.raises(GroupBusy) as refusal:
        world.reset(to)
    assert refusal.value.fields["in_flight"] == 1
    before = world.lag(GROUP)[0].floor
    assert world.execute(PlanReset(GROUP, to=to))[TOPIC] == [(0, before, floor, 1)]
    assert world.lag(GROUP)[0].floor == before
    moves = world.reset(to, is_forced=True)
    assert moves == [(0, before, floor, 1)]
    world.sync()
    getattr(world, stop)()
    assert isinstance(world.ack(old)[0], StaleReceipt)
    again = world.poll()
    assert [one.offset for one in again] == list(range(floor, 10))
    assert {one.attempts for one in again} <= {1}


def test_an_empty_group_is_reset_without_force() -> None:
    world = numbered()
    world.group()
    world.ack(*world.poll(8))
    world.poll(1, ms=500)
    world.now(500)
    assert world.reset(EARLIEST) == [(0, 8, 0, 0)]
    assert len(world.drain()) == 10


def test_a_reset_of_nobody_and_to_nowhere_is_refused() -> None:
    world = numbered()
    with pytest.raises(NotFound):
        world.reset(EARLIEST)
    world.group()
    with pytest.raises(OffsetOutOfRange):
        world.reset(Start.at_offset(99))


def test_partitions_that_were_added_are_read_from_their_first_message_whatever_the_start() -> None:
    world = World()
    world.topic()
    world.publish(b"before")
    world.group(start=LATEST)
    world.sync()
    world.grow(2)
    # The new partition is durable, and what it was to know of the group is not.
    world.lose_unsynced()
    world.publish(b"in the new one", partition=1)
    world.group(start=LATEST)
    assert values(world.drain()) == [b"in the new one"]


@STOPS
def test_a_commit_is_a_cumulative_ack(stop) -> None:
    world = numbered()
    world.group()
    held = world.poll(5)
    assert world.commit(GROUP, 3)
    assert [type(one).__name__ for one in world.ack(*held[:4])] == [
        *["StaleReceipt"] * 3,
        "Answered",
    ]
    getattr(world, stop)()
    lag = world.lag(GROUP)[0]
    assert (lag.floor, lag.in_flight) == (4, 1)
    for offset in (4, 3, 0):
        assert not world.commit(GROUP, offset)
    assert world.lag(GROUP)[0].floor == 4
    for wrong in (-1, 11):
        with pytest.raises(OffsetOutOfRange):
            world.commit(GROUP, wrong)
    assert world.commit(GROUP, 10)
    assert world.drain() == []


def test_a_commit_passes_messages_that_were_never_handed_out() -> None:
    world = numbered()
    world.group()
    world.commit(GROUP, 7)
    assert values(world.drain()) == [b"7", b"8", b"9"]


def test_lag_counts_messages_and_the_age_of_the_oldest() -> None:
    world = numbered()
    world.group()
    (lag,) = world.lag(GROUP)
    assert (lag.floor, lag.end, lag.lag, lag.lag_seconds) == (0, 10, 10, 10.0)
    held = world.poll(6)
    world.ack(held[0], held[2], held[3])
    (lag,) = world.lag(GROUP)
    assert (lag.floor, lag.lag, lag.lag_seconds) == (1, 7, 9.0)
    assert (lag.in_flight, lag.finished_above) == (3, 2)
    world.ack(*held, *world.poll())
    (lag,) = world.lag(GROUP)
    assert (lag.lag, lag.lag_seconds, lag.in_flight) == (0, 0.0, 0)


def test_lag_does_not_count_what_retention_took() -> None:
    world = World()
    world.topic(retention_hours=1)
    world.group()
    world.publish(b"old")
    world.now(2 * HOUR_MS)
    world.node.partition(TOPIC, 0).messages.roll()
    world.publish(b"new")
    world.sweep()
    (lag,) = world.lag(GROUP)
    assert (lag.lag, lag.floor) == (1, 1)
    assert world.node.partition(TOPIC, 0).group(GROUP).skipped_count == 1


def test_groups_are_listed_with_their_topics() -> None:
    world = World()
    world.topic(name="a", partitions=2)
    world.topic(name="b")
    world.group("x", topic="a")
    world.group("x", topic="b")
    world.group("y", topic="b")
    assert world.execute(ListGroups()) == {"x": ["a", "b"], "y": ["b"]}
    assert [(lag.topic, lag.partition) for lag in world.lag("x")] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
    ]
    world.execute(CloseGroup("x", topic="a"))
    assert world.execute(ListGroups()) == {"x": ["b"], "y": ["b"]}
    with pytest.raises(NotFound):
        world.lag("z")


def test_what_is_in_flight_can_be_looked_at_and_answered() -> None:
    world = numbered()
    world.group()
    world.nack(*world.poll(1))
    world.wait(1000)
    world.poll(2, member="ann", ms=5000)
    world.now(1000)
    world.node.tick(world.now())
    first, second = world.execute(ListInFlight(GROUP))
    assert (first.offset, first.attempts, first.member) == (0, 2, "ann")
    assert (second.offset, second.attempts, second.deadline_in_ms) == (1, 1, 4000)
    assert first.first_delivery_ns < first.last_delivery_ns == second.first_delivery_ns
    world.now(2000)
    assert [one.deadline_in_ms for one in world.execute(ListInFlight(GROUP))] == [2000, 2000]
    assert isinstance(world.answer(Kind.ACK, [first.receipt])[0], Answered)


def test_names_of_groups_and_members_are_checked() -> None:
    world = numbered()
    for wrong in ("", "a b", "__ours", "x" * 246):
        with pytest.raises(Refused):
            world.group(wrong)
    world.group()
    with pytest.raises(Refused):
        world.poll(member="a/b")


def idle(world: World, hours: float) -> tuple[str, ...]:
    world.now(hours * HOUR_MS)
    return world.sweep()[TOPIC].groups_forgotten


def test_a_group_that_nobody_asks_for_is_forgotten() -> None:
    world = World()
    world.topic(partitions=2, group_retention_hours=10)
    world.group("quiet")
    world.group("busy")
    for _ in range(5):
        world.poll(group="busy")
        assert idle(world, 2) == ()
    assert idle(world, 1) == ("quiet",)
    assert world.execute(ListGroups()) == {"busy": [TOPIC]}
    world.kill()
    assert world.execute(ListGroups()) == {"busy": [TOPIC]}


def test_a_group_with_messages_in_hand_is_not_idle() -> None:
    world = World()
    world.topic(group_retention_hours=1)
    world.group()
    world.publish(b"a")
    world.poll(ms=12 * HOUR_MS)
    assert idle(world, 2) == ()


@STOPS
def test_a_restart_neither_forgets_a_group_at_once_nor_keeps_it_for_ever(stop) -> None:
    world = World()
    world.topic(group_retention_hours=10)
    world.group()
    world.now(8 * HOUR_MS)
    for _ in range(3):
        getattr(world, stop)()
    world.now(5 * HOUR_MS)
    getattr(world, stop)()
    assert idle(world, 0.5) == ()
    assert idle(world, 1) == (GROUP,)


def test_groups_can_be_kept_for_ever() -> None:
    world = World()
    world.topic(group_retention_hours=-1)
    world.group()
    assert idle(world, 100_000) == ()


def test_numbers_of_forgotten_groups_are_not_used_again() -> None:
    world = numbered()
    world.group("old")
    (held,) = world.poll(1, group="old")
    world.execute(CloseGroup("old", topic=TOPIC))
    world.restart()
    world.group("new")
    world.poll(group="new")
    assert isinstance(world.ack(held)[0], StaleReceipt)
    number = world.node.partition(TOPIC, 0).group("new").group
    assert number == held.place.group + 1
