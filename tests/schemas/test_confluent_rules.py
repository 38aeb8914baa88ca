"""The rules of compatibility that Confluent publishes for its registry, as tables: each change by the name it has.

Avro: what each level allows. JSON Schema and Protobuf: the lists of compatible changes of its two `SchemaDiff` classes;
every other change is incompatible.
"""

import json
from typing import Any

import pytest

from penstock.schemas.avro import AvroSchema
from penstock.schemas.json_schema import JsonSchema
from penstock.schemas.protobuf import ProtobufSchema

A, B = {"name": "a", "type": "string"}, {"name": "b", "type": "int"}
OPTIONAL = {**B, "default": 0}
SUITS = {"type": "enum", "name": "S", "symbols": ["X", "Y"]}
MORE_SUITS = {**SUITS, "symbols": ["X", "Y", "Z"]}
# Change, fields before, fields after, whether BACKWARD allows it, whether FORWARD does. FULL allows what both do.
AVRO = (
    ("add a field", [A], [A, B], False, True),
    ("delete a field", [A, B], [A], True, False),
    ("add an optional field", [A], [A, OPTIONAL], True, True),
    ("delete an optional field", [A, OPTIONAL], [A], True, True),
    ("modify a field's type", [A, B], [A, {**B, "type": "string"}], False, False),
    ("promote int to long", [B], [{**B, "type": "long"}], True, False),
    ("promote string to bytes", [A], [{**A, "type": "bytes"}], True, True),
    ("rename a field", [A], [{**A, "name": "z"}], False, False),
    ("rename with an alias", [A], [{**A, "name": "z", "aliases": ["a"]}], True, False),
    ("widen to a union", [A], [{**A, "type": ["null", "string"]}], True, False),
    ("remove a default", [OPTIONAL], [B], True, True),
    ("add a symbol", [{**A, "type": SUITS}], [{**A, "type": MORE_SUITS}], True, False),
)


@pytest.mark.parametrize(("change", "old", "new", "is_backward", "is_forward"), AVRO)
def test_avro(change: str, old: Any, new: Any, is_backward: bool, is_forward: bool) -> None:
    before, after = (
        AvroSchema(json.dumps({"type": "record", "name": "R", "fields": one})) for one in (old, new)
    )
    found = not after.faults_reading(before), not before.faults_reading(after)
    assert found == (is_backward, is_forward)


