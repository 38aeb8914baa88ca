"""Delayed messages: on time, once, whatever stops the node in between."""

import pytest

from penstock.api.delays import (
    FIRST_PLACE,
    CancelDelayed,
    DelayedId,
    DelayPlace,
    DelayState,
    DescribeDelays,
    GetDelayed,
    ListDelayed,
    RescheduleDelayed,
)
from penstock.api.publish import Delayed, PublishBatch
from penstock.api.start import Start
from penstock.codec import Columns, Origin, encode
from penstock.errors import MalformedBatch, NotFound, NotPending, Refused
from penstock.model import Message, Priority

from .world import GROUP, MS, TOPIC, World, messages_of, values

HOUR = 3600 * 1000
DAY = 24 * HOUR


def made(partitions: int = 1, **settings: object) -> World:
    world = World()
    world.topic(partitions, **settings)
    world.group()
    return world


def later(world: World, value: bytes | Message, ms: float, key: bytes | None = None, **options):
    """Schedule one message; its id."""
    message = value if isinstance(value, Message) else Message(value)
    delayed = Delayed(message, world.wall_ns + int(ms * MS), key)
    (published,) = world.schedule([delayed], **options)
    assert published.is_delayed
    return published.offset


def state(world: World, identity: int) -> DelayState:
    return world.execute(GetDelayed(TOPIC, DelayedId(0, identity))).state


def stored(world: World, partition: int = 0) -> list[Message]:
    found: list[Message] = []
    offset = world.node.partition(TOPIC, partition).messages.start_offset
    while fetched := messages_of(world.fetch(Start.at_offset(offset), partition)):
        found += fetched
        offset = found[-1].offset + 1
    return found


def cancel(world: World, identity: int) -> None:
    world.execute(CancelDelayed(TOPIC, DelayedId(0, identity)))


def move(world: World, identity: int, ms: float) -> None:
    due_ns = world.wall_ns + int(ms * MS)
    world.execute(RescheduleDelayed(TOPIC, DelayedId(0, identity), due_ns))


@pytest.mark.parametrize("ms", [0, 3, 10, 2500, 170_000, 2 * HOUR, 8 * DAY, 400 * DAY])
@pytest.mark.parametrize("stop", ["nothing", "restart", "kill", "lose_unsynced"])
def test_a_delayed_message_comes_on_time_and_once(ms, stop) -> None:
    world = made()
    later(world, b"a", ms)
    world.sync()
    if stop != "nothing":
        getattr(world, stop)()
    if ms:
        world.wait(ms - 1)
        assert values(world.drain()) == []
        world.wait(0.999999)
        assert values(world.drain()) == []
        world.wait(0.000001)
    else:
        world.wait(0)
    assert values(world.drain()) == [b"a"]
    world.sync()
    if stop != "nothing":
        getattr(world, stop)()
    world.wait(DAY)
    assert world.drain() == []
    assert values(stored(world)) == [b"a"]
    assert state(world, 0) is DelayState.DELIVERED


def test_what_is_overdue_after_a_restart_comes_at_once_and_in_order() -> None:
    world = made()
    for ms in (500, 100, 300, 200, 400):
        later(world, b"%d" % ms, ms)
    world.restart()
    world.wait(HOUR)
    assert values(stored(world)) == [b"100", b"200", b"300", b"400", b"500"]


def test_everything_else_about_a_message_stays_as_it_was() -> None:
    world = made()
    message = Message(
        b"v", b"k", (("h", b"1"),), Priority.HIGH, 5, idempotency_key=b"i", schema_id=9
    )
    later(world, message, 1000)
    world.publish(b"now")
    world.wait(1000)
    now, fired = stored(world)
    assert fired == Message(b"v", b"k", (("h", b"1"),), 1, 5, None, b"i", 9, offset=1)
    assert now.timestamp > 5


def test_a_delayed_message_of_high_priority_overtakes() -> None:
    world = made()
    world.publish(*[b"n"] * 5)
    later(world, Message(b"first", priority=Priority.CRITICAL), 5)
    world.wait(5)
    assert b"first" in values(world.poll())


def test_a_fired_batch_names_the_ids_that_it_holds() -> None:
    world = made()
    first = later(world, b"a", 20)
    second = later(world, b"b", 10)
    world.wait(20)
    partition = world.node.partition(TOPIC, 0)
    opened = partition.cache.at(0)
    assert opened.head.origin is Origin.DELAY
    from penstock.codec.decode import delay_ids

    assert delay_ids(opened.body, opened.head).tolist() == [second, first]


