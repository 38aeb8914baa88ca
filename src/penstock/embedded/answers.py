"""Answers for messages that a queue or broker handed out: each goes to the lease that it is about."""

from collections.abc import Iterable, Mapping

from ..api.answers import Answer, Kind, LeaseAnswer, nack_delay_ms
from ..api.receipts import Place, read_receipt
from ..api.received import Received
from ..api.units import Duration, duration_ms
from ..errors import PenstockError, Refused, StaleReceipt
from ..runtime.threads import ThreadDriver
from .messages import as_bytes

Held = Received | str
"""A message as it was handed out, or its receipt."""


def answer(
    driver: ThreadDriver,
    kind: Kind,
    held: Held | Iterable[Held],
    *,
    reason: object = "",
    ms: int | None = None,
) -> None:
    """Answer for all of them, then raise the first error; StaleReceipt for messages that are not held any more."""
    leases = _by_lease((held,) if isinstance(held, Received | str) else held)
    outcomes = driver.execute(Answer(_answers(leases, kind, reason, ms)))
    for some, outcome in zip(leases.values(), outcomes, strict=True):
        if isinstance(outcome, PenstockError):
            raise outcome.fresh()
        for offset in (*outcome.stale, *outcome.missing):
            one = some[offset]
            raise StaleReceipt(one if isinstance(one, str) else one.receipt)


def lease_answers(
    kind: Kind, held: Held | Iterable[Held], *, reason: object = "", ms: int | None = None
) -> list[LeaseAnswer]:
    """One answer for each lease of the messages. Refused: one is no message, or the reason no text."""
    leases = _by_lease((held,) if isinstance(held, Received | str) else held)
    return _answers(leases, kind, reason, ms)


def _answers(
    leases: Mapping[tuple[Place, int], Mapping[int, Held]],
    kind: Kind,
    reason: object,
    ms: int | None,
) -> list[LeaseAnswer]:
    if not isinstance(reason, str):
        found = type(reason).__name__
        raise Refused(f"a reason is text, not {found}; str(error) makes one of an error")
    as_bytes("a reason", reason)
    return [
        LeaseAnswer(kind, *place, lease, list(some), reason, ms, _attempts(some.values()))
        for (place, lease), some in leases.items()
    ]


def _attempts(held: Iterable[Held]) -> list[int] | None:
    """What receipts count, if some are given as text; a message that was handed out is as it was."""
    if str not in map(type, held):
        return None
    return [read_receipt(one).attempts if isinstance(one, str) else one.attempts for one in held]


def _by_lease(held: Iterable[Held]) -> dict[tuple[Place, int], dict[int, Held]]:
    """What is held, by place and number of its lease, and by offset."""
    if not isinstance(held, Iterable):
        raise _no_message(held)
    leases: dict[tuple[Place, int], dict[int, Held]] = {}
    place: Place | None = None
    lease, some = 0, {}
    for one in held:
        receipt = read_receipt(one) if isinstance(one, str) else one
        try:
            is_other = receipt.lease != lease or receipt.place is not place
        except AttributeError:
            raise _no_message(one) from None
        # Neighbours mostly come from one poll, and then share even the object that names the place.
        if is_other:
            lease, place = receipt.lease, receipt.place
            some = leases.setdefault((place, lease), {})
        some[receipt.offset] = one
    return leases


def _no_message(found: object) -> Refused:
    kind = type(found).__name__
    return Refused(f"an answer is for messages that a get returned, or their receipts, not {kind}")


def release(queue: "QueueAnswers", held: Iterable[Received]) -> None:
    """Give back messages of a queue with which nothing was done: the next get has them, and no attempt counts."""
    answer(queue._driver, Kind.RELEASE, held)


class QueueAnswers:
    """The part of a queue that takes answers for its messages."""

    _driver: ThreadDriver
    is_auto_ack: bool

    def ack(self, held: Held | Iterable[Held]) -> None:
        """Finish a message, or several. Repeating an ack does no harm; StaleReceipt if it is not yours any more."""
        if not self.is_auto_ack:
            answer(self._driver, Kind.ACK, held)

    def nack(
        self, held: Held | Iterable[Held], reason: str = "", *, delay: Duration | None = None
    ) -> None:
        """Failed: try again after a backoff that grows with each attempt, or after `delay`."""
        self._require_manual("nack")
        delay_ms = nack_delay_ms(delay)
        answer(self._driver, Kind.NACK, held, reason=reason, ms=delay_ms)

    def reject(self, held: Held | Iterable[Held], reason: str = "") -> None:
        """No attempt will ever succeed: a dead letter, at once."""
        self._require_manual("reject")
        answer(self._driver, Kind.REJECT, held, reason=reason)

    def extend(self, held: Held | Iterable[Held], duration: Duration) -> None:
        """Still working on it: a new deadline, counted from now."""
        self._require_manual("extend")
        answer(self._driver, Kind.EXTEND, held, ms=duration_ms(duration))

    def _require_manual(self, name: str) -> None:
        if self.is_auto_ack:
            raise Refused(
                f"{name}: this queue finishes a message when it hands it out; open it with auto_ack=False"
            )
