"""What was durable is missed when it is gone: ends of logs, checkpoints, snapshots, segments, and meta itself."""

import random

import pytest

from penstock.api.health import EventKind
from penstock.api.keys import CreateKey, RevokeKey
from penstock.api.principals import Role
from penstock.api.publish import Delayed
from penstock.config import LogConfig
from penstock.errors import Damaged, DamagedBatch, PartitionFaulty, Refused
from penstock.log import Log
from penstock.log.doctor.repair import repair_steps
from penstock.log.doctor.repair_plan import plan_steps
from penstock.log.doctor.verify import ReadProgress
from penstock.model import LogId, Message
from penstock.sim import Model, SimDisk, Tree, power_cut

from .losses import flipped, tree_with, with_version, without
from .world import TOPIC, World, values

PART = f"topics/default/{TOPIC}.1/partition-0"
FIRST = "00000000000000000000.log"


def used() -> World:
    """Two messages, one of them acked."""
    world = World()
    world.topic()
    world.group()
    world.publish(b"a")
    world.publish(b"b")
    world.ack(*world.poll(1))
    world.sync()
    return world


def kinds(world: World) -> list[EventKind]:
    return [one.kind for one in world.node.recovery]


@pytest.mark.parametrize("given_again", [1, 2])
def test_an_older_copy_that_ends_where_the_log_does_or_behind_is_faulty(given_again: int) -> None:
    """The copy has two messages that were never synced. A power cut took them, and others have come since. (As long as
    none has, the log would hold again what was written to it last.)"""
    world = used()
    world.publish(b"c")
    world.publish(b"d")
    older = world.disk.tree()
    world.lose_unsynced()
    assert world.node.partition(TOPIC, 0).messages.end_offset == 2
    for number in range(given_again):
        world.publish(b"other %d" % number)
    world.restart()
    world.node.close()

    def put_back(files: dict[str, bytes]) -> None:
        without(f"{PART}/messages")(files)
        files.update({p: d for p, d in older.files.items() if p.startswith(f"{PART}/messages/")})

    (fault,) = World(tree_with(world.disk.tree(), put_back)).node.faults()
    assert "in epoch" in fault.reason


def test_an_end_of_the_delay_log_that_messages_speak_of_is_told() -> None:
    """Its loss looks like a kill before the write; the message that fired from there shows that it was not."""
    world = used()
    for wait_ns in (10**15, 1):
        world.schedule([Delayed(Message(b"later"), world.wall_ns + wait_ns)])
        world.sync()
    world.wait(20)
    world.node.tick(world.now())
    world.sync()
    world = World(tree_with(world.disk.tree(), last_batch_cut(f"{PART}/delayed/{FIRST}")))
    assert world.node.faults() == []
    (told,) = [one for one in world.node.recovery if one.path == f"{PART}/delayed"]
    assert told.kind is EventKind.STATE_DROPPED
    assert "it ends at 1" in told.reason


@pytest.mark.parametrize("loss", ["flipped", "lost"])
@pytest.mark.parametrize("log", ["messages", "state"])
def test_a_checkpoint_that_is_damaged_or_lost_is_made_again_and_told(loss, log) -> None:
    """Twice killed: there are epochs in which nothing was written, and only the checkpoint and meta know of them."""
    world = used()
    world.kill()
    world.kill()
    world.restart()
    path = f"{PART}/{log}/checkpoint"
    change = without(path) if loss == "lost" else lambda files: flipped(files, path, 40)
    epoch = world.node.partition(TOPIC, 0).messages.epoch
    world.node.close()
    world = World(tree_with(world.disk.tree(), change))
    assert world.node.faults() == []
    assert [(one.kind, one.path) for one in world.node.recovery] == [
        (EventKind.CHECKPOINT_REBUILT, path)
    ]
    assert world.node.partition(TOPIC, 0).messages.epoch >= epoch
    world.wait(31_000)
    assert values(world.drain()) == [b"b"]


@pytest.mark.parametrize("loss", ["flipped", "lost"])
def test_the_checkpoint_of_meta_is_made_again_and_told(loss) -> None:
    world = used()
    world.kill()
    world.kill()
    world.restart()
    world.node.close()
    path = "meta/checkpoint"
    change = without(path) if loss == "lost" else lambda files: flipped(files, path, 40)
    world = World(tree_with(world.disk.tree(), change))
    assert kinds(world) == [EventKind.CHECKPOINT_REBUILT]
    assert world.topics() == [TOPIC]


