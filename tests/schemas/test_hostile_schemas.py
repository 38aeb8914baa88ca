"""Schemas that are small and cost much: refused by what is counted before, and messages by a number of steps."""

import json
from random import Random
from typing import Any

import jsonschema_rs
import pytest

from penstock.api.schemas import NewSchema
from penstock.errors import InvalidSchema
from penstock.schemas.avro import AvroSchema
from penstock.schemas.json_cost import (
    COMPARISONS_MAX,
    PATTERN_CHARACTERS_MAX,
    PATTERNS_CHARACTERS_MAX,
    PATTERNS_MAX,
    UNICODE_CLASSES_MAX,
    Comparisons,
)
from penstock.schemas.json_document import Document, Place
from penstock.schemas.json_schema import JsonSchema
from penstock.schemas.registry import Registry

from .test_json_schema import document, schema

DEPTHS = (17, 40, 2000)


def chain(depth: int, link: Any) -> Any:
    """Definitions that each hold the next one, as `link` says."""
    definitions = {f"d{one}": link({"$ref": f"#/$defs/d{one + 1}"}) for one in range(depth)}
    definitions[f"d{depth}"] = {"type": ["object", "null"]}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def comparisons(written: Any) -> int:
    found = Document(written, {})
    return Comparisons(Place(found, found.node)).of_value


def of_json(written: Any) -> JsonSchema:
    """As the registry reads a new one."""
    read = Registry().parse("s", NewSchema("JSON", json.dumps(written)))
    assert isinstance(read, JsonSchema)
    return read


def nested(depth: int, leaf: Any, around: Any) -> bytes:
    value = leaf
    for _ in range(depth):
        value = around(value)
    return json.dumps(value).encode()


DOUBLING = {
    "allOf": lambda ref: {"allOf": [ref, ref]},
    "anyOf": lambda ref: {"anyOf": [ref, {"not": ref}]},
    "if": lambda ref: {"if": ref, "then": ref, "else": ref},
    "values": lambda ref: {"allOf": [{"properties": {"x": ref}}, {"properties": {"x": ref}}]},
    "patterns": lambda ref: {"properties": {"x": ref}, "patternProperties": {"^x": ref}},
    "others": lambda ref: {"patternProperties": {"a": ref}, "additionalProperties": ref},
    "items": lambda ref: {"items": ref, "contains": ref},
    "first": lambda ref: {"prefixItems": [ref], "allOf": [{"items": ref}]},
    "names": lambda ref: {"propertyNames": ref, "additionalProperties": ref},
    "dependent": lambda ref: {"dependentSchemas": {"x": ref, "y": ref}},
}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("link", DOUBLING)
def test_references_that_double_are_refused(link: str, depth: int) -> None:
    with pytest.raises(InvalidSchema, match=rf"more than {COMPARISONS_MAX} times|nested"):
        of_json(chain(depth, DOUBLING[link]))


@pytest.mark.parametrize("link", DOUBLING)
def test_a_few_of_them_are_counted_and_taken(link: str) -> None:
    assert 2**6 <= comparisons(chain(6, DOUBLING[link])) < 2**12
    assert of_json(chain(6, DOUBLING[link])) is not None


def test_what_does_not_multiply_is_not_counted_as_if_it_did() -> None:
    """Different properties are different values."""
    written = chain(60, lambda ref: {"properties": dict.fromkeys("abcdefgh", ref)})
    assert comparisons(written) < 500
    of_json(written)


def test_a_doubling_inside_of_a_circle_is_counted_once_a_value() -> None:
    def circle(depth: int) -> Any:
        written = chain(depth, lambda ref: {"allOf": [ref, ref]})
        written["$defs"][f"d{depth}"] = {"properties": {"x": {"$ref": "#/$defs/d0"}}}
        return written

    with pytest.raises(InvalidSchema):
        of_json(circle(17))
    taken = of_json(circle(10))
    assert taken.fault_in(b'{"x": {}}') is None
    # So many values that the steps of one message are used up.
    many = nested(0, {"y": [{}] * 50_000}, None)
    assert not taken.is_valid(many)
    path, reason = taken.fault_in(many) or ("", "")
    assert (path, reason) == (
        "",
        "to compare it with the schema may take more than 20000000 steps",
    )


def expressions(kinds: str) -> Any:
    """A tree whose nodes are told apart by a word that is looked at last."""
    branches = [
        {
            "type": "object",
            "properties": {"left": {"$ref": "#/$defs/a"}, "z": {"const": kind}},
            "required": ["left", "z"],
        }
        for kind in kinds
    ]
    return {"$ref": "#/$defs/a", "$defs": {"a": {"oneOf": [*branches, {"type": "null"}]}}}


