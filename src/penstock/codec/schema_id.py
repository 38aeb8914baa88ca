"""Confluent's wire format: which schema a content has, before the content or in a header beside it.

A zero byte and the id of a schema in four bytes, or a byte of value one and its guid in sixteen. In a header of the
message the same bytes stand alone, with the indexes of a Protobuf message behind them.
"""

from collections.abc import Sequence
from struct import Struct

from ..model import Buffer, Headers

KEY_SCHEMA_ID, VALUE_SCHEMA_ID = "__key_schema_id", "__value_schema_id"
"""The headers that name the schema of a key and of a value."""

_HEAD = Struct(">bI")
_MAGIC, _GUID_MAGIC = b"\0", b"\1"
_ID_BYTES, _GUID_BYTES = _HEAD.size, 17


def with_schema_id(schema_id: int, content: bytes) -> bytes:
    return _HEAD.pack(0, schema_id) + content


def guid_header(guid: str) -> bytes:
    """What the header of a content says, from the guid of its schema."""
    return _GUID_MAGIC + bytes.fromhex(guid.replace("-", ""))


def has_schema_id(content: Buffer) -> bool:
    """Whether bytes begin as the format does; no JSON begins with a byte of value zero or one."""
    return content[:1] in (_MAGIC, _GUID_MAGIC)


def schema_id_of(content: Buffer) -> int | bytes | None:
    """The id that a content begins with, or the guid; None if the bytes end before it does."""
    if content[:1] == _GUID_MAGIC:
        return None if len(content) < _GUID_BYTES else bytes(content[1:_GUID_BYTES])
    return None if len(content) < _ID_BYTES else int(_HEAD.unpack_from(content)[1])


def behind_schema_id(content: Buffer) -> Buffer:
    """The content without the id or the guid that it begins with."""
    return content[_GUID_BYTES if content[:1] == _GUID_MAGIC else _ID_BYTES :]


def joined(content: Buffer, headers: Headers, name: str) -> Buffer:
    """A content with what a header says of its schema before it, as if it had come so; unchanged without the header."""
    for found, value in headers:
        if found == name and value is not None and has_schema_id(value):
            return value + bytes(content)
    return content


def joined_all(
    contents: Sequence[Buffer | None], headers: Sequence[Headers], name: str
) -> list[Buffer | None]:
    """Contents, each with what its own headers say of its schema."""
    return [
        content if content is None or not some else joined(content, some, name)
        for content, some in zip(contents, headers, strict=True)
    ]
