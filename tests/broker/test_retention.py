"""What goes, what stays because somebody needs it, and who is told."""

import pytest

from penstock.api.dead_letters import RedriveDeadLetters, Target
from penstock.broker.partition.removal import retain
from penstock.config import Cleanup
from penstock.errors import NoSpace
from penstock.log import trim
from penstock.model import Message
from penstock.sim import Call, Fault, Misbehaviour

from .world import GROUP, HOUR_MS, TOPIC, World


def filled(count: int = 20, **settings: object) -> World:
    """A segment for each message."""
    world = World()
    world.topic(segment_size_bytes=300, **settings)
    world.group()
    for number in range(count):
        world.publish(Message(b"%02d" % number + b"x" * 150, b"k%d" % (number % 3)))
    return world


def start_of(world: World) -> int:
    return world.node.partition(TOPIC, 0).messages.start_offset


def test_a_sweep_says_what_it_removed() -> None:
    world = filled(retention_hours=1)
    size = world.node.partition(TOPIC, 0).messages.size
    world.now(2 * HOUR_MS)
    swept = world.sweep()[TOPIC]
    assert (swept.segments_removed, swept.bytes_freed) == (20, size)
    assert world.sweep()[TOPIC][:2] == (0, 0)


@pytest.mark.parametrize("stop", ["kill", "restart", "lose_unsynced"])
def test_a_group_that_was_overtaken_goes_on_and_the_loss_is_counted(stop) -> None:
    world = filled(retention_bytes=1500)
    held = world.poll(3)
    world.ack(held[1])
    world.nack(held[0], delay_ms=HOUR_MS)
    world.sweep()
    start = start_of(world)
    assert start > 5
    world.sync()
    getattr(world, stop)()
    delivery = world.node.partition(TOPIC, 0).group(GROUP)
    assert delivery.skipped_count == start - 1
    assert delivery.progress.floor == start
    assert (delivery.leases.in_flight, delivery.waiting, delivery.failures) == (0, {}, {})
    assert [one.offset for one in world.drain()] == list(range(start, 20))


def test_a_group_whose_loss_could_not_be_recorded_learns_of_it_at_the_next_poll() -> None:
    world = filled(retention_bytes=1500)
    world.sync()
    full = Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="/state/0", times=2)
    world.disk.inject(full)
    with pytest.raises(NoSpace):
        world.sweep()
    world.disk.faults.clear()
    assert world.node.partition(TOPIC, 0).group(GROUP).skipped_count == 0
    assert [one.offset for one in world.drain()] == list(range(start_of(world), 20))
    assert world.node.partition(TOPIC, 0).group(GROUP).skipped_count == start_of(world)


def test_a_sweep_that_a_power_cut_interrupted_is_known_to_every_group_after_the_start() -> None:
    """The messages are gone for good, but nobody had written down what that meant for the groups."""
    world = filled(retention_bytes=1500)
    world.sync()
    world.node.partition(TOPIC, 0).take_snapshot()
    log = world.node.partition(TOPIC, 0).messages
    trim.retain(log, now_ns=world.wall_ns, keep_from=log.end_offset)
    world.lose_unsynced()
    start = start_of(world)
    assert start > 5
    delivery = world.node.partition(TOPIC, 0).group(GROUP)
    assert (delivery.progress.floor, delivery.skipped_count) == (start, start)


@pytest.mark.parametrize("stop", ["kill", "restart"])
def test_keep_unread_keeps_what_a_group_has_not_finished(stop) -> None:
    world = filled(retention_hours=1, keep_unread=True)
    world.ack(*world.poll(7))
    held = world.poll(2)
    world.ack(held[1])
    world.now(5 * HOUR_MS)
    world.sweep()
    assert start_of(world) == 7
    getattr(world, stop)()
    world.wait(5 * HOUR_MS)
    world.sweep()
    world.wait(HOUR_MS)
    assert [one.offset for one in world.drain()] == [7, *range(9, 20)]
    world.sweep()
    assert start_of(world) == 20


def test_the_cap_of_keep_unread_ends_it_for_the_oldest() -> None:
    world = filled(retention_hours=1, keep_unread=True, keep_unread_bytes_max=1000)
    world.now(5 * HOUR_MS)
    world.sweep()
    log = world.node.partition(TOPIC, 0).messages
    assert 15 <= log.start_offset < 20
    assert log.size <= 1000
    assert len(world.drain()) == 20 - log.start_offset


@pytest.mark.parametrize("spare", [-1, 0, 1])
def test_the_cap_of_keep_unread_is_exact(spare) -> None:
    """Each message is a segment: with just as many bytes as three take, three stay, and with one less two."""
    world = filled(retention_hours=1, keep_unread=True)
    log = world.node.partition(TOPIC, 0).messages
    cap = 3 * log.size // 20
    assert cap * 20 == 3 * log.size
    world.configure(keep_unread_bytes_max=cap + spare)
    world.now(5 * HOUR_MS)
    world.sweep()
    assert start_of(world) == (18 if spare < 0 else 17)


def test_keep_unread_ends_with_an_idle_group() -> None:
    world = filled(retention_hours=1, keep_unread=True, group_retention_hours=24)
    world.now(23 * HOUR_MS)
    world.sweep()
    assert start_of(world) == 0
    world.now(2 * HOUR_MS)
    assert world.sweep()[TOPIC].groups_forgotten == (GROUP,)
    assert start_of(world) == 20


