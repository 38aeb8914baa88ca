"""Nothing that meta does not know is ever deleted, and nothing that it knows is ever made anew."""

import pytest

from penstock.api.health import EventKind
from penstock.api.publish import Delayed
from penstock.broker import catalogue
from penstock.broker.adoption import adopt
from penstock.errors import Damaged, DamagedFile, DiskFailed, PartitionFaulty
from penstock.model import Message
from penstock.sim import Call, Fault, Misbehaviour, SimDisk, Tree

from .losses import flipped, tree_with, without
from .world import MIXED, TOPIC, World, pull_the_plug, values


def kinds(world: World) -> list[EventKind]:
    return [one.kind for one in world.node.recovery]


def filled(name: str = TOPIC, partitions: int = 1) -> World:
    world = World()
    world.topic(partitions=partitions, name=name)
    world.group(topic=name)
    world.publish(b"precious", topic=name, partition=0)
    world.sync()
    return world


def bytes_of(disk: SimDisk, part: str) -> dict[str, bytes]:
    return {path: data for path, data in disk.tree().files.items() if part in path}


def test_without_meta_a_broker_with_topics_does_not_start_and_touches_nothing() -> None:
    world = filled()
    disk = tree_with(world.disk.tree(), without("meta"))
    with pytest.raises(DamagedFile) as refused:
        World(disk)
    assert refused.value.path == "meta"
    assert "orders.1" in str(refused.value)
    assert "topic adopt" in str(refused.value)
    assert not disk.operations


@pytest.mark.parametrize("left", ["identity", "checkpoint", "00000000000000000000.log"])
def test_of_a_meta_that_has_lost_most_of_its_files_none_is_made_anew(left) -> None:
    world = filled()

    def change(files: dict[str, bytes]) -> None:
        for path in [one for one in files if one.startswith("meta/") and one != f"meta/{left}"]:
            del files[path]

    disk = tree_with(world.disk.tree(), change)
    with pytest.raises(DamagedFile, match="meta"):
        World(disk)
    assert not disk.operations


def test_an_empty_directory_is_a_new_broker() -> None:
    disk = SimDisk()
    disk.make_directories("topics")
    assert World(disk).node.recovery == []


def test_a_topic_that_an_older_meta_does_not_know_is_set_aside_whole() -> None:
    world = World()
    old = world.disk.tree()
    world = filled()
    tree = world.disk.tree()

    def put_back(files: dict[str, bytes]) -> None:
        without("meta")(files)
        files.update({path: data for path, data in old.files.items() if path.startswith("meta/")})

    before = bytes_of(world.disk, "topics/")
    world = World(tree_with(tree, put_back))
    assert world.topics() == []
    assert kinds(world) == [EventKind.SET_ASIDE]
    event = world.node.recovery[0]
    assert (event.path, event.is_damage) == ("topics/default/orders.1", True)
    assert "set-aside/orders.1" in event.reason
    after = bytes_of(world.disk, "set-aside/")
    assert after == {
        path.replace("topics/default/", "set-aside/"): data for path, data in before.items()
    }


def test_a_flipped_bit_in_the_record_of_a_creation_deletes_nothing() -> None:
    world = filled()
    path = "meta/00000000000000000000.log"
    _, created, *_ = batch_ends(world.disk.tree().files[path])
    disk = tree_with(world.disk.tree(), lambda files: flipped(files, path, created - 20))
    before = bytes_of(disk, "topics/")
    with pytest.raises(Damaged, match="meta/"):
        World(disk)
    assert bytes_of(disk, "topics/") == before


def test_damage_to_the_last_record_of_meta_is_not_taken_for_a_torn_write() -> None:
    world = filled()
    world.configure(max_retries=9)
    path = "meta/00000000000000000000.log"
    size = len(world.disk.tree().files[path])
    for change in (
        lambda files: flipped(files, path, size - 20),
        lambda files: files.update({path: files[path][: batch_ends(files[path])[-2]]}),
    ):
        disk = tree_with(world.disk.tree(), change)
        with pytest.raises(Damaged, match="meta/"):
            World(disk)
        assert bytes_of(disk, "topics/") == bytes_of(world.disk, "topics/")


