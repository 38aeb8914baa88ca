"""Errors of the system, and what the errors of a server ask for."""

import socket

from ..errors import PenstockError


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
    if vars(error).get("reason") in {"WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING"}:
        return "it does not speak TLS; does its address begin with penstock://?"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
