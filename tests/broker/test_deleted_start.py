"""The start of a partition, moved by an administrator to any offset."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.fetch import DescribeBounds, FindTimestamp
from penstock.api.queries import HoldFiles, ListEnds
from penstock.api.start import EARLIEST, Start
from penstock.api.topics import TrimPartition
from penstock.errors import NoSpace, OffsetOutOfRange
from penstock.model import Message
from penstock.sim import Call, Fault, Misbehaviour, SimDisk

from .world import GROUP, TOPIC, WALL_NS, World, messages_of, pull_the_plug, values

STOPS = pytest.mark.parametrize("stop", ["restart", "kill", "lose_unsynced"])


def made(*batches: int, **settings: object) -> World:
    """A topic whose messages are their own offsets, in batches of these sizes."""
    world = World()
    world.topic(**settings)
    offset = 0
    for size in batches:
        numbers = range(offset, offset + size)
        world.publish(*(Message(b"%d" % one, timestamp=WALL_NS + one) for one in numbers))
        offset += size
    return world


def trim(world: World, before: int | None = None) -> int:
    return world.execute(TrimPartition(TOPIC, 0, before))


def kept(world: World) -> list[int]:
    found: list[int] = []
    offset = world.execute(DescribeBounds(TOPIC, 0)).start
    while fetched := messages_of(world.fetch(Start.at_offset(offset))):
        found += [int(one.value) for one in fetched]
        offset = fetched[-1].offset + 1
    return found


@STOPS
def test_the_start_moves_inside_of_a_file_and_stays_there(stop) -> None:
    world = made(4, 4, 4)
    world.group()
    assert trim(world, 6) == 6
    assert trim(world, 2) == 6
    world.sync()
    getattr(world, stop)()
    assert kept(world) == [6, 7, 8, 9, 10, 11]
    with pytest.raises(OffsetOutOfRange) as refused:
        world.fetch(Start.at_offset(5))
    assert refused.value.fields["start"] == 6
    assert values(world.drain()) == [b"%d" % one for one in range(6, 12)]
    (facts,) = world.describe()
    assert (facts.earliest, facts.messages) == (6, 6)


def test_a_group_does_not_get_what_is_deleted() -> None:
    world = made(4, 4)
    world.group()
    assert len(world.poll(2)) == 2
    assert trim(world, 5) == 5
    assert values(world.drain()) == [b"5", b"6", b"7"]
    (lag,) = world.lag(GROUP)
    assert lag.lag == 0


def test_times_and_files_begin_at_the_start() -> None:
    world = made(4, 4)
    trim(world, 3)
    assert world.execute(FindTimestamp(TOPIC, 0, WALL_NS)).found.offset == 3
    assert world.fetch(Start.at_time(1)).offset == 3
    ends = world.execute(ListEnds((TOPIC,), at_ns=1)).topics[TOPIC].partitions["0"]
    assert (ends.earliest, ends.at) == (3, 3)
    with pytest.raises(OffsetOutOfRange):
        world.execute(HoldFiles(TOPIC, 0, 2, 8, 1000))


def test_files_below_the_start_go_and_retention_goes_on() -> None:
    world = made(*[2] * 20, segment_size_bytes=400)
    files = len(world.node.partition(TOPIC, 0).messages.segments)
    assert trim(world, 21) == 21
    log = world.node.partition(TOPIC, 0).messages
    assert len(log.segments) < files
    assert log.segments[0].base_offset <= 21
    assert kept(world) == [*range(21, 40)]
    world.now(200 * 3600 * 1000)
    world.sweep()
    assert world.execute(DescribeBounds(TOPIC, 0)).start == 40
    world.kill()
    assert kept(world) == []


def test_everything_goes() -> None:
    world = made(3, 3)
    assert trim(world) == 6
    world.publish(b"6")
    world.kill()
    assert kept(world) == [6]


@pytest.mark.parametrize("before", [-1, 9])
def test_an_offset_that_is_not_there_is_refused(before) -> None:
    world = made(4, 4)
    with pytest.raises(OffsetOutOfRange):
        trim(world, before)
    assert kept(world) == [*range(8)]


def test_on_a_full_disk_nothing_is_deleted() -> None:
    world = made(4, 4)
    world.node.partition(TOPIC, 0).take_snapshot()
    world.disk.inject(
        Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="state", times=9)
    )
    with pytest.raises(NoSpace):
        trim(world, 5)
    world.disk.faults.clear()
    assert kept(world) == [*range(8)]


def test_at_every_crash_state_the_start_is_old_or_new(effort) -> None:
    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic(segment_size_bytes=300)
        for number in range(8):
            world.publish(b"%d" % number)
        world.sync()
        disk.mark(0)
        trim(world, 5)
        world.sync()
        disk.mark(5)
        world.publish(b"8")
        trim(world, 9)
        world.sync()
        disk.mark(9)

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        if 0 not in marks:
            return
        world = World(disk)
        start = world.execute(DescribeBounds(TOPIC, 0)).start
        assert start >= max(marks)
        found = kept(world)
        assert found == [*range(start, start + len(found))]
        assert start + len(found) >= 8

    assert pull_the_plug(scenario, check, effort, is_long=True) > 20


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from(["restart", "kill", "stay"])), max_size=4
    ),
)
def test_it_keeps_what_a_list_would_keep(batches, cuts) -> None:
    world = made(*batches, segment_size_bytes=400)
    start, end = 0, sum(batches)
    for before, stop in cuts:
        if before > end:
            with pytest.raises(OffsetOutOfRange):
                trim(world, before)
        else:
            start = max(start, before)
            assert trim(world, before) == start
        if stop != "stay":
            getattr(world, stop)()
        assert kept(world) == [*range(start, end)]
        assert world.fetch(EARLIEST).offset == start
