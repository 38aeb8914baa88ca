"""A partition whose state is begun anew knows what its messages show, and nothing else."""

from penstock.api.delays import CancelDelayed, DelayedId, DelayState
from penstock.api.transactions import InitProducer
from penstock.broker.lost_state import forget_state, lost_states, open_groups
from penstock.broker.settings_file import kept_settings
from penstock.model import Message

from .losses import tree_with, without
from .test_delay import later, state
from .world import TOPIC, World, messages_of, values

LOST = f"topics/default/{TOPIC}.1/partition-0/state"


def forgotten(world: World, *, is_killed: bool = False) -> World:
    """Lose the state of partition 0, and begin it anew."""
    world.open_on(tree_with(world.disk.tree(), without(LOST)))
    (fault,) = lost_states(world.node)
    assert forget_state(world.node, fault, world.now()) == ""
    world.kill() if is_killed else world.restart()
    assert world.node.faults() == []
    open_groups(world.node, fault, world.now())
    return world


def test_what_messages_show_is_known_and_the_rest_is_forgotten():
    world = World()
    world.topic(2)
    world.group()
    first = Message(b"first", idempotency_key=b"key")
    world.publish(first, partition=0)
    world.publish(b"other", partition=1)
    waits = {b"fired": 5, b"pending": 10**6, b"cancelled": 10**6}
    ids = [later(world, value, wait, partition=0) for value, wait in waits.items()]
    world.execute(CancelDelayed(TOPIC, DelayedId(0, ids[2])))
    world.wait(5)
    world.ack(*world.poll(10))
    world.sync()
    world = forgotten(world)
    assert values(messages_of(world.fetch())) == [b"first", b"fired"]
    assert world.publish(first, partition=0)[0].is_duplicate
    assert [state(world, one) for one in ids] == [
        DelayState.DELIVERED,
        DelayState.PENDING,
        DelayState.PENDING,
    ]
    assert values(world.drain()) == [b"first", b"fired"]
    world.wait(10**6)
    assert sorted(values(world.drain())) == [b"cancelled", b"pending"]


def test_dead_letters_come_before_and_after():
    world = World()
    world.topic(1)
    world.group()
    for value in (b"before", b"again"):
        world.publish(value)
    world.reject(*world.poll(2))
    world.settle()
    world.sync()
    world = forgotten(world)
    world.group()
    world.publish(b"after")
    world.reject(*world.poll(10))
    world.settle()
    letters = [letter.message.value for letter in world.letters()]
    assert sorted(letters) == sorted([b"before", b"again"] * 2 + [b"after"])


def test_it_is_whole_after_each_stop():
    world = World()
    world.topic(1)
    world.group()
    world.publish(b"a", b"b")
    world.restart()
    world.ack(*world.poll(1))
    world.sync()
    for is_killed in (False, True):
        world = forgotten(world, is_killed=is_killed)
        world.group("again")
        world.ack(*world.poll(1, group="again"))
        world.sync()
        world.kill()
        assert values(world.drain(group="again")) == [b"b"]


def test_the_state_of_our_own_topics_is_what_was_decided_and_is_not_forgotten():
    world = World()
    world.topic(1)
    world.execute(InitProducer("job", 60_000))
    world.sync()
    directory = next(one.directory for one in world.node.topics.by_id.values() if one.name != TOPIC)
    world.open_on(
        tree_with(
            world.disk.tree(),
            lambda files: [
                without(f"{directory}/partition-{one}/state")(files) for one in range(50)
            ],
        )
    )
    assert world.node.faults()
    assert lost_states(world.node) == []


def test_settings_beside_a_topic_are_those_of_now():
    world = World()
    world.topic(1, max_retries=7)
    world.configure(max_retries=8)
    directory = world.node.topics.by_id[1].directory
    assert kept_settings(world.disk, directory)["max_retries"] == 8
    world.disk.remove(f"{directory}/settings")
    world.restart()
    assert kept_settings(world.disk, directory)["max_retries"] == 8
