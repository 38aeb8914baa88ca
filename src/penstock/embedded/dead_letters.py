"""Dead letters as users of a queue see them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..api.arguments import instance, several, whole_count
from ..api.dead_letters import (
    ALL,
    REDRIVE_LIMIT,
    BrowseDeadLetters,
    DeadLetter,
    RedriveDeadLetters,
    Selection,
    Target,
)
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
    message, died = letter.message, letter.provenance
    notes = {
        "dlq.original_msg_id": died.original_offset + 1,
        "dlq.retry_count": max(0, died.delivery_attempts - 1),
        "dlq.failure_reason": died.last_error or died.dlq_reason,
        "dlq.last_failure": died.dlq_timestamp,
    }
    return DeadMessage(
        died.original_offset + 1,
        message.value,
        message.key,
        message.headers,
        died.dlq_reason,
        died.last_error,
        died.delivery_attempts,
        notes,
        letter,
    )


class QueueDeadLetters:
    """The part of a queue that is about its dead letters."""

    _driver: ThreadDriver
    _topic: str

    def dead_letters(self, limit: int = 100) -> list[DeadMessage]:
        """Messages that failed too often, were rejected, or (if the queue says so) expired; oldest first."""
        count = whole_count("limit", limit)
        self._driver.settle()
        page = self._driver.execute(BrowseDeadLetters(self._topic, limit=count))
        return [dead_message(letter) for letter in page.letters]

    def requeue(self, dead: DeadMessage | Iterable[DeadMessage] | None = None) -> Requeued:
        """Hand dead letters out once more, under their old ids and with all attempts; None: all of them.

        One whose message was removed from the disk meanwhile cannot come back, and stays a dead letter.
        """
        selection, requeued = _selection(dead), 0
        failed = set[tuple[int, int]]()
        self._driver.settle()
        while True:
            # Those that cannot go are looked at again in each round.
            limit = REDRIVE_LIMIT + len(failed)
            # Not to the topic: there they would be given new ids.
            command = RedriveDeadLetters(self._topic, selection, Target.GROUP, limit=limit)
            reply = self._driver.execute(command)
            self._driver.settle()
            requeued += reply.redriven
            failed.update((partition, offset) for partition, offset, _ in reply.failed)
            if reply.matched < limit:
                return Requeued(requeued, len(failed))


def _selection(dead: DeadMessage | Iterable[DeadMessage] | None) -> Selection:
    if dead is None:
        return ALL
    wanted = (dead,) if isinstance(dead, DeadMessage) else dead
    letters = [
        instance("what goes back", one, DeadMessage).letter
        for one in several("dead letters", wanted)
    ]
    return Selection(offsets=frozenset((one.partition, one.offset) for one in letters))
