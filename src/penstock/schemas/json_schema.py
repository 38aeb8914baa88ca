"""JSON Schemas: read, and compared with older ones.

References lead into the schema itself or to registered schemas, and to nothing else.
"""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import msgspec

from ..errors import InvalidSchema
from ..model import Buffer
from .checking import Fault, Faults, PairCheck, read_json
from .json_compatibility import covers
from .json_cost import (
    FAULT_STEPS_MAX,
    PATTERN_BYTES_MAX,
    STEPS_MAX,
    Comparisons,
    require_cheap_patterns,
)
from .json_document import DRAFTS, Document, Node, Place, json_text

_BACKTRACKS_MAX = 10_000
# Messages of the library show it in place of what is in a document, which may be a secret.
_MASK = "the value"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.decode
# What the library puts before names that are no addresses.
_NO_BASE = "json-schema:///"


class JsonSchema:
    """A JSON Schema with the schemas that it refers to, by the names that it has for them."""

    def __init__(self, text: str, referenced: Sequence[tuple[str, str]] = ()) -> None:
        documents = {name: Document(read_json(one), {}) for name, one in referenced}
        for one in documents.values():
            one.others = documents
        self.root = Document(read_json(text), documents)
        self.canonical = msgspec.json.encode(self.root.node).decode()
        self.normalized = json_text(self.root.node).decode()
        for one in (self.root, *documents.values()):
            one.require_progress()
        self._comparisons = Comparisons(Place(self.root, self.root.node))

    @cached_property
    def validator(self) -> Any:
        """Compiled when it is first asked for: to compare schemas takes none. InvalidSchema: it is not valid, or too
        costly."""
        import jsonschema_rs

        require_cheap_patterns((self.root, *self.root.others.values()), _compiles)

        def retrieve(uri: str) -> Node:
            found = self.root.other(uri.removeprefix(_NO_BASE))
            if found is None:
                raise ValueError("it is not one of the schema's references")
            return found.node

        options = jsonschema_rs.FancyRegexOptions(
            backtrack_limit=_BACKTRACKS_MAX, size_limit=PATTERN_BYTES_MAX
        )
        try:
            return jsonschema_rs.validator_for(
                self.root.node, retriever=retrieve, pattern_options=options, mask=_MASK
            )
        except (ValueError, jsonschema_rs.ValidationError) as error:
            said = getattr(error, "message", str(error))
            raise InvalidSchema(str(said)) from None

    def is_valid(self, payload: Buffer) -> bool:
        if not self._comparisons.allows(payload):
            return False
        try:
            found: bool = self.validator.is_valid(_decode(payload))
        except (*_UNREADABLE, ValueError):
            return False
        return found

    def fault_in(self, payload: Buffer) -> Fault | None:
        if not self._comparisons.allows(payload):
            return "", f"to compare it with the schema may take more than {STEPS_MAX} steps"
        if not self._comparisons.allows_search(payload):
            reason = f"where would take more than {FAULT_STEPS_MAX} steps to find"
            return None if self.is_valid(payload) else ("", f"it does not fit; {reason}")
        try:
            fault = next(self.validator.iter_errors(_decode(payload)), None)
        except _UNREADABLE as error:
            return "", f"it is not JSON: {error}"
        except ValueError as error:
            return "", str(error)
        return None if fault is None else (_pointer(fault.instance_path), fault.message)

    def document_of(self, payload: Buffer) -> Any:
        return msgspec.Raw(bytes(payload))

    def faults_reading(self, writer: "JsonSchema") -> Faults:
        """Why this schema may refuse a document that the other one, which is older, takes."""
        if json_text(self.root.node) == json_text(writer.root.node) and self._refers_as(writer):
            return []
        if self.root.draft != writer.root.draft or self.root.draft not in DRAFTS:
            return ["/$schema: the two are of different drafts, or of one that is not compared"]
        check = PairCheck()
        new, old = Place(self.root, self.root.node), Place(writer.root, writer.root.node)
        return check.run(partial(covers, check, new, old, ""))

    def _refers_as(self, other: "JsonSchema") -> bool:
        mine, theirs = self.root.others, other.root.others
        return mine.keys() == theirs.keys() and all(
            json_text(mine[name].node) == json_text(theirs[name].node) for name in mine
        )


def undrafted(schema: object) -> Document | None:
    """The document of a JSON Schema that names no draft."""
    if isinstance(schema, JsonSchema) and not schema.root.names_draft:
        return schema.root
    return None


def _compiles(pattern: str, size: int) -> bool:
    """Whether a pattern takes no more than so many bytes when it is compiled."""
    import jsonschema_rs

    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS_MAX, size_limit=size)
    try:
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options)
    except (ValueError, jsonschema_rs.ValidationError):
        return False
    return True


def _pointer(path: Sequence[str | int]) -> str:
    words = (str(one).replace("~", "~0").replace("/", "~1") for one in path)
    return "".join(f"/{one}" for one in words)
