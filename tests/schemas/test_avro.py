"""Avro: our rules say what `avro.compatibility` (PyPI) says, and Confluent's tables of changes hold."""

import json
import time
from typing import Any

import avro.schema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidSchema
from penstock.schemas.avro import PRIMITIVES, AvroSchema

NAMES, SYMBOLS = ("A", "B", "C"), ("X", "Y", "Z")


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    """A schema with few names, so that two of them often have the same ones."""
    defined: set[str] = set()

    def named(name: str, depth: int) -> Any:
        if name in defined:
            return name
        defined.add(name)
        match draw(st.sampled_from(("record", "record", "enum", "fixed"))):
            case "enum":
                symbols = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
                default = {"default": symbols[0]} if draw(st.booleans()) else {}
                return {"type": "enum", "name": name, "symbols": symbols, **default}
            case "fixed":
                return {"type": "fixed", "name": name, "size": draw(st.integers(1, 2))}
        fields = []
        for field in draw(st.lists(st.sampled_from("abc"), unique=True)):
            one = {"name": field, "type": made(depth + 1)}
            if one["type"] == "int" and draw(st.booleans()):
                one["default"] = 1
            if draw(st.integers(0, 5)) == 0:
                one["aliases"] = [draw(st.sampled_from("abc"))]
            fields.append(one)
        return {"type": "record", "name": name, "fields": fields}

    def made(depth: int) -> Any:
        kind = draw(st.integers(0, 9 if depth < 4 else 4))
        if kind <= 4:
            return draw(st.sampled_from(sorted(PRIMITIVES)))
        if kind == 5:
            return {"type": "array", "items": made(depth + 1)}
        if kind == 6:
            return {"type": "map", "values": made(depth + 1)}
        if kind == 7 and depth < 3:
            primitives = draw(
                st.lists(st.sampled_from(sorted(PRIMITIVES)), max_size=3, unique=True)
            )
            names = draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
            return [*primitives, *(named(name, depth + 1) for name in names)] or ["null"]
        return named(draw(st.sampled_from(NAMES)), depth)

    return made(0)


@given(schemas(), schemas())
def test_what_the_reference_calls_compatible_is(reader: Any, writer: Any) -> None:
    texts = json.dumps(reader), json.dumps(writer)
    found = AvroSchema(texts[0]).faults_reading(AvroSchema(texts[1]))
    theirs = ReaderWriterCompatibilityChecker().get_compatibility(
        avro.schema.parse(texts[0]), avro.schema.parse(texts[1])
    )
    assert (not found) == (theirs.compatibility is SchemaCompatibilityType.compatible), found


@given(schemas())
def test_every_schema_reads_itself(schema: Any) -> None:
    text = json.dumps(schema)
    assert AvroSchema(text).faults_reading(AvroSchema(text)) == []


def record(*fields: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


OLD = record({"name": "a", "type": "string"})
PLUS = {"name": "b", "type": "int"}


@pytest.mark.parametrize(
    ("new", "is_backward", "is_forward"),
    [
        (record({"name": "a", "type": "string"}, PLUS), False, True),
        (record({"name": "a", "type": "string"}, {**PLUS, "default": 0}), True, True),
        (record(), True, False),
        (record({"name": "a", "type": ["null", "string"]}), True, False),
        (record({"name": "c", "type": "string"}), False, False),
        (record({"name": "c", "type": "string", "aliases": ["a"]}), True, False),
        (record({"name": "a", "type": "int"}), False, False),
    ],
)
def test_changes_of_a_record(new: str, is_backward: bool, is_forward: bool) -> None:
    old, fresh = AvroSchema(OLD), AvroSchema(new)
    assert (not fresh.faults_reading(old)) is is_backward
    assert (not old.faults_reading(fresh)) is is_forward


def test_a_fault_says_where_it_is() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "long"}]}
    narrow = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}]}
    old, new = record({"name": "i", "type": inner}), record({"name": "i", "type": narrow})
    assert AvroSchema(new).faults_reading(AvroSchema(old)) == ["/i/n: int does not read long"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        '"R"',
        '["int", "int"]',
        '[["int"]]',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "1", "fields": []}',
        '{"type": "record", "name": "R", "fields": [{"name": "a"}]}',
        '{"type": "enum", "name": "E", "symbols": ["A", "A"]}',
        '{"type": "fixed", "name": "F", "size": -1}',
        '{"type": "array"}',
        record({"name": "a", "type": "int", "default": "x"}),
        record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}),
        "[" * 100_000,
        '{"type":' * 5000 + '"int"' + "}" * 5000,
        '"' + "x" * 300_000 + '"',
    ],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        AvroSchema(text)


def linked(count: int, prefix: str = "R") -> list[Any]:
    """Records, each of which has the one before as a field."""
    first = {"type": "record", "name": f"{prefix}0", "fields": []}
    return [first] + [
        {
            "type": "record",
            "name": f"{prefix}{one}",
            "fields": [{"name": "f", "type": f"{prefix}{one - 1}"}],
        }
        for one in range(1, count)
    ]


def test_schemas_that_take_long_to_compare_are_refused_soon() -> None:
    started = time.process_time()
    many = AvroSchema(json.dumps(linked(1000)))
    with pytest.raises(InvalidSchema):
        many.faults_reading(AvroSchema(json.dumps(linked(1000, "S"))))
    assert time.process_time() - started < 5


def test_a_default_with_countless_readings_is_refused_soon() -> None:
    started = time.process_time()
    value: Any = {"f": 1}
    for _ in range(40):
        value = {"f": value}
    second = {"type": "record", "name": "B", "fields": [{"name": "f", "type": ["null", "A", "B"]}]}
    first = {
        "type": "record",
        "name": "A",
        "fields": [{"name": "f", "type": ["null", second, "A"]}],
    }
    with pytest.raises(InvalidSchema):
        AvroSchema(
            record({"name": "a", "type": first}, {"name": "v", "type": "A", "default": value})
        )
    assert time.process_time() - started < 2
