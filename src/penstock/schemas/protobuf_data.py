"""Messages of Protobuf: whether bytes are one of the messages of a file."""

from typing import Any

from ..model import Buffer
from .checking import Fault

_INDEXES_MAX = 32
_VARINT_BYTES_MAX = 10


class _BadIndexes(Exception):
    """Why the payload does not say which message it is."""


def message_fault(payload: Buffer, file: Any, pool: Any) -> Fault | None:
    """Why a payload is none of the messages of a file, which is in a pool of descriptors; None if it is one.

    It begins with how many indexes follow, and the indexes: which message of the file, which one inside of that, and so
    on. Zero stands for the first message.
    """
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    found = bytes(payload)
    try:
        indexes, start = _indexes(found)
        name = _message_at(file, indexes)
    except _BadIndexes as error:
        return "", str(error)
    message = GetMessageClass(pool.FindMessageTypeByName(name))()
    try:
        message.ParseFromString(found[start:])
    except DecodeError as error:
        return "", f"it is no {name}: {error}"
    missing = message.FindInitializationErrors()
    if missing:
        path = str(missing[0]).replace("[", "/").replace("]", "").replace(".", "/")
        return f"/{path}", "the required field is missing"
    return None


def document_of(payload: Buffer, file: Any, pool: Any) -> Any:
    """A payload in which `message_fault` found no fault, as Protobuf's JSON has it, with the fields' own names."""
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message_factory import GetMessageClass

    found = bytes(payload)
    indexes, start = _indexes(found)
    kind = pool.FindMessageTypeByName(_message_at(file, indexes))
    message = GetMessageClass(kind).FromString(found[start:])
    return MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)


def _indexes(payload: bytes) -> tuple[list[int], int]:
    count, position = _varint(payload, 0)
    if not 0 <= count <= _INDEXES_MAX:
        raise _BadIndexes(f"{count} indexes of a message, the limit is {_INDEXES_MAX}")
    found = []
    for _ in range(count):
        index, position = _varint(payload, position)
        found.append(index)
    return found or [0], position


def _varint(payload: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift, byte in enumerate(payload[position : position + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position + shift + 1
    raise _BadIndexes("the bytes end before the indexes of the message do")


def _message_at(file: Any, indexes: list[int]) -> str:
    """The full name of a message, by its place in the file."""
    among, words = file.message_type, [file.package] if file.package else []
    for index in indexes:
        if not 0 <= index < len(among):
            raise _BadIndexes(f"the schema has no message {indexes}")
        words.append(among[index].name)
        among = among[index].nested_type
    return ".".join(words)
