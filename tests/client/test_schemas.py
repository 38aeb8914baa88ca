"""Values by schema id: our producers and consumers, and Confluent's serialisers for the same bytes."""

import json
from dataclasses import dataclass

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory, timestamp_pb2

from penstock.api.schemas import DeleteVersion
from penstock.client import AsyncClient, Client
from penstock.errors import NotFound, Refused, SchemaViolation
from penstock.schemas.protobuf import ProtobufSchema

LINE = {"type": "record", "name": "Line", "fields": [{"name": "name", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "lines", "type": {"type": "array", "items": "Line"}},
    ],
}
VALUE = {"id": 7, "lines": [{"name": "lamp"}]}
CONTEXT = SerializationContext("orders", MessageField.VALUE)


@pytest.fixture
def client(url):
    with Client(url) as found:
        yield found


@pytest.fixture
def registry(client):
    with SchemaRegistryClient({"url": client.server().http}) as found:
        yield found


def order_schema(client, subject):
    client.register_schema("line", json.dumps(LINE))
    return client.register_schema(subject, json.dumps(ORDER), references=[("Line", "line", 1)])


def received(client, topic):
    with client.consumer(topic, "g") as consumer:
        message = next(iter(consumer))
        message.ack()
        return client.decode(message.value)


def test_avro_with_a_reference(client, registry):
    client.create_topic("avro", validation="reject")
    schema = order_schema(client, "avro-value")
    with client.producer("avro", schema=schema, linger_ms=0) as producer:
        place = producer.send(VALUE).result()
        with pytest.raises(Refused):
            producer.send({"id": "no number"})
        producer.send(None, key="k").result()
        with pytest.raises(Refused):
            producer.send(b"bytes are no order")
    ((_, message),) = [
        one
        for one in client.read("avro")
        if (one[0], one[1].offset) == (place.partition, place.offset)
    ]
    assert client.decode(message.value) == VALUE
    assert AvroDeserializer(registry)(message.value, CONTEXT) == VALUE
    assert schema.encode(VALUE) == message.value


def test_json_from_a_dataclass_and_back(client, registry):
    @dataclass
    class Bill:
        id: int
        paid: bool

    text = json.dumps(
        {"type": "object", "title": "Bill", "properties": {"id": {"type": "integer"}}}
    )
    client.create_topic("bills", partitions=1, validation="reject")
    schema = client.register_schema("bills-value", text, "JSON")
    with client.producer("bills", schema=schema, linger_ms=0) as producer:
        producer.send(Bill(1, paid=True)).result()
        with pytest.raises(SchemaViolation):
            producer.send({"id": "one"}).result()
        with pytest.raises(SchemaViolation):
            producer.flush()
    ((_, message),) = client.read("bills")
    assert JSONDeserializer(text)(message.value, CONTEXT) == {"id": 1, "paid": True}
    assert received(client, "bills") == {"id": 1, "paid": True}


def test_protobuf_with_an_import_and_a_nested_message(client, registry):
    line = 'syntax = "proto3"; package shop; message Line { string name = 1; }'
    text = (
        'syntax = "proto3"; package shop; import "shop/line.proto"; '
        'import "google/protobuf/timestamp.proto"; '
        "message Empty {} message Bill { message Head { int64 id = 1; } Line line = 1; "
        "google.protobuf.Timestamp at = 2; }"
    )
    client.register_schema("proto-line", line, "PROTOBUF")
    schema = client.register_schema(
        "proto-value", text, "PROTOBUF", references=[("shop/line.proto", "proto-line", 1)]
    )
    own, bill = ProtobufSchema(line), ProtobufSchema(text, [("shop/line.proto", line)])
    own.file.name, bill.file.name = "shop/line.proto", "shop/test_bill.proto"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for one in (own, bill):
        pool.AddSerializedFile(one.file.SerializeToString())

    def kind(name):
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))

    for value in (
        kind("shop.Bill")(line={"name": "lamp"}, at={"seconds": 5}),
        kind("shop.Bill.Head")(id=9),
        kind("shop.Empty")(),
    ):
        written = schema.encode(value)
        found = client.decode(written)
        assert found.DESCRIPTOR.full_name == value.DESCRIPTOR.full_name
        assert found.SerializeToString() == value.SerializeToString()
        theirs = ProtobufDeserializer(type(value), {"use.deprecated.format": False})
        assert theirs(written, CONTEXT) == value
    for wrong in ({"a": "dict"}, own):
        with pytest.raises(Refused):
            schema.encode(wrong)
    for wrong in (b"", b"\x02\x08", b"\x00\xff", b"\xff"):
        with pytest.raises(Refused):
            client.decode(schema.encode(value)[:5] + wrong)


