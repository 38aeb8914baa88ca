"""Topics come, change and go; nothing of an old one is ever seen in a new one."""

import pytest

from penstock.api.publish import Delayed
from penstock.api.start import LATEST
from penstock.api.topics import ConfigureTopic
from penstock.broker import catalogue
from penstock.broker.topics import config_from, settings_of
from penstock.config import DAY_MS, Cleanup, TopicConfig, TtlAction
from penstock.errors import AlreadyExists, InvalidConfig, InvalidName, NoSpace, NotFound, Refused
from penstock.model import Message
from penstock.sim import Call, Fault, Misbehaviour, SimDisk

from .world import GROUP, MIXED, TOPIC, World, pull_the_plug, values

STOPS = pytest.mark.parametrize("stop", ["restart", "kill", "lose_unsynced"])


@STOPS
def test_topics_and_their_settings_survive(stop) -> None:
    world = World()
    world.topic(partitions=2, name="a", max_retries=7, ttl_action=TtlAction.DEAD_LETTER)
    world.topic(partitions=1, name="b", cleanup=Cleanup.COMPACT)
    world.topic(name="gone")
    world.configure("a", max_retries=9, retention_hours=0.5)
    world.grow(4, "a")
    world.delete("gone")
    getattr(world, stop)()
    assert world.topics() == ["a", "b"]
    assert len(world.describe("a")) == 4
    config = world.node.topic("a").facts.config
    assert (config.max_retries, config.retention_hours) == (9, 0.5)
    assert config.ttl_action is TtlAction.DEAD_LETTER
    assert world.node.topic("b").facts.config.cleanup is Cleanup.COMPACT


def test_describe_says_how_much_there_is() -> None:
    world = World()
    world.topic(partitions=2)
    world.publish(b"a", b"b", b"c", partition=1)
    empty, full = world.describe()
    assert empty == (0, 0, 0, 0, 0, "")
    assert full[:4] == (1, 0, 3, 3)
    assert full.size_bytes == world.node.partition(TOPIC, 1).messages.size > 100
    with pytest.raises(NotFound):
        world.describe("nothing")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "ä", "a\0", "x" * 246, "../meta", "__mine", "a\n"]
)
def test_a_name_that_could_leave_its_directory_never_reaches_the_disk(name) -> None:
    world = World()
    before = len(world.disk.operations)
    with pytest.raises(Refused):
        world.topic(name=name)
    assert len(world.disk.operations) == before
    world.topic()
    for method in (world.group, world.publish):
        with pytest.raises((NotFound, InvalidName, Refused)):
            method(name, topic=name) if method is world.group else method(b"x", topic=name)
    with pytest.raises(Refused):
        world.group(name)


def test_a_name_is_taken_once() -> None:
    world = World()
    world.topic()
    with pytest.raises(AlreadyExists):
        world.topic()
    for wrong in (0, -1, 10_001):
        with pytest.raises(Refused):
            world.topic(name="other", partitions=wrong)


def test_partitions_only_become_more() -> None:
    world = World()
    world.topic(partitions=3)
    for wrong in (3, 2, 0, 10_001):
        with pytest.raises(Refused):
            world.grow(wrong)


@STOPS
def test_a_dead_letter_topic_grows_with_its_source(stop) -> None:
    world = World()
    world.topic(partitions=1, max_retries=0)
    world.group()
    world.publish(b"a")
    world.reject(*world.poll())
    world.settle()
    world.grow(3)
    getattr(world, stop)()
    assert len(world.describe(TOPIC + ".dlq")) == 3
    world.publish(b"b", partition=2)
    world.reject(*world.poll())
    world.settle()
    assert sorted(one.partition for one in world.letters()) == [0, 2]


@STOPS
def test_groups_read_new_partitions_from_the_start(stop) -> None:
    world = World()
    world.topic(partitions=1)
    world.publish(b"before")
    world.group(start=LATEST)
    world.sync()
    world.grow(2)
    world.publish(b"after", partition=1)
    world.sync()
    getattr(world, stop)()
    assert values(world.drain()) == [b"after"]