def test_a_creation_whose_record_is_lost_after_the_topic_was_used_is_not_a_leftover() -> None:
    """The intent is still there and names the files, but they hold messages: somebody was told that they are safe."""
    world = World()
    world.topic()
    world.group()
    world.publish(b"precious")
    world.node.partition(TOPIC, 0).sync()
    tree, path = world.disk.tree(), "meta/00000000000000000000.log"
    sizes = batch_ends(tree.files[path])
    assert len(sizes) == 4, "the reign, the intent, the topic, its ends"

    def lose_the_last(files: dict[str, bytes]) -> None:
        files[path] = files[path][: sizes[1]]
        del files["meta/checkpoint"]

    world = World(tree_with(tree, lose_the_last))
    kept = bytes_of(world.disk, "set-aside/orders.1/partition-0/messages/0")
    assert any(b"precious" in data for data in kept.values())
    assert EventKind.SET_ASIDE in kinds(world)
    assert EventKind.LEFTOVER_REMOVED not in kinds(world)


def batch_ends(data: bytes) -> list[int]:
    ends, position = [], 0
    while position < len(data):
        position += int.from_bytes(data[position + 4 : position + 8], "little")
        ends.append(position)
    return ends


def test_the_same_entry_set_aside_twice_gets_a_name_of_its_own() -> None:
    world = World()
    for content in (b"first", b"second"):
        world.disk.make_directories("topics/default/x.7")
        world.disk.create("topics/default/x.7/file").append(content)
        world.kill()
    assert world.disk.tree().files["set-aside/x.7/file"] == b"first"
    assert world.disk.tree().files["set-aside/x.7-2/file"] == b"second"
    world.topic()
    assert world.node.topic(TOPIC).facts.topic_id == 8
    world.kill()
    assert world.node.topic(TOPIC).facts.topic_id == 8


def test_names_that_are_not_those_of_topics_are_left_alone() -> None:
    world = World()
    for entry in ("not-ours", "x.007", "lost+found", f"x.{10**30}"):
        for place in ("topics", "topics/default"):
            world.disk.make_directories(f"{place}/{entry}")
    world.disk.create("topics/note").append(b"x")
    world.topic()
    world.kill()
    assert len(world.disk.list("topics")) == 6
    assert len(world.disk.list("topics/default")) == 5
    assert world.node.recovery == []


@pytest.mark.parametrize("place", ["topics", "topics/other"])
def test_a_topic_that_is_out_of_place_is_set_aside(place) -> None:
    world = filled()
    world.disk.make_directories(place)
    world.disk.move("topics/default/orders.1", f"{place}/orders.1")
    before = bytes_of(world.disk, place)
    world.kill()
    assert kinds(world) == [EventKind.SET_ASIDE, EventKind.PARTITION_FAULTY]
    assert world.node.recovery[0].path == f"{place}/orders.1"
    after = bytes_of(world.disk, "set-aside/")
    assert after == {path.replace(f"{place}/", "set-aside/"): data for path, data in before.items()}


@pytest.mark.parametrize(
    "place", ["set-aside/x.40-3", "set-aside/x.40-partition-2", "topics/default/y.40"]
)
def test_an_id_that_left_something_on_the_disk_is_not_given_again(place) -> None:
    world = World()
    world.disk.make_directories(place)
    world.topic()
    if place.startswith("topics"):
        world.disk.make_directories("topics/default/next.2")
        world.topic(name="next")
        assert world.node.topic("next").facts.topic_id == 41
        return
    world.kill()
    world.topic(name="next")
    assert world.node.topic("next").facts.topic_id == 41
    world.disk.remove_directory(place)
    world.kill()
    world.topic(name="other")
    assert world.node.topic("other").facts.topic_id == 42


@pytest.mark.parametrize(
    "part",
    [
        "",
        "/partition-0",
        "/partition-0/messages",
        "/partition-0/state",
        "/partition-0/messages/identity",
        "/partition-0/state/identity",
        "/partition-0/messages/00000000000000000000.log",
        "/partition-0/state/00000000000000000000.log",
    ],
)
def test_what_is_missing_of_a_known_partition_is_damage_and_not_made_anew(part) -> None:
    world = filled()
    gone = f"topics/default/orders.1{part}"
    disk = tree_with(world.disk.tree(), without(gone))
    before = disk.tree()
    world = World(disk)
    (fault,) = world.node.faults()
    assert fault.path.startswith("topics/default/orders.1/partition-0")
    assert kinds(world) == [EventKind.PARTITION_FAULTY]
    with pytest.raises(PartitionFaulty, match="orders/0"):
        world.publish(b"x")
    world.node.close()
    assert bytes_of(disk, "topics/") == {
        path: data for path, data in before.files.items() if "topics/" in path
    }


