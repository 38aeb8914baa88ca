"""JSON Schema: what is called compatible never refuses a document that the older schema takes."""

import json
import time
from random import Random
from typing import Any

import pytest

from penstock.errors import InvalidSchema
from penstock.schemas.json_schema import JsonSchema

DRAFTS = (None, "http://json-schema.org/draft-07/schema#")
PROPERTIES = ("a", "b", "cc")
SCHEMAS = ("additionalProperties", "items", "contains", "propertyNames", "not", "if", "then")
KEYWORDS = (
    *("type", "type", "enum", "const", "required", "properties", "properties", "patternProperties"),
    *("minimum", "maximum", "exclusiveMinimum", "minLength", "maxLength", "minItems", "maxItems"),
    *("maxProperties", "minProperties", "multipleOf", "pattern", "uniqueItems", "dependentSchemas"),
    *("allOf", "anyOf", "oneOf", "prefixItems", "$ref", *SCHEMAS),
)
TYPES = ("string", "integer", "number", "object", "array", "null", "boolean")


def document(chance: Random, depth: int = 0) -> Any:
    kind = chance.randrange(7 if depth < 3 else 5)
    match kind:
        case 0:
            return None
        case 1:
            return chance.random() < 0.5
        case 2:
            return chance.randrange(-2, 5)
        case 3:
            return chance.choice((0.5, 1.0, 2.5))
        case 4:
            return chance.choice(("", "a", "ab", "abc"))
        case 5:
            return [document(chance, depth + 1) for _ in range(chance.randrange(4))]
    names = chance.sample(PROPERTIES, chance.randrange(4))
    return {name: document(chance, depth + 1) for name in names}


def schema(chance: Random, depth: int = 0) -> Any:
    if depth > 2 or chance.random() < 0.1:
        return chance.random() < 0.8 or {"type": chance.choice(TYPES)}
    found: dict[str, Any] = {}
    for keyword in chance.sample(KEYWORDS, chance.randrange(1, 4)):
        found[keyword] = value_of(keyword, chance, depth + 1)
    return found


def value_of(keyword: str, chance: Random, depth: int) -> Any:
    match keyword:
        case "type":
            return chance.choice((chance.choice(TYPES), chance.sample(TYPES, 2)))
        case "enum":
            return [document(chance) for _ in range(chance.randrange(1, 4))]
        case "const":
            return document(chance)
        case "multipleOf":
            return chance.choice((1, 2, 0.5))
        case "pattern":
            return chance.choice(("a", "^ab"))
        case "uniqueItems":
            return chance.random() < 0.5
        case "required":
            return chance.sample(PROPERTIES, chance.randrange(3))
        case "properties" | "dependentSchemas":
            names = chance.sample(PROPERTIES, chance.randrange(3))
            return {name: schema(chance, depth) for name in names}
        case "patternProperties":
            return {chance.choice(("c", "^b")): schema(chance, depth)}
        case "$ref":
            return chance.choice(("#/definitions/x", "#/definitions/y"))
        case "allOf" | "anyOf" | "oneOf" | "prefixItems":
            return [schema(chance, depth) for _ in range(chance.randrange(1, 3))]
        case _ if keyword in SCHEMAS:
            return schema(chance, depth)
    return chance.randrange(4)


def pair_of(chance: Random) -> tuple[Any, Any]:
    """Two schemas of one draft. The second one is the first one with a few changes."""
    whole = schema(chance)
    old = {**(whole if isinstance(whole, dict) else {}), "definitions": {}}
    old["definitions"] = {"x": schema(chance), "y": schema(chance)}
    new = json.loads(json.dumps(old))
    for keyword in [*new]:
        if keyword != "definitions" and chance.random() < 0.3:
            del new[keyword]
    if chance.random() < 0.5:
        found = schema(chance)
        new |= found if isinstance(found, dict) else {}
    if chance.random() < 0.2:
        new["definitions"]["x"] = schema(chance)
    draft = chance.choice(DRAFTS)
    if draft:
        old["$schema"] = new["$schema"] = draft
    return old, new


