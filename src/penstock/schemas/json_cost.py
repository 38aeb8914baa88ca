"""What a JSON Schema costs before it is paid: to compile its patterns, and to compare a document with it.

References make a schema of a few lines as large as one likes: ten that each refer to the next one twice are a thousand
schemas. A document is compared with all of them, and so is each value in it. Here the comparisons are counted from the
schema alone, each node of it once.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import InvalidSchema
from ..model import Buffer
from .json_document import Document, Place, in_place_of

PATTERN_CHARACTERS_MAX = 4096
PATTERNS_CHARACTERS_MAX = 32 << 10
PATTERNS_MAX = 1000
# Each stands for hundreds of ranges of characters.
UNICODE_CLASSES_MAX = 100
# Of all patterns of a schema; compiling a MiB takes some 15 ms.
COMPILED_BYTES_MAX = 32 << 20
PATTERN_BYTES_MAX = 1 << 20
# The first size that is tried, and how much larger each next one is: every try compiles the pattern up to there.
_TRIED_BYTES, _TRIED_TIMES = 16 << 10, 4
COMPARISONS_MAX = 100_000
"""Of one value, in a schema that may be registered."""
STEPS_MAX = 20_000_000
"""Of one message: comparisons of all its values."""
FAULT_STEPS_MAX = 1_000_000
"""Of one message, while the library looks for the fault in it: it does not remember what it has compared."""
# Deeper documents are taken for endless.
_DEPTH_MAX = 100
_ENDLESS = 1 << 40
# Names and values that are compared like one schema.
_WORDS_A_STEP = 16


def require_cheap_patterns(documents: Iterable[Document], compiles: Any) -> None:
    """InvalidSchema, unless all patterns of a schema together are cheap to compile.

    `compiles` says of a pattern and a number of bytes whether it takes no more than those. What does not compile at all
    counts as little: whoever compiles the schema says why.
    """
    patterns = {pattern for document in documents for pattern in _patterns(document.node)}
    if len(patterns) > PATTERNS_MAX:
        raise InvalidSchema(f"it has {len(patterns)} patterns, the limit is {PATTERNS_MAX}")
    longest = max(map(len, patterns), default=0)
    if longest > PATTERN_CHARACTERS_MAX:
        raise InvalidSchema(
            f"a pattern has {longest} characters, the limit is {PATTERN_CHARACTERS_MAX}"
        )
    total = sum(map(len, patterns))
    if total > PATTERNS_CHARACTERS_MAX:
        raise InvalidSchema(
            f"its patterns have {total} characters, the limit is {PATTERNS_CHARACTERS_MAX}"
        )
    classes = sum(pattern.count(r"\p") + pattern.count(r"\P") for pattern in patterns)
    if classes > UNICODE_CLASSES_MAX:
        raise InvalidSchema(
            rf"its patterns have {classes} classes of Unicode (\p), the limit is {UNICODE_CLASSES_MAX}"
        )
    compiled = 0
    for pattern in patterns:
        size = _TRIED_BYTES
        while size < PATTERN_BYTES_MAX and not compiles(pattern, size):
            size *= _TRIED_TIMES
        compiled += size
        if compiled > COMPILED_BYTES_MAX:
            raise InvalidSchema(
                f"its patterns take more than {COMPILED_BYTES_MAX >> 20} MiB to compile:"
                " repeat less, or classes of fewer characters"
            )


def _patterns(root: object) -> Iterator[str]:
    """Every text that may be a pattern, wherever it stands: a reference may lead anywhere."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if isinstance(node.get("pattern"), str):
                yield node["pattern"]
            if isinstance(node.get("patternProperties"), dict):
                yield from node["patternProperties"]
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


class _Node:
    """A schema with those that it brings along: for the same value, and for the values in that."""

    __slots__ = ("always", "choices", "in_place", "own")

    def __init__(self, place: Place) -> None:
        node = place.node if isinstance(place.node, dict) else {}
        words = len(node.get("enum", ())) + len(node.get("required", ()))
        self.own = 1 + words // _WORDS_A_STEP
        self.in_place = [*in_place_of(place)] if node else []
        # A value in an object is compared with one of the choices and with all that is always; one in an array alike.
        properties = _places(place.document, node.get("properties"))
        patterns = _places(place.document, node.get("patternProperties"))
        names = _of(place, "propertyNames")
        others = _of(place, "additionalProperties", "unevaluatedProperties")
        prefix = _places(place.document, node.get("prefixItems"))
        items = node.get("items")
        first = _places(place.document, items) if isinstance(items, list) else []
        rest = _of(place, "additionalItems", "unevaluatedItems")
        if not isinstance(items, list):
            rest += _of(place, "items")
        self.choices = [[[one] for one in properties] + [others], [[one] for one in prefix + first]]
        self.always = [patterns + names, rest + _of(place, "contains")]

    def places(self) -> Iterator[Place]:
        """All schemas that it brings along."""
        yield from self.in_place
        for choices, always in zip(self.choices, self.always, strict=True):
            yield from always
            for choice in choices:
                yield from choice


