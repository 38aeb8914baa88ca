"""Features of a queue for plain Kafka clients: headers of a record that say its priority and its time to live."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ...api.units import Bare, duration_ns, priority_of
from ...codec import Columns
from ...errors import Refused
from ...model import Headers, Priority

PREFIX = "penstock-"
PRIORITY, TTL = PREFIX + "priority", PREFIX + "ttl"


def with_queue_headers(columns: Columns, now_ns: int) -> Columns:
    """The same records, with what such headers say in columns of their own, and without these headers.

    Refused: a header that begins so and is not known, or has no such value. Nothing of the batch is stored then.
    """
    headers = columns.headers
    if headers is None or not any(
        name.startswith(PREFIX) for pairs in headers for name, _ in pairs
    ):
        return columns
    for name in {name for pairs in headers for name, _ in pairs if name.startswith(PREFIX)}:
        if name not in (PRIORITY, TTL):
            raise Refused(f"the header {name[:60]} means nothing; known: {PRIORITY}, {TTL}")
    left: list[Headers] = [
        [(name, value) for name, value in pairs if not name.startswith(PREFIX)] for pairs in headers
    ]

    def ends_at(text: str) -> int:
        return now_ns + max(1, duration_ns(text, TTL, bare=Bare.MILLISECONDS))

    return replace(
        columns,
        headers=left if any(left) else None,
        priorities=_said(headers, PRIORITY, priority_of, int(Priority.NORMAL)),
        expires_at=_said(headers, TTL, ends_at, None),
    )


def _said(
    headers: Sequence[Headers], wanted: str, read: Callable[[str], Any], default: Any
) -> list[Any]:
    """What the header of this name says of each record; of several the last."""
    found = []
    for pairs in headers:
        value = next((value for name, value in reversed(pairs) if name == wanted), None)
        try:
            found.append(default if value is None else read(value.decode()))
        except UnicodeDecodeError:
            raise Refused(f"the header {wanted} is text") from None
    return found