def last_batch_cut(path: str):
    def cut(files: dict[str, bytes]) -> None:
        data, ends, position = files[path], [0], 0
        while position < len(data):
            position += int.from_bytes(data[position + 4 : position + 8], "little")
            ends.append(position)
        files[path] = data[: ends[-2]]

    return cut


@pytest.mark.parametrize("log", ["messages", "state"])
def test_a_log_that_ends_before_what_was_durable_makes_its_partition_faulty(log) -> None:
    """Cut at the border of a batch behind the checkpoint: nothing but meta knows that it was longer."""
    world = used()
    world.kill()  # A start knows the ends.
    world.publish(b"c")
    world.sync()
    tree, path = world.disk.tree(), f"{PART}/{log}/{FIRST}"
    fresh = World()
    fresh.topic()
    older = fresh.disk.tree().files[f"{PART}/{log}/checkpoint"]

    def lose(files: dict[str, bytes]) -> None:
        last_batch_cut(path)(files)
        if log == "messages":
            last_batch_cut(path)(files)
        files[f"{PART}/{log}/checkpoint"] = older

    disk = tree_with(tree, lose)
    before = {one: data for one, data in disk.tree().files.items() if one.startswith(PART)}
    world = World(disk)
    (fault,) = world.node.faults()
    assert fault.path == path
    assert "was durable to" in fault.reason
    with pytest.raises(PartitionFaulty):
        world.publish(b"x")
    world.node.close()
    assert {one: data for one, data in disk.tree().files.items() if one.startswith(PART)} == before


def test_after_a_repair_a_log_that_lost_its_end_opens() -> None:
    world = used()
    world.kill()
    world.publish(b"c")
    world.sync()
    world.node.note_ends([*world.node.partitions()], world.now())
    path = f"{PART}/messages/{FIRST}"
    size = len(world.disk.tree().files[path])
    disk = tree_with(world.disk.tree(), lambda files: flipped(files, path, size - 3))
    (fault,) = World(SimDisk(disk.tree())).node.faults()
    assert fault.path == path
    repair(disk, f"{PART}/messages")
    world = World(disk)
    assert world.node.faults() == []
    world.publish(b"d")
    world.wait(31_000)
    assert values(world.drain()) == [b"b", b"d"]


def repair(disk: SimDisk, directory: str, *, log_id: LogId | None = None) -> None:
    plan, steps = None, plan_steps(disk, directory, log_id=log_id)
    while plan is None:
        try:
            progress = next(steps)
            assert isinstance(progress, ReadProgress)
        except StopIteration as finished:
            plan = finished.value
    for _ in repair_steps(plan, LogConfig()):
        pass


def test_first_segments_that_are_lost_with_the_checkpoint_are_missed() -> None:
    world = World()
    world.topic(segment_size_bytes=1000)
    for number in range(30):
        world.publish(b"%d" % number * 20)
    world.sync()
    world.kill()

    def lose(files: dict[str, bytes]) -> None:
        del files[f"{PART}/messages/{FIRST}"]
        del files[f"{PART}/messages/checkpoint"]

    (fault,) = World(tree_with(world.disk.tree(), lose)).node.faults()
    assert fault.path == f"{PART}/messages/{FIRST}"


def sealed() -> World:
    world = World()
    world.topic(segment_size_bytes=1000)
    world.group()
    for number in range(30):
        world.publish(b"%d" % number * 20)
        world.sync()
    world.restart()
    return world


def segments(world: World) -> list[str]:
    names = world.disk.list(f"{PART}/messages")
    return [f"{PART}/messages/{one}" for one in names if one.endswith(".log")]