def test_what_is_compatible_refuses_no_older_document(effort) -> None:
    compared = 0
    for seed in range(effort(check=400, test=1500, torture=2_000_000)):
        chance = Random(seed)
        old, new = pair_of(chance)
        try:
            before, after = JsonSchema(json.dumps(old)), JsonSchema(json.dumps(new))
        except InvalidSchema:
            continue
        if after.faults_reading(before):
            continue
        for _ in range(30):
            one = document(chance)
            if before.validator.is_valid(one):
                compared += 1
                assert after.validator.is_valid(one), (seed, old, new, one)
    assert compared > 100


def event(chance: Random, name: str) -> Any:
    """A branch of a union, which is told apart from the others by its kind, if that is required."""
    kind = chance.choice(({"const": name}, {"enum": [name, f"{name}!"]}))
    branch = {
        "type": "object",
        "properties": {"kind": kind, "a": schema(chance, 2)},
        "required": ["kind"] if chance.random() < 0.7 else [],
    }
    if chance.random() < 0.2:
        del branch["type"]
    return branch


def union_of(chance: Random, names: str) -> list[Any]:
    branches = [event(chance, name) for name in names]
    if chance.random() < 0.3:
        branches.append({"type": chance.choice(TYPES)})
    if chance.random() < 0.2:
        branches.append({"type": "object", "required": ["z"], "properties": {"kind": True}})
    return branches


def test_a_wider_union_refuses_no_older_document(effort) -> None:
    compared = widened = 0
    for seed in range(effort(check=400, test=1500, torture=500_000)):
        chance = Random(seed)
        definitions = {name: event(chance, name) for name in "xyz"}
        branches: list[Any] = union_of(chance, "xy")
        if chance.random() < 0.5:
            branches = [{"$ref": f"#/definitions/{name}"} for name in "xy"]
        more = [*branches, *union_of(chance, chance.choice(("z", "x", "")))]
        if chance.random() < 0.5:
            more.append({"$ref": "#/definitions/z"})
        head: Any = {"definitions": definitions, "$schema": chance.choice(DRAFTS[1:])}
        try:
            before = JsonSchema(json.dumps({**head, "oneOf": branches}))
            after = JsonSchema(json.dumps({**head, "oneOf": more}))
        except InvalidSchema:
            continue
        if after.faults_reading(before):
            continue
        widened += len(more) > len(branches)
        for _ in range(30):
            names = ("x", "y", "z", "x!", 1)
            value = {"kind": chance.choice(names), "a": document(chance)}
            value = value if chance.random() < 0.8 else document(chance)
            if before.validator.is_valid(value):
                compared += 1
                assert after.validator.is_valid(value), (seed, branches, more, value)
    assert min(compared, widened) > 50


def test_every_schema_covers_itself(effort) -> None:
    for seed in range(effort(check=100, test=300, torture=10_000)):
        text = json.dumps(pair_of(Random(seed))[0])
        try:
            found = JsonSchema(text)
        except InvalidSchema:
            continue
        assert found.faults_reading(JsonSchema(text)) == []


def person(**changes: Any) -> Any:
    return {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name"],
        "additionalProperties": False,
        **changes,
    }


NAME, AGE = person()["properties"].values()


@pytest.mark.parametrize(
    ("new", "is_backward"),
    [
        (person(), True),
        (person(properties={"name": NAME, "age": {"type": "number"}}), True),
        (person(properties={"name": NAME, "age": {"type": ["integer", "null"]}}), True),
        (person(properties={"name": NAME, "age": {"type": "integer", "minimum": 1}}), False),
        (person(properties={"name": NAME, "age": AGE, "mail": NAME}), True),
        (person(properties={"name": NAME}), False),
        (person(required=["name", "age"]), False),
        (person(required=[]), True),
        (person(additionalProperties=True), True),
        (person(properties={"name": {"anyOf": [NAME, {"type": "null"}]}, "age": AGE}), True),
        (
            person(
                properties={"name": {"$ref": "#/$defs/n"}, "age": AGE}, **{"$defs": {"n": NAME}}
            ),
            True,
        ),
        (person(maxProperties=2), False),
    ],
)
def test_changes_of_an_object(new: Any, is_backward: bool) -> None:
    before, after = JsonSchema(json.dumps(person())), JsonSchema(json.dumps(new))
    assert (not after.faults_reading(before)) is is_backward


