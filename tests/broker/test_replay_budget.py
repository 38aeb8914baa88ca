"""What a start reads again is bounded, for all partitions of a node together."""

from penstock.broker.partition.replay_budget import BYTES_MAX, ENTRIES_MAX
from penstock.model import Message

from .world import GROUP, TOPIC, World, values

_ENTRIES_MAX = 40


def small(world: World) -> World:
    """With a budget that a test can use up."""
    replay = world.node.changes.replay
    replay.entries_max, replay.entries_min = _ENTRIES_MAX, 4
    return world


def made(partitions: int = 4) -> World:
    world = World()
    world.topic(partitions=partitions)
    return small(world)


def behind(world: World) -> int:
    """What the next start reads again."""
    world.kill()
    return sum(one.entries_behind for one in world.node.partitions())


def snapshots_of(world: World, number: int) -> list[str]:
    directory = world.node.partition(TOPIC, number).journal.log.directory
    return [f"{directory}/{name}" for name in world.disk.list(directory) if "snapshot" in name]


def test_publishes_and_decisions_count_and_a_start_reads_no_more_than_the_budget() -> None:
    world = made()
    world.group()
    for number in range(200):
        world.publish(b"%d" % number, partition=number % 2)
        world.ack(*world.poll(1))
        world.sync()
    assert behind(world) <= 2 * _ENTRIES_MAX
    assert world.drain() == []


def test_the_partition_with_most_has_the_snapshot() -> None:
    world = made()
    for number in range(_ENTRIES_MAX + 1):
        world.publish(b"%d" % number, partition=3 if number % 4 else 1)
        world.sync()
    assert snapshots_of(world, 3)
    assert not snapshots_of(world, 1)


def test_bytes_count_as_well_as_entries() -> None:
    world = made(partitions=1)
    replay = world.node.changes.replay
    replay.entries_max = 1 << 30
    for _ in range(BYTES_MAX // (1 << 20) + 1):
        world.publish(bytes(1 << 20))
        world.sync()
    assert snapshots_of(world, 0)


def test_a_partition_without_news_is_not_written_again() -> None:
    world = made()
    for number in range(_ENTRIES_MAX + 1):
        world.publish(b"%d" % number, partition=3)
        world.sync()
    (first,) = snapshots_of(world, 3)
    for number in range(4 * _ENTRIES_MAX):
        world.publish(b"%d" % number, partition=0)
        world.sync()
    assert snapshots_of(world, 3) == [first]
    assert snapshots_of(world, 1) == []


def test_a_start_that_has_read_much_leaves_less_to_the_next_one() -> None:
    world = made()
    replay = world.node.changes.replay
    replay.entries_max = ENTRIES_MAX
    for number in range(3 * _ENTRIES_MAX):
        world.publish(b"%d" % number, partition=number % 3)
    world.sync()
    assert behind(world) == 3 * _ENTRIES_MAX
    small(world)
    while world.node.changes.replay.most() is not None:
        world.sync()
    assert behind(world) <= _ENTRIES_MAX


def test_a_stop_writes_no_snapshots_of_many_partitions_but_for_what_is_beyond_the_budget() -> None:
    count = 70
    world = made(partitions=count)
    for number in range(count):
        world.publish(b"%d" % number, partition=number)
    world.restart()
    assert [snapshots_of(world, number) for number in range(count)] == [[]] * count
    small(world)
    for number in range(2 * _ENTRIES_MAX):
        world.publish(b"%d" % number, partition=2)
    world.restart()
    assert [number for number in range(count) if snapshots_of(world, number)] == [2]


def test_a_stop_with_few_partitions_leaves_nothing_to_read_again() -> None:
    world = made()
    world.publish(b"a", partition=1)
    world.restart()
    assert snapshots_of(world, 1)
    assert world.node.changes.replay.entries == 0


def test_a_snapshot_for_which_there_was_no_room_is_made_up_for() -> None:
    world = made(partitions=1)
    for number in range(_ENTRIES_MAX + 1):
        world.publish(b"%d" % number)
    plans = world.node.plan_sync()
    (plan,) = (plan for _, plan in plans)
    assert plan.snapshot is not None
    # As on a full disk: all but the snapshot is written.
    for log in plan.logs():
        log.run()
    world.node.synced(plans, world.now())
    assert world.node.partition(TOPIC, 0).entries_behind == _ENTRIES_MAX + 1
    for number in range(_ENTRIES_MAX):
        world.publish(b"%d" % number)
        world.sync()
    assert snapshots_of(world, 0)


def test_a_large_state_is_written_more_seldom() -> None:
    world = made(partitions=1)
    for number in range(5000):
        world.publish(Message(b"", idempotency_key=b"%0100d" % number))
    world.take_snapshots()
    for _ in range(2 * _ENTRIES_MAX):
        world.publish(b"")
        world.sync()
    assert len(snapshots_of(world, 0)) == 1


def test_a_retry_that_has_waited_does_not_wait_anew_after_a_stop() -> None:
    world = World()
    world.topic(max_retries=5, backoff_base_ms=1000, backoff_multiplier=1.0, backoff_jitter=False)
    world.publish(b"a")
    world.nack(*world.poll())
    world.wait(1000)
    world.node.tick(world.now())
    world.restart()
    assert values(world.poll()) == [b"a"]
    assert GROUP in world.node.partition(TOPIC, 0).machine.numbers
