"""An error as it travels, and the error that a client raises for it."""

import math
from typing import Any

import msgspec

from .. import errors
from ..errors import PenstockError, Refused, Unavailable

_TEXT_CHARACTERS_MAX = 2000

# Several errors share a code; these are the most likely ones.
_LIKELY = (
    errors.InvalidConfig,
    errors.TooManyRequests,
    Refused,
    Unavailable,
    errors.NotFound,
    errors.Internal,
)


class ErrorReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as it travels. `retry_after_ms` is how long the client should wait before it tries again."""

    code: str
    message: str
    is_retriable: bool = False
    retry_after_ms: int | None = None
    fields: dict[str, Any] = {}


def _by_code() -> dict[str, type[PenstockError]]:
    found: dict[str, type[PenstockError]] = {}
    waiting: list[type[PenstockError]] = [PenstockError]
    while waiting:
        kind = waiting.pop()
        if kind is errors.Unreachable:
            continue  # Only a client raises these.
        found.setdefault(kind.code, kind)
        waiting += kind.__subclasses__()
    return found | {kind.code: kind for kind in _LIKELY}


_ERROR_OF_CODE = _by_code()


def error_reply(error: PenstockError) -> ErrorReply:
    """An error as it travels: texts of its fields stay short."""
    fields = {name: _plain(value) for name, value in error.fields.items()}
    retry_after = fields.pop("retry_after_ms", None)
    return ErrorReply(
        error.code,
        str(error)[:_TEXT_CHARACTERS_MAX],
        error.retriable,
        retry_after if isinstance(retry_after, int) else None,
        fields,
    )


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else str(value)[:200]
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value[:1000]]
    return str(value)[:200]


def rebuilt_error(reply: ErrorReply) -> PenstockError:
    """The error that a server sent, of the class that its code names."""
    family = Unavailable if reply.is_retriable else Refused
    kind = _ERROR_OF_CODE.get(reply.code, family)
    # The constructors of errors write the message; here the server has written it.
    error = kind.__new__(kind)
    PenstockError.__init__(error, reply.message[:_TEXT_CHARACTERS_MAX])
    error.fields.update(reply.fields)
    if reply.retry_after_ms is not None:
        error.fields["retry_after_ms"] = reply.retry_after_ms
    return error