@pytest.mark.parametrize("how", ["missing", "emptied", "shorter"])
def test_a_sealed_segment_that_lost_something_is_told_and_the_rest_serves(how) -> None:
    world = sealed()
    path = segments(world)[2]

    def lose(files: dict[str, bytes]) -> None:
        if how == "missing":
            del files[path]
        elif how == "emptied":
            files[path] = b""
        else:
            last_batch_cut(path)(files)

    world.take_snapshots()
    world.node.close()
    world = World(tree_with(world.disk.tree(), lose))
    assert EventKind.SEGMENT_DAMAGED in kinds(world)
    event = next(one for one in world.node.recovery if one.kind is EventKind.SEGMENT_DAMAGED)
    expected = segments(world)[1] if how == "missing" else path
    assert (event.path, event.topic, event.partition) == (expected, TOPIC, 0)
    assert world.node.faults() == []
    log = world.node.partition(TOPIC, 0).messages
    assert log.read(log.end_offset - 1, bytes_max=1).data
    assert DamagedBatch in {kind_of_read(log, at) for at in range(log.end_offset)}


def kind_of_read(log: Log, offset: int) -> type[Exception] | None:
    try:
        log.read(offset, bytes_max=1)
    except Damaged as error:
        return type(error)
    return None


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_is_lost_is_made_again_and_told(suffix) -> None:
    world = sealed()
    path = segments(world)[1].replace(".log", suffix)
    world.node.close()
    world = World(tree_with(world.disk.tree(), without(path)))
    assert kinds(world) == [EventKind.INDEX_REBUILT]
    assert world.disk.exists(path)
    world.restart()
    assert world.node.recovery == []


def test_a_damaged_snapshot_is_passed_over_and_named() -> None:
    world = used()
    world.take_snapshots()
    world.publish(b"c")
    world.group("another")
    world.take_snapshots()
    world.restart()
    snapshots = [one for one in world.disk.list(f"{PART}/state") if one.endswith(".snapshot")]
    assert len(snapshots) == 2
    path = f"{PART}/state/{snapshots[-1]}"
    for change in (without(path), lambda files: flipped(files, path, 60)):
        found = World(tree_with(world.disk.tree(), change))
        assert (EventKind.SNAPSHOT_SKIPPED, path) in [
            (one.kind, one.path) for one in found.node.recovery
        ]
        assert found.node.faults() == []
        found.wait(31_000)
        assert values(found.drain()) == [b"b", b"c"]


def test_a_damaged_snapshot_is_not_the_one_to_fall_back_on() -> None:
    """The next snapshot leaves the older one that can be read: if it is damaged itself, that one serves."""
    world = World()
    world.topic()
    world.group()

    def newest_snapshot(world: World) -> str:
        world.publish(b"a")
        world.ack(*world.poll(1))
        partition = world.node.partition(TOPIC, 0)
        partition.journal.log.roll()
        partition.take_snapshot()
        names = [one for one in world.disk.list(f"{PART}/state") if one.endswith(".snapshot")]
        return f"{PART}/state/{names[-1]}"

    for _ in range(3):
        path = newest_snapshot(world)
    for _ in range(2):
        damaged = tree_with(world.disk.tree(), lambda files, path=path: flipped(files, path, 60))
        world = World(damaged)
        assert world.node.faults() == []
        assert EventKind.SNAPSHOT_SKIPPED in kinds(world)
        path = newest_snapshot(world)
    assert values(world.drain()) == []


def test_a_snapshot_that_nothing_can_stand_in_for_is_the_one_that_is_named() -> None:
    world = World()
    world.topic(journey_retention_hours=0)
    world.group()
    for _ in range(3):
        world.publish(b"a")
        world.ack(*world.poll(1))
        partition = world.node.partition(TOPIC, 0)
        partition.journal.log.roll()
        partition.take_snapshot()
    world.restart()
    state = f"{PART}/state"
    snapshots = [f"{state}/{one}" for one in world.disk.list(state) if ".snapshot" in one]
    assert world.node.partition(TOPIC, 0).journal.log.start_offset > 0

    def damage(files: dict[str, bytes]) -> None:
        for path in snapshots:
            flipped(files, path, 60)

    (fault,) = World(tree_with(world.disk.tree(), damage)).node.faults()
    assert fault.path == snapshots[-1]


def with_older_meta(world: World, old: Tree) -> SimDisk:
    def put_back(files: dict[str, bytes]) -> None:
        without("meta")(files)
        files.update({path: data for path, data in old.files.items() if path.startswith("meta/")})

    return tree_with(world.disk.tree(), put_back)


