"""Whether a JSON Schema takes every document that an older one takes.

The rules are conservative: what they call covered is. Each constraint of the new schema has to be implied by a
constraint of the old one; constraints that are hard to compare (`not`, `if`, ...) have to be equal. So has a `oneOf`,
unless its branches exclude each other.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from .checking import Faults, PairCheck
from .json_disjoint import are_disjoint
from .json_document import DRAFT_2020, DRAFTS_BEFORE_2019, Place, json_text

_HOPS_MAX = 16
_VALUES_A_STEP, _NAMES_A_STEP, _BYTES_A_STEP = 16, 256, 1024
# Which keywords are only about values of one type, and whether a larger number is the stricter one.
_BOUNDS = {
    "minimum": ("number", True),
    "exclusiveMinimum": ("number", True),
    "maximum": ("number", False),
    "exclusiveMaximum": ("number", False),
    "minLength": ("string", True),
    "maxLength": ("string", False),
    "minItems": ("array", True),
    "maxItems": ("array", False),
    "minProperties": ("object", True),
    "maxProperties": ("object", False),
}
# What has to be equal, with the keywords that change its meaning.
_EQUAL = {
    "pattern": ("string", ()),
    "format": ("", ()),
    "uniqueItems": ("array", ()),
    "contains": ("array", ("minContains", "maxContains")),
    "propertyNames": ("object", ()),
    "not": ("", ()),
    "if": ("", ("then", "else")),
    "oneOf": ("", ()),
}
# What a property brings with it: names that are required, or a schema.
_DEPENDENCIES = ("dependentSchemas", "dependentRequired", "dependencies")
# In place of true, and of what stands beside a reference where that does not count.
_NOTHING: dict[str, Any] = {}
_UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")


class Constraint(NamedTuple):
    """One thing that a schema asks of a value. `about` is the type of values that it is about; "" for all."""

    keyword: str
    value: Any
    about: str = ""
    # The schema that asks.
    place: Place | None = None


def _has_reference(value: object) -> bool:
    return b'"$ref"' in json_text(value)


def covers(check: PairCheck, new: Place, old: Place, path: str) -> Faults:
    """Why the new schema may refuse what the old one takes."""
    if new.node is True or old.node is False:
        return []
    if new.node is False:
        return [f"{path or '/'}: nothing is allowed any more"]
    key = (id(new.node), id(old.node))
    return check.pair(key, partial(_cover, check, new, old, path))


def _cover(check: PairCheck, new: Place, old: Place, path: str) -> Faults:
    assert isinstance(new.node, dict), "true and false were dealt with"
    if any(keyword in new.node for keyword in _UNEVALUATED):
        is_equal = _is_equal(check, new.node, old.node) and not _has_reference(new.node)
        return [] if is_equal else [f"{path or '/'}: unevaluated parts cannot be compared"]
    return [
        fault for one in _constraints(new) for fault in _implied(check, old, one, path, frozenset())
    ]


def _constraints(place: Place) -> Iterator[Constraint]:
    """What a schema asks of a value, one by one."""
    node = place.node
    assert isinstance(node, dict), "true and false were dealt with"
    if isinstance(node.get("$ref"), str):
        yield Constraint("$ref", place.document.resolve(node["$ref"]))
    if "type" in node:
        yield Constraint("type", node["type"])
    if "const" in node:
        yield Constraint("enum", [node["const"]])
    if "enum" in node:
        yield Constraint("enum", node["enum"])
    for keyword, (about, _) in _BOUNDS.items():
        if keyword in node:
            yield Constraint(keyword, node[keyword], about)
    for keyword, (about, _) in _EQUAL.items():
        if keyword in node:
            yield Constraint(keyword, node[keyword], about, place)
    if "multipleOf" in node:
        yield Constraint("multipleOf", node["multipleOf"], "number")
    for keyword in _DEPENDENCIES:
        for name, brought in node.get(keyword, {}).items():
            yield Constraint(keyword, (name, brought), "object")
    for name in node.get("required", ()):
        yield Constraint("required", name, "object")
    for name, inner in node.get("properties", {}).items():
        yield Constraint("properties", (name, Place(place.document, inner)), "object")
    for pattern, inner in node.get("patternProperties", {}).items():
        yield Constraint("patternProperties", (pattern, Place(place.document, inner)), "object")
    if "additionalProperties" in node:
        inner = Place(place.document, node["additionalProperties"])
        yield Constraint("additionalProperties", inner, "object", place)
    if any(keyword in node for keyword in ("items", "prefixItems", "additionalItems")):
        yield Constraint("items", place, "array")
    for inner in node.get("allOf", ()):
        yield Constraint("allOf", Place(place.document, inner))
    if "anyOf" in node:
        yield Constraint("anyOf", [Place(place.document, one) for one in node["anyOf"]])


def _implied(
    check: PairCheck, old: Place, asked: Constraint, path: str, passed: frozenset[int]
) -> Faults:
    """Why the old schema does not imply a constraint: neither by itself, nor by what it consists of."""
    check.step()
    if old.node is False:
        return []
    if asked.keyword in {"$ref", "allOf"}:
        return covers(check, asked.value, old, path)
    node: dict[str, Any] = old.node if isinstance(old.node, dict) else _NOTHING
    ref = node.get("$ref")
    is_only_ref = isinstance(ref, str) and old.document.draft in DRAFTS_BEFORE_2019
    found = _own(check, Place(old.document, _NOTHING if is_only_ref else node), asked, path)
    if not found or id(node) in passed or len(passed) >= _HOPS_MAX:
        return found
    passed |= {id(node)}
    if isinstance(ref, str):
        behind = _implied(check, old.document.resolve(ref), asked, path, passed)
        if not behind or is_only_ref:
            return behind
    for one in node.get("allOf", ()):
        if not _implied(check, Place(old.document, one), asked, path, passed):
            return []
    for keyword in ("anyOf", "oneOf"):
        branches = node.get(keyword)
        if branches and not any(
            _implied(check, Place(old.document, one), asked, path, passed) for one in branches
        ):
            return []
    return found


def _own(check: PairCheck, old: Place, asked: Constraint, path: str) -> Faults:
    """Why the keywords of the old schema, without those that consist of schemas, do not imply a constraint."""
    node = old.node
    assert isinstance(node, dict), "false was dealt with, and true asks for nothing"
    # Lists of values and names may be as long as a schema.
    check.step(len(node.get("enum", ())) // _VALUES_A_STEP)
    keyword, types = asked.keyword, _types(node)
    where = f"{path}/{keyword}"
    if asked.about and types is not None and not _is_about(asked.about, types):
        return []
    match keyword:
        case "type":
            wanted = _type_names(asked.value)
            if types is None or not all(_is_in(one, wanted) for one in types):
                return [f"{where}: only {', '.join(sorted(wanted))} is allowed"]
        case "enum":
            check.step(len(asked.value) // _VALUES_A_STEP)
            values = {json_text(one) for one in asked.value}
            before = [node["const"]] if "const" in node else node.get("enum")
            if before is None or not all(json_text(one) in values for one in before):
                return [f"{where}: values are not allowed any more"]
        case "required":
            check.step(len(node.get("required", ())) // _NAMES_A_STEP)
            if asked.value not in node.get("required", ()):
                return [f"{where}: {asked.value} is required"]
        case "properties":
            name, inner = asked.value
            return _property_faults(check, old, name, inner, f"{where}/{name}")
        case "patternProperties":
            pattern, inner = asked.value
            return _pattern_faults(check, old, pattern, inner, f"{where}/{pattern}")
        case "additionalProperties":
            return _additional_faults(check, old, asked, where)
        case "items":
            return _item_faults(check, asked.value, old, path)
        case "anyOf":
            if all(covers(check, one, old, where) for one in asked.value):
                return [f"{where}: none of them takes all that was taken before"]
        case "oneOf":
            faults = _equality_faults(check, node, asked, where)
            return [] if faults and _is_union_of(check, asked, old, where) else faults
        case "multipleOf":
            before = node.get(keyword)
            if not _is_multiple(before, asked.value):
                known = "anything" if before is None else before
                return [f"{where}: it was a multiple of {known} before"]
        case _ if keyword in _DEPENDENCIES:
            name, brought = asked.value
            before = node.get(keyword, {}).get(name)
            check.step((len(brought) if isinstance(brought, list) else 0) // _NAMES_A_STEP)
            if not _is_brought(check, before, brought):
                return [f"{where}/{name}: it did not bring this with it before"]
        case _ if keyword in _BOUNDS:
            return _bound_faults(node, keyword, asked.value, where)
        case _:
            return _equality_faults(check, node, asked, where)
    return []


def _is_union_of(check: PairCheck, asked: Constraint, old: Place, path: str) -> bool:
    """Whether one branch takes all that was taken before, and no other branch takes any of it."""
    assert asked.place is not None, "constraints that have to be equal know their schema"
    branches = [Place(asked.place.document, node) for node in asked.value]
    is_covered = not all(covers(check, branch, old, path) for branch in branches)
    return is_covered and are_disjoint(check, branches)


def _types(node: dict[str, Any]) -> set[str] | None:
    """The types that values may have; None if nothing is said about it."""
    if "type" in node:
        return _type_names(node["type"])
    values = [node["const"]] if "const" in node else node.get("enum")
    return None if values is None else {_type_of(one) for one in values}


def _type_names(written: str | list[str]) -> set[str]:
    return {written} if isinstance(written, str) else set(written)


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _is_in(one: str, wanted: set[str]) -> bool:
    return one in wanted or (one == "integer" and "number" in wanted)


def _is_about(about: str, types: set[str]) -> bool:
    return about in types or (about == "number" and "integer" in types)


def _is_multiple(before: Any, divisor: Any) -> bool:
    """Whether multiples of the one are multiples of the other. Fractions have to be equal: they are not exact."""
    if before is None or before == divisor:
        return before is not None
    return isinstance(before, int) and isinstance(divisor, int) and before % divisor == 0


def _is_brought(check: PairCheck, before: Any, brought: Any) -> bool:
    """Whether a property brought all of this with it before. Schemas have to be equal."""
    if isinstance(before, list) and isinstance(brought, list):
        return {*brought} <= {*before}
    is_equal = before is not None and _is_equal(check, before, brought)
    return is_equal and not _has_reference(brought)


def _bound_faults(node: dict[str, Any], keyword: str, bound: Any, where: str) -> Faults:
    _, is_lower = _BOUNDS[keyword]
    before = node.get(keyword)
    exclusive = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}.get(keyword)
    stricter = node.get(exclusive) if exclusive else None
    for known in (before, stricter):
        if known is not None and (known >= bound if is_lower else known <= bound):
            return []
    # Lengths and numbers of things are never less than 0.
    if is_lower and bound <= 0 and keyword.startswith("min") and keyword != "minimum":
        return []
    return [f"{where}: {bound} is stricter than {'nothing' if before is None else before}"]


def _is_equal(check: PairCheck, one: object, other: object) -> bool:
    """Whether two parts of schemas are the same JSON. They may be as large as the schemas."""
    texts = json_text(one), json_text(other)
    check.step((len(texts[0]) + len(texts[1])) // _BYTES_A_STEP)
    return texts[0] == texts[1]


def _equality_faults(
    check: PairCheck, node: dict[str, Any], asked: Constraint, where: str
) -> Faults:
    assert asked.place is not None, "constraints that have to be equal know their schema"
    new = asked.place.node
    assert isinstance(new, dict), "true and false have no keywords"
    if asked.keyword == "uniqueItems" and asked.value is False:
        return []
    for keyword in (asked.keyword, *_EQUAL[asked.keyword][1]):
        is_there = keyword in new
        if is_there != (keyword in node):
            return [f"{where}: it was not so before"]
        if is_there and (
            not _is_equal(check, new[keyword], node[keyword]) or _has_reference(new[keyword])
        ):
            return [f"{where}: it was another one before, or refers to others"]
    return []


def _property_faults(check: PairCheck, old: Place, name: str, new: Place, path: str) -> Faults:
    assert isinstance(old.node, dict), "false was dealt with, and true asks for nothing"
    known = old.node.get("properties", {})
    if name in known:
        return covers(check, new, Place(old.document, known[name]), path)
    others = [*old.node.get("patternProperties", {}).values()]
    others.append(old.node.get("additionalProperties", True))
    return [fault for one in others for fault in covers(check, new, Place(old.document, one), path)]


def _pattern_faults(check: PairCheck, old: Place, pattern: str, new: Place, path: str) -> Faults:
    """Patterns are not matched with names: every property that was known counts as one that matches."""
    assert isinstance(old.node, dict), "false was dealt with, and true asks for nothing"
    patterns = old.node.get("patternProperties", {})
    if pattern in patterns:
        others = [patterns[pattern]]
    else:
        others = [*old.node.get("properties", {}).values(), *patterns.values()]
        others.append(old.node.get("additionalProperties", True))
    return [fault for one in others for fault in covers(check, new, Place(old.document, one), path)]


def _additional_faults(check: PairCheck, old: Place, asked: Constraint, path: str) -> Faults:
    """For all that the new schema does not name. What may match a pattern of it counts as not named."""
    assert asked.place is not None, "the constraint knows its schema"
    assert isinstance(asked.place.node, dict), "true and false have no keywords"
    assert isinstance(old.node, dict), "false was dealt with, and true asks for nothing"
    named = asked.place.node.get("properties", {})
    same = asked.place.node.get("patternProperties", {})
    others = [one for name, one in old.node.get("properties", {}).items() if name not in named]
    others += [
        one for name, one in old.node.get("patternProperties", {}).items() if name not in same
    ]
    others.append(old.node.get("additionalProperties", True))
    found = [
        fault
        for one in others
        for fault in covers(check, asked.value, Place(old.document, one), path)
    ]
    return found[:1]


def _item_faults(check: PairCheck, new: Place, old: Place, path: str) -> Faults:
    first, rest = _items(new)
    first_before, rest_before = _items(old)
    count = max(len(first), len(first_before))
    found: Faults = []
    for number in range(count):
        one = first[number] if number < len(first) else rest
        before = first_before[number] if number < len(first_before) else rest_before
        found += covers(check, one, before, f"{path}/items/{number}")
    return found + covers(check, rest, rest_before, f"{path}/items")


def _items(place: Place) -> tuple[list[Place], Place]:
    """The schemas of the first items, and that of all others, as the draft has it."""
    node, document = place.node, place.document
    assert isinstance(node, dict), "true and false have no items"
    items = node.get("items", True)
    if document.draft == DRAFT_2020:
        first, rest = node.get("prefixItems", []), items
    elif isinstance(items, list):
        first, rest = items, node.get("additionalItems", True)
    else:
        first, rest = [], items
    return [Place(document, one) for one in first], Place(document, rest)
