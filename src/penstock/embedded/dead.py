"""Dead letters as users of a queue see them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..broker.letters import DeadLetter, user_view
from ..broker.redrive import ALL, Order, Selection, Target
from ..model import Headers


class DeadMessage(NamedTuple):
    """A message that was given up, as it was put, and why.

    `reason` is MAX_RETRIES_EXCEEDED, REJECTED or TTL_EXPIRED, `error` what the consumer said last. `notes` has
    the same facts under the names `dlq.original_msg_id`, `dlq.retry_count`, `dlq.failure_reason`, `dlq.last_failure`.
    """

    id: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    reason: str
    error: str
    attempts: int
    notes: Mapping[str, Any]
    letter: DeadLetter


class Requeued(NamedTuple):
    """How many are back in the queue, and how many could not go."""

    requeued: int
    failed: int


def dead_message(letter: DeadLetter) -> DeadMessage:
    message, story = letter.message, letter.provenance
    return DeadMessage(
        story.original_offset + 1,
        message.value,
        message.key,
        message.headers,
        story.dlq_reason,
        story.last_error,
        story.delivery_attempts,
        user_view(letter),
        letter,
    )


def redrive_order(dead: DeadMessage | Iterable[DeadMessage] | None) -> Order:
    """What to send back: to the readers who failed, because the queue's ids are given out elsewhere."""
    if dead is None:
        return Order(selection=ALL, target=Target.GROUP)
    chosen = (dead,) if isinstance(dead, DeadMessage) else dead
    places = frozenset((one.letter.partition, one.letter.offset) for one in chosen)
    return Order(selection=Selection(offsets=places), target=Target.GROUP)
