"""Answers by offset: for members that name themselves instead of keeping receipts."""

from pyroaring import BitMap64

from ..delivery import Delivery, by_offset
from ..errors import OffsetOutOfRange
from . import consumption
from .partition import Now, Partition


def ack(partition: Partition, group: str, offset: int, now: Now, *, owner: str | None) -> None:
    """Finish a message; one that is finished stays so. Late is not wrong while no other member holds it.

    NotFound, OffsetOutOfRange, WrongOwner, NotHeld: nothing has happened.
    """
    delivery = _settled(partition, group, offset, now)
    partition.record(by_offset.ack(delivery, offset, member=owner), now)


def nack(
    partition: Partition, group: str, offset: int, now: Now, *, owner: str | None, error: str
) -> None:
    """Give a message back as failed. NotFound, OffsetOutOfRange, WrongOwner, NotHeld: nothing has happened."""
    delivery = _settled(partition, group, offset, now)
    lease = by_offset.held(delivery, offset, member=owner).number
    consumption.nack(partition, delivery, lease, BitMap64((offset,)), now, error=error)


def ack_cumulative(
    partition: Partition, group: str, offset: int, now: Now, *, owner: str | None
) -> None:
    """Finish everything up to an offset, that one included.

    NotFound, OffsetOutOfRange, NotHeld, and with an owner WrongOwner: nothing has happened.
    """
    delivery = _settled(partition, group, offset, now)
    partition.record(by_offset.ack_up_to(delivery, offset, member=owner), now)


def _settled(partition: Partition, group: str, offset: int, now: Now) -> Delivery:
    """A group that is up to date, for a message that is there."""
    log = partition.messages
    if not log.start_offset <= offset < log.end_offset:
        raise OffsetOutOfRange(offset, start=log.start_offset, end=log.end_offset)
    delivery = partition.group(group)
    consumption.settle(partition, delivery, now)
    return delivery