def test_ttl_counts_from_the_due_time_also_from_a_new_one() -> None:
    world = made(ttl_ms=1000)
    later(world, b"a", HOUR)
    world.wait(HOUR)
    assert values(world.drain()) == [b"a"]
    identity = later(world, b"b", HOUR)
    move(world, identity, 3 * HOUR)
    world.restart()
    world.wait(3 * HOUR)
    world.wait(999)
    assert values(world.drain()) == [b"b"]


def test_what_fires_after_its_time_to_live_is_expired() -> None:
    world = made(ttl_ms=1000)
    identity = later(world, b"a", 500)
    world.sync()
    world.now(HOUR)
    world.restart()
    world.wait(0)
    assert state(world, identity) is DelayState.EXPIRED
    assert world.drain() == []
    (facts,) = world.execute(DescribeDelays(TOPIC))[TOPIC]
    assert (facts.pending, facts.delivered, facts.expired, facts.cancelled) == (0, 0, 1, 0)
    world.kill()
    assert state(world, identity) is DelayState.EXPIRED


@pytest.mark.parametrize("stop", ["restart", "kill", "lose_unsynced"])
def test_a_cancelled_message_never_comes(stop) -> None:
    world = made()
    gone, kept = later(world, b"a", 1000), later(world, b"b", 1000)
    cancel(world, gone)
    assert state(world, gone) is DelayState.CANCELLED
    with pytest.raises(NotPending) as refusal:
        cancel(world, gone)
    assert refusal.value.fields["state"] == "CANCELLED"
    world.sync()
    getattr(world, stop)()
    world.wait(1000)
    assert values(world.drain()) == [b"b"]
    assert state(world, gone) is DelayState.CANCELLED
    assert state(world, kept) is DelayState.DELIVERED


def test_who_cancels_hears_what_is_gone() -> None:
    world = made()
    more = [
        Delayed(Message(b"%d" % one), world.wall_ns + 50 * MS, b"key %d" % one) for one in range(3)
    ]
    _, gone, _ = (one.offset for one in world.schedule(more))
    move(world, gone, DAY)
    due_ns = world.wall_ns + DAY * MS
    found = world.execute(CancelDelayed(TOPIC, b"key 1"))
    assert (found.id, found.state, found.due_ns) == (gone, DelayState.CANCELLED, due_ns)
    assert (found.message.value, found.delay_key) == (b"1", b"key 1")
    later_found = world.execute(GetDelayed(TOPIC, DelayedId(0, gone)))
    assert (later_found.message.value, later_found.delay_key) == (b"1", b"key 1")
    unread = world.execute(CancelDelayed(TOPIC, b"key 2", wants_message=False))
    assert (unread.state, unread.message, unread.delay_key) == (
        DelayState.CANCELLED,
        None,
        b"key 2",
    )


def test_cancelling_races_the_fire_and_one_of_them_wins() -> None:
    world = made()
    early, late = later(world, b"a", 10), later(world, b"b", 10)
    world.now(10)
    cancel(world, early)
    world.wait(0)
    with pytest.raises(NotPending) as refusal:
        cancel(world, late)
    assert refusal.value.fields["state"] == "DELIVERED"
    with pytest.raises(NotPending):
        move(world, late, 1)
    assert values(world.drain()) == [b"b"]


@pytest.mark.parametrize("stop", ["restart", "kill", "lose_unsynced"])
def test_a_message_can_be_moved_either_way(stop) -> None:
    world = made()
    sooner, after = later(world, b"s", 8 * DAY), later(world, b"a", 50)
    move(world, sooner, 20)
    move(world, after, DAY)
    world.sync()
    getattr(world, stop)()
    world.wait(20)
    assert values(world.drain()) == [b"s"]
    world.wait(DAY - 21)
    assert world.drain() == []
    world.wait(1)
    assert values(world.drain()) == [b"a"]


