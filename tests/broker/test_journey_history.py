"""The history of a partition: how long it is kept, how it is found, and what happens when it is damaged."""

import random

import pytest
from pyroaring import BitMap64

from penstock.api.groups import CloseGroup
from penstock.api.health import EventKind
from penstock.api.journeys import DescribeJourney, DescribeJourneys, EventType, Journey
from penstock.broker.partition import Partition, opening
from penstock.broker.partition.history import Entry
from penstock.config import LogConfig
from penstock.delivery.offsets import each_offset, offsets_of
from penstock.delivery.records import Buried, Committed, Overtaken, Rewound
from penstock.errors import OffsetOutOfRange
from penstock.journeys.index import SegmentIndex
from penstock.log.layout import JOURNEY_INDEX, segment_path
from penstock.sim import SimDisk

from .losses import flipped, tree_with
from .world import GROUP, HOUR_MS, TOPIC, World

COUNT, SEGMENT_BYTES = 30, 2048
STATE = "topics/default/orders.1/partition-0/state"


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    """State segments of some dozen records, so that a short life has many of them."""
    config = LogConfig(
        segment_size_bytes=SEGMENT_BYTES, index_interval_bytes=512, retention_hours=-1
    )
    monkeypatch.setattr(opening, "STATE_CONFIG", config)


def lived(count: int = COUNT, **settings: object) -> World:
    """A topic in which so many messages were published, taken and acked one by one, with snapshots in between."""
    world = World()
    world.topic(**settings)
    world.group()
    for number in range(count):
        world.publish(b"%d" % number)
        world.ack(*world.poll(1, member=f"m{number}"))
        if number % 5 == 4:
            partition(world).take_snapshot()
    return world


def partition(world: World) -> Partition:
    return world.node.partition(TOPIC, 0)


def journey(world: World, offset: int) -> Journey:
    return world.execute(DescribeJourney(TOPIC, 0, offset))


def members(found: Journey) -> list[str]:
    return [one.consumer for one in found.spans if one.event_type is EventType.FETCHED]


def told(world: World) -> list[list[tuple[str, str]]]:
    """What the journeys of all messages tell of the group; an index that is missing is built piece by piece."""
    for _ in range(40):
        found = [journey(world, offset) for offset in range(COUNT)]
        if not any("not indexed" in gap for one in found for gap in one.gaps):
            return [
                [(span.event_type.value, span.consumer) for span in one.spans if span.group]
                for one in found
            ]
    raise AssertionError("the index never comes to its end")


EVERYTHING = [
    [("consume.fetched", f"m{number}"), ("consume.acked", f"m{number}")] for number in range(COUNT)
]
LAST = f"m{COUNT - 1}"


def segments(world: World) -> list[str]:
    return [f"{STATE}/{one}" for one in world.disk.list(STATE) if one.endswith(".log")]


def test_records_are_kept_beyond_the_snapshot_that_has_their_state():
    world = lived()
    assert len(segments(world)) > 5
    assert told(world) == EVERYTHING
    world.restart()
    assert told(world) == EVERYTHING
    assert partition(world).journal.log.start_offset == 0


def test_a_restart_reads_no_history():
    world = lived()
    world.node.close()
    reads: list[str] = []

    class Watched(SimDisk):
        def open(self, path):
            reads.append(path)
            return super().open(path)

    tree = world.disk.tree()
    world.disk.power_off()
    again = World(Watched(tree))
    read = {path for path in reads if path.startswith(STATE) and path.endswith(".log")}
    assert read <= {segments(again)[-1]}
    assert told(again) == EVERYTHING


def test_without_history_only_what_a_restart_needs_is_kept():
    world = lived(journey_retention_hours=0)
    assert len(segments(world)) <= 4
    found = journey(world, 0)
    assert members(found) == []
    assert len(found.gaps) == 1
    assert "not kept any more" in found.gaps[0]
    assert members(journey(world, COUNT - 1)) == [LAST]
    assert world.execute(DescribeJourneys()).topics[0].from_ns > 0


def test_history_is_bounded_in_bytes():
    world = lived(journey_retention_bytes=5000)
    assert partition(world).journal.log.size <= 5000 + 2 * SEGMENT_BYTES
    assert members(journey(world, 0)) == []
    assert members(journey(world, COUNT - 1)) == [LAST]


def test_history_ends_with_its_time_also_in_an_idle_topic():
    world = lived(journey_retention_hours=2)
    world.now(HOUR_MS)
    world.sweep()
    assert told(world) == EVERYTHING
    world.now(HOUR_MS + 1)
    world.sweep()
    assert len(segments(world)) <= 4
    assert members(journey(world, 0)) == []
    world.restart()
    assert world.node.faults() == []
    assert members(journey(world, COUNT - 1)) == [LAST]


