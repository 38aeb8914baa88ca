"""Dead letters as users of a queue see them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..api.arguments import instance, several, whole_count
from ..broker.letters import DeadLetter, user_view
from ..broker.partition import Partition
from ..broker.redrive import ALL, Order, Selection, Target
from ..model import Headers
from ..runtime.threads import ThreadDriver


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
    wanted = (dead,) if isinstance(dead, DeadMessage) else dead
    letters = [
        instance("what goes back", one, DeadMessage).letter
        for one in several("dead letters", wanted)
    ]
    places = frozenset((one.partition, one.offset) for one in letters)
    return Order(selection=Selection(offsets=places), target=Target.GROUP)


class QueueLetters(ABC):
    """The part of a queue that is about its dead letters."""

    _driver: ThreadDriver

    @abstractmethod
    def _partition(self) -> Partition:
        """The only partition of the queue."""

    def dead_letters(self, limit: int = 100) -> list[DeadMessage]:
        """Messages that failed too often, were rejected, or (if the queue says so) expired; oldest first."""
        count = whole_count("limit", limit)
        self._driver.settle()
        page = self._driver.look(
            lambda _now: self._driver.node.dead_letters(self._partition().topic, limit=count)
        )
        return [dead_message(letter) for letter in page.letters]

    def requeue(self, dead: DeadMessage | Iterable[DeadMessage] | None = None) -> Requeued:
        """Hand dead letters out once more, under their old ids and with all attempts; None: all of them.

        One whose message was removed from the disk meanwhile cannot come back, and stays a dead letter.
        """
        order = redrive_order(dead)
        self._driver.settle()
        answer = self._driver.change(
            lambda now: self._driver.node.redrive(self._partition().topic, order, now)
        )
        self._driver.settle()
        return Requeued(answer.redriven, len(answer.failed))
