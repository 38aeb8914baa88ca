"""Batches of a producer of which some messages wait for their time, or repeat an idempotency key."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.publish import PublishBatch
from penstock.broker.partition.removal import retain
from penstock.codec import Columns, Marks, decode_messages, encode
from penstock.errors import MalformedBatch, NoSpace, OutOfSequence
from penstock.sim import Call, Fault, Misbehaviour, SimDisk

from .test_damage import batches_of, with_damage
from .test_delay import HOUR
from .world import MIXED, TOPIC, WALL_NS, World, pull_the_plug, values

MS = 1_000_000
NOW = 0
Item = tuple[bytes, int, bytes | None]
"""A value, how many milliseconds from the start of the world it waits, and its idempotency key."""


def batch(sequence: int, *items: Item, producer: int = 9, epoch: int = 0) -> bytes:
    marks = Marks(producer_id=producer, producer_epoch=epoch, first_sequence=sequence)
    columns = Columns(
        values=[value for value, _, _ in items],
        timestamps=[WALL_NS + number for number in range(len(items))],
        idempotency_keys=[key for _, _, key in items],
        due_at=[WALL_NS + ms * MS for _, ms, _ in items],
    )
    return encode(columns, marks=marks if producer >= 0 else Marks()).to_bytes()


def send(world: World, sequence: int, *items: Item, **producer: int):
    stored = world.execute(PublishBatch(TOPIC, 0, batch(sequence, *items, **producer))).stored
    return [(one.offset, one.is_duplicate) for one in stored]


def stored(world: World) -> dict[int, bytes | None]:
    """The messages of the log by their offsets."""
    log = world.node.partition(TOPIC, 0).messages
    found = {}
    for head, raw in log.batches_from(log.start_offset):
        found |= {one.offset: one.value for one in decode_messages(raw, head)}
    return found


def made() -> World:
    world = World()
    world.topic()
    world.group()
    return world


STOPS = pytest.mark.parametrize("stop", ["restart", "kill", "lose_unsynced"])


@STOPS
def test_a_batch_keeps_its_offsets_and_what_waits_comes_later_once(stop) -> None:
    world = made()
    send(world, 0, (b"known", NOW, b"k"))
    items = [(b"a", NOW, None), (b"later", 50, None), (b"again", NOW, b"k"), (b"b", NOW, None)]
    assert send(world, 1, *items) == [(1, False), (2, False), (3, False), (4, False)]
    world.sync()
    getattr(world, stop)()
    assert stored(world) == {0: b"known", 1: b"a", 4: b"b"}
    assert send(world, 1, *items)[0] == (1, True)
    world.wait(49)
    assert len(stored(world)) == 3
    world.wait(1)
    assert stored(world) == {0: b"known", 1: b"a", 4: b"b", 5: b"later"}
    assert values(world.drain()) == [b"known", b"a", b"b", b"later"]
    getattr(world, stop)()
    world.wait(HOUR)
    assert Counter(stored(world).values())[b"later"] == 1


@STOPS
def test_the_sequence_goes_on_behind_all_messages_of_a_batch(stop) -> None:
    world = made()
    send(world, 0, (b"x", 50, None), (b"y", 60, None))
    send(world, 2, (b"a", NOW, b"k"), (b"b", NOW, b"k"))
    world.sync()
    getattr(world, stop)()
    with pytest.raises(OutOfSequence):
        send(world, 3, (b"gap", NOW, None))
    assert send(world, 0, (b"x", 50, None), (b"y", 60, None)) == [(0, True), (1, True)]
    assert send(world, 4, (b"c", NOW, None)) == [(4, False)]
    assert stored(world) == {2: b"a", 4: b"c"}
    world.wait(HOUR)
    assert sorted(stored(world).values()) == [b"a", b"c", b"x", b"y"]


def test_without_a_producer_a_batch_is_split_all_the_same() -> None:
    world = made()
    send(world, -1, (b"a", NOW, b"k"), (b"later", 50, b"l"), producer=-1)
    send(world, -1, (b"again", NOW, b"k"), (b"later again", 50, b"l"), producer=-1)
    world.wait(50)
    assert sorted(stored(world).values()) == [b"a", b"later"]


def test_a_batch_that_holds_nothing_now_is_read_over() -> None:
    world = made()
    send(world, 0, (b"x", 50, None))
    assert world.poll() == []
    send(world, 1, (b"a", NOW, None))
    assert values(world.drain()) == [b"a"]
    (lag,) = world.lag()
    assert lag.lag == 0


def test_a_message_that_is_due_is_stored_at_once() -> None:
    world = made()
    world.now(100)
    send(world, 0, (b"a", 100, None), (b"b", 200, None))
    assert stored(world) == {0: b"a"}


def test_keys_and_ids_of_delays_are_not_a_producers_to_set() -> None:
    world = made()
    columns = Columns(values=[b"a"], timestamps=1, due_at=[WALL_NS], delay_keys=[b"k"])
    with pytest.raises(MalformedBatch):
        world.execute(PublishBatch(TOPIC, 0, encode(columns).to_bytes()))


def test_a_batch_that_finds_no_room_in_the_second_log_never_was() -> None:
    world = made()
    send(world, 0, (b"first", 10, None))
    full = Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="messages")
    world.disk.inject(full)
    with pytest.raises(NoSpace):
        send(world, 1, (b"now", NOW, None), (b"later", 50, None))
    world.disk.faults.clear()
    assert send(world, 1, (b"now", NOW, None), (b"later", 50, None))[0] == (1, False)
    world.kill()
    world.wait(HOUR)
    assert Counter(stored(world).values()) == Counter([b"now", b"first", b"later"])


def test_a_damaged_batch_that_is_skipped_does_not_take_the_delayed_ones_with_it() -> None:
    world = World()
    world.topic(on_damage="skip")
    send(world, 0, (b"now", NOW, None), (b"later", 50, None))
    send(world, 2, (b"behind", NOW, None))
    world.sync()
    # Damage below a checkpoint, and above every snapshot.
    world.node.partition(TOPIC, 0).messages.sync(with_checkpoint=True)
    damaged = with_damage(world.disk.tree(), batches_of(world)[:1])
    world.open_on(SimDisk(damaged))
    world.wait(HOUR)
    log = world.node.partition(TOPIC, 0).messages
    found = [one for head, raw in log.batches_from(2) for one in decode_messages(raw, head)]
    assert sorted(values(found)) == [b"behind", b"later"]


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from([0, 20, 40]), st.sampled_from([None, b"k", b"l"])),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_it_stores_what_a_plain_list_would_hold(batches, data) -> None:
    """Against a model that goes through the messages one by one."""
    world = made()
    now, later, keys, sequence = {}, [], set(), 0
    for number, kinds in enumerate(batches):
        items = [(b"%d.%d" % (number, place), ms, key) for place, (ms, key) in enumerate(kinds)]
        for place, (value, ms, key) in enumerate(items):
            if key is None or key not in keys:
                (later.append((place, value)) if ms else now.update({sequence + place: value}))
                keys.add(key)
        assert send(world, sequence, *items)[0] == (sequence, False)
        if data.draw(st.booleans()):
            assert send(world, sequence, *items)[0] == (sequence, True)
        sequence += len(items)
        if data.draw(st.booleans()):
            world.sync()
            getattr(world, data.draw(st.sampled_from(["restart", "kill", "lose_unsynced"])))()
    assert stored(world) == now
    world.wait(HOUR)
    assert Counter(stored(world).values()) == Counter(now.values()) + Counter(
        value for _, value in later
    )


FIRST = [(b"a", NOW, b"k"), (b"later a", 500, None), (b"b", NOW, None)]
SECOND = [(b"c", NOW, None), (b"d", NOW, None)]
THIRD = [(b"later e", 600, None), (b"again", NOW, b"k")]


def test_at_every_crash_state_a_producer_that_goes_on_has_stored_everything_once(effort) -> None:
    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic()
        disk.mark("begun")
        send(world, 0, *FIRST)
        world.sync()
        disk.mark(3)
        send(world, 3, *SECOND)
        send(world, 5, *THIRD)
        world.node.partition(TOPIC, 0).take_snapshot()
        disk.mark(7)
        send(world, 7, (b"f", NOW, None), (b"later g", 700, None))
        retain(world.node.partition(TOPIC, 0), world.now())
        world.sync()
        disk.mark(9)

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        if "begun" not in marks:
            return
        acked = max((one for one in marks if isinstance(one, int)), default=0)
        last = [(b"f", NOW, None), (b"later g", 700, None)]
        # The producer sends again whatever it has no answer for, in its order.
        for sequence, items in ((0, FIRST), (3, SECOND), (5, THIRD), (7, last)):
            if sequence + len(items) > acked:
                send(world, sequence, *items)
        world.wait(HOUR)
        found = Counter(stored(world).values())
        kept = [b"a", b"b", b"c", b"d", b"f", b"later a", b"later e", b"later g"]
        assert found == Counter(kept), marks

    # There are ten thousand states with torn and mixed writes, and each is a start of the broker.
    assert pull_the_plug(scenario, check, effort, kinds=MIXED, is_long=True) > 60