def test_shorter_retention_holds_from_the_next_snapshot_on():
    world = lived()
    world.configure(journey_retention_hours=0)
    world.sweep()
    assert len(segments(world)) <= 4
    assert values_left(world) == []


def values_left(world: World) -> list[bytes]:
    return [one.value for one in world.drain()]


SPOILT = {
    "none": lambda files: None,
    "missing": lambda files: [files.pop(one) for one in [*files] if one.endswith(".journeys")],
    "torn": lambda files: files.update(
        {one: files[one][:-5] for one in files if one.endswith(".journeys")}
    ),
    "of another": lambda files: files.update(
        dict.fromkeys(
            [one for one in files if one.endswith(".journeys")],
            next(files[one] for one in files if one.endswith(".journeys")),
        )
    ),
    "not one": lambda files: files.update(
        {one: b"nonsense" * 9 for one in files if one.endswith(".journeys")}
    ),
}


@pytest.mark.parametrize("how", SPOILT)
def test_an_index_that_is_lost_or_wrong_is_made_again(how):
    world = lived()
    world.node.close()
    world = World(tree_with(world.disk.tree(), SPOILT[how]))
    assert world.node.faults() == []
    noted = [one.path for one in world.node.recovery if one.kind is EventKind.INDEX_REBUILT]
    spoilt = [one.replace(".log", ".journeys") for one in segments(world)]
    # Of a segment that is written to a missing index is no news, and one that is copied is its own.
    assert noted == {"none": [], "missing": spoilt[:-1], "of another": spoilt[1:]}.get(how, spoilt)
    assert told(world) == EVERYTHING
    world.restart()
    # It was saved: nothing has to be built again.
    assert world.node.recovery == []
    assert not any(journey(world, offset).gaps for offset in range(COUNT))


def test_an_index_that_knows_more_than_a_crash_left_is_not_believed():
    world = lived()
    world.sync()
    world.publish(b"lost")
    (held,) = world.poll(1, member="lost")
    for _ in range(8):
        world.extend(held, ms=1000)
    # The index is on the disk, and the records that it knows are not.
    partition(world).history.save()
    index = {path: data for path, data in world.disk.tree().files.items() if ".journeys" in path}
    world.lose_unsynced()
    world = World(tree_with(world.disk.tree(), lambda files: files.update(index)))
    for member in ("first", "second"):
        world.publish(b"kept")
        world.ack(*world.poll(1, member=member))
    assert members(journey(world, COUNT)) == ["first"]
    assert members(journey(world, COUNT + 1)) == ["second"]
    assert told(world) == EVERYTHING


def test_an_index_of_records_that_a_crash_took_is_not_believed_after_the_next_crash_either():
    world = lived()
    world.sync()
    world.publish(b"lost")
    (held,) = world.poll(1, member="lost")
    for _ in range(8):
        world.extend(held, ms=1000)
    partition(world).history.save()
    index = {path: data for path, data in world.disk.tree().files.items() if ".journeys" in path}
    world.lose_unsynced()
    world = World(tree_with(world.disk.tree(), lambda files: files.update(index)))
    # The log gets longer than the index knows, and nothing is saved before the next crash.
    for number in range(8):
        world.publish(b"kept")
        world.ack(*world.poll(1, member=f"after-{number}"))
    for one in world.node.partitions():
        one.sync()
    world.lose_unsynced()
    for number in range(8):
        assert members(journey(world, COUNT + number)) == [f"after-{number}"]
    assert told(world) == EVERYTHING


def test_an_index_of_a_full_segment_that_knows_more_than_it_has_is_not_believed():
    """An index of a segment that was longer: it was written, and then a crash took the end of its segment."""
    world = lived()
    log = partition(world).journal.log
    longer = SegmentIndex(log.segments[1].base_offset)
    longer.add(log.end_offset + 100, BitMap64((COUNT - 1,)))
    path = segment_path(STATE, longer.base_offset, JOURNEY_INDEX)
    assert path in world.disk.tree().files
    world.node.close()
    spoilt = {path: longer.to_bytes(log.seed)}
    world = World(tree_with(world.disk.tree(), lambda files: files.update(spoilt)))
    assert told(world) == EVERYTHING


DAMAGES = {
    "a batch": lambda files, path: flipped(files, path, 200),
    "the first segment is gone": lambda files, path: files.pop(segments_of(files)[0]),
    "a segment is gone": lambda files, path: files.pop(path),
    "a segment is empty": lambda files, path: files.update({path: b""}),
}


def segments_of(files: dict[str, bytes]) -> list[str]:
    return sorted(one for one in files if one.startswith(STATE) and one.endswith(".log"))


