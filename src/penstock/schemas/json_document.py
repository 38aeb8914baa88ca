"""Documents of JSON Schema: what schemas are in them, and where their references lead."""

from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin

import msgspec

from ..errors import InvalidSchema

Node = dict[str, Any] | bool
# What a schema is that names none, as with Confluent's registry.
DRAFT_USUAL = "http://json-schema.org/draft-07/schema"
# What it was before: the schema's record names no draft.
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
# Without `$ref` beside other keywords.
DRAFTS_BEFORE_2019 = frozenset(
    {"http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-06/schema"}
)
DRAFTS = DRAFTS_BEFORE_2019 | {
    DRAFT_2020,
    "https://json-schema.org/draft/2019-09/schema",
}
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS_OF_SCHEMAS = (
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
)
# They look at the value that the schema around them looks at.
_IN_PLACE = ("not", "if", "then", "else")
_SCHEMAS = (
    *_IN_PLACE,
    "additionalProperties",
    "additionalItems",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_UNSUPPORTED = ("$dynamicRef", "$recursiveRef")


class Place(NamedTuple):
    """A schema, and the document that it is in."""

    document: "Document"
    node: Node


class Document:
    """One document: where its references lead."""

    def __init__(self, node: object, others: "dict[str, Document]") -> None:
        if not isinstance(node, dict | bool):
            raise InvalidSchema("a JSON Schema is an object, true or false")
        self.node: Node = node
        self.others = others
        self._joined: dict[str, Document] = {}
        self._anchors: dict[str, Node] = {}
        root = node if isinstance(node, dict) else {}
        self.base = str(root.get("$id", "")).partition("#")[0]
        self.names_draft = "$schema" in root
        self.draft = str(root.get("$schema", DRAFT_2020)).removesuffix("#")
        for one in _walk(node):
            self._index(one)

    def read_as(self, draft: str) -> None:
        """Have a draft, if the document names none."""
        if draft and not self.names_draft:
            self.draft = draft
            if isinstance(self.node, dict):
                self.node["$schema"] = draft

    def _index(self, node: dict[str, Any]) -> None:
        for keyword in _UNSUPPORTED:
            if keyword in node:
                raise InvalidSchema(f"{keyword} is not supported")
        own_id = node.get("$id")
        if node is not self.node and isinstance(own_id, str):
            if not own_id.startswith("#"):
                raise InvalidSchema(f"$id inside of a schema is not supported: {own_id[:200]}")
            self._anchors[own_id[1:]] = node
        if isinstance(node.get("$anchor"), str):
            self._anchors[node["$anchor"]] = node

    def other(self, uri: str) -> "Document | None":
        """A referenced document by its name, or by its name below the address of this one."""
        found = self.others.get(uri)
        if found is None and self.base:
            if not self._joined:
                self._joined = {urljoin(self.base, name): one for name, one in self.others.items()}
            found = self._joined.get(urljoin(self.base, uri))
        return found

    def resolve(self, ref: str) -> Place:
        """Where a `$ref` leads. InvalidSchema if that is nowhere, or outside of what is registered."""
        uri, _, fragment = ref.partition("#")
        is_own = not uri or urljoin(self.base, uri) == self.base
        document = self if is_own else self.other(uri)
        found = None if document is None else document.at(unquote(fragment))
        if document is None or found is None:
            raise InvalidSchema(
                f"$ref {ref[:200]!r} leads nowhere: it may lead into the schema, or to one of its references"
            )
        return Place(document, found)

    def at(self, fragment: str) -> Node | None:
        """The schema at a pointer or an anchor; None if there is none."""
        if fragment and not fragment.startswith("/"):
            return self._anchors.get(fragment)
        found: Any = self.node
        for word in fragment.split("/")[1:]:
            key = word.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = found.get(key)
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                return None
        return found if isinstance(found, dict | bool) else None

    def require_progress(self) -> None:
        """InvalidSchema for a schema that leads back to itself without a step into the value: it would never end."""
        done: set[int] = set()
        for start in _walk(self.node):
            # Depth first, by hand: what is on the way is marked until everything behind it was seen.
            on_way: set[int] = set()
            waiting: list[tuple[Place, bool]] = [(Place(self, start), False)]
            while waiting:
                place, is_over = waiting.pop()
                key = id(place.node)
                if is_over:
                    on_way.discard(key)
                    done.add(key)
                elif key in on_way:
                    raise InvalidSchema("a schema refers to itself without an end")
                elif key not in done and isinstance(place.node, dict):
                    on_way.add(key)
                    waiting.append((place, True))
                    waiting += [(one, False) for one in in_place_of(place)]


def _walk(node: Node) -> Iterator[dict[str, Any]]:
    """All schemas that are objects, in a document, each once."""
    waiting: list[object] = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += _children(one)


def _children(node: dict[str, Any]) -> Iterator[object]:
    for keyword in _SCHEMAS:
        if keyword in node:
            yield node[keyword]
    for keyword in _LISTS_OF_SCHEMAS:
        if isinstance(node.get(keyword), list):
            yield from node[keyword]
    for keyword in _MAPS_OF_SCHEMAS:
        if isinstance(node.get(keyword), dict):
            yield from node[keyword].values()
    items = node.get("items")
    yield from items if isinstance(items, list) else [items]


def in_place_of(place: Place) -> Iterator[Place]:
    """What a schema asks of the value that it looks at itself."""
    node, document = place.node, place.document
    assert isinstance(node, dict), "true and false ask nothing of others"
    if isinstance(node.get("$ref"), str):
        yield document.resolve(node["$ref"])
    for keyword in _IN_PLACE:
        if isinstance(node.get(keyword), dict):
            yield Place(document, node[keyword])
    for keyword in ("allOf", "anyOf", "oneOf"):
        if isinstance(node.get(keyword), list):
            yield from (Place(document, one) for one in node[keyword])
    for keyword in ("dependentSchemas", "dependencies"):
        if isinstance(node.get(keyword), dict):
            inside = node[keyword].values()
            yield from (Place(document, one) for one in inside if isinstance(one, dict))


def json_text(value: object) -> bytes:
    """Equal for equal JSON. 1 and 1.0 differ, and 1 and true do."""
    return msgspec.json.encode(value, order="sorted")
