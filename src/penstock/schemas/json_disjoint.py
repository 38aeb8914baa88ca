"""Whether no value is taken by two JSON Schemas at once, as the branches of a union of events are told apart.

The rules are conservative: what they call disjoint is. Only words, true, false and null are compared as values: 1 and
1.0 are the same number, and documents may have them inside.
"""

from collections.abc import Iterable
from itertools import combinations
from typing import Any

from .checking import PairCheck
from .json_document import DRAFTS_BEFORE_2019, Place

_DEPTH_MAX = 16


def are_disjoint(check: PairCheck, places: Iterable[Place]) -> bool:
    """Whether each value is taken by one of these at most."""
    return all(_excludes(check, *pair, 0) for pair in combinations(places, 2))


def _excludes(check: PairCheck, first: Place, second: Place, depth: int) -> bool:
    check.step()
    first, second = _resolved(first), _resolved(second)
    if first.node is False or second.node is False:
        return True
    if first.node is True or second.node is True or depth >= _DEPTH_MAX:
        return False
    one_kinds, other_kinds = _kinds(first.node), _kinds(second.node)
    if one_kinds is not None and other_kinds is not None and not one_kinds & other_kinds:
        return True
    words, others = _words(check, first.node), _words(check, second.node)
    if words is not None and others is not None:
        return not words & others
    if {"object"} not in (one_kinds, other_kinds):
        return False
    return (
        _forbids(check, first.node, second.node)
        or _forbids(check, second.node, first.node)
        or _excludes_property(check, first, second, depth)
    )


def _excludes_property(check: PairCheck, first: Place, second: Place, depth: int) -> bool:
    """Whether one requires a property, and the two allow it no common value."""
    required = {*_required(first.node)} | {*_required(second.node)}
    check.step(len(required))
    return any(
        _excludes(check, _property(first, name), _property(second, name), depth + 1)
        for name in sorted(required)
    )


def _property(place: Place, name: str) -> Place:
    assert isinstance(place.node, dict), "true and false require nothing"
    return Place(place.document, place.node.get("properties", {}).get(name, True))


def _forbids(check: PairCheck, closed: Any, other: Any) -> bool:
    """Whether one requires a property that the other, which is closed, does not have."""
    if closed.get("additionalProperties") is not False or "patternProperties" in closed:
        return False
    check.step(len(_required(other)))
    return any(name not in closed.get("properties", {}) for name in _required(other))


def _required(node: Any) -> list[str]:
    required: list[str] = node.get("required", [])
    return required


def _resolved(place: Place) -> Place:
    """Behind references that stand alone, or beside which nothing counts."""
    for _ in range(_DEPTH_MAX):
        node = place.node
        if not isinstance(node, dict) or not isinstance(node.get("$ref"), str):
            break
        if len(node) > 1 and place.document.draft not in DRAFTS_BEFORE_2019:
            break
        place = place.document.resolve(node["$ref"])
    return place


def _kinds(node: Any) -> set[str] | None:
    """The types that values may have, integers as numbers; None if nothing is said."""
    if "type" not in node:
        return None
    written = node["type"]
    names = {written} if isinstance(written, str) else {*written}
    return {"number" if name == "integer" else name for name in names}


def _words(check: PairCheck, node: Any) -> set[Any] | None:
    """The only values, if all of them are words, true, false or null."""
    values = [node["const"]] if "const" in node else node.get("enum")
    if values is None:
        return None
    check.step(len(values))
    if not all(value is None or isinstance(value, bool | str) for value in values):
        return None
    return {(type(value), value) for value in values}
