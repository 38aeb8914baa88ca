"""What the system says about a connection, in words for people."""

import socket


def reason_of(error: Exception) -> str:
    """One short line."""
    if isinstance(error, socket.gaierror):
        return f"the name is not known ({error.strerror})"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; does a broker run there?"
    if found := vars(error).get("verify_message"):  # Only TLS has it.
        return f"its certificate is not trusted: {found}"
    if vars(error).get("reason") == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS; does its address begin with http://?"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
