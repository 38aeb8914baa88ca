"""What is done inside of a transaction or a staging, and counts with its commit."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Unpack

from msgspec import UNSET, UnsetType

from ...api.answers import Kind, LeaseAnswer, nack_delay_ms
from ...api.arguments import several
from ...api.contents import Content
from ...api.units import Duration
from ..leased_messages import DetachedMessage, Polled, Received
from ..poll import Receipts
from ..publish import Outgoing, PublishOptions, outgoing_of
from ..transaction_answers import WithheldMessages, lease_answers


class AsyncStagedWork(ABC):
    """Messages and answers that are seen once they are committed."""

    def __init__(self) -> None:
        self._withheld = WithheldMessages()

    async def publish(
        self, topic: str, value: Content | UnsetType = UNSET, **options: Unpack[PublishOptions]
    ) -> None:
        """Add a message, a value or any object as `json`. It has an offset, and is seen, once it is committed.

        With `delay` or `deliver_at` it is scheduled then, and seen once it is due.
        """
        await self._stage(topic, [outgoing_of(value, options)])

    async def publish_many(self, topic: str, messages: Iterable[Outgoing | Content]) -> None:
        """Add several messages; those for one partition together."""
        await self._stage(topic, [outgoing_of(one, {}) for one in several("messages", messages)])

    async def ack(self, held: Receipts) -> None:
        """Finish messages of a poll, or receipts, with the commit. Until then the leases stay with it.

        StaleReceipt: the lease of one is over, and it may be in the hands of another consumer. Nothing is acked then.
        """
        await self._answer(held, Kind.ACK)

    async def nack(
        self, held: Receipts, reason: str = "", *, delay: Duration | None = None
    ) -> None:
        """Have messages tried again after the commit and a backoff, or `delay`; as `ack`."""
        ms = nack_delay_ms(delay)
        await self._answer(held, Kind.NACK, reason, ms)

    async def reject(self, held: Receipts, reason: str = "") -> None:
        """Make dead letters of messages with the commit; as `ack`."""
        await self._answer(held, Kind.REJECT, reason)

    async def _answer(
        self, held: Receipts, kind: Kind, reason: str = "", ms: int | None = None
    ) -> None:
        self._require_open()
        if not isinstance(held, Received | DetachedMessage | Polled | str):
            held = [*several("messages", held)]
        answers = lease_answers(held, kind, reason, ms)
        self._withheld.add(held)
        if answers:
            await self._stage_answers(answers)

    @abstractmethod
    def _require_open(self) -> None:
        """Refused outside of the `with` block."""

    @abstractmethod
    async def _stage(self, topic: str, sent: list[Outgoing]) -> None:
        """Send messages to the broker."""

    @abstractmethod
    async def _stage_answers(self, answers: list[LeaseAnswer]) -> None:
        """Send answers to the broker."""