def test_a_group_that_missed_new_partitions_gets_them_from_the_start() -> None:
    world = World()
    world.topic(partitions=1)
    world.group(start=LATEST)
    full = Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="partition-1/state/0")
    world.disk.inject(full)
    world.grow(2)
    world.publish(b"x", partition=1)
    world.group(start=LATEST)
    assert values(world.drain()) == [b"x"]


def test_files_of_a_partition_that_nobody_made_are_neither_used_nor_removed() -> None:
    world = World()
    world.topic(partitions=1)
    world.group()
    directory = f"{world.node.topic(TOPIC).facts.directory}/partition-1/messages"
    world.disk.make_directories(directory)
    world.disk.create(f"{directory}/checkpoint").append(b"precious")
    with pytest.raises(Refused, match="a restart sets it aside"):
        world.grow(2)
    assert files_below(world.disk, "partition-1") == [f"{directory}/checkpoint"]
    world.kill()
    world.grow(2)
    world.publish(b"x", partition=1)
    assert values(world.drain()) == [b"x"]
    aside = "set-aside/orders.1-partition-1/messages/checkpoint"
    assert world.disk.tree().files[aside] == b"precious"


def test_settings_are_checked_and_all_faults_named() -> None:
    world = World()
    world.topic()
    before = world.node.topic(TOPIC).facts.config
    for wrong in (
        {"max_retries": -2},
        {"max_retries": "many"},
        {"nonsense": 1, "more": 2},
        {"compression": "rar"},
        {"visibility_timeout_ms": 0},
        {"group_retention_hours": 0},
        {"group_retention_hours": 1e14},
        {"retention_hours": 1e308},
        {"journey_retention_hours": -2},
        {"journey_retention_hours": 1e297},
        {"backoff_multiplier": 1e200},
        {"backoff_base_ms": 1 << 62},
        {"backoff_max_ms": 1 << 62},
        {"keep_unread_bytes_max": -5},
    ):
        with pytest.raises(InvalidConfig) as refusal:
            world.execute(ConfigureTopic(TOPIC, wrong))
        if "nonsense" in wrong:
            assert "more, nonsense" in str(refusal.value)
    assert world.node.topic(TOPIC).facts.config == before


def test_the_longest_times_pass_a_sweep_failures_and_a_restart() -> None:
    hours = ("retention_hours", "group_retention_hours", "journey_retention_hours")
    world = World()
    world.topic(
        **dict.fromkeys(hours, 1e13),
        max_retries=-1,
        backoff_base_ms=1,
        backoff_multiplier=1000,
        backoff_max_ms=366 * DAY_MS,
    )
    world.publish(b"kept")
    for _ in range(20):
        (held,) = world.poll()
        world.nack(held)
        world.wait(366 * DAY_MS)
    world.sweep()
    world.restart()
    assert values(world.drain()) == [b"kept"]


def test_settings_come_back_as_they_were_written() -> None:
    config = TopicConfig(ttl_action=TtlAction.DEAD_LETTER, cleanup=Cleanup.COMPACT, ttl_ms=5)
    assert config_from(settings_of(config)) == config


def test_settings_of_a_topic_may_have_units() -> None:
    written = {"retention_bytes": "10GiB", "visibility_timeout_ms": "30s", "retention_hours": "7d"}
    config = config_from(written)
    assert (config.retention_bytes, config.retention_hours) == (10 << 30, 168)
    assert config.visibility_timeout_ms == 30_000


def test_new_settings_hold_for_partitions_that_are_open() -> None:
    world = World()
    world.topic(max_in_flight=1)
    world.group()
    world.publish(b"a", b"b")
    assert len(world.poll(5)) == 1
    world.configure(max_in_flight=5, segment_size_bytes=1000)
    assert len(world.poll(5)) == 1
    assert world.node.partition(TOPIC, 0).messages.config.segment_size_bytes == 1000


def test_ids_are_never_used_again() -> None:
    world, ids = World(), set()
    for _ in range(5):
        world.topic()
        ids.add(world.node.topic(TOPIC).facts.topic_id)
        world.delete()
        world.restart()
    assert len(ids) == 5


