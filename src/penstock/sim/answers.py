"""What the node must answer to a lease holder, computed before the node is asked."""

from dataclasses import dataclass

from pyroaring import BitMap64

from ..api.groups import Mode
from ..api.received import Received
from ..delivery import AnswerResult
from ..delivery.offsets import each_offset
from .event import Event
from .group_book import GroupBook, MessageEntry, MessageStatus
from .violation import Checker, Violation


@dataclass(frozen=True, slots=True)
class ExpectedAnswers:
    """Offsets by the answer that they must get. Others may go either way: a restart prolongs leases."""

    where: str
    held: BitMap64
    acked: BitMap64
    stale: BitMap64

    def check(self, answered: AnswerResult, *, is_ack: bool) -> None:
        if missing := self.held - answered.done:
            self._fail(f"{[*each_offset(missing)]} are held, but the answer was not taken")
        if wrong := (self.stale | self.acked) & answered.done:
            self._fail(f"{[*each_offset(wrong)]} are not held, but the answer was taken")
        if is_ack and (unknown := self.acked - answered.repeated):
            self._fail(f"{[*each_offset(unknown)]} were acked before, but the repeat was refused")

    def _fail(self, story: str) -> None:
        raise Violation(Checker.LEASE_EXCLUSIVE, f"{self.where}: {story}")


def expected_answers(
    group: GroupBook | None, first: Received, offsets: BitMap64, event: Event
) -> ExpectedAnswers:
    where = first.receipt
    if group is None:
        return ExpectedAnswers(where, BitMap64(), BitMap64(), offsets)
    held, acked, stale = BitMap64(), BitMap64(), BitMap64()
    barrier = group.first_late(event.time.true_ns) if group.mode is Mode.STRICT else None
    for offset in each_offset(offsets):
        entry = group.entry(offset)
        if entry.lease != first.lease:
            stale.add(offset)
        elif entry.status is MessageStatus.ACKED:
            acked.add(offset)
        elif (
            entry.claims
            or entry.status is not MessageStatus.LEASED
            or event.time.true_ns >= entry.latest_ns
        ):
            stale.add(offset)
        elif event.time.true_ns < entry.until_ns and (barrier is None or offset < barrier):
            # In strict order an expired lease takes the messages behind it back as well.
            held.add(offset)
    return ExpectedAnswers(where, held, acked, stale)


class Receipts:
    """Every receipt that any member ever got."""

    def __init__(self) -> None:
        self.given: set[str] = set()
        self.highest: dict[tuple[str, int, str], int] = {}

    def add(self, received: Received, group: str) -> None:
        receipt = received.receipt
        if receipt in self.given:
            raise Violation(Checker.LEASE_EXCLUSIVE, f"receipt {receipt} was given out twice")
        self.given.add(receipt)
        key = (received.topic, received.partition, group)
        if received.lease < self.highest.get(key, 0):
            story = f"lease {received.lease} of {group} follows {self.highest[key]}"
            raise Violation(Checker.LEASE_EXCLUSIVE, story)
        self.highest[key] = received.lease


def check_delivery(received: Received, entry: MessageEntry, member: str, event: Event) -> None:
    """Violation: the member got a message that the book has not leased to it, or with a wrong attempt or expiry."""
    where = received.receipt
    if entry.status is not MessageStatus.LEASED or (entry.lease, entry.member) != (
        received.lease,
        member,
    ):
        raise Violation(Checker.LEASE_EXCLUSIVE, f"{where}: {member} does not hold it")
    if entry.attempts != received.attempts:
        story = f"{where}: attempt {entry.attempts} is shown as {received.attempts}"
        raise Violation(Checker.ATTEMPTS, story)
    if received.expires_at is not None and received.expires_at <= event.time.wall_ns:
        raise Violation(Checker.EXPIRY, f"{where}: delivered after its expiry")
