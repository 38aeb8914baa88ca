"""From a server's error answer back to the tree of errors."""

from typing import Any

import msgspec

from .. import errors
from ..errors import BadAnswer, PenstockError, Refused, Unavailable, Unreachable
from .wire import Answer

_OWN_FIELDS = frozenset({"error", "message", "status"})
_TEXT_CHARACTERS_MAX = 2000
_DECODER = msgspec.json.Decoder(dict[str, Any])
_UNAVAILABLE = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
# Several errors share a code; these are what a client most likely met.
_CHOSEN = (
    errors.InvalidConfig,
    errors.TooManyRequests,
    Refused,
    Unavailable,
    errors.NotFound,
)


def _by_code() -> dict[str, type[PenstockError]]:
    found: dict[str, type[PenstockError]] = {}
    waiting: list[type[PenstockError]] = [PenstockError]
    while waiting:
        kind = waiting.pop()
        if kind is Unreachable:
            continue  # What a client says of a server is not the server's to say.
        found.setdefault(kind.code, kind)
        waiting += kind.__subclasses__()
    return found | {kind.code: kind for kind in _CHOSEN}


ERROR_OF_CODE = _by_code()


def error_of(answer: Answer, address: str) -> PenstockError:
    """The error that an answer of status 400 and more stands for."""
    try:
        said = _DECODER.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _foreign(answer, address)
    if not isinstance(said.get("error"), str):
        return _foreign(answer, address)
    return rebuilt({"status": answer.status, **said})


def rebuilt(said: dict[str, Any]) -> PenstockError:
    """An error from its fields, as they stand in an answer or in one of several results."""
    status = said.get("status")
    family = Unavailable if status in _UNAVAILABLE else Refused
    kind = ERROR_OF_CODE.get(str(said.get("error")), family)
    text = str(said.get("message") or said.get("error"))[:_TEXT_CHARACTERS_MAX]
    # Their own constructors take facts and write the sentence; here the sentence is there already.
    error = kind.__new__(kind)
    PenstockError.__init__(error, text)
    error.fields.update((name, one) for name, one in said.items() if name not in _OWN_FIELDS)
    return error


def _foreign(answer: Answer, address: str) -> PenstockError:
    """Not one of our brokers: a proxy, or some other server."""
    start = " ".join(bytes(answer.body[:100]).decode(errors="replace").split())
    return BadAnswer(address, f"status {answer.status} with {start!r}", is_sent=True)


def wait_asked_s(error: PenstockError) -> float:
    """How long the server wants us to wait before the next try; 0 if it does not say."""
    wait_ms = error.fields.get("retry_after_ms")
    return wait_ms / 1000 if isinstance(wait_ms, int | float) and wait_ms > 0 else 0.0
