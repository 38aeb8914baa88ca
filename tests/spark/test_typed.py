"""Values as typed columns: every row is there, typed or with what is wrong with it."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from penstock.api.schemas import DeleteSubject
from penstock.errors import Refused
from penstock.spark import with_data
from penstock.spark.batch import read_task
from penstock.spark.offsets import OffsetRange
from penstock.spark.option_reader import UsedBy
from penstock.spark.options import parse_options
from penstock.spark.typed import TypedValues, avro_shape, json_shape

LINE = {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "first", "type": ["null", "Line"]},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "any", "type": ["null", "int", "string"]},
        {"name": "next", "type": ["null", "Order"]},
    ],
}  # fmt: skip
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
VALUE = {
    "id": 7,
    "note": None,
    "price": Decimal("9.50"),
    "at": AT,
    "lines": [{"n": 1}, {"n": 2}],
    "first": {"n": 3},
    "tags": {"a": "b"},
    "any": "x",
    "next": None,
}
ROW = {**VALUE, "tags": [("a", "b")], "any": '"x"'}


@pytest.mark.parametrize(
    ("schema", "ddl"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, "struct<`a`: bigint>"),
        ({"type": ["string", "null"]}, "string"),
        ({"type": "array", "items": {"type": "number"}}, "array<double>"),
        ({"type": "array"}, "array<string>"),
        ({"type": "object"}, "string"),
        ({"type": "object", "properties": {"a": {}, "A": {}}}, "string"),
        ({"anyOf": []}, "string"),
        (True, "string"),
    ],
)
def test_types_of_json(schema, ddl):
    assert json_shape(schema).ddl == ddl


def test_types_of_avro():
    assert avro_shape(ORDER).ddl == (
        "struct<`id`: bigint, `note`: string, `price`: decimal(9,2), `at`: timestamp_ltz, "
        "`lines`: array<struct<`n`: int>>, `first`: struct<`n`: int>, `tags`: map<string, string>, "
        "`any`: string, `next`: string>"
    )


def test_types_of_one_name_in_two_namespaces_are_two(client, topic):
    sides = {"left": "int", "right": "string"}
    for side, kind in sides.items():
        fields = [{"name": side, "type": kind}]
        one = {"type": "record", "name": "Side", "namespace": side, "fields": fields}
        client.register_schema(f"{topic}.{side}", json.dumps(one))
    names = [(side, f"{side}.Side") for side in sides]
    fields = [{"name": name, "type": kind} for name, kind in names]
    schema = client.register_schema(
        f"{topic}-value",
        json.dumps({"type": "record", "name": "Both", "fields": fields}),
        references=[(name, f"{topic}.{side}", 1) for side, name in names],
    )
    value = {"left": {"left": 7}, "right": {"right": "seven"}}
    data, _ = TypedValues.of_version(client, f"{topic}-value").columns([schema.encode(value)])
    assert data.to_pylist() == [value]


def test_every_value_is_a_row(client, topic):
    """Also those that name another schema, none, or one that there is not, and those that are no values at all."""
    subject = f"{topic}-value"
    schema = client.register_schema(subject, json.dumps(ORDER))
    typed = TypedValues.of_version(client, subject)
    written = schema.encode(VALUE)
    sent = [
        written,
        None,
        b"junk",
        b"\0\0\0\xff\xff",
        written[:-1],
        b"",
        b'{"id": "text"}',
        written,
    ]
    data, errors = (one.to_pylist() for one in typed.columns(sent))
    assert data == [ROW, None, None, None, None, None, None, ROW]
    assert [one is not None for one in errors] == [
        False,
        False,
        True,
        True,
        True,
        True,
        True,
        False,
    ]


LIKE_JSON = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "b": {"type": "array", "items": {"type": "string"}},
        "c": {"type": "array", "items": {"type": "integer"}},
        "d": {"type": "object", "properties": {"e": {"type": "integer"}}},
    },
}
LIKE_AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": ["null", "long"]},
        {"name": "b", "type": ["null", {"type": "array", "items": "string"}]},
        {"name": "c", "type": ["null", {"type": "array", "items": ["null", "int"]}]},
        {"name": "d", "type": ["null", {**LINE, "fields": [{"name": "e", "type": "int"}]}]},
    ],
}
FITTING = [{"a": 1}, {"a": 2.0, "b": ["x"], "c": [1, 2.0, None], "d": {"e": 1}}]
OTHERS = [{"a": 1.5}, {"b": "xyz"}, {"b": {"x": 1}}, {"c": [1.5]}, {"c": "x"}, {"d": [["e", 1]]}]


@pytest.mark.parametrize(("language", "schema"), [("JSON", LIKE_JSON), ("AVRO", LIKE_AVRO)])
def test_json_of_another_type_is_an_error_and_not_made_to_fit(client, topic, language, schema):
    """Messages without the id of a schema are JSON, also under one of Avro."""
    subject = f"{topic}-value"
    client.register_schema(subject, json.dumps(schema), language)
    typed = TypedValues.of_version(client, subject)
    data, errors = typed.columns([json.dumps(one).encode() for one in [*FITTING, *OTHERS]])
    absent = dict.fromkeys("abcd")
    assert data.to_pylist() == [{**absent, **one} for one in FITTING] + [None] * len(OTHERS)
    assert [one is None for one in errors.to_pylist()] == [True] * 2 + [False] * len(OTHERS)


def test_a_local_timestamp_of_avro_is_text(client, topic):
    fields = [
        {"name": name, "type": {"type": "long", "logicalType": f"local-timestamp-{name}"}}
        for name in ("millis", "micros")
    ]
    noon = AT.replace(tzinfo=None)
    value = {"millis": noon, "micros": noon.replace(microsecond=5)}
    found = {"millis": "2026-01-31 12:00:00", "micros": "2026-01-31 12:00:00.000005"}
    subject = f"{topic}-value"
    schema = client.register_schema(subject, json.dumps({**LINE, "fields": fields}))
    data, errors = TypedValues.of_version(client, subject).columns([schema.encode(value)])
    assert (data.to_pylist(), errors.to_pylist()) == ([found], [None])


def test_an_older_version_is_resolved_to_the_planned_one(client, topic):
    subject = f"{topic}-value"
    first = {"type": "record", "name": "A", "fields": [{"name": "id", "type": "int"}]}
    old = client.register_schema(subject, json.dumps(first))
    more = {"name": "to", "type": "string", "default": "all"}
    second = {**first, "fields": [{"name": "id", "type": "long"}, more]}
    client.register_schema(subject, json.dumps(second))
    data, _ = TypedValues.of_version(client, subject).columns([old.encode({"id": 1})])
    assert data.to_pylist() == [{"id": 1, "to": "all"}]
    pinned = TypedValues.of_version(client, subject, 1)
    assert pinned.shape.ddl == "struct<`id`: int>"


PROTO = """
syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto"; import "google/protobuf/struct.proto";
enum Colour { RED = 0; BLUE = 1; }
message Order {
  int64 id = 1; optional string note = 2; uint64 large = 3; Colour colour = 4;
  google.protobuf.Timestamp at = 5; repeated Line lines = 6; map<int32, Line> by_number = 7;
  google.protobuf.Int32Value few = 8; google.protobuf.Struct any = 9; Order next = 10;
  oneof paid { bool cash = 11; bytes card = 12; } repeated Colour colours = 13; Empty nothing = 14;
}
message Line { int32 n = 1; double price = 2; }
message Empty {}
"""


def test_protobuf_is_typed_by_the_first_message(client, topic):
    subject = f"{topic}-value"
    schema = client.register_schema(subject, PROTO, "PROTOBUF")
    typed = TypedValues.of_version(client, subject)
    line = "struct<`n`: int, `price`: double>"
    assert typed.shape.ddl == (
        "struct<`id`: bigint, `note`: string, `large`: decimal(20,0), `colour`: string, `at`: timestamp_ltz, "
        f"`lines`: array<{line}>, `by_number`: map<string, {line}>, `few`: int, `any`: string, `next`: string, "
        "`cash`: boolean, `card`: binary, `colours`: array<string>, `nothing`: string>"
    )
    order = schema.message_type()
    full = order(
        id=7,
        note="",
        large=2**64 - 1,
        colour=1,
        at={"seconds": int(AT.timestamp()), "nanos": 5000},
        lines=[{"n": 1, "price": 0.5}, {}],
        by_number={3: {"n": 3}},
        few={"value": 4},
        any={"a": 1},
        next={"id": 8},
        cash=False,
        colours=[0, 7],
        nothing={},
    )
    values = schema.encode(full), schema.encode(order()), b"\0\0\0\0\1", None
    other = schema.encode(full)[:5] + b"\x02\x02"
    data, errors = (one.to_pylist() for one in typed.columns([*values, other]))
    assert data[0] == {
        "id": 7,
        "note": "",
        "large": Decimal(2**64 - 1),
        "colour": "BLUE",
        "at": AT.replace(microsecond=5),
        "lines": [{"n": 1, "price": 0.5}, {"n": 0, "price": 0.0}],
        "by_number": [("3", {"n": 3, "price": 0.0})],
        "few": 4,
        "any": '{"a": 1.0}',
        "next": '{"id": "8"}',
        "cash": False,
        "card": None,
        "colours": ["RED", "7"],
        "nothing": "{}",
    }
    absent = ("note", "at", "few", "any", "next", "cash", "card", "nothing")
    assert [data[1][name] for name in absent] == [None] * len(absent)
    assert (data[1]["id"], data[1]["colour"], data[1]["lines"]) == (0, "RED", [])
    assert data[2:] == [None, None, None]
    assert [one is not None for one in errors] == [False, False, True, False, True]


def test_an_older_version_of_protobuf_is_read_as_the_planned_one(client, topic):
    subject = f"{topic}-value"
    first = 'syntax = "proto3"; message A { int32 id = 1; }'
    old = client.register_schema(subject, first, "PROTOBUF")
    second = 'syntax = "proto3"; message A { int64 number = 1; string to = 2; }'
    client.register_schema(subject, second, "PROTOBUF")
    data, _ = TypedValues.of_version(client, subject).columns(
        [old.encode(old.message_type()(id=7))]
    )
    assert data.to_pylist() == [{"number": 7, "to": ""}]


def test_the_id_of_a_schema_may_be_in_a_header(client, topic):
    schema = client.register_schema(f"{topic}-value", json.dumps(LINE))
    with client.producer(topic, schema=schema, schema_id_in="header") as producer:
        producer.send({"n": 7}, partition=0)
    client.publish(topic, schema.encode({"n": 8}), partition=0)
    client.publish(topic, b"junk", partition=0, headers={"other": "x"})
    wanted = OffsetRange(topic, 0, 0, 3)
    options = parse_options(
        {"url": client.url, "subscribe": topic, "columns": "offset"}, UsedBy.BATCH
    )
    planned = replace(options, schema_id=schema.schema_id)
    rows = [row for batch in read_task(planned, wanted) for row in batch.to_pylist()]
    assert [one["data"] for one in rows] == [{"n": 7}, {"n": 8}, None]
    assert [one["data_error"] is None for one in rows] == [True, True, False]
    assert [*rows[0]] == ["offset", "data", "data_error"]


@pytest.mark.parametrize(
    "given",
    [
        {"subscribe": "a", "schema": "file"},
        {"subscribe": "a,b", "schema": "registry"},
        {"subscribePattern": ".*", "schema": "registry"},
        {"subscribe": "a", "schemaSubject": "s"},
        {"subscribe": "a", "schemaVersion": "1"},
        {"subscribe": "a", "schema": "registry", "schemaVersion": "newest"},
    ],
)
def test_options_that_are_refused(given):
    with pytest.raises(Refused):
        parse_options(given, UsedBy.BATCH)


@pytest.mark.tier("test")
@pytest.mark.xdist_group("spark")
def test_a_batch_and_a_stream_in_spark(spark, broker, client, topic, tmp_path):
    schema = client.register_schema(f"{topic}-value", json.dumps(ORDER))
    with client.producer(topic) as producer:
        for number in range(100):
            producer.send(schema.encode({**VALUE, "id": number}))
        producer.send(b"junk")
    options = {"url": broker, "subscribe": topic, "schema": "registry"}
    frame = spark.read.format("penstock").options(**options, columns="offset").load()
    assert frame.columns == ["offset", "data", "data_error"]
    rows = frame.where("data_error is null").select("data.*").orderBy("id").collect()
    assert [one.id for one in rows] == list(range(100))
    last = rows[-1].asDict(recursive=True)
    assert last == {**VALUE, "id": 99, "any": '"x"', "at": last["at"]}
    wrong = spark.read.format("penstock").options(**options).load().where("data_error is not null")
    assert [bytes(one.value) for one in wrong.collect()] == [b"junk"]
    found = []
    stream = spark.readStream.format("penstock").options(**options, startingOffsets="earliest")
    writer = stream.load().writeStream.foreachBatch(
        lambda batch, _: found.extend(batch.select("data.id").collect())
    )
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(1200)
    assert sorted(one.id for one in found if one.id is not None) == list(range(100))
    assert len(found) == 101
    rows = spark.read.format("penstock").options(url=broker, subscribe=topic).load()
    rows.select("partition", "offset", "key", "value").write.parquet(str(tmp_path / "lake"))
    archived = spark.read.parquet(str(tmp_path / "lake"))
    again = with_data(archived, f"{topic}-value", url=broker).collect()
    assert sorted(one.data.id for one in again if one.data) == list(range(100))
    assert [bytes(one.value) for one in again if one.data_error] == [b"junk"]
    with pytest.raises(Refused, match="a binary column value is needed; there are key"):
        with_data(archived.select("key"), f"{topic}-value", url=broker)
    client.execute(DeleteSubject(f"{topic}-value"))
    with pytest.raises(Exception, match="is deleted"):
        spark.read.format("penstock").options(**options).load()