@pytest.mark.parametrize("has_checkpoint", [True, False], ids=["checkpoint", "no checkpoint"])
@pytest.mark.parametrize("has_index", [True, False], ids=["index", "no index"])
@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_history_is_told_and_makes_no_partition_faulty(how, has_index, has_checkpoint):
    world = lived()
    world.node.close()

    def damage(files: dict[str, bytes]) -> None:
        DAMAGES[how](files, segments_of(files)[2])
        if not has_index:
            SPOILT["missing"](files)
        if not has_checkpoint:
            del files[f"{STATE}/checkpoint"]

    world = World(tree_with(world.disk.tree(), damage))
    assert world.node.faults() == []
    found = told(world)
    all_gaps = [journey(world, offset).gaps for offset in range(COUNT)]
    lost = [offset for offset in range(COUNT) if found[offset] != EVERYTHING[offset]]
    # At most a segment is gone, and what is missing is said.
    assert 0 < len(lost) < COUNT // 2
    assert all(all_gaps[offset] for offset in lost)
    if has_checkpoint or how == "a batch":
        told_at_start = any(one.kind is EventKind.SEGMENT_DAMAGED for one in world.node.recovery)
        told_later = world.node.damage.batches[TOPIC] > 0
        assert told_at_start or told_later
    # It goes on as if nothing had happened, also once more.
    world.publish(b"more")
    world.ack(*world.poll(1, member="later"))
    world.restart()
    assert world.node.faults() == []
    assert members(journey(world, COUNT)) == ["later"]
    assert told(world)[COUNT - 1] == EVERYTHING[-1]


def test_damage_in_what_a_restart_needs_is_as_bad_as_before():
    world = lived()
    world.ack(*world.poll())
    world.kill()
    last = segments(world)[-1]
    world.node.close()
    tree = tree_with(world.disk.tree(), lambda files: files.pop(last))
    assert len(World(tree).node.faults()) == 1


@pytest.mark.parametrize("seed", range(3))
def test_the_index_finds_what_a_look_at_every_record_finds(seed):
    """Any life, with restarts and kills: the records about a message are those that a plain list has."""
    entropy = random.Random(seed)
    world = World()
    world.topic(max_retries=2, max_in_flight=50)
    plain: list[tuple[object, int]] = []
    groups = ["a", "b"]

    def spy(one: Partition) -> None:
        record = one.record

        def noted(records, now):
            before = one.journal.log.end_offset
            record(records, now)
            plain.extend((each, before + at) for at, each in enumerate(records))

        one.record = noted

    spy(partition(world))
    held: list = []
    for _ in range(300):
        group, member = entropy.choice(groups), f"m{entropy.randrange(3)}"
        match entropy.randrange(12):
            case 0 | 1:
                world.publish(*[b"v"] * entropy.randint(1, 5))
            case 2 | 3 | 4:
                world.group(group)
                held += world.poll(entropy.randint(1, 9), member=member, group=group, ms=500)
            case 5 | 6 | 7 if held:
                some = entropy.sample(held, min(len(held), entropy.randint(1, 4)))
                held = [one for one in held if one not in some]
                entropy.choice([world.ack, world.nack, world.reject])(*some)
            case 8:
                world.wait(entropy.choice([10, 600]))
            case 9:
                world.group(group)
                world.release(member, group=group)
            case 10 if entropy.random() < 0.4:
                partition(world).take_snapshot()
            case 11 if entropy.random() < 0.3:
                entropy.choice([world.restart, world.kill])()
                spy(partition(world))
            case 11 if entropy.random() < 0.1:
                world.group(group)
                world.execute(CloseGroup(group))
    end = partition(world).messages.end_offset
    for offset in range(end):
        expected = [(one, at) for one, at in plain if _is_about(one, offset)]
        found = [*filter(None, partition(world).history.about(offset))]
        assert all(isinstance(one, Entry) for one in found)
        assert [(one.record, one.offset) for one in found] == expected
    with pytest.raises(OffsetOutOfRange):
        journey(world, end)


def _is_about(record, offset: int) -> bool:
    match record:
        case Buried():
            return record.offset == offset
        case Committed() | Overtaken():
            return record.floor <= offset < record.offset
        case Rewound():
            return min(record.floor, record.offset) <= offset < max(record.cursor, record.offset)
    return hasattr(record, "runs") and offset in set(each_offset(offsets_of(record.runs)))


def test_a_group_that_is_gone_is_still_named():
    world = lived(3)
    world.execute(CloseGroup(GROUP))
    world.group("other")
    world.restart()
    found = journey(world, 1)
    assert [one.group for one in found.spans if one.group] == [GROUP] * 3
    assert found.spans[-1].event_type is EventType.GROUP_DELETED
