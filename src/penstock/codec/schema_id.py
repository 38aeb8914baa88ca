"""Confluent's wire format: a zero byte, the id of a schema, and the content that it describes."""

from struct import Struct

from ..model import Buffer

_HEAD = Struct(">bI")
_MAGIC = 0
HEAD_BYTES = _HEAD.size
ID_MAX = (1 << 32) - 1


def with_schema_id(schema_id: int, content: bytes) -> bytes:
    return _HEAD.pack(_MAGIC, schema_id) + content


def has_schema_id(content: Buffer) -> bool:
    """Whether bytes begin as the format does; no JSON begins with a zero byte."""
    return content[:1] == b"\0"


def schema_id_of(content: Buffer) -> int | None:
    """The id behind the zero byte; None if the bytes end before it does."""
    return None if len(content) < HEAD_BYTES else int(_HEAD.unpack_from(content)[1])