def test_ids_in_headers_there_and_back(client, registry):
    """As Confluent's serialisers write them with `header_schema_id_serializer`, and as theirs read ours."""
    client.create_topic("beside", partitions=1, validation="reject")
    schema = order_schema(client, "beside-value")
    keys = client.register_schema("beside-key", '"string"')
    options = {"schema": schema, "key_schema": keys, "schema_id_in": "header", "linger_ms": 0}
    with client.producer("beside", **options) as producer:
        producer.send(VALUE, "k", headers={"own": "x"}).result()
        producer.send(None, "k").result()
    headers = []
    context = SerializationContext("beside", MessageField.VALUE, headers)
    theirs = AvroSerializer(
        registry,
        conf={
            "auto.register.schemas": False,
            "use.latest.version": True,
            "schema.id.serializer": header_schema_id_serializer,
        },
    )(VALUE, context)
    client.publish("beside", theirs, headers=headers)
    with pytest.raises(SchemaViolation):
        client.publish("beside", theirs)
    ours, tombstone, other = (message for _, message in client.read("beside"))
    assert ours.value == theirs
    assert dict(ours.headers)["own"] == b"x"
    assert client.decode_value(ours) == client.decode_value(other) == VALUE
    assert client.decode_key(ours) == "k"
    assert client.decode_value(tombstone) is None
    context = SerializationContext("beside", MessageField.VALUE, [*ours.headers])
    assert AvroDeserializer(registry)(ours.value, context) == VALUE
    with client.consumer("beside", "g") as consumer:
        message = next(iter(consumer))
        message.ack()
        assert client.decode_value(message) == VALUE


def test_a_protobuf_message_with_its_id_in_a_header(client):
    client.create_topic("proto-beside", partitions=1, validation="reject")
    text = 'syntax = "proto3"; message A { int64 id = 1; } message B { string to = 1; }'
    schema = client.register_schema("proto-beside-value", text, "PROTOBUF")
    second = client.decode(schema.encode(schema.message_type()(id=7))[:5] + b"\x02\x02\x0a\x01x")
    options = {"schema": schema, "schema_id_in": "header", "linger_ms": 0}
    with client.producer("proto-beside", **options) as producer:
        producer.send(schema.message_type()(id=7)).result()
        producer.send(second).result()
    found = [client.decode_value(message) for _, message in client.read("proto-beside")]
    assert [one.DESCRIPTOR.full_name for one in found] == ["A", "B"]
    assert (found[0].id, found[1].to) == (7, "x")


def test_what_is_no_content_of_a_schema(client):
    schema = order_schema(client, "orders-value")
    good = schema.encode(VALUE)
    assert client.decode(None) is None
    assert client.decode(b'{"plain": true}') == {"plain": True}
    for wrong in (good[:-1], good + b"x", good[:3], b"\0", b"", b"neither"):
        with pytest.raises(Refused):
            client.decode(wrong)
    for unknown in (b"\0\x00\x01\x00\x00x", b"\1" + bytes(16)):
        with pytest.raises(NotFound):
            client.decode(unknown)
    with pytest.raises(NotFound):
        client.schema("unknown")


def test_versions(client):
    old = client.register_schema("numbers", '"int"')
    new = client.register_schema("numbers", '"long"')
    assert client.schema("numbers").schema_id == new.schema_id > old.schema_id
    assert client.schema("numbers", 1).schema_id == old.schema_id
    assert client.register_schema("numbers", '"int"').schema_id == old.schema_id
    written = old.encode(5)
    client.execute(DeleteVersion("numbers", 1))
    assert client.decode(written) == 5


@pytest.mark.parametrize("option", [{"schema": "text"}, {"key_schema": 5}])
def test_wrong_arguments(client, option):
    with pytest.raises(Refused):
        client.producer("orders", **option)


async def test_keys_and_the_asynchronous_client(url):
    async with AsyncClient(url) as client:
        await client.create_topic("keyed", partitions=1)
        schema = await client.register_schema("keyed-key", '"string"')
        async with client.producer("keyed", key_schema=schema) as producer:
            await producer.send("plain", key="ann")
        messages = [message async for _, message in client.read("keyed")]
        assert [one.value for one in messages] == [b"plain"]
        assert await client.decode(messages[0].key) == "ann"