def test_the_fault_in_a_deep_tree_is_not_looked_for_at_any_price() -> None:
    read = of_json(expressions("pqrs"))
    deep = nested(30, None, lambda value: {"left": value, "z": "s"})
    assert read.is_valid(deep)
    assert read.fault_in(deep) is None
    wrong = nested(8, 7, lambda value: {"left": value, "z": "s"})
    assert not read.is_valid(wrong)
    assert read.fault_in(wrong) == (
        "",
        "it does not fit; where would take more than 1000000 steps to find",
    )
    shallow = nested(2, 7, lambda value: {"left": value, "z": "s"})
    assert read.fault_in(shallow) is not None
    assert "steps" not in (read.fault_in(shallow) or ("", ""))[1]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"pattern": "a" * (PATTERN_CHARACTERS_MAX + 1)}, "a pattern has 4097 characters"),
        ({"pattern": "a" * (1 << 17)}, "characters, the limit is"),
        (
            {"properties": {f"p{one}": {"pattern": f"a{one}"} for one in range(PATTERNS_MAX + 1)}},
            "it has 1001 patterns",
        ),
        (
            {"patternProperties": {f"{one}" + "b" * 1000: True for one in range(40)}},
            f"the limit is {PATTERNS_CHARACTERS_MAX}",
        ),
        ({"pattern": r"(?i)[" + r"\pL" * (UNICODE_CLASSES_MAX + 1) + "]"}, "classes of Unicode"),
        (
            {"properties": {f"p{one}": {"pattern": f"^.{{1,200}}{one}$"} for one in range(999)}},
            "more than 32 MiB to compile",
        ),
        # A reference leads to where no keyword of JSON Schema is.
        (
            {
                "$ref": "#/hidden",
                "hidden": {"allOf": [{"pattern": f"^.{{1,200}}{one}"} for one in range(999)]},
            },
            "more than 32 MiB to compile",
        ),
        ({"pattern": "((a{0,100}){0,100}){0,100}"}, "regex"),
        ({"pattern": "a{0,65535}"}, "regex"),
        ({"pattern": "(" * 2000 + ")" * 2000}, "regex"),
    ],
)
def test_patterns_that_cost_much_are_refused(written: Any, said: str) -> None:
    with pytest.raises(InvalidSchema, match=said):
        of_json(written)


ORDINARY = (
    r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    r"^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$",
    r"^.{1,255}$",
    r"^\S{1,64}$",
    r"^(?=.*[A-Z])(?=.*\d).{8,64}$",
    r"^\p{L}[\p{L}\p{M}' -]*$",
    r"^[A-Z]{2}\d{2}[A-Z0-9]{11,30}$",
    "^(" + "|".join(f"{chr(65 + one // 26)}{chr(65 + one % 26)}" for one in range(600)) + ")$",
)


def test_ordinary_patterns_are_taken() -> None:
    properties = {f"p{one}": {"pattern": pattern} for one, pattern in enumerate(ORDINARY * 20)}
    properties |= {f"q{one}": {"pattern": rf"^[a-z]{one}\d{{2}}$"} for one in range(500)}
    read = of_json({"properties": properties})
    assert read.is_valid(b'{"p3": "word", "p2": "x"}')
    assert not read.is_valid(b'{"p3": "two words"}')


def test_no_bound_refuses_what_was_taken_before(effort: Any) -> None:
    """Schemas of all keywords, and documents, as the other tests of compatibility make them."""
    for seed in range(effort(check=150, test=3000, torture=100_000)):
        chance = Random(seed)
        written, value = schema(chance), document(chance)
        content = json.dumps(value).encode()
        try:
            judge = jsonschema_rs.validator_for(written)
        except (ValueError, jsonschema_rs.ValidationError):
            continue
        try:
            read = JsonSchema(json.dumps(written))
        except InvalidSchema as error:
            refusal = str(error)
        else:
            refusal = ""
        assert "compared" not in refusal, (seed, refusal)
        assert "patterns" not in refusal, (seed, refusal)
        if refusal:
            continue
        assert read.is_valid(content) == judge.is_valid(value), (seed, written, value)
        assert (read.fault_in(content) is None) == judge.is_valid(value), (seed, written, value)


def test_equal_parts_are_not_compared_without_end() -> None:
    """Each of many small parts with one that is nearly as large as a schema may be."""
    large = {"oneOf": [{"const": "x" * 200_000}]}
    before = JsonSchema(json.dumps(large))
    after = JsonSchema(json.dumps({"allOf": [{"oneOf": [{"const": one}]} for one in range(5000)]}))
    with pytest.raises(InvalidSchema, match="too complex"):
        after.faults_reading(before)


def empty_records(depth: int) -> str:
    """Records that each have the one before twice; the first has nothing but a null, which takes no bytes."""
    fields: list[Any] = [{"name": "n", "type": "null"}]
    made: list[Any] = []
    for one in range(depth + 1):
        record = {"type": "record", "name": f"R{one}", "fields": fields}
        made.append({"name": f"r{one}", "type": record})
        fields = [{"name": name, "type": f"R{one}"} for name in "ab"]
    return json.dumps({"type": "record", "name": "All", "fields": made})


def test_avro_records_that_double_are_read_up_to_a_number_of_fields() -> None:
    small = AvroSchema(empty_records(10))
    assert small.fault_in(b"") is None
    assert "n" in json.dumps(small.document_of(b""))
    path, reason = AvroSchema(empty_records(18)).fault_in(b"") or ("", "")
    assert "it has more than 100000 fields" in reason
    assert path.startswith("/")
    # In linear time, however deep it goes.
    assert not AvroSchema(empty_records(25)).is_valid(b"\0" * 100)


@pytest.mark.parametrize(
    "text",
    [
        '{"type": {"type": "int"}}',
        '{"type": ["null", "int"]}',
        '{"type": {"type": {"type": "int"}}}',
        '{"type": null}',
        '{"type": 5}',
        '{"type": "array", "items": {"type": {}}}',
        '{"type": "enum", "name": "E", "symbols": ["A"], "default": {}}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": ["int"]}}]}',
        '{"type": "record", "name": "R", "fields": [{"name": {}, "type": "int"}]}',
        '{"type": "map", "values": {"type": []}}',
        "{}",
        "[[]]",
        "null",
    ],
)
def test_avro_that_is_nearly_a_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        AvroSchema(text)