@pytest.mark.parametrize("starts", [1, 2, 3])
def test_a_partition_that_saw_a_later_meta_is_faulty_however_often_one_starts(starts) -> None:
    world = used()
    world.restart()
    world.node.close()
    old = world.disk.tree()
    world.kill()
    for name in ("b", "c"):
        world.topic(name=name)
    world.restart()
    world.publish(b"late")
    world.restart()
    world.node.close()
    world = World(with_older_meta(world, old))
    for _ in range(starts):
        fault = next(one for one in world.node.faults() if one.topic == TOPIC)
        assert "older copy" in fault.reason
        assert world.disk.list("set-aside") == ["b.2", "c.3"]
        name = f"more{len(world.node.open)}"
        world.topic(name=name)
        for retries in range(20):  # This meta becomes longer than the other one was.
            world.configure(name, max_retries=retries)
        world.restart()
    world.topic(name="new")
    assert world.node.topic("new").facts.topic_id > 3


def test_an_older_meta_is_noticed_though_only_a_key_was_revoked_since() -> None:
    world = used()
    made = world.execute(CreateKey("shop", Role.PRODUCER, ("orders",)))
    world.restart()
    world.node.close()
    old = world.disk.tree()
    world.kill()
    world.execute(RevokeKey(made.key.key_id))
    world.node.close()
    (fault,) = World(with_older_meta(world, old)).node.faults()
    assert "older copy" in fault.reason


def test_meta_that_lost_its_end_is_noticed_by_what_saw_it() -> None:
    world = used()
    world.configure(max_retries=9)
    world.restart()
    path = f"meta/{FIRST}"
    old = world.disk.tree()
    world.configure(max_retries=10)
    world.node.partition(TOPIC, 0).messages.sync(with_checkpoint=True)
    tree = world.disk.tree()

    def lose(files: dict[str, bytes]) -> None:
        without("meta")(files)
        files.update({one: data for one, data in old.files.items() if one.startswith("meta/")})

    assert len(tree.files[path]) > len(old.files[path])
    (fault,) = World(tree_with(tree, lose)).node.faults()
    assert fault.topic == TOPIC


@pytest.mark.parametrize("version", [1, 3])
def test_a_directory_of_another_version_is_refused_by_name_and_left_alone(version) -> None:
    world = used()
    world.node.close()
    tree = world.disk.tree()
    disk = tree_with(tree, with_version("meta/checkpoint", version))
    with pytest.raises(Refused, match=f"meta/checkpoint is of version {version}"):
        World(disk)
    assert disk.tree().files.keys() == tree.files.keys()


@pytest.mark.parametrize("model", list(Model))
def test_no_power_cut_leaves_what_looks_like_a_loss(model, effort) -> None:
    """Whatever is durable when the power goes, the ends that meta knows are within it."""
    for seed in range(effort(check=6, test=15, torture=400)):
        entropy = random.Random(seed)
        world = World()
        world.topic(partitions=2, segment_size_bytes=600, retention_bytes=1500)
        world.group()
        for _ in range(entropy.randint(5, 40)):
            match entropy.randint(0, 7):
                case 0:
                    world.ack(*world.poll(3))
                case 1:
                    world.sync()
                case 2:
                    partition = world.node.partition(TOPIC, entropy.randint(0, 1))
                    partition.take_snapshot()
                    world.node.note_ends([*world.node.partitions()], world.now())
                case 3:
                    world.sync()
                    world.sweep()
                case 4:
                    world.restart()
                case _:
                    world.publish(b"x" * entropy.randint(1, 300))
        disk = power_cut(world.disk, model, entropy=entropy)
        again = World(disk)
        assert again.node.faults() == []
        assert EventKind.SET_ASIDE not in kinds(again)


def test_an_older_meta_is_missed_though_the_lives_since_ended_by_crashes() -> None:
    """A key came in a life in which no partition wrote a checkpoint. The start behind it wrote one."""
    world = used()
    world.kill()
    older = world.disk.tree()
    world.execute(CreateKey("ops", Role.ADMIN))
    world.kill()

    def put_back(files: dict[str, bytes]) -> None:
        without("meta")(files)
        files.update({path: data for path, data in older.files.items() if path.startswith("meta/")})

    world.open_on(tree_with(world.disk.tree(), put_back))
    assert EventKind.PARTITION_FAULTY in kinds(world)
