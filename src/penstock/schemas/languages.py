"""The languages that schemas are written in, by the names that Confluent's clients have for them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ..errors import InvalidSchema
from ..model import Buffer
from .avro import AvroSchema
from .checking import Fault, Faults
from .json_schema import JsonSchema
from .protobuf import ProtobufSchema

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
Self = TypeVar("Self")


class Schema(Protocol):
    """A schema that was read, together with those that it refers to."""

    # As it was sent, without spaces that mean nothing; and with all that means nothing in one order.
    canonical: str
    normalized: str

    def faults_reading(self: Self, writer: Self) -> Faults:
        """Why this schema cannot read what was written with the other one, which is of the same language."""
        ...

    def is_valid(self, payload: Buffer) -> bool:
        """Whether bytes are a document of this schema."""
        ...

    def fault_in(self, payload: Buffer) -> Fault | None:
        """Where bytes are no document of this schema, and why; None if they are one."""
        ...

    def document_of(self, payload: Buffer) -> Any:
        """Bytes in which there is no fault, as what `msgspec.json` can write."""
        ...


LANGUAGES: Mapping[str, Callable[[str, Sequence[tuple[str, str]]], Schema]] = {
    JSON: JsonSchema,
    PROTOBUF: ProtobufSchema,
    AVRO: AvroSchema,
}


def read_schema(language: str, text: str, referenced: Sequence[tuple[str, str]]) -> Schema:
    """A schema, given the names and texts of all that it refers to, what others refer to before these.

    InvalidSchema says what is wrong with it.
    """
    if language not in LANGUAGES:
        raise InvalidSchema(f"{language[:40]!r} is not one of {', '.join(LANGUAGES)}")
    try:
        return LANGUAGES[language](text, referenced)
    except RecursionError:
        raise InvalidSchema("it is nested too deeply") from None
