"""Makes the certificates of a cluster: an authority of its own, and one certificate for each node.

Needs the package `cryptography` (the extra `cluster`). Serving needs it not.
"""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AlreadyExists, Unavailable
from ..cluster_settings import NODE_MAX
from ..setting_keys import require

if TYPE_CHECKING:
    from collections.abc import Sequence

CA_FILE, CA_KEY_FILE = "ca.pem", "ca-key.pem"
_OWNER_ONLY = 0o600
_READABLE = 0o644
# A clock of the other machine may be behind.
_EARLIER = timedelta(hours=1)


def node_name(number: int, cluster: str) -> str:
    """The name that the certificate of a node carries."""
    return f"node-{number}.{cluster}"


def make_certificates(
    directory: Path, cluster: str, nodes: "Sequence[int]", days: int
) -> list[Path]:
    """Writes an authority and a certificate with its key for each node; returns the files.

    AlreadyExists: one of them is there, and nothing was written. Unavailable: `cryptography` is not installed.
    """
    for number in nodes:
        require("node", number, 1 <= number <= NODE_MAX, f"in 1..{NODE_MAX}")
    names = [CA_FILE, CA_KEY_FILE]
    for number in nodes:
        names += [f"node-{number}.pem", f"node-{number}-key.pem"]
    paths = [directory / one for one in names]
    for path in paths:
        if path.exists():
            raise AlreadyExists("file", str(path))
    authority = _Authority(cluster, days)
    contents = [authority.certificate, authority.key]
    for number in nodes:
        contents += authority.issue(node_name(number, cluster))
    directory.mkdir(parents=True, exist_ok=True)
    for path, content in zip(paths, contents, strict=True):
        mode = _OWNER_ONLY if path.name.endswith("-key.pem") else _READABLE
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    return paths


class _Authority:
    """Issues certificates of a cluster, for as long as the object lives."""

    def __init__(self, cluster: str, days: int) -> None:
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives import hashes, serialization
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError:
            raise Unavailable(
                "certificates need the package cryptography: pip install 'penstock[cluster]'"
            ) from None
        self._x509, self._hashes, self._forms, self._ec = x509, hashes, serialization, ec
        self._days, self._key = days, ec.generate_private_key(ec.SECP256R1())
        self._name = self._named(f"authority of {cluster}")
        public = self._key.public_key()
        made = (
            self._begin(self._name, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(_usage(x509, is_authority=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate: bytes = made.public_bytes(serialization.Encoding.PEM)
        self.key = self._pem(self._key)

    def issue(self, name: str) -> tuple[bytes, bytes]:
        """The certificate of a node, for both ends of a connection, and its key."""
        x509, key = self._x509, self._ec.generate_private_key(self._ec.SECP256R1())
        both = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = (
            self._begin(self._named(name), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(_usage(x509, is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
            .add_extension(signer, critical=False)
            .sign(self._key, self._hashes.SHA256())
        )
        return made.public_bytes(self._forms.Encoding.PEM), self._pem(key)

    def _named(self, name: str) -> Any:
        x509 = self._x509
        return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])

    def _begin(self, name: Any, public: Any) -> Any:
        now = datetime.now(UTC)
        return (
            self._x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(self._x509.random_serial_number())
            .not_valid_before(now - _EARLIER)
            .not_valid_after(now + timedelta(days=self._days))
        )

    def _pem(self, key: Any) -> bytes:
        forms = self._forms
        content: bytes = key.private_bytes(
            forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()
        )
        return content


def _usage(x509: Any, *, is_authority: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
