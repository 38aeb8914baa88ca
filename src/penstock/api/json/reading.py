"""JSON and query fields into structs. What does not fit is a BadRequest that says where."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from ...errors import BadRequest

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
_UNKNOWN = re.compile("Object contains unknown field `(.*?)`")
_UNKNOWN_FIELDS_MAX = 20
_READ_AGAIN_BYTES_MAX = 1 << 20


def decode(content: bytes | bytearray, decoder: msgspec.json.Decoder[T]) -> T:
    """A struct from JSON. BadRequest says what is wrong and where."""
    try:
        return _decoded(content, decoder)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(str(error)) from None
    except RecursionError:
        raise BadRequest("the JSON is nested too deeply") from None


def decode_line(line: bytes | bytearray, decoder: msgspec.json.Decoder[T], number: int) -> T:
    """A struct from one line of NDJSON. BadRequest names the line by its number."""
    try:
        return decode(line, decoder)
    except BadRequest as error:
        raise BadRequest(f"line {number}: {error}", line=number) from None


def _decoded(content: bytes | bytearray, decoder: msgspec.json.Decoder[T]) -> T:
    """An unknown field that is null says nothing, and is left out: a client may not know either what it would mean."""
    for _ in range(_UNKNOWN_FIELDS_MAX):
        try:
            return decoder.decode(content)
        except msgspec.ValidationError as error:
            unknown = _UNKNOWN.match(str(error))
            # Reading it once more, with less speed, is for small requests only.
            if unknown is None or len(content) > _READ_AGAIN_BYTES_MAX:
                raise
            found = msgspec.json.decode(content)
            if not _drop_null(found, unknown[1]):
                raise
            content = msgspec.json.encode(found)
    return decoder.decode(content)


def _drop_null(found: Any, name: str) -> bool:
    """Remove a name wherever it stands for null; False if it does nowhere."""
    if isinstance(found, dict):
        is_here = name in found and found[name] is None
        if is_here:
            del found[name]
        return any([is_here, *(_drop_null(one, name) for one in found.values())])
    # Every item, not only up to the first that has it.
    return isinstance(found, list) and max([_drop_null(one, name) for one in found], default=False)


def read_fields(fields: Mapping[str, Any], kind: type[S]) -> S:
    """A struct from the fields of a query. BadRequest says what is wrong, and which fields there are."""
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN.match(str(error))
        if unknown is None:
            raise BadRequest(str(error)) from None
        known = ", ".join(one.encode_name for one in msgspec.structs.fields(kind))
        raise BadRequest(f"unknown field `{unknown[1]}`: there are {known or 'none'}") from None
