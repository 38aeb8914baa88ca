"""Features of a queue for plain Kafka clients: headers of a record that say its priority, time to live and identity."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from ...api.units import Bare, duration_ns, priority_of
from ...codec import Columns
from ...errors import Refused
from ...model import Headers, Priority

PREFIX = "penstock-"
_PREFIX_BYTES = PREFIX.encode()
PRIORITY, TTL, IDEMPOTENCY_KEY = (PREFIX + one for one in ("priority", "ttl", "idempotency-key"))
_KNOWN = (PRIORITY, TTL, IDEMPOTENCY_KEY)


def has_queue_headers(names: Iterable[bytes]) -> bool:
    return any(name.startswith(_PREFIX_BYTES) for name in set(names))


def with_queue_headers(columns: Columns, now_ns: int) -> Columns:
    """Returns the records with what such headers say in columns of their own, and without these headers.

    Refused: a header that begins so and is not known, or has no such value. Nothing of the batch is stored then.
    """
    headers = columns.headers or ()
    for name in {name for pairs in headers for name, _ in pairs if name.startswith(PREFIX)}:
        if name not in _KNOWN:
            raise Refused(f"the header {name[:60]} means nothing; known: {', '.join(_KNOWN)}")
    left: list[Headers] = [
        [(name, value) for name, value in pairs if not name.startswith(PREFIX)] for pairs in headers
    ]
    keys = [_last(pairs, IDEMPOTENCY_KEY) or None for pairs in headers]

    def ends_at(text: str) -> int:
        return now_ns + max(1, duration_ns(text, TTL, bare=Bare.MILLISECONDS))

    return replace(
        columns,
        headers=left if any(left) else None,
        priorities=_said(headers, PRIORITY, priority_of, int(Priority.NORMAL)),
        expires_at=_said(headers, TTL, ends_at, None),
        idempotency_keys=keys if any(keys) else None,
    )


def _last(pairs: Headers, wanted: str) -> bytes | None:
    """Returns the value of the last header of this name."""
    return next((value for name, value in reversed(pairs) if name == wanted), None)


def _said(
    headers: Sequence[Headers], wanted: str, read: Callable[[str], Any], default: Any
) -> list[Any]:
    """Returns what the header of this name says of each record; of several the last."""
    found = []
    for pairs in headers:
        value = _last(pairs, wanted)
        try:
            found.append(default if value is None else read(value.decode()))
        except UnicodeDecodeError:
            raise Refused(f"the header {wanted} is text") from None
    return found
