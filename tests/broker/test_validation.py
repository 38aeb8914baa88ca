"""Topics that ask for schemas: every way to store messages, changes of schemas and settings, and restarts."""

import json
from struct import pack

import pytest

from penstock.api.dead_letters import RedriveDeadLetters
from penstock.api.health import SeeFigures
from penstock.api.publish import (
    Delayed,
    Publish,
    PublishBatch,
    PublishEach,
    Published,
    PublishRecords,
    PublishValues,
    Schedule,
    ScheduleValues,
)
from penstock.api.schemas import (
    DeleteSubject,
    DeleteVersion,
    DescribeSchema,
    NewSchema,
    RegisterSchema,
)
from penstock.broker.validation import verdict_of
from penstock.codec import Columns, Marks, encode
from penstock.codec.head import NO_MARKS
from penstock.errors import SchemaViolation
from penstock.model import Message
from penstock.sim import SimDisk
from tests.codec import kafka_twin

from .world import TOPIC, World, pull_the_plug, values

GOOD, WRONG = b'{"id": 1}', b'{"id": "one"}'


def schema_of(**properties: object) -> NewSchema:
    return NewSchema("JSON", json.dumps({"type": "object", "properties": properties}))


INTEGER, TEXT = schema_of(id={"type": "integer"}), schema_of(id={"type": "string"})


def world_with(
    validation: str = "reject", subject: str = f"{TOPIC}-value", **more: object
) -> World:
    world = World()
    world.topic()
    world.configure(validation=validation, **more)
    world.execute(RegisterSchema(subject, INTEGER))
    return world


def batch_of(*values: bytes, marks: Marks = NO_MARKS) -> bytes:
    return encode(Columns(values=values, timestamps=1), marks=marks).to_bytes()


def record_batch(*values: bytes) -> bytes:
    return kafka_twin.batch([kafka_twin.Record(1, None, one) for one in values])


def later(world: World, *values: bytes) -> list[Delayed]:
    return [Delayed(Message(one), world.wall_ns + 10**9) for one in values]


