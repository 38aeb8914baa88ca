"""Publishes of many messages in slices of any size, with other commands in between."""

import random
from collections import Counter

from penstock.api.principals import LOCAL
from penstock.api.publish import LARGE_MESSAGES, Delayed, Publish, PublishEach, Published, Schedule
from penstock.api.schemas import NewSchema, RegisterSchema
from penstock.broker.walks import Walk
from penstock.errors import NotFound, SchemaViolation
from penstock.model import Message

from .test_walks import slices
from .world import TOPIC, World, messages_of

PARTITIONS = 4
PLAIN, KEYED, REPEATED = b"plain", b"keyed", b"repeated"
# What a batch may bring with it beyond the budget of a slice.
BATCH_ENTRIES = 2000


def sent() -> list[Message]:
    """Messages without any key, with keys of many partitions, and two of each idempotency key."""
    messages = [Message(PLAIN + b"%d" % number) for number in range(8 * LARGE_MESSAGES)]
    messages += [Message(KEYED, key=b"%d" % number) for number in range(LARGE_MESSAGES)]
    messages += [
        Message(REPEATED, idempotency_key=b"%d" % (number // 2)) for number in range(LARGE_MESSAGES)
    ]
    random.Random(3).shuffle(messages)
    return messages


def stored(world: World) -> dict[tuple[int, int], Message]:
    return {
        (partition, message.offset): message
        for partition in range(PARTITIONS)
        for message in messages_of(world.fetch(partition=partition))
    }


def in_slices(world: World, command: PublishEach) -> object:
    walk = Walk(command, LOCAL)
    *_, reply = slices(world, walk, random.Random(1), 20, item_max=BATCH_ENTRIES)
    return reply


def world_with_topic() -> World:
    world = World()
    world.topic(PARTITIONS)
    return world


def test_each_message_is_where_its_answer_says() -> None:
    world, messages = world_with_topic(), sent()
    command = PublishEach(TOPIC, messages)
    assert command.is_large()
    outcomes = in_slices(world, command)
    assert isinstance(outcomes, list)
    places = stored(world)
    for message, outcome in zip(messages, outcomes, strict=True):
        assert places[outcome.partition, outcome.offset].value == message.value
    assert sum(outcome.is_duplicate for outcome in outcomes) == LARGE_MESSAGES // 2
    assert len(places) == len(messages) - LARGE_MESSAGES // 2
    at_once = world_with_topic()
    at_once.execute(command)
    assert Counter(message.key for message in places.values()) == Counter(
        message.key for message in stored(at_once).values()
    )


def test_messages_of_a_partition_keep_their_order_and_those_without_a_key_stay_together() -> None:
    world, entropy, messages = world_with_topic(), random.Random(2), sent()
    walk = Walk(PublishEach(TOPIC, messages), LOCAL)
    reply: list = []
    for part in slices(world, walk, entropy, 20, item_max=BATCH_ENTRIES):
        reply = part
        # Another client's has the next partition each time.
        world.execute(Publish(TOPIC, [Message(b"another")]))
    plain = [
        outcome
        for message, outcome in zip(messages, reply, strict=True)
        if (message.value or b"").startswith(PLAIN)
    ]
    assert len({outcome.partition for outcome in plain}) == 1
    offsets = [outcome.offset for outcome in plain]
    assert offsets == sorted(offsets)


def test_what_is_left_of_it_is_refused_when_its_topic_is_deleted() -> None:
    world, messages = world_with_topic(), sent()
    walk = Walk(PublishEach(TOPIC, messages), LOCAL)
    is_deleted = False
    reply: list = []
    for part in slices(world, walk, random.Random(1), 50, item_max=BATCH_ENTRIES):
        reply = part
        if not is_deleted and world.fetch().data:
            is_deleted = True
            world.delete()
    assert {type(outcome) for outcome in reply} == {Published, NotFound}


def test_it_is_refused_as_a_whole_without_its_topic() -> None:
    assert isinstance(in_slices(world_with_topic(), PublishEach("none", sent())), NotFound)


def test_messages_that_do_not_fit_their_schema_are_named_by_their_place() -> None:
    world, messages = world_with_topic(), sent()
    world.configure(validation="reject")
    world.execute(RegisterSchema(f"{TOPIC}-value", NewSchema("JSON", '{"type": "integer"}')))
    fitting = [Message(b"1", key=message.key) for message in messages]
    wrong = len(messages) - 7
    fitting[wrong] = messages[wrong]
    outcomes = in_slices(world, PublishEach(TOPIC, fitting))
    (violation,) = [outcome for outcome in outcomes if not isinstance(outcome, Published)]
    assert isinstance(violation, SchemaViolation)
    assert violation is outcomes[wrong]
    assert violation.fields["index"] == wrong


def test_logs_of_delayed_messages_are_made_one_by_one_and_then_all_is_scheduled() -> None:
    world = world_with_topic()
    due_ns = world.now().wall_ns + 3600 * 1_000_000_000
    delayed = [Delayed(Message(b"x", key=b"%d" % number), due_ns) for number in range(40)]
    command = Schedule(TOPIC, delayed)
    assert command.is_large()
    steps: list[tuple[int, int]] = []
    for _ in slices(world, Walk(command, LOCAL), random.Random(1), 20, item_max=1 << 20):
        partitions = [*world.node.partitions()]
        logs = sum(partition.delayed.log is not None for partition in partitions)
        steps.append((logs, sum(partition.delayed.end_offset for partition in partitions)))
    assert {count for _, count in steps[:-1]} == {0}
    assert {*range(1, PARTITIONS + 1)} <= {logs for logs, _ in steps}
    assert steps[-1] == (PARTITIONS, len(delayed))
