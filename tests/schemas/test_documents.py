"""Documents against schemas: what is taken, what is not, and where the fault is."""

import io
import json
from base64 import b64encode

import fastavro
import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schemas.avro import AvroSchema
from penstock.schemas.json_schema import JsonSchema
from penstock.schemas.protobuf import ProtobufSchema

ORDER = JsonSchema(
    json.dumps(
        {
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": {"type": "integer"},
                "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
                "a/b~c": {"type": "string"},
            },
            "$defs": {"line": {"type": "object", "properties": {"name": {"type": "string"}}}},
        }
    )
)


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (b'{"id": 1, "lines": [{"name": "x"}]}', None),
        (b'{"id": "1"}', "/id"),
        (b"{}", ""),
        (b'{"id": 1, "lines": [{}, {"name": 1}]}', "/lines/1/name"),
        (b'{"id": 1, "a/b~c": 2}', "/a~1b~0c"),
        (b"{", ""),
        (b"", ""),
        (b"\xff", ""),
        (b'{"id": 1e400}', ""),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, ""),
    ],
)
def test_the_pointer_leads_to_the_fault_in_json(document, path):
    fault = ORDER.fault_in(document)
    assert ORDER.is_valid(document) == (fault is None) == (path is None)
    assert ORDER.is_valid(memoryview(document)) == (path is None)
    if fault is not None:
        assert fault[0] == path


def test_what_is_in_a_document_is_not_in_the_reason():
    fault = ORDER.fault_in(b'{"id": "a secret"}')
    assert fault is not None
    assert "secret" not in fault[1]


TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "size", "type": ["null", "int", {"type": "fixed", "name": "F", "size": 2}]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "marks", "type": {"type": "map", "values": "double"}},
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
        {"name": "rest", "type": ["null", "bytes", "boolean", "float", "long"]},
    ],
}
PARSED = fastavro.parse_schema(json.loads(json.dumps(TREE)))
AVRO_TREE = AvroSchema(json.dumps(TREE))
LEAVES = st.fixed_dictionaries(
    {
        "name": st.text(max_size=5),
        "size": st.one_of(
            st.none(), st.integers(-(2**31), 2**31 - 1), st.binary(min_size=2, max_size=2)
        ),
        "kind": st.sampled_from("AB"),
        "marks": st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False), max_size=3),
        "children": st.just([]),
        "rest": st.one_of(
            st.none(), st.binary(max_size=4), st.booleans(), st.integers(2**40, 2**62)
        ),
    }
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.tuples(LEAVES, st.lists(inner, max_size=3)).map(
        lambda one: {**one[0], "children": one[1]}
    ),
    max_leaves=6,
)


def avro_bytes(value: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED, value)
    return out.getvalue()


def fastavro_value(written: bytes) -> object:
    return fastavro.schemaless_reader(io.BytesIO(written), PARSED, PARSED)


def as_json(value: object) -> object:
    """What Avro's own JSON has for a value: bytes are text of one character each."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {name: as_json(one) for name, one in value.items()}
    return [*map(as_json, value)] if isinstance(value, list) else value


@settings(max_examples=150)
@given(TREES, st.data())
def test_avro_takes_what_fastavro_writes_and_nothing_that_fastavro_cannot_read(tree, data):
    written = avro_bytes(tree)
    assert AVRO_TREE.fault_in(written) is None
    assert AVRO_TREE.document_of(written) == as_json(fastavro_value(written))
    place = data.draw(st.integers(0, len(written) - 1))
    byte = data.draw(st.integers(0, 255))
    changed = written[:place] + bytes([byte]) + written[place + 1 :]
    if AVRO_TREE.is_valid(changed):
        found = io.BytesIO(changed)
        fastavro.schemaless_reader(found, PARSED, PARSED)
        assert found.tell() == len(changed)
    assert not AVRO_TREE.is_valid(written[:-1])
    assert not AVRO_TREE.is_valid(written + b"\0")


def test_the_path_leads_to_the_fault_in_avro():
    leaf = {"name": "x", "size": None, "kind": "A", "marks": {}, "children": [], "rest": None}
    whole = avro_bytes({**leaf, "children": [leaf, {**leaf, "name": "last"}]})
    # The name of the second child is no text any more.
    place = whole.index(b"last")
    found = AVRO_TREE.fault_in(whole[:place] + b"\xff" + whole[place + 1 :])
    assert found is not None
    assert found[0] == "/children/1/name"
    cut = AVRO_TREE.fault_in(avro_bytes(leaf)[:2])
    assert cut is not None
    assert cut[0] == "/size"


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ({"type": "array", "items": "null"}, b"\x80" * 40),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ("bytes", b"\x01"),
        ("int", b"\x80\x80\x80\x80\x80\x01"),
        ("boolean", b"\x02"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
            b"\x02" * 100_000,
        ),
    ],
)
def test_hostile_avro_is_refused_in_little_time(schema, payload):
    assert not AvroSchema(json.dumps(schema)).is_valid(payload)


def field(name: str, number: int, kind: int, label: int = 1, of: str = "") -> FieldDescriptorProto:
    return FieldDescriptorProto(
        name=name, number=number, type=kind, label=label, type_name=of or None
    )


FILE = FileDescriptorProto(
    name="shop.proto",
    package="shop",
    message_type=[
        DescriptorProto(name="Zero", field=[field("text", 1, 9)]),
        DescriptorProto(
            name="Bill",
            field=[field("line", 1, 11, of=".shop.Bill.Line")],
            nested_type=[DescriptorProto(name="Line", field=[field("id", 1, 3, label=2)])],
        ),
    ],
)
PROTO = ProtobufSchema(b64encode(FILE.SerializeToString()).decode())


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        (b"\x00" + b"\x0a\x01x", None),
        (b"\x02\x00" + b"\x0a\x01x", None),
        (b"\x02\x02" + b"\x0a\x02\x08\x01", None),
        (b"\x04\x02\x00" + b"\x08\x01", None),
        (b"\x02\x02" + b"\x0a\x00", "/line/id"),
        (b"\x00" + b"\x0a\x09x", ""),
        (b"\x02\x08", ""),
        (b"", ""),
        (b"\xff" * 12, ""),
        (b"\x01", ""),
    ],
)
def test_messages_of_protobuf(payload, path):
    fault = PROTO.fault_in(payload)
    assert (fault and fault[0]) == path