@pytest.mark.parametrize("stop", ["nothing", "restart", "kill", "lose_unsynced"])
def test_the_last_with_a_business_key_takes_the_place_of_the_others(stop) -> None:
    world = made()
    ids = [later(world, b"%d" % number, 100, b"cart 7") for number in range(3)]
    other = later(world, b"other", 100, b"cart 8")
    cancel(world, other)
    world.sync()
    if stop != "nothing":
        getattr(world, stop)()
    assert world.execute(GetDelayed(TOPIC, b"cart 7")).id == ids[-1]
    assert [state(world, one) for one in ids[:2]] == [DelayState.CANCELLED] * 2
    with pytest.raises(NotFound):
        world.execute(GetDelayed(TOPIC, b"cart 8"))
    world.wait(100)
    assert values(world.drain()) == [b"2"]
    with pytest.raises(NotFound):
        world.execute(GetDelayed(TOPIC, b"cart 7"))
    later(world, b"next", 1, b"cart 7")
    world.wait(1)
    assert values(world.drain()) == [b"next"]


def test_a_key_replaces_also_when_its_own_message_was_cancelled_and_cleared_away() -> None:
    world = made(segment_size_bytes=400)
    later(world, b"old", DAY, b"k")
    for number in range(10):
        later(world, b"filler %d" % number, 1)
    newer = later(world, b"new", DAY, b"k")
    cancel(world, newer)
    for number in range(10):
        later(world, b"filler %d" % number, 1)
    world.wait(1)
    for _ in range(3):
        world.sweep()
        world.kill()
    world.wait(2 * DAY)
    assert b"old" not in values(stored(world))
    assert b"new" not in values(stored(world))


def test_messages_of_one_business_key_meet_whatever_the_partitions() -> None:
    world = made(4)
    for number in range(6):
        later(world, b"%d" % number, 50, b"same")
    world.wait(50)
    assert values(world.drain()) == [b"5"]


def test_a_repeat_gets_the_first_result() -> None:
    world = made()
    message = Message(b"once", idempotency_key=b"i")
    first = later(world, message, 1000)
    for stop in (None, "restart", "kill"):
        if stop:
            getattr(world, stop)()
        delayed = [Delayed(message, world.wall_ns + 1)] * 2
        again = world.schedule(delayed)
        assert [(one.offset, one.is_duplicate, one.is_delayed) for one in again] == [
            (first, True, True)
        ] * 2
        (at_once,) = world.publish(message)
        assert (at_once.offset, at_once.is_duplicate, at_once.is_delayed) == (first, True, True)
    world.wait(1000)
    (fired,) = world.publish(message)
    assert (fired.offset, fired.is_delayed) == (first, True)
    assert values(world.drain()) == [b"once"]


def test_those_that_wait_are_listed_by_due_time() -> None:
    world = made(3)
    for ms in (9 * DAY, 5, 300_000, 70, 3000):
        later(world, b"%d" % ms, ms)
    listed = world.execute(ListDelayed(TOPIC)).messages
    assert [one.message.value for one in listed] == [
        b"5",
        b"70",
        b"3000",
        b"300000",
        b"%d" % (9 * DAY),
    ]
    assert listed[0].due_ns == world.wall_ns + 5 * MS
    second = DelayPlace(listed[1].due_ns, listed[1].partition, listed[1].id)
    page = world.execute(ListDelayed(TOPIC, 2, second))
    assert [one.message.value for one in page.messages] == [b"3000", b"300000"]
    rest = world.execute(ListDelayed(TOPIC, 2, page.cursor))
    assert ([one.message.value for one in rest.messages], rest.cursor) == (
        [b"%d" % (9 * DAY)],
        None,
    )


def test_those_that_are_due_together_are_listed_page_by_page() -> None:
    world = made(2)
    for number in range(7):
        later(world, b"%d" % number, 50)
    seen, place = [], FIRST_PLACE
    while place is not None:
        page = world.execute(ListDelayed(TOPIC, 2, place))
        seen += [one.message.value for one in page.messages]
        place = page.cursor
    assert sorted(seen) == [b"%d" % number for number in range(7)]


def test_unknown_ones_are_not_found_and_a_producer_cannot_set_ids_and_keys_of_delays() -> None:
    world = made()
    for identity in (0, 7, -1):
        with pytest.raises(NotFound):
            cancel(world, identity)
        with pytest.raises(NotFound):
            world.execute(GetDelayed(TOPIC, DelayedId(0, identity)))
    with pytest.raises(Refused):
        world.schedule([Delayed(Message(b"x"), 0)])
    for columns in (
        Columns(values=[b"x"], delay_ids=[5]),
        Columns(values=[b"x"], delay_keys=[b"k"]),
    ):
        with pytest.raises(MalformedBatch):
            world.execute(PublishBatch(TOPIC, 0, encode(columns).to_bytes()))