WAYS = {
    "publish": lambda world, *some: Publish(TOPIC, [*map(Message, some)]),
    "values": lambda world, *some: PublishValues(TOPIC, some),
    "batch": lambda world, *some: PublishBatch(TOPIC, 0, batch_of(*some)),
    "records": lambda world, *some: PublishRecords(TOPIC, 0, record_batch(*some)),
    "schedule": lambda world, *some: Schedule(TOPIC, later(world, *some)),
    "later": lambda world, *some: ScheduleValues(TOPIC, some, world.wall_ns + 10**9),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_with_one_wrong_message_is_refused_whole(way):
    world = world_with()
    with pytest.raises(SchemaViolation) as caught:
        world.execute(WAYS[way](world, GOOD, WRONG, GOOD))
    said = caught.value.fields
    assert (said["index"], said["path"], said["part"]) == (1, "/id", "value")
    assert (said["subject"], said["schema_id"], said["topic"]) == (f"{TOPIC}-value", 1, TOPIC)
    world.wait(2000)
    assert not world.drain()
    world.execute(WAYS[way](world, GOOD))
    world.wait(2000)
    assert values(world.drain()) == [GOOD]


@pytest.mark.parametrize("way", WAYS)
def test_warn_stores_and_counts(way):
    world = world_with("warn")
    world.execute(WAYS[way](world, GOOD, WRONG, WRONG))
    world.wait(2000)
    assert values(world.drain()) == [GOOD, WRONG, WRONG]
    figures = [one for one in world.execute(SeeFigures(10)) if "violations" in one.name]
    assert [(one.labels, one.value) for one in figures] == [
        ({"topic": TOPIC, "validation": "warn"}, 2)
    ]


def test_each_message_has_its_own_answer():
    world = world_with()
    sent = [*map(Message, (WRONG, GOOD, b"no JSON", GOOD))]
    first, second, third, last = world.execute(PublishEach(TOPIC, sent))
    assert isinstance(first, SchemaViolation)
    assert isinstance(third, SchemaViolation)
    assert (first.fields["path"], third.fields["path"], third.fields["index"]) == ("/id", "", 2)
    assert isinstance(second, Published)
    assert isinstance(last, Published)
    assert (second.offset, last.offset) == (0, 1)
    assert all(
        isinstance(one, SchemaViolation) for one in world.execute(PublishEach(TOPIC, sent[:1] * 3))
    )
    assert len(world.drain()) == 2


def test_a_message_with_an_id_fits_the_schema_of_this_id():
    world = world_with()
    world.execute(RegisterSchema("other", TEXT))
    world.execute(RegisterSchema(f"{TOPIC}-value", schema_of(id={"type": "integer"}, to={})))
    world.publish(b"\0" + pack(">I", 1) + GOOD)
    for content, schema_id in (
        (b"\0" + pack(">I", 1) + WRONG, 1),
        (b"\0" + pack(">I", 3) + WRONG, 3),
        (b"\0" + pack(">I", 2) + WRONG, 2),
        (b"\0" + pack(">I", 99) + GOOD, 99),
        (b"\0\0\0", None),
    ):
        with pytest.raises(SchemaViolation) as caught:
            world.publish(content)
        assert caught.value.fields["schema_id"] == schema_id
    assert len(world.drain()) == 1


def with_header(content: bytes, named: bytes, name: str = "__value_schema_id") -> Message:
    return Message(content, headers=(("other", b"x"), (name, named)))


HEADER_WAYS = {
    "publish": lambda message: Publish(TOPIC, [message]),
    "batch": lambda message: PublishBatch(
        TOPIC,
        0,
        encode(Columns(values=[message.value], headers=[message.headers], timestamps=1)).to_bytes(),
    ),
    "records": lambda message: PublishRecords(
        TOPIC,
        0,
        kafka_twin.batch([kafka_twin.Record(1, None, message.value, message.headers)]),
    ),
}


@pytest.mark.parametrize("way", HEADER_WAYS)
def test_the_id_or_the_guid_may_be_in_a_header(way):
    world, send = World(), HEADER_WAYS[way]
    world.topic()
    world.configure(validation="reject")
    world.execute(RegisterSchema("other", NewSchema("AVRO", '"bytes"')))
    world.execute(RegisterSchema(f"{TOPIC}-value", NewSchema("AVRO", '"string"')))
    other, guid = (
        bytes.fromhex(world.execute(DescribeSchema(schema_id=one)).guid.replace("-", ""))
        for one in (1, 2)
    )
    for named in (b"\1" + guid, b"\0" + pack(">I", 2)):
        world.execute(send(with_header(b"\x02x", named)))
        for wrong in (
            with_header(b"\x02", named),
            with_header(b"\x02x", named, "__key_schema_id"),
            with_header(b"\x02x", named[:-1]),
        ):
            with pytest.raises(SchemaViolation):
                world.execute(send(wrong))
    for named in (b"\1" + other, b"\1" + bytes(16), b"\0" + pack(">I", 1), b"", b"text"):
        with pytest.raises(SchemaViolation):
            world.execute(send(with_header(b"\x02x", named)))
    assert [one.value for one in world.drain()] == [b"\x02x"] * 2


def test_a_message_without_an_id_fits_the_latest_schema():
    world = world_with()
    world.execute(RegisterSchema(f"{TOPIC}-value", schema_of(id={"type": ["integer", "string"]})))
    world.publish(WRONG)
    world.execute(DeleteVersion(f"{TOPIC}-value", 2))
    with pytest.raises(SchemaViolation):
        world.publish(WRONG)


def test_without_an_id_nothing_is_avro():
    world = World()
    world.topic()
    world.configure(validation="reject")
    world.execute(RegisterSchema(f"{TOPIC}-value", NewSchema("AVRO", '"string"')))
    world.publish(b"\0\0\0\0\x01\x02x")
    for content in (b'"x"', b"\x02x", b"", b"\0\0\0\0\x01\x02"):
        with pytest.raises(SchemaViolation):
            world.publish(content)


def test_keys_have_a_subject_of_their_own():
    world = world_with()
    world.publish(Message(GOOD, key=b"anything"))
    world.execute(RegisterSchema(f"{TOPIC}-key", NewSchema("JSON", '{"type": "integer"}')))
    world.publish(Message(GOOD, key=b"7"))
    world.publish(Message(GOOD))
    with pytest.raises(SchemaViolation) as caught:
        world.publish(Message(GOOD, key=b"7"), Message(GOOD, key=b"x"))
    assert (caught.value.fields["part"], caught.value.fields["index"]) == ("key", 1)
    world.execute(DeleteSubject(f"{TOPIC}-key"))
    world.publish(Message(GOOD, key=b"anything"))
    # A subject that the topic names is asked for, although it has no version.
    world.configure(key_subject="names")
    with pytest.raises(SchemaViolation):
        world.publish(Message(GOOD, key=b"anything"))


def test_a_subject_that_the_topic_names():
    world = world_with(value_subject="common", subject="common")
    world.execute(RegisterSchema(f"{TOPIC}-value", TEXT))
    world.publish(GOOD)
    with pytest.raises(SchemaViolation):
        world.publish(WRONG)


def test_without_a_schema_nothing_fits_and_tombstones_do():
    world = World()
    world.topic()
    world.configure(validation="reject")
    with pytest.raises(SchemaViolation) as caught:
        world.publish(GOOD)
    assert caught.value.fields["schema_id"] is None
    world.publish(Message(None, key=b"k"))
    world.configure(validation="none")
    world.publish(WRONG)


def test_delayed_messages_and_dead_letters_are_not_compared_again():
    world = world_with()
    world.schedule([Delayed(Message(GOOD), world.wall_ns + 10**9)])
    world.publish(GOOD)
    world.execute(DeleteSubject(f"{TOPIC}-value"))
    world.wait(2000)
    taken = world.poll()
    assert len(taken) == 2
    world.reject(*taken)
    world.settle()
    assert len(world.letters()) == 2
    world.execute(RedriveDeadLetters(TOPIC, limit=10))
    world.settle()
    assert values(world.drain()) == [GOOD, GOOD]


def test_a_repeat_of_what_was_stored_is_answered_as_such():
    world = world_with("none")
    batch = batch_of(WRONG, marks=Marks(False, 7, 0, 0))
    first = world.execute(PublishBatch(TOPIC, 0, batch))
    world.configure(validation="reject")
    again = world.execute(PublishBatch(TOPIC, 0, batch))
    assert again.stored[0].offset == first.stored[0].offset
    assert again.stored[0].is_duplicate
    with pytest.raises(SchemaViolation):
        world.execute(PublishBatch(TOPIC, 0, batch_of(WRONG, marks=Marks(False, 7, 0, 1))))


def test_a_verdict_counts_only_for_the_schemas_that_it_was_made_with():
    world = world_with()

    def judged(*sent: bytes) -> PublishValues:
        command = PublishValues(TOPIC, sent)
        node = world.node
        found = verdict_of(node.bindings[TOPIC], command, node.limits, node.schemas.read)
        return PublishValues(TOPIC, sent, verdict=found)

    good, wrong = judged(GOOD), judged(WRONG)
    world.execute(good)
    world.execute(RegisterSchema("unrelated", TEXT))
    with pytest.raises(SchemaViolation):
        world.execute(wrong)
    world.execute(DeleteSubject(f"{TOPIC}-value"))
    world.execute(RegisterSchema(f"{TOPIC}-value", TEXT))
    world.execute(wrong)
    with pytest.raises(SchemaViolation):
        world.execute(good)
    world.delete()
    world.topic()
    world.execute(good)
    assert values(world.drain()) == [GOOD]


def test_what_a_topic_asks_for_survives_a_power_cut(effort):
    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic()
        world.execute(RegisterSchema(f"{TOPIC}-value", INTEGER))
        world.configure(validation="reject")
        disk.mark("asked")

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        if "asked" in marks:
            world.publish(GOOD)
            with pytest.raises(SchemaViolation):
                world.publish(WRONG)

    assert pull_the_plug(scenario, check, effort) > 5