def test_keep_unread_keeps_what_was_redriven_to_a_group() -> None:
    world = filled(retention_hours=1, keep_unread=True, max_retries=0)
    held = world.poll(20)
    world.reject(held[4])
    world.ack(*held)
    world.settle()
    world.execute(RedriveDeadLetters(TOPIC, target=Target.GROUP))
    world.settle()
    world.now(5 * HOUR_MS)
    world.sweep()
    assert start_of(world) == 4
    assert [one.offset for one in world.drain()] == [4]


def test_a_letter_on_its_way_keeps_its_message() -> None:
    world = filled(retention_hours=1, max_retries=0)
    world.reject(world.poll(3)[2], error="late")
    world.now(5 * HOUR_MS)
    world.sweep()
    assert start_of(world) == 2
    world.settle()
    assert world.letters()[0].message.value[:2] == b"02"
    world.sweep()
    assert start_of(world) == 20


@pytest.mark.parametrize("stop", ["kill", "restart", "lose_unsynced"])
def test_what_arrived_is_known_when_retention_has_taken_it(stop) -> None:
    """The dead-letter topic loses its messages; a letter that is sent again must not come twice."""
    world = filled(3, max_retries=0)
    world.reject(*world.poll(1))
    world.sync()
    world.node.pump(world.now())
    letters = world.node.partition(TOPIC + ".dlq", 0)
    letters.sync()
    world.now(400 * HOUR_MS)
    retain(letters, world.now())
    assert letters.messages.start_offset == 1
    getattr(world, stop)()
    world.settle()
    assert world.describe(TOPIC + ".dlq")[0][1:3] == (1, 1)


def test_compaction_keeps_the_last_of_each_key_and_groups_go_on() -> None:
    world = filled(cleanup=Cleanup.COMPACT, retention_hours=1)
    world.ack(*world.poll(4))
    world.sync()
    world.now(5 * HOUR_MS)
    swept = world.sweep()[TOPIC]
    assert swept.bytes_freed > 0
    assert world.describe()[0].latest == 20
    left = [one.offset for one in world.drain()]
    assert left[-3:] == [17, 18, 19]
    assert len(left) < 8
    lag = world.lag(GROUP)[0]
    assert (lag.lag, lag.floor) == (0, 20)


def test_compaction_does_not_take_a_letter_on_its_way() -> None:
    world = filled(cleanup=Cleanup.COMPACT, max_retries=0)
    world.reject(world.poll(1)[0])
    world.sync()
    world.sweep()
    world.settle()
    assert world.letters()[0].message.value[:2] == b"00"


def test_a_producer_and_a_key_are_known_when_compaction_has_taken_their_messages() -> None:
    world = World()
    world.topic(cleanup=Cleanup.COMPACT, segment_size_bytes=200)
    for number in range(9):
        world.publish(Message(b"v%d" % number, b"same", idempotency_key=b"i%d" % number))
    world.sync()
    world.sweep()
    world.kill()
    (again,) = world.publish(Message(b"v0", b"same", idempotency_key=b"i0"))
    assert (again.offset, again.is_duplicate) == (0, True)


def test_a_sweep_without_room_for_a_snapshot_says_so_if_there_is_something_to_remove() -> None:
    world = filled(retention_hours=1)
    full = Fault(call=Call.CREATE, does=Misbehaviour.NO_SPACE, path_part=".snapshot", times=99)
    world.disk.inject(full)
    assert world.sweep()[TOPIC].segments_removed == 0
    world.now(5 * HOUR_MS)
    with pytest.raises(NoSpace):
        world.sweep()
    assert start_of(world) == 0
    world.disk.faults.clear()
    assert world.sweep()[TOPIC].segments_removed == 20


@pytest.mark.parametrize("part", [".snapshot", "messages/0"])
def test_an_idle_topic_that_has_expired_and_cannot_be_removed_says_so(part) -> None:
    """All of it is in the segment that is written to, which goes only once there is a next one."""
    world = World()
    world.topic(retention_hours=1)
    world.publish(b"old")
    world.sync()
    world.now(5 * HOUR_MS)
    full = Fault(call=Call.CREATE, does=Misbehaviour.NO_SPACE, path_part=part, times=99)
    world.disk.inject(full)
    with pytest.raises(NoSpace):
        world.sweep()
    world.disk.faults.clear()
    assert world.sweep()[TOPIC].segments_removed == 1


def test_a_compaction_without_room_for_a_snapshot_says_so() -> None:
    world = filled(cleanup=Cleanup.COMPACT)
    full = Fault(call=Call.CREATE, does=Misbehaviour.NO_SPACE, path_part=".snapshot", times=99)
    world.disk.inject(full)
    with pytest.raises(NoSpace):
        world.sweep()
    world.disk.faults.clear()
    assert world.sweep()[TOPIC].segments_removed > 0


def test_a_restart_reads_only_what_follows_the_last_snapshot() -> None:
    world = World()
    world.topic()
    replay = world.node.changes.replay
    replay.entries_max = replay.entries_min = 5
    for number in range(40):
        world.publish(Message(b"x" * 100, idempotency_key=b"%d" % number))
        world.sync()
    world.kill()
    assert world.node.partition(TOPIC, 0).newest_covers >= 35
    (again,) = world.publish(Message(b"x", idempotency_key=b"0"))
    assert again.is_duplicate
