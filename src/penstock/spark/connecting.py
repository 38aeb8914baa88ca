"""A client of the broker, for the driver or for one task."""

from pathlib import Path

from ..client import Client, ClientSettings, RetryPolicy
from ..errors import Refused
from .options import SourceOptions

_BACKOFF_MS = 200
_BACKOFF_MS_MAX = 5000
_KEY_BYTES_MAX = 4096


def connect(options: SourceOptions) -> Client:
    """Whoever calls closes it."""
    policy = RetryPolicy(
        retries=options.retries, backoff_ms=_BACKOFF_MS, backoff_ms_max=_BACKOFF_MS_MAX
    )
    settings = ClientSettings(retry=policy, ca_file=options.ca_file)
    return Client(options.url, key=_key(options.api_key_file), settings=settings)


def _key(file: str | None) -> str | None:
    """Read where it is used: the key itself never travels through Spark."""
    if file is None:
        return None
    try:
        with Path(file).open(encoding="utf-8") as opened:
            return opened.read(_KEY_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"apiKeyFile {file}: {getattr(error, 'strerror', None) or error}") from None
