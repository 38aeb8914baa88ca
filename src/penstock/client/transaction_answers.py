"""Messages that a transaction of this client answers: until it ends, their consumer lets go of them. No I/O."""

from collections.abc import Iterable, Mapping

from ..api.answers import Kind, LeaseAnswer, answers_of
from ..api.receipts import read_receipt
from ..api.transaction_answers import StagedOffset
from ..errors import Refused
from .leased_messages import DetachedMessage, LeasedPart, Polled, Received, reason_text
from .membership import place_of
from .poll import Receipts, receipts_of


def lease_answers(
    held: Receipts, kind: Kind, reason: str = "", ms: int | None = None
) -> list[LeaseAnswer]:
    """One answer for each lease. Refused if one is no message, and no receipt."""
    reason = reason_text(reason)
    if isinstance(held, Polled):
        # No object for each message: a poll may have many thousands.
        offsets: dict[tuple[str, int, int, int], list[int]] = {}
        for part in held.parts:
            lease = part.topic, part.partition, part.group, part.lease
            offsets.setdefault(lease, []).extend(part.offsets)
        return [LeaseAnswer(kind, *lease, rows, reason, ms) for lease, rows in offsets.items()]
    receipts = [read_receipt(one) for one in receipts_of(held)]
    return [*answers_of(receipts, kind, reason, ms).values()]


def staged_offsets(offsets: Mapping[str, int]) -> tuple[StagedOffset, ...]:
    """Offsets by partition, such as "orders/0": 17."""
    return tuple(StagedOffset(*place_of(place), offset) for place, offset in offsets.items())


class WithheldMessages:
    """Messages of consumers that belong to a transaction: no consumer extends, acks or gives them back meanwhile."""

    def __init__(self) -> None:
        self._taken: list[tuple[LeasedPart, set[int]]] = []

    def add(self, held: Receipts) -> None:
        """Refused, and nothing is taken, if one of them was answered before. Bare receipts have no consumer here."""
        wanted = _by_part(held)
        for part, offsets in wanted.items():
            if part.buffer is not None and not all(map(part.is_unanswered, offsets)):
                raise Refused(f"a message of {part.place} was answered before")
        for part, offsets in wanted.items():
            if part.buffer is not None:
                self._taken.append((part, part.buffer.withhold(part, offsets)))

    def add_below(self, parts: Iterable[LeasedPart], offsets: Mapping[str, int]) -> None:
        """Everything of these parts that is below an offset."""
        for part in parts:
            assert part.buffer is not None, "its consumer holds it"
            below = {one for one in part.offsets if one < offsets.get(part.place, 0)}
            self._taken.append((part, part.buffer.withhold(part, below)))

    def restore(self) -> None:
        """The transaction was aborted, so they are the consumers' again."""
        for part, offsets in self._taken:
            assert part.buffer is not None, "it was taken from there"
            part.buffer.restore(part, offsets)
        self._taken = []


def _by_part(held: Receipts) -> dict[LeasedPart, set[int]]:
    if isinstance(held, Polled):
        return {part: set(part.offsets) for part in held.parts}
    found: dict[LeasedPart, set[int]] = {}
    for one in (held,) if isinstance(held, Received | DetachedMessage | str) else held:
        if isinstance(one, Received):
            found.setdefault(one.part, set()).add(one.offset)
    return found
