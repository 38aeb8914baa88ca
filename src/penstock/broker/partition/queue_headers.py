"""Features of a queue for plain Kafka clients: headers of a record say its priority, time to live, delay and key."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from ...api.units import Bare, duration_ns, priority_of
from ...codec import Columns
from ...errors import Refused
from ...model import Headers, Priority

PREFIX = "penstock-"
# Headers of a dead letter that a client has read (`server/kafka/dead_letters.py`). Who sends it again may leave them.
DEAD_LETTER_PREFIX = PREFIX + "dlq-"
_PREFIX_BYTES = PREFIX.encode()
PRIORITY, TTL = PREFIX + "priority", PREFIX + "ttl"
DELAY, IDEMPOTENCY_KEY = PREFIX + "delay", PREFIX + "idempotency-key"
_TIME_NS_MAX = (1 << 63) - 1
_KNOWN = (PRIORITY, TTL, DELAY, IDEMPOTENCY_KEY)


def has_queue_headers(names: Iterable[bytes]) -> bool:
    return any(name.startswith(_PREFIX_BYTES) for name in set(names))


def with_queue_headers(columns: Columns, now_ns: int) -> Columns:
    """Returns the records with what such headers say in columns of their own, and without these headers.

    Refused: a header that begins so and is not known, or has no such value. Nothing of the batch is stored then.
    """
    headers = columns.headers or ()
    for name in {name for pairs in headers for name, _ in pairs if name.startswith(PREFIX)}:
        if name not in _KNOWN and not name.startswith(DEAD_LETTER_PREFIX):
            raise Refused(f"the header {name[:60]} means nothing; known: {', '.join(_KNOWN)}")
    left: list[Headers] = [
        [(name, value) for name, value in pairs if not name.startswith(PREFIX)] for pairs in headers
    ]

    # What does not wait is due now. The time to live begins when a message is due.
    due_at = _said(headers, DELAY, lambda text: _after(now_ns, text, DELAY), now_ns)
    lives = _said(headers, TTL, lambda text: max(1, _after(0, text, TTL)), None)
    expires_at = [
        None if ns is None else min(due_ns + ns, _TIME_NS_MAX)
        for due_ns, ns in zip(due_at, lives, strict=True)
    ]
    keys = _values(headers, IDEMPOTENCY_KEY)
    return replace(
        columns,
        headers=left if any(left) else None,
        priorities=_said(headers, PRIORITY, priority_of, int(Priority.NORMAL)),
        expires_at=expires_at,
        idempotency_keys=keys if any(keys) else None,
        due_at=due_at if max(due_at) > now_ns else None,
    )


def _after(now_ns: int, text: str, name: str) -> int:
    """A time after another by a duration in text. Refused: it is none."""
    return min(now_ns + duration_ns(text, name, bare=Bare.MILLISECONDS), _TIME_NS_MAX)


def _values(headers: Sequence[Headers], wanted: str) -> list[bytes | None]:
    """The header of this name of each record; of several the last."""
    return [
        next((value for name, value in reversed(pairs) if name == wanted), None)
        for pairs in headers
    ]


def _said(
    headers: Sequence[Headers], wanted: str, read: Callable[[str], Any], default: Any
) -> list[Any]:
    """What the text of such a header says of each record."""
    try:
        return [
            default if value is None else read(value.decode()) for value in _values(headers, wanted)
        ]
    except UnicodeDecodeError:
        raise Refused(f"the header {wanted} is text") from None
