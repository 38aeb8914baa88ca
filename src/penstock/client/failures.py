"""Error answers of a server, and errors of the system, as errors of `penstock.errors`."""

import socket
from typing import Any

import msgspec

from .. import errors
from ..errors import BadAnswer, PenstockError, Refused, Unavailable, Unreachable
from .wire import Answer

_OWN_FIELDS = frozenset({"error", "message", "status"})
_TEXT_CHARACTERS_MAX = 2000
_DECODER = msgspec.json.Decoder(dict[str, Any])
_UNAVAILABLE = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
# Several errors share a code; these are the most likely ones.
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
            continue  # Only the client raises these.
        found.setdefault(kind.code, kind)
        waiting += kind.__subclasses__()
    return found | {kind.code: kind for kind in _CHOSEN}


ERROR_OF_CODE = _by_code()


def error_of(answer: Answer, address: str) -> PenstockError:
    """The error in an answer of status 300 and more."""
    try:
        fields = _DECODER.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _foreign(answer, address)
    if not isinstance(fields.get("error"), str):
        return _foreign(answer, address)
    return rebuilt({"status": answer.status, **fields})


def rebuilt(fields: dict[str, Any]) -> PenstockError:
    """An error from its fields, as an answer or one of its results has them."""
    status = fields.get("status")
    family = Unavailable if status in _UNAVAILABLE else Refused
    kind = ERROR_OF_CODE.get(str(fields.get("error")), family)
    text = str(fields.get("message") or fields.get("error"))[:_TEXT_CHARACTERS_MAX]
    # The constructors of errors write the message; here the server has written it.
    error = kind.__new__(kind)
    PenstockError.__init__(error, text)
    error.fields.update((name, one) for name, one in fields.items() if name not in _OWN_FIELDS)
    return error


def _foreign(answer: Answer, address: str) -> PenstockError:
    """The error for an answer of a proxy, or of a server that is no broker."""
    start = " ".join(bytes(answer.body[:100]).decode(errors="replace").split())
    return BadAnswer(address, f"status {answer.status} with {start!r}", is_sent=True)


def wait_asked_s(error: PenstockError) -> float:
    """How long the server asks to wait before the next try; 0 if it does not say."""
    wait_ms = error.fields.get("retry_after_ms")
    return wait_ms / 1000 if isinstance(wait_ms, int | float) and wait_ms > 0 else 0.0


def reason_of(error: Exception) -> str:
    """The reason of a failed connection, in one short line."""
    if isinstance(error, socket.gaierror):
        return f"the name is not known ({error.strerror})"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; does a broker run there?"
    if found := vars(error).get("verify_message"):  # Only errors of TLS have it.
        return f"its certificate is not trusted: {found}"
    if vars(error).get("reason") == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS; does its address begin with http://?"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
