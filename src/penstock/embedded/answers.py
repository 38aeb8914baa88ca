"""Answers of whoever holds messages: each goes to the lease that it is about."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from ..api.units import Duration, duration_ms
from ..broker import consumption
from ..broker.partition import Now, Partition
from ..broker.received import Place, Received, read_receipt
from ..delivery import Answered, Delivery
from ..delivery.offsets import each_offset
from ..errors import NotFound, Refused, StaleReceipt
from ..runtime.threads import ThreadDriver
from .messages import as_bytes

Held = Received | str
"""A message as it was handed out, or its receipt."""

Respond = Callable[[Partition, Delivery, int, BitMap64, Now], Answered]


class _Lease(NamedTuple):
    """What was handed out together; `held` by offset."""

    place: Place
    number: int
    held: dict[int, Held]


def ack(driver: ThreadDriver, held: Held | Iterable[Held]) -> None:
    respond(driver, held, consumption.ack)


def nack(
    driver: ThreadDriver, held: Held | Iterable[Held], reason: str, delay: Duration | None
) -> None:
    delay_ms = None if delay is None else duration_ms(delay)
    _require_text(reason)

    def retry(
        partition: Partition, delivery: Delivery, lease: int, offsets: BitMap64, now: Now
    ) -> Answered:
        return consumption.nack(
            partition, delivery, lease, offsets, now, error=reason, delay_ms=delay_ms
        )

    respond(driver, held, retry)


def reject(driver: ThreadDriver, held: Held | Iterable[Held], reason: str) -> None:
    _require_text(reason)

    def bury(
        partition: Partition, delivery: Delivery, lease: int, offsets: BitMap64, now: Now
    ) -> Answered:
        return consumption.reject(partition, delivery, lease, offsets, now, error=reason)

    respond(driver, held, bury)


def _require_text(reason: object) -> None:
    if not isinstance(reason, str):
        kind = type(reason).__name__
        raise Refused(f"a reason is text, not {kind}; str(error) makes one of an error")
    as_bytes("a reason", reason)


def extend(driver: ThreadDriver, held: Held | Iterable[Held], duration: Duration) -> None:
    lease_ms = duration_ms(duration)

    def prolong(
        partition: Partition, delivery: Delivery, lease: int, offsets: BitMap64, now: Now
    ) -> Answered:
        return consumption.extend(partition, delivery, lease, offsets, now, duration_ms=lease_ms)

    respond(driver, held, prolong)


def respond(driver: ThreadDriver, held: Held | Iterable[Held], answer: Respond) -> None:
    """Give an answer for each. Those that are not held any more: StaleReceipt, after all others were answered."""
    leases = _by_lease(_several(held))
    stale = driver.change(lambda now: _answer_all(driver, leases, answer, now))
    if stale:
        first = stale[0]
        raise StaleReceipt(first if isinstance(first, str) else first.receipt)


def _several(held: Held | Iterable[Held]) -> Iterable[Held]:
    if isinstance(held, Received | str):
        return (held,)
    if not isinstance(held, Iterable):
        raise _no_message(held)
    return held


def _no_message(found: object) -> Refused:
    kind = type(found).__name__
    return Refused(f"an answer is for messages that a get returned, or their receipts, not {kind}")


def _by_lease(held: Iterable[Held]) -> list[_Lease]:
    leases: dict[tuple[Place, int], _Lease] = {}
    lease: _Lease | None = None
    for one in held:
        receipt = read_receipt(one) if isinstance(one, str) else one
        try:
            number, place = receipt.lease, receipt.place
        except AttributeError:
            raise _no_message(one) from None
        # Neighbours mostly come from one poll, and then share even the object that names the place.
        if lease is None or number != lease.number or place is not lease.place:
            lease = leases.setdefault((place, number), _Lease(place, number, {}))
        lease.held[receipt.offset] = one
    return [*leases.values()]


def _answer_all(
    driver: ThreadDriver, leases: Sequence[_Lease], answer: Respond, now: Now
) -> list[Held]:
    stale: list[Held] = []
    for lease in leases:
        partition = driver.node.partition(lease.place.topic, lease.place.partition)
        delivery = partition.machine.groups.get(lease.place.group)
        if delivery is None:
            raise NotFound("group", f"{lease.place.group} of {partition.topic}/{partition.number}")
        answered = answer(partition, delivery, lease.number, BitMap64(list(lease.held)), now)
        stale += [lease.held[offset] for offset in each_offset(answered.stale)]
    return stale


class QueueAnswers:
    """What whoever got a message from a queue says of it."""

    _driver: ThreadDriver
    is_auto_ack: bool

    def ack(self, held: Held | Iterable[Held]) -> None:
        """Finish a message, or several. Repeating an ack does no harm; StaleReceipt if it is not yours any more."""
        if not self.is_auto_ack:
            ack(self._driver, held)

    def nack(
        self, held: Held | Iterable[Held], reason: str = "", *, delay: Duration | None = None
    ) -> None:
        """Failed: try again after a backoff that grows with each attempt, or after `delay`."""
        self._require_manual("nack")
        nack(self._driver, held, reason, delay)

    def reject(self, held: Held | Iterable[Held], reason: str = "") -> None:
        """No attempt will ever succeed: a dead letter, at once."""
        self._require_manual("reject")
        reject(self._driver, held, reason)

    def extend(self, held: Held | Iterable[Held], duration: Duration) -> None:
        """Still working on it: a new deadline, counted from now."""
        self._require_manual("extend")
        extend(self._driver, held, duration)

    def _require_manual(self, answer: str) -> None:
        if self.is_auto_ack:
            raise Refused(
                f"{answer}: this queue finishes a message when it hands it out; open it with auto_ack=False"
            )
