"""Certificates: checked before they are used, and exchanged while connections go on."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

from ..errors import InvalidConfig
from .port_settings import TlsSection

_OTHERS = 0o007
# For TLS 1.2: forward secret and authenticated in one step. TLS 1.3 has no others.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


def server_context(tls: TlsSection) -> ssl.SSLContext:
    """What new connections are made with: no version and no suite that is known to be weak."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    load_certificate(context, tls)
    return context


def check_certificate(tls: TlsSection) -> None:
    """InvalidConfig if the two files are missing or do not belong together, if other users can read the key, or if the
    certificate is not valid now."""
    for name in ("cert_file", "key_file"):
        path = Path(getattr(tls, name))
        if not path.is_file():
            raise InvalidConfig(f"tls.{name}", str(path), "a file that exists")
    if Path(tls.key_file).stat().st_mode & _OTHERS:
        raise InvalidConfig("tls.key_file", tls.key_file, "closed to other users (chmod 640)")
    try:
        load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tls)
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        raise InvalidConfig(
            "tls.cert_file", tls.cert_file, f"a chain with its key ({reason})"
        ) from None
    now_s, certificate = datetime.now(UTC).timestamp(), _first_certificate(tls)
    if now_s < ssl.cert_time_to_seconds(certificate["notBefore"]):
        expected = f"a certificate that is valid already, not from {certificate['notBefore']} on"
        raise InvalidConfig("tls.cert_file", tls.cert_file, expected)
    if now_s >= ssl.cert_time_to_seconds(certificate["notAfter"]):
        expected = f"a certificate that has not expired, as it did at {certificate['notAfter']}"
        raise InvalidConfig("tls.cert_file", tls.cert_file, expected)


def load_certificate(context: ssl.SSLContext, tls: TlsSection) -> None:
    """New connections get this certificate; those that are open keep theirs."""

    def no_password() -> str:
        # Without this OpenSSL would ask on the terminal, and a server would hang there.
        return ""

    context.load_cert_chain(tls.cert_file, tls.key_file, no_password)


def expires_at_ns(tls: TlsSection) -> int:
    """When the first certificate of the chain expires, in nanoseconds since 1970."""
    return int(ssl.cert_time_to_seconds(_first_certificate(tls)["notAfter"]) * 1e9)


def _first_certificate(tls: TlsSection) -> dict[str, str]:
    # Nothing public reads a certificate from a file, and two dates are not worth a dependency.
    return ssl._ssl._test_decode_cert(tls.cert_file)  # type: ignore[attr-defined,no-any-return]  # Not in the stubs.