def _places(document: Document, nodes: Any) -> list[Place]:
    listed = [*nodes.values()] if isinstance(nodes, dict) else nodes
    if not isinstance(listed, list):
        return []
    return [Place(document, node) for node in listed if isinstance(node, dict)]


def _of(place: Place, *keywords: str) -> list[Place]:
    node = place.node if isinstance(place.node, dict) else {}
    return _places(place.document, [node[keyword] for keyword in keywords if keyword in node])


class Comparisons:
    """How often a value may be compared with something, counted without comparing."""

    def __init__(self, root: Place) -> None:
        self._root = id(root.node)
        self._nodes: dict[int, _Node] = {}
        # Nodes in an order in which each comes behind what it brings along, but for what leads back.
        self._order: list[int] = []
        self._returns: set[int] = set()
        self._walk(root)
        once = self._once()
        self.of_value = once[self._root]
        # What leads back is compared once with each value: the library remembers that much.
        self._remembered = self.of_value + sum(once[key] for key in self._returns)
        self._in_place = self._in_place_order()
        self._levels: list[dict[int, int]] = []
        if self.of_value > COMPARISONS_MAX:
            raise InvalidSchema(
                f"a value would be compared more than {COMPARISONS_MAX} times: its references multiply each other"
            )

    def _walk(self, root: Place) -> None:
        """Look at each schema once, depth first."""
        done: set[int] = set()
        waiting: list[tuple[Place, bool]] = [(root, False)]
        while waiting:
            place, is_over = waiting.pop()
            key = id(place.node)
            if is_over:
                done.add(key)
                self._order.append(key)
            elif key in self._nodes:
                if key not in done:
                    self._returns.add(key)
            else:
                node = self._nodes[key] = _Node(place)
                waiting.append((place, True))
                waiting += [(inner, False) for inner in node.places()]

    def _once(self) -> dict[int, int]:
        """Comparisons on the way from a value down to one in it, by schema; what leads back counts once."""
        known: dict[int, int] = {}
        for key in self._order:
            known[key] = self._sum(self._nodes[key], known, known)
        return known

    def _in_place_order(self) -> list[int]:
        """All nodes, each behind those that look at the same value: these never lead back."""
        order: list[int] = []
        seen: set[int] = set()
        for start in self._order:
            waiting = [(start, False)]
            while waiting:
                key, is_over = waiting.pop()
                if is_over:
                    order.append(key)
                elif key not in seen:
                    seen.add(key)
                    waiting.append((key, True))
                    waiting += [(id(one.node), False) for one in self._nodes[key].in_place]
        return order

    def _sum(self, node: _Node, same: dict[int, int], below: dict[int, int]) -> int:
        """Comparisons of a value with a schema, given those of the same value and of one in it with others."""
        deepest = 0
        for choices, always in zip(node.choices, node.always, strict=True):
            chosen = max(
                (sum(below.get(id(one.node), 1) for one in some) for some in choices), default=0
            )
            deepest = max(deepest, chosen + sum(below.get(id(one.node), 1) for one in always))
        total = node.own + sum(same.get(id(one.node), 1) for one in node.in_place) + deepest
        return min(total, _ENDLESS)

    def to_depth(self, depth: int) -> int:
        """Comparisons on the way down a document nested so deep, if nothing of them is remembered."""
        if not self._returns:
            return self.of_value
        if depth > _DEPTH_MAX or len(self._nodes) * depth > COMPARISONS_MAX * 10:
            return _ENDLESS
        while len(self._levels) <= depth:
            below = self._levels[-1] if self._levels else dict.fromkeys(self._nodes, 0)
            level: dict[int, int] = {}
            for key in self._in_place:
                level[key] = self._sum(self._nodes[key], level, below)
            self._levels.append(level)
            if level[self._root] >= _ENDLESS:
                return _ENDLESS
        return self._levels[depth][self._root]

    def allows(self, payload: Buffer) -> bool:
        """Whether a document can be compared within the steps of one message."""
        if len(payload) * self._remembered <= STEPS_MAX:
            return True
        values = values_in(payload)
        fewest = min(self._remembered, self.to_depth(brackets_in(payload)))
        return values * fewest <= STEPS_MAX

    def allows_search(self, payload: Buffer) -> bool:
        """Whether the fault in a document can be looked for."""
        return values_in(payload) * self.to_depth(brackets_in(payload)) <= FAULT_STEPS_MAX


def values_in(payload: Buffer) -> int:
    """At least as many as there are values in a document."""
    return bytes(payload).count(b",") + brackets_in(payload) + 1


def brackets_in(payload: Buffer) -> int:
    """At least as many as a document is deep."""
    content = bytes(payload)
    return content.count(b"{") + content.count(b"[")