def test_a_topic_with_a_high_id_can_be_opened() -> None:
    world = World()
    world.node.topics.next_id = 1 << 40
    world.topic()
    world.publish(b"a")
    world.restart()
    world.group()
    assert values(world.drain()) == [b"a"]


def test_the_meta_journal_does_not_grow_for_ever(monkeypatch) -> None:
    monkeypatch.setattr(catalogue, "_RECORDS_A_SNAPSHOT", 10)
    world = World()
    world.topic(partitions=1)
    for number in range(35):
        world.configure(max_retries=number)
    world.kill()
    assert world.node.topic(TOPIC).facts.config.max_retries == 34
    snapshots = [one for one in world.disk.list("meta") if one.endswith(".snapshot")]
    assert len(snapshots) == 2
    newest = max(int(one.removesuffix(".snapshot")) for one in snapshots)
    assert world.node.meta.log.end_offset - newest < 10


def files_below(disk: SimDisk, part: str) -> list[str]:
    return [path for path in disk.tree().files if part in path]


def test_deleting_removes_the_files() -> None:
    world = World()
    world.topic()
    world.publish(b"a")
    world.delete()
    assert files_below(world.disk, "topics/") == []
    assert world.disk.list("topics/default") == []
    world.restart()
    assert world.node.recovery == []


@pytest.mark.parametrize("nth", range(1, 40))
def test_a_full_disk_leaves_a_new_topic_whole_or_not_there_at_all(nth) -> None:
    world = World()
    world.topic(name="first")
    for call in (Call.APPEND, Call.CREATE):
        world.disk.inject(Fault(call=call, does=Misbehaviour.NO_SPACE, nth=nth))
    try:
        world.topic(partitions=2)
        world.grow(3)
    except NoSpace:
        pass
    world.disk.faults.clear()
    count = len(world.describe()) if TOPIC in world.node.open else 0
    assert count in {0, 2, 3}
    if count == 0:
        assert files_below(world.disk, f"topics/default/{TOPIC}") == []
        world.topic(partitions=2)
    world.group()
    world.publish(b"works", partition=1)
    world.kill()
    assert values(world.drain()) == [b"works"]
    world.group(GROUP, "first")


def test_at_every_crash_state_a_topic_is_as_before_or_as_after(effort, monkeypatch) -> None:
    """Create, grow, delete and create again, the plug pulled anywhere: never half a topic, never an old message."""
    monkeypatch.setattr(catalogue, "_RECORDS_A_SNAPSHOT", 2)

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic(partitions=1)
        disk.mark("created")
        world.publish(b"old")
        world.sync()
        world.grow(2)
        disk.mark("grown")
        world.delete()
        disk.mark("deleted")
        world.topic(partitions=1)
        disk.mark("again")

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        if "deleted" not in marks and "created" in marks and TOPIC in world.node.open:
            assert len(world.describe()) >= 1 + ("grown" in marks)
        if "again" in marks or "created" in marks[-1:]:
            assert TOPIC in world.node.open
        if TOPIC not in world.node.open:
            world.topic(partitions=1)
        world.group()
        found = values(world.drain())
        assert found in ([], [b"old"])
        if "deleted" in marks:
            assert found == []
        world.publish(b"new")
        assert values(world.drain()) == [b"new"]

    assert pull_the_plug(scenario, check, effort) > 100


def test_a_catalogue_closes_clean() -> None:
    world = World()
    world.topic(partitions=2)
    world.publish(b"a")
    world.restart()
    assert world.node.recovery == []


def changed_by_closing(world: World) -> set[str]:
    """Close and start again; directories of partitions in which closing wrote or synced anything."""
    before = len(world.disk.operations)
    world.node.close()
    paths = [
        getattr(one, "path", None) or getattr(one, "new", "")
        for one in world.disk.operations[before:]
    ]
    world.kill()
    return {"/".join(path.split("/")[:4]) for path in paths if path.startswith("topics/")}


