"""Confluent's Python client with its serialisers for Avro, JSON Schema and Protobuf, against a broker."""

import json
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.schema_registry_client import SchemaReference, ServerConfig
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory, timestamp_pb2

from penstock.schemas.protobuf import ProtobufSchema

from .rigs import served

pytestmark = pytest.mark.tier("test")
VALUE = SerializationContext("orders", MessageField.VALUE)
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@dataclass
class Client:
    address: str
    stack: ExitStack

    def open(self, path: str = "") -> SchemaRegistryClient:
        """A client that knows nothing yet: what it has to know it asks for."""
        return self.stack.enter_context(SchemaRegistryClient({"url": self.address + path}))


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    data = tmp_path_factory.mktemp("schemas") / "data"
    with served(data) as found, ExitStack() as stack:
        yield Client(found.address, stack)


@pytest.mark.parametrize("path", ["", "/schemas"])
def test_avro_there_and_back(broker, path):
    text = json.dumps(ORDER)
    sent = AvroSerializer(broker.open(path), text)({"id": 7}, VALUE)
    assert AvroDeserializer(broker.open(path))(sent, VALUE) == {"id": 7}


def test_json_there_and_back(broker):
    address = json.dumps({"title": "Address", "type": "object", "required": ["city"]})
    first = broker.open()
    first.register_schema("address", Schema(address, "JSON"))
    reference = SchemaReference("address.json", "address", 1)
    person = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Person",
        "type": "object",
        "properties": {"home": {"$ref": "address.json"}},
    }
    schema = Schema(json.dumps(person), "JSON", [reference])
    context = SerializationContext("people", MessageField.VALUE)
    sent = JSONSerializer(schema, first)({"home": {"city": "Bonn"}}, context)
    found = JSONDeserializer(None, schema_registry_client=broker.open())(sent, context)
    assert found == {"home": {"city": "Bonn"}}


LINE = 'syntax = "proto3"; package shop; message Line { string name = 1; }'
BILL = (
    'syntax = "proto3"; package shop; import "shop/line.proto"; '
    'import "google/protobuf/timestamp.proto"; '
    "message Bill { int64 id = 1; repeated Line lines = 2; google.protobuf.Timestamp at = 3; }"
)


def shop_class(name):
    """The class of a message in one of two files, of which one imports the other, as protoc would have made it."""
    line, bill = ProtobufSchema(LINE), ProtobufSchema(BILL, [("shop/line.proto", LINE)])
    line.file.name, bill.file.name = "shop/line.proto", "shop/bill.proto"
    pool = descriptor_pool.Default()
    for one in (line, bill):
        pool.AddSerializedFile(one.file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def test_protobuf_there_and_back(broker):
    kind = shop_class("shop.Bill")
    message = kind(id=7, lines=[{"name": "lamp"}], at=timestamp_pb2.Timestamp(seconds=9))
    context = SerializationContext("bills", MessageField.VALUE)
    sent = ProtobufSerializer(kind, broker.open())(message, context)
    found = ProtobufDeserializer(kind, schema_registry_client=broker.open())(sent, context)
    assert found == message
    assert broker.open().get_referenced_by("shop/line.proto", 1)


def test_protobuf_that_was_registered_as_text(broker):
    client = broker.open()
    client.register_schema("texts-value", Schema(LINE, "PROTOBUF"))
    kind = shop_class("shop.Line")
    context = SerializationContext("texts", MessageField.VALUE)
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    sent = ProtobufSerializer(kind, broker.open(), settings)(kind(name="lamp"), context)
    found = ProtobufDeserializer(kind, schema_registry_client=broker.open())(sent, context)
    assert found.name == "lamp"


def test_every_call_of_the_client(broker):
    client = broker.open()
    subject = "calls/of the client"
    first = client.register_schema(subject, Schema('"int"', "AVRO"))
    assert client.get_schema(first, subject).schema_str == '"int"'
    registered = client.register_schema_full_response(subject, Schema('"long"', "AVRO"))
    assert client.get_schema_by_guid(registered.guid).schema_str == '"long"'
    fresh = broker.open()
    assert fresh.lookup_schema(subject, Schema('"int"', "AVRO")).version == 1
    assert subject in fresh.get_subjects()
    assert fresh.get_latest_version(subject).version == 2
    assert fresh.get_version(subject, 1).schema_id == first
    assert fresh.get_versions(subject) == [1, 2]
    assert fresh.get_subjects_by_schema_id(first) == [subject]
    assert [(one.subject, one.version) for one in fresh.get_schema_versions(first)] == [
        (subject, 1)
    ]
    assert "AVRO" in fresh.get_schema_types()
    assert fresh.get_referenced_by(subject, 1) == []
    assert fresh.test_compatibility(subject, Schema('"double"', "AVRO"))
    assert not fresh.test_compatibility(subject, Schema('"string"', "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        fresh.register_schema(subject, Schema('"string"', "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    fresh.set_compatibility(subject, "NONE")
    assert fresh.get_compatibility(subject) == "NONE"
    fresh.set_config(subject, ServerConfig.from_dict({"compatibility": "FULL"}))
    assert fresh.get_config(subject).compatibility_level.value == "FULL"
    fresh.delete_config(subject)
    assert fresh.get_global_mode() == "READWRITE"
    fresh.update_mode(subject, "READONLY")
    assert fresh.get_mode(subject) == "READONLY"
    fresh.delete_mode(subject)
    assert fresh.get_contexts() == ["."]
    assert fresh.delete_version(subject, 1) == 1
    assert fresh.delete_subject(subject) == [2]
    assert fresh.delete_subject(subject, permanent=True) == [1, 2]
    with pytest.raises(SchemaRegistryError) as missing:
        broker.open().get_latest_version(subject)
    assert missing.value.error_code == 40401
