"""TLS between nodes: version 1.3, and both sides show a certificate of the cluster's own authority."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import Forbidden, InvalidConfig
from ..cluster_settings import NODE_MAX, ClusterSection
from .certificates import node_name

_OTHERS = 0o007


def peer_contexts(cluster: ClusterSection) -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
    """What connections are accepted with, and what they are made with; None without certificates.

    InvalidConfig: a file is missing, other users can read the key, or the files do not belong together.
    """
    if not cluster.is_tls:
        return None
    for name in ("ca_file", "cert_file", "key_file"):
        path = Path(getattr(cluster, name))
        if not path.is_file():
            raise InvalidConfig(f"cluster.{name}", str(path), "a file that exists")
    if Path(cluster.key_file).stat().st_mode & _OTHERS:
        raise InvalidConfig("cluster.key_file", cluster.key_file, "closed to other users")
    accepting, dialling = (
        _context(cluster, protocol)
        for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    return accepting, dialling


def _context(cluster: ClusterSection, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Names are compared by `require_node`: a node is known by its number, and not by where it is.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cluster.ca_file)
        context.load_cert_chain(cluster.cert_file, cluster.key_file, lambda: "")
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        raise InvalidConfig(
            "cluster.cert_file",
            cluster.cert_file,
            f"a certificate with its key, and ca_file one of an authority ({reason})",
        ) from None
    return context


def require_node(certificate: Mapping[str, Any] | None, number: int, cluster: str) -> None:
    """Forbidden: a certificate is not exactly that of this node of the cluster."""
    expected = node_name(number, cluster)
    names = [value for _, value in (certificate or {}).get("subjectAltName", ())]
    if not 1 <= number <= NODE_MAX or names != [expected]:
        found = ", ".join(names) or "none"
        raise Forbidden(f"the certificate is of {found}, and not of {expected}"[:300])