def test_closing_writes_nothing_for_partitions_in_which_nothing_happened() -> None:
    world = World()
    world.topic(partitions=4)
    partitions = [f"topics/default/{TOPIC}.1/partition-{number}" for number in range(4)]
    # The first says how far meta is.
    first = {partitions[0]}
    assert changed_by_closing(world) == first
    world.publish(b"a", partition=1)
    due_ns = world.wall_ns + 3_600_000_000_000
    world.schedule([Delayed(Message(b"b"), due_ns)], partition=2)
    assert changed_by_closing(world) == {*partitions[:3]}
    assert world.node.recovery == []
    world.group()
    assert changed_by_closing(world) == {*partitions}
    assert changed_by_closing(world) == first
    assert values(world.drain()) == [b"a"]
    assert changed_by_closing(world) >= {partitions[1]}
    assert changed_by_closing(world) == first
    world.wait(1000)
    assert (world.drain(), world.node.recovery) == ([], [])
    # One partition knows when the group has asked last.
    assert changed_by_closing(world) == first


@pytest.mark.parametrize("partitions", [1, 3])
def test_that_a_group_was_active_is_remembered_though_it_did_nothing_else(partitions) -> None:
    world = World()
    world.topic(partitions=partitions, group_retention_hours=10)
    world.group()
    world.restart()
    world.wait(9 * 3_600_000)
    world.poll()
    world.restart()
    world.wait(9 * 3_600_000)
    world.sweep()
    assert GROUP in world.node.partition(TOPIC, 0).machine.numbers


@pytest.mark.tier("test")
def test_a_deletion_that_a_power_cut_ends_leaves_nothing_behind_at_the_next_start(effort) -> None:
    """Directories included, whichever removals were lost; and what stays is whole."""

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        disk.mark("created")
        world.delete()
        disk.mark("deleted")
        disk.sync_directory("topics/default")

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        if "deleted" in marks:
            assert set(world.node.open) == {"stays"}
        elif "created" in marks:
            assert "stays" in world.node.open
        known = {facts.directory for facts in world.node.topics.by_name.values()}
        assert {f"topics/default/{one}" for one in disk.list("topics/default")} == known

    begun = World()
    begun.topic(name="stays", partitions=1)
    begun.topic(partitions=1)
    begun.publish(b"a")
    begun.sync()
    start = begun.disk.tree()
    assert pull_the_plug(scenario, check, effort, kinds=MIXED, start=start) > 40


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_retries": "x", "ttl_ms": 5}, "max_retries must be a whole number, got 'x'"),
        ({"backoff_multiplier": []}, "backoff_multiplier must be a number, got []"),
        ({"dlq_enabled": "no"}, "dlq_enabled must be true or false, got 'no'"),
        ({"ttl_action": "burn"}, "ttl_action must be drop or dlq, got 'burn'"),
        ({"compression": "gzip"}, "compression must be none, lz4 or zstd, got 'gzip'"),
        ({"max_retries": -5}, "max_retries must be >= -1, got -5"),
        ({"retention_hours": 1e400}, "retention_hours must be a finite number, got inf"),
        ({"ttl_ms": "0.5ms"}, "ttl_ms must be a whole number, got '0.5ms'"),
        ({"ttl_ms": "999999d"}, "ttl_ms is at most 292 years, got '999999d'"),
        (
            {"retention_bytes": "9999999TiB"},
            "retention_bytes must be below 9223372036854775808, got 10995115178248372224",
        ),
        (
            {"retention_bytes": "1 apple"},
            'retention_bytes must look like "512KiB", "64MiB", "10GB" or a number of bytes, got \'1 apple\'',
        ),
    ],
)
def test_a_wrong_setting_is_named_and_no_other(settings, said) -> None:
    with pytest.raises(InvalidConfig) as refused:
        config_from(settings)
    assert str(refused.value) == said


def test_a_setting_that_there_is_not_is_named_with_the_nearest_one() -> None:
    with pytest.raises(InvalidConfig) as refused:
        config_from({"max_retry": 3, "x" * 10_000_000: 1} | {f"y{one}": 1 for one in range(9)})
    said = str(refused.value)
    assert said.startswith("there is no setting max_retry (did you mean max_retries?), x")
    assert "known: backoff_base_ms," in said
    assert "y8" not in said
    assert refused.value.code == "INVALID_CONFIG"
    assert "y8" in refused.value.fields["setting"]