def test_a_property_that_an_open_object_may_have_had_cannot_get_a_type() -> None:
    old = {"type": "object", "properties": {}}
    new = {"type": "object", "properties": {"a": {"type": "string"}}}
    faults = JsonSchema(json.dumps(new)).faults_reading(JsonSchema(json.dumps(old)))
    assert faults == ["/properties/a/type: only string is allowed"]


def test_lists_of_themselves_are_compared() -> None:
    def tree(kind: str) -> JsonSchema:
        children = {"type": "array", "items": {"$ref": "#"}}
        properties = {"children": children, "value": {"type": kind}}
        return JsonSchema(json.dumps({"type": "object", "properties": properties}))

    assert tree("number").faults_reading(tree("integer")) == []
    assert tree("integer").faults_reading(tree("number"))


def test_references_lead_to_registered_schemas() -> None:
    address = json.dumps({"type": "object", "required": ["city"]})
    schema = JsonSchema(
        json.dumps({"properties": {"home": {"$ref": "address.json"}}}), [("address.json", address)]
    )
    assert schema.validator.is_valid({"home": {"city": "Bonn"}})
    assert not schema.validator.is_valid({"home": {}})
    based = json.dumps({"$id": "https://example.com/a/b.json", "$ref": "address.json"})
    assert not JsonSchema(based, [("address.json", address)]).validator.is_valid({})


@pytest.mark.parametrize(
    "schema",
    [
        [],
        "text",
        {"type": "nothing"},
        {"pattern": "("},
        {"$ref": "http://127.0.0.1:1/x"},
        {"$ref": "https://example.com/x"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "/etc/passwd"},
        {"$ref": "#/nothing"},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {
            "definitions": {
                "a": {"not": {"$ref": "#/definitions/b"}},
                "b": {"anyOf": [{"$ref": "#/definitions/a"}]},
            }
        },
        {"$schema": "https://example.com/own"},
        {"$schema": "http://127.0.0.1:1/own"},
        {"properties": {"a": {"$id": "https://example.com/b"}}},
        {"pattern": "(" * 3000 + ")" * 3000},
    ],
)
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    started = time.process_time()
    with pytest.raises(InvalidSchema):
        JsonSchema(json.dumps(schema)).is_valid(b"null")
    assert time.process_time() - started < 2


def doubling(depth: int, leaf: str) -> JsonSchema:
    """Twice as large with every level, if references are followed by copying."""
    definitions: dict[str, Any] = {
        f"d{one}": {"properties": {name: {"$ref": f"#/$defs/d{one + 1}"} for name in "ab"}}
        for one in range(depth)
    }
    definitions[f"d{depth}"] = {"type": leaf}
    return JsonSchema(json.dumps({"$ref": "#/$defs/d0", "$defs": definitions}))


def test_exponential_schemas_take_bounded_time() -> None:
    started = time.process_time()
    old, new = doubling(60, "string"), doubling(60, "integer")
    with pytest.raises(InvalidSchema, match=r"too complex|nested"):
        new.faults_reading(old)
    assert time.process_time() - started < 5


LONG_LISTS = (
    ({"anyOf": [{"enum": [*range(one, one + 300)]} for one in range(100)]}, {"title": "x"}),
    ({"required": [f"n{one:08}" for one in range(17_000)]}, {"title": "x"}),
    ({"enum": [*range(20_000)]}, {"allOf": [{"maximum": 40_000}] * 5000}),
)


@pytest.mark.parametrize(("old", "more"), LONG_LISTS)
def test_long_lists_take_bounded_time(old: Any, more: Any) -> None:
    before, after = JsonSchema(json.dumps(old)), JsonSchema(json.dumps({**old, **more}))
    started = time.process_time()
    with pytest.raises(InvalidSchema, match="too complex"):
        after.faults_reading(before)
    assert time.process_time() - started < 5
