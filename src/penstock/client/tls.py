"""The TLS context of a client. Certificates are always checked."""

import ssl
from os import PathLike

from ..errors import Refused


def context(ca_file: str | PathLike[str] | None) -> ssl.SSLContext:
    """Trusts the system's certificates, or only those in a file."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise Refused(f"{ca_file}: {error.strerror or error}") from None