def shape(_more: bool | dict[str, Any] = True, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": _more}


TEXT, NUMBER, ARRAY = {"type": "string"}, {"type": "number"}, {"type": "array"}
TUPLE = {"type": "array", "prefixItems": [TEXT]}
CLOSED_TUPLE = {**TUPLE, "items": False}
PAIR = [TEXT, NUMBER]
# The name of a change, a schema before and after.
JSON_COMPATIBLE = (
    ("ID_CHANGED", {**TEXT, "$id": "http://a.test/a"}, {**TEXT, "$id": "http://a.test/b"}),
    ("DESCRIPTION_CHANGED", TEXT, {**TEXT, "description": "d"}),
    ("TITLE_CHANGED", TEXT, {**TEXT, "title": "t"}),
    ("DEFAULT_CHANGED", TEXT, {**TEXT, "default": "d"}),
    ("TYPE_EXTENDED", {"type": "integer"}, NUMBER),
    ("MAX_LENGTH_INCREASED", {**TEXT, "maxLength": 5}, {**TEXT, "maxLength": 6}),
    ("MAX_LENGTH_REMOVED", {**TEXT, "maxLength": 5}, TEXT),
    ("MIN_LENGTH_DECREASED", {**TEXT, "minLength": 5}, {**TEXT, "minLength": 4}),
    ("MIN_LENGTH_REMOVED", {**TEXT, "minLength": 5}, TEXT),
    ("PATTERN_REMOVED", {**TEXT, "pattern": "a"}, TEXT),
    ("MAXIMUM_INCREASED", {**NUMBER, "maximum": 5}, {**NUMBER, "maximum": 6}),
    ("MAXIMUM_REMOVED", {**NUMBER, "maximum": 5}, NUMBER),
    ("MINIMUM_DECREASED", {**NUMBER, "minimum": 5}, {**NUMBER, "minimum": 4}),
    ("MINIMUM_REMOVED", {**NUMBER, "minimum": 5}, NUMBER),
    (
        "EXCLUSIVE_MAXIMUM_INCREASED",
        {**NUMBER, "exclusiveMaximum": 5},
        {**NUMBER, "exclusiveMaximum": 6},
    ),
    ("EXCLUSIVE_MAXIMUM_REMOVED", {**NUMBER, "exclusiveMaximum": 5}, NUMBER),
    (
        "EXCLUSIVE_MINIMUM_DECREASED",
        {**NUMBER, "exclusiveMinimum": 5},
        {**NUMBER, "exclusiveMinimum": 4},
    ),
    ("EXCLUSIVE_MINIMUM_REMOVED", {**NUMBER, "exclusiveMinimum": 5}, NUMBER),
    ("MULTIPLE_OF_REDUCED", {**NUMBER, "multipleOf": 4}, {**NUMBER, "multipleOf": 2}),
    ("MULTIPLE_OF_REMOVED", {**NUMBER, "multipleOf": 4}, NUMBER),
    ("REQUIRED_ATTRIBUTE_REMOVED", {**shape(a=TEXT), "required": ["a"]}, shape(a=TEXT)),
    (
        "DEPENDENCY_ARRAY_NARROWED",
        {**shape(), "dependentRequired": {"a": ["b", "c"]}},
        {**shape(), "dependentRequired": {"a": ["b"]}},
    ),
    ("DEPENDENCY_ARRAY_REMOVED", {**shape(), "dependentRequired": {"a": ["b"]}}, shape()),
    ("DEPENDENCY_SCHEMA_REMOVED", {**shape(), "dependentSchemas": {"a": shape(b=TEXT)}}, shape()),
    ("MAX_PROPERTIES_INCREASED", {**shape(), "maxProperties": 1}, {**shape(), "maxProperties": 2}),
    ("MAX_PROPERTIES_REMOVED", {**shape(), "maxProperties": 1}, shape()),
    ("MIN_PROPERTIES_DECREASED", {**shape(), "minProperties": 2}, {**shape(), "minProperties": 1}),
    ("MIN_PROPERTIES_REMOVED", {**shape(), "minProperties": 2}, shape()),
    ("ADDITIONAL_PROPERTIES_ADDED", shape(False, a=TEXT), shape(a=TEXT)),
    ("ADDITIONAL_PROPERTIES_EXTENDED", shape({"type": "integer"}), shape(NUMBER)),
    ("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", shape(), shape(a={})),
    ("OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", shape(False), shape(False, a=TEXT)),
    ("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", shape(False, a=False), shape(False)),
    ("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", shape(a=TEXT), shape()),
    ("PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", shape(TEXT), shape(TEXT, a=TEXT)),
    (
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        shape(TEXT, a=TEXT),
        shape(TEXT),
    ),
    ("MAX_ITEMS_INCREASED", {**ARRAY, "maxItems": 1}, {**ARRAY, "maxItems": 2}),
    ("MAX_ITEMS_REMOVED", {**ARRAY, "maxItems": 1}, ARRAY),
    ("MIN_ITEMS_DECREASED", {**ARRAY, "minItems": 2}, {**ARRAY, "minItems": 1}),
    ("MIN_ITEMS_REMOVED", {**ARRAY, "minItems": 2}, ARRAY),
    ("UNIQUE_ITEMS_REMOVED", {**ARRAY, "uniqueItems": True}, ARRAY),
    ("ADDITIONAL_ITEMS_ADDED", CLOSED_TUPLE, TUPLE),
    (
        "ADDITIONAL_ITEMS_EXTENDED",
        {**TUPLE, "items": {"type": "integer"}},
        {**TUPLE, "items": NUMBER},
    ),
    (
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        TUPLE,
        {**TUPLE, "prefixItems": [TEXT, {}]},
    ),
    ("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", CLOSED_TUPLE, {**CLOSED_TUPLE, "prefixItems": PAIR}),
    (
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        {**CLOSED_TUPLE, "prefixItems": [TEXT, False]},
        CLOSED_TUPLE,
    ),
    ("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", {**TUPLE, "prefixItems": PAIR}, TUPLE),
    (
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        {**TUPLE, "items": NUMBER},
        {"type": "array", "prefixItems": PAIR, "items": NUMBER},
    ),
    (
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        {"type": "array", "prefixItems": PAIR, "items": NUMBER},
        {**TUPLE, "items": NUMBER},
    ),
    ("ENUM_ARRAY_EXTENDED", {"enum": ["a"]}, {"enum": ["a", "b"]}),
    ("COMBINED_TYPE_EXTENDED", {"oneOf": [TEXT, NUMBER]}, {"anyOf": [TEXT, NUMBER]}),
    ("PRODUCT_TYPE_NARROWED", {"allOf": [TEXT, {"minLength": 1}]}, {"allOf": [TEXT]}),
    ("SUM_TYPE_EXTENDED", {"anyOf": [TEXT]}, {"anyOf": [TEXT, NUMBER]}),
)
# Compatible by Confluent's rules, refused by ours.
JSON_STRICTER = (
    # An older document may lack the property, and the new schema refuses it: a default is an annotation.
    (
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED",
        shape(a={**TEXT, "default": ""}),
        {**shape(a={**TEXT, "default": ""}), "required": ["a"]},
    ),
    (
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
        shape(False),
        {**shape(False, a={**TEXT, "default": ""}), "required": ["a"]},
    ),
    # What is under `not` has to be equal.
    ("NOT_TYPE_NARROWED", {"not": {"type": ["string", "null"]}}, {"not": TEXT}),
)
JSON_INCOMPATIBLE = (
    ("TYPE_CHANGED", TEXT, NUMBER),
    ("TYPE_NARROWED", NUMBER, {"type": "integer"}),
    ("MAX_LENGTH_ADDED", TEXT, {**TEXT, "maxLength": 5}),
    ("MAX_LENGTH_DECREASED", {**TEXT, "maxLength": 5}, {**TEXT, "maxLength": 4}),
    ("MIN_LENGTH_ADDED", TEXT, {**TEXT, "minLength": 5}),
    ("MIN_LENGTH_INCREASED", {**TEXT, "minLength": 5}, {**TEXT, "minLength": 6}),
    ("PATTERN_ADDED", TEXT, {**TEXT, "pattern": "a"}),
    ("PATTERN_CHANGED", {**TEXT, "pattern": "a"}, {**TEXT, "pattern": "b"}),
    ("MAXIMUM_ADDED", NUMBER, {**NUMBER, "maximum": 5}),
    ("MAXIMUM_DECREASED", {**NUMBER, "maximum": 5}, {**NUMBER, "maximum": 4}),
    ("MINIMUM_ADDED", NUMBER, {**NUMBER, "minimum": 5}),
    ("MINIMUM_INCREASED", {**NUMBER, "minimum": 5}, {**NUMBER, "minimum": 6}),
    ("MULTIPLE_OF_ADDED", NUMBER, {**NUMBER, "multipleOf": 2}),
    ("MULTIPLE_OF_EXPANDED", {**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 4}),
    ("MULTIPLE_OF_CHANGED", {**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 3}),
    ("REQUIRED_ATTRIBUTE_ADDED", shape(a=TEXT), {**shape(a=TEXT), "required": ["a"]}),
    ("DEPENDENCY_ARRAY_ADDED", shape(), {**shape(), "dependentRequired": {"a": ["b"]}}),
    (
        "DEPENDENCY_ARRAY_EXTENDED",
        {**shape(), "dependentRequired": {"a": ["b"]}},
        {**shape(), "dependentRequired": {"a": ["b", "c"]}},
    ),
    ("DEPENDENCY_SCHEMA_ADDED", shape(), {**shape(), "dependentSchemas": {"a": shape(b=TEXT)}}),
    ("MAX_PROPERTIES_ADDED", shape(), {**shape(), "maxProperties": 1}),
    ("MIN_PROPERTIES_INCREASED", {**shape(), "minProperties": 1}, {**shape(), "minProperties": 2}),
    ("ADDITIONAL_PROPERTIES_REMOVED", shape(), shape(False)),
    ("ADDITIONAL_PROPERTIES_NARROWED", shape(NUMBER), shape({"type": "integer"})),
    ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", shape(), shape(a=TEXT)),
    ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", shape(False, a=TEXT), shape(False)),
    (
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        shape(False),
        {**shape(False, a=TEXT), "required": ["a"]},
    ),
    (
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        shape(NUMBER),
        shape(NUMBER, a=TEXT),
    ),
    (
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        shape(NUMBER, a=TEXT),
        shape(NUMBER),
    ),
    ("MAX_ITEMS_ADDED", ARRAY, {**ARRAY, "maxItems": 1}),
    ("MIN_ITEMS_INCREASED", {**ARRAY, "minItems": 1}, {**ARRAY, "minItems": 2}),
    ("UNIQUE_ITEMS_ADDED", ARRAY, {**ARRAY, "uniqueItems": True}),
    ("ADDITIONAL_ITEMS_REMOVED", TUPLE, CLOSED_TUPLE),
    ("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", TUPLE, {**TUPLE, "prefixItems": PAIR}),
    ("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", {**CLOSED_TUPLE, "prefixItems": PAIR}, CLOSED_TUPLE),
    ("ENUM_ARRAY_NARROWED", {"enum": ["a", "b"]}, {"enum": ["a"]}),
    ("ENUM_ARRAY_CHANGED", {"enum": ["a", "b"]}, {"enum": ["a", "c"]}),
    ("PRODUCT_TYPE_EXTENDED", {"allOf": [TEXT]}, {"allOf": [TEXT, {"minLength": 1}]}),
    ("SUM_TYPE_NARROWED", {"anyOf": [TEXT, NUMBER]}, {"anyOf": [TEXT]}),
    ("NOT_TYPE_EXTENDED", {"not": TEXT}, {"not": {"type": ["string", "null"]}}),
)


def is_compatible_json(old: Any, new: Any) -> bool:
    return not JsonSchema(json.dumps(new)).faults_reading(JsonSchema(json.dumps(old)))


@pytest.mark.parametrize(("change", "old", "new"), JSON_COMPATIBLE)
def test_json_schema_compatible(change: str, old: Any, new: Any) -> None:
    assert is_compatible_json(old, new)


@pytest.mark.parametrize(("change", "old", "new"), [*JSON_STRICTER, *JSON_INCOMPATIBLE])
def test_json_schema_incompatible(change: str, old: Any, new: Any) -> None:
    assert not is_compatible_json(old, new)


M = "message M { int32 a = 1; }"
PROTOBUF = (
    ("MESSAGE_ADDED", M, f"{M} message N {{}}", True),
    ("MESSAGE_MOVED", f"{M} message N {{}}", f"message N {{}} {M}", True),
    ("MESSAGE_REMOVED", f"{M} message N {{}}", M, False),
    ("ENUM_ADDED", M, f"{M} enum E {{ X = 0; }}", True),
    ("ENUM_REMOVED", f"{M} enum E {{ X = 0; }}", M, True),
    ("ENUM_CONST_ADDED", f"{M} enum E {{ X = 0; }}", f"{M} enum E {{ X = 0; Y = 1; }}", True),
    ("ENUM_CONST_CHANGED", f"{M} enum E {{ X = 0; }}", f"{M} enum E {{ Z = 0; }}", True),
    ("ENUM_CONST_REMOVED", f"{M} enum E {{ X = 0; Y = 1; }}", f"{M} enum E {{ X = 0; }}", True),
    ("FIELD_ADDED", M, "message M { int32 a = 1; string b = 2; }", True),
    ("FIELD_REMOVED", "message M { int32 a = 1; string b = 2; }", M, True),
    ("FIELD_NAME_CHANGED", M, "message M { int32 b = 1; }", True),
    ("FIELD_SCALAR_KIND_CHANGED", M, "message M { string a = 1; }", False),
    (
        "FIELD_KIND_CHANGED",
        "message N {} message M { N a = 1; }",
        "message N {} message M { int32 a = 1; }",
        False,
    ),
    (
        "FIELD_NAMED_TYPE_CHANGED",
        "message N {} message O {} message M { N a = 1; }",
        "message N {} message O {} message M { O a = 1; }",
        False,
    ),
    (
        "FIELD_STRING_OR_BYTES_LABEL_CHANGED",
        "message M { string a = 1; }",
        "message M { repeated string a = 1; }",
        True,
    ),
    ("FIELD_NUMERIC_LABEL_CHANGED", M, "message M { repeated int32 a = 1; }", False),
    ("ONEOF_ADDED", M, "message M { int32 a = 1; oneof o { int32 b = 2; } }", True),
    ("ONEOF_REMOVED", "message M { int32 a = 1; oneof o { int32 b = 2; } }", M, True),
    (
        "ONEOF_FIELD_ADDED",
        "message M { oneof o { int32 a = 1; } }",
        "message M { oneof o { int32 a = 1; int32 b = 2; } }",
        True,
    ),
    (
        "ONEOF_FIELD_REMOVED",
        "message M { oneof o { int32 a = 1; int32 b = 2; } }",
        "message M { oneof o { int32 a = 1; } }",
        False,
    ),
    (
        "FIELD_MOVED_TO_EXISTING_ONEOF",
        "message M { int32 a = 1; oneof o { int32 b = 2; } }",
        "message M { oneof o { int32 a = 1; int32 b = 2; } }",
        False,
    ),
    (
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
        "message M { int32 a = 1; int32 b = 2; }",
        "message M { oneof o { int32 a = 1; int32 b = 2; } }",
        False,
    ),
    ("PACKAGE_CHANGED", f"package a; {M}", f"package b; {M}", False),
)


@pytest.mark.parametrize(("change", "old", "new", "is_compatible"), PROTOBUF)
def test_protobuf(change: str, old: str, new: str, is_compatible: bool) -> None:
    before, after = (ProtobufSchema(f'syntax = "proto3"; {one}') for one in (old, new))
    assert (not after.faults_reading(before)) is is_compatible