def test_a_clock_that_steps_neither_loses_nor_repeats() -> None:
    world = made()
    later(world, b"a", 60_000)
    world.wall_ns -= DAY * MS
    world.wait(60_000)
    assert world.drain() == []
    later(world, b"b", 60_000)
    world.wait(60_000)
    assert values(world.drain()) == [b"b"]
    world.wall_ns += DAY * MS
    world.wait(0)
    assert values(world.drain()) == [b"a"]


def test_waiting_is_measured_on_the_other_clock() -> None:
    world = made()
    later(world, b"a", 60_000)
    world.node.tick(world.now())
    assert world.node.next_due_ns() <= world.monotonic_ns + 60_000 * MS
    for _ in range(20):
        due_ns = world.node.next_due_ns()
        if due_ns == float("inf"):
            break
        assert due_ns > world.monotonic_ns, "never in a circle"
        world.wait((due_ns - world.monotonic_ns) / MS)
    assert world.monotonic_ns == 60_000 * MS
    assert values(world.drain()) == [b"a"]


def test_many_with_large_values_come_in_small_steps() -> None:
    world = made()
    for number in range(9):
        later(world, b"%d" % number + bytes(1 << 20), 1)
    for _ in range(9):
        world.wait(1)
    assert [one.value[:1] for one in stored_all(world)] == [b"%d" % one for one in range(9)]


def stored_all(world: World) -> list[Message]:
    return [one for one in world.drain() if one.value]


def test_a_long_delay_holds_neither_messages_nor_those_behind_it() -> None:
    world = made(segment_size_bytes=4096, retention_hours=1)
    long = later(world, b"long", 400 * DAY)
    for number in range(300):
        later(world, b"%d" % number + bytes(100), 10)
        world.publish(bytes(100))
    world.wait(10)
    world.drain()
    partition = world.node.partition(TOPIC, 0)
    before = partition.delayed.size
    for _ in range(8):
        world.wait(2 * HOUR)
        world.sweep()
    assert partition.messages.start_offset > 500
    assert partition.delayed.size < before / 4
    assert world.execute(GetDelayed(TOPIC, DelayedId(0, long))).message.value == b"long"
    world.kill()
    world.wait(400 * DAY)
    assert values(world.drain())[-1:] == [b"long"]
    world.sweep()
    world.restart()
    world.wait(DAY)
    assert world.drain() == []


@pytest.mark.parametrize("count", [1, 300])
def test_a_sweep_changes_nothing_about_when_messages_come(count) -> None:
    """Before, between and after those that are scheduled next to each other."""
    world = made()
    due = {}
    for day in (1, 2, 3):
        for _ in range(count):
            identity = later(world, b"day %d" % day, day * DAY)
            due[identity] = world.wall_ns + day * DAY * MS
        world.sweep()
    found = world.execute(ListDelayed(TOPIC, 1000)).messages
    assert {one.id: one.due_ns for one in found} == due
    for day in (1, 2, 3):
        world.wait(DAY - 1)
        assert world.drain() == []
        world.wait(1)
        assert values(world.drain()) == [b"day %d" % day] * count


def test_what_cannot_be_read_stays_and_holds_up_nobody() -> None:
    world = made()
    bad = later(world, b"bad" + bytes(5000), 5)
    good = later(world, b"good", 5)
    path = f"{world.node.partition(TOPIC, 0).delayed.directory}/{0:020d}.log"
    world.take_snapshots()
    world.node.close()
    disk = world.disk
    content = bytearray(disk.tree().files[path])
    content[3000] ^= 1
    disk.create(path).append(bytes(content))
    world.kill()
    world.wait(5)
    assert values(world.drain()) == [b"good"]
    assert state(world, good) is DelayState.DELIVERED
    (facts,) = world.execute(DescribeDelays(TOPIC))[TOPIC]
    assert (facts.pending, facts.unreadable) == (1, 1)
    world.wait(HOUR)
    assert world.node.next_due_ns() == float("inf")
    cancel(world, bad)
    assert world.execute(DescribeDelays(TOPIC))[TOPIC][0].unreadable == 0


def test_group_sees_it_as_any_other_message() -> None:
    world = made(max_retries=0)
    later(world, b"a", 5)
    world.wait(5)
    world.reject(*world.poll())
    world.settle()
    assert [one.message.value for one in world.letters()] == [b"a"]
    assert world.lag(GROUP)[0].lag == 0