@pytest.mark.parametrize("stop", ["restart", "kill", "sync"])
def test_a_delay_log_that_is_lost_is_damage(stop) -> None:
    world = filled()
    due_ns = world.now().wall_ns + 3_600_000_000_000
    world.schedule([Delayed(Message(b"later"), due_ns)])
    world.sync()
    getattr(world, stop)()
    directory = "topics/default/orders.1/partition-0/delayed"
    for gone in (directory, f"{directory}/00000000000000000000.log", f"{directory}/identity"):
        disk = tree_with(world.disk.tree(), without(gone))
        (fault,) = World(disk).node.faults()
        assert fault.path.startswith(directory)


def test_a_deletion_that_was_interrupted_is_finished_by_the_next_start_and_told() -> None:
    world = filled()
    files = world.disk.tree().files
    world.disk.inject(Fault(call=Call.REMOVE, does=Misbehaviour.DISK_FAILED))
    with pytest.raises(DiskFailed):
        world.delete()
    assert bytes_of(world.disk, "orders.1") == {p: d for p, d in files.items() if "orders.1" in p}
    world.kill()
    assert kinds(world) == [EventKind.LEFTOVER_REMOVED]
    assert bytes_of(world.disk, "orders.1") == {}
    world.kill()
    assert world.node.recovery == []


def test_what_else_is_in_the_directory_of_a_deleted_topic_is_not_deleted_with_it() -> None:
    world = filled()
    world.disk.create("topics/default/orders.1/partition-0/notes").append(b"mine")
    world.delete()
    assert bytes_of(world.disk, "topics/") == {"topics/default/orders.1/partition-0/notes": b"mine"}
    world.kill()
    assert bytes_of(world.disk, "orders") == {"set-aside/orders.1/partition-0/notes": b"mine"}


@pytest.mark.tier("test")
def test_at_every_crash_state_files_are_known_left_over_or_set_aside(effort, monkeypatch) -> None:
    """Create, grow, delete with something strange beside: whatever is left, a start knows what to do with it."""
    monkeypatch.setattr(catalogue, "_RECORDS_A_SNAPSHOT", 3)

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic(partitions=1)
        world.publish(b"a")
        world.sync()
        disk.mark("created")
        world.grow(2)
        disk.mark("grown")
        world.topic(name="other")
        world.delete("other")
        disk.mark("deleted")

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        aside = [one.path for one in world.node.recovery if one.kind is EventKind.SET_ASIDE]
        assert set(aside) <= {"topics/default/strange.9"}
        known = {facts.directory for facts in world.node.topics.by_name.values()}
        assert {f"topics/default/{one}" for one in disk.list("topics/default")} == known
        assert disk.tree().files["set-aside/strange.9/partition-0/messages/file"] == b"precious"
        if "created" in marks:
            world.group()
            assert values(world.drain()) == [b"a"]
        if "grown" in marks:
            assert len(world.describe()) == 2
        if "deleted" in marks:
            assert world.topics() == [TOPIC]
        assert not world.node.topics.planned
        assert not world.node.topics.deleted
        world.kill()
        assert world.node.recovery == []
        assert world.node.topics.next_id > 9

    start = SimDisk()
    start.make_directories("topics/default/strange.9/partition-0/messages")
    start.create("topics/default/strange.9/partition-0/messages/file").append(b"precious")
    first = World()
    tree = first.disk.tree()
    files = {**tree.files, **start.tree().files}
    begun = Tree(files, tree.directories | start.tree().directories)
    assert pull_the_plug(scenario, check, effort, kinds=MIXED, start=begun) > 100


def test_at_every_crash_state_an_adopted_topic_is_back_or_set_aside(effort) -> None:
    aside = tree_with(
        filled().disk.tree(),
        lambda files: (
            files.update(
                {
                    path.replace("topics/default/", "set-aside/"): files.pop(path)
                    for path in [*files]
                    if path.startswith("topics/")
                }
            )
            or without("meta")(files)
        ),
    )

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        adopt(world.node, "set-aside/orders.1", world.now())
        disk.mark("adopted")

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        if "adopted" in marks:
            assert world.topics() == [TOPIC]
        if TOPIC not in world.node.open:
            adopt(world.node, "set-aside/orders.1", world.now())
            world.kill()
        assert world.node.faults() == []
        assert values(world.drain()) == [b"precious"]

    count = pull_the_plug(scenario, check, effort, kinds=MIXED, start=aside.tree())
    assert count > 20
