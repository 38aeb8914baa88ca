"""What the methods of both clients take by name."""

from collections.abc import Callable
from typing import TypedDict

from ..api.units import Duration
from .calls import Content, Moment
from .publish import HeadersIn


class PublishOptions(TypedDict, total=False):
    """`ttl`: not delivered after so long. `delay` or `deliver_at`: not delivered before.

    Of delayed messages with one `delay_key` only the last counts.
    """

    key: Content
    headers: HeadersIn
    partition: int | None
    priority: int | str | None
    ttl: Duration | None
    idempotency_key: Content
    delay: Duration | None
    deliver_at: Moment | None
    delay_key: Content


class ProducerOptions(TypedDict, total=False):
    """`linger_ms`: how long a message may wait for company. `buffer_bytes_max`: beyond it `send` waits.

    `delivery_timeout_s`: after so long a batch that could not be stored is given up. `on_delivery` is called for every
    batch with its size and, if it failed, the error.
    """

    acks: str
    linger_ms: float
    batch_messages_max: int
    batch_bytes_max: int
    buffer_bytes_max: int
    delivery_timeout_s: float
    is_idempotent: bool
    compression: str
    on_delivery: Callable[[int, Exception | None], None] | None
