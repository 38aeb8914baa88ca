"""Answers by offset instead of by receipt, for consumers that keep none: the lease is looked up."""

from pyroaring import BitMap64

from ..delivery import Delivery
from ..delivery.leases import Lease
from ..errors import OffsetOutOfRange, WrongOwner
from . import consumption, groups
from .partition import Now, Partition


def ack(partition: Partition, group: str, offset: int, now: Now, *, owner: str | None) -> None:
    """Finish a message. One that is finished, or that nobody holds any more, is left as it is: late is not wrong."""
    held = _held(partition, group, offset, now, owner=owner)
    if held is not None:
        delivery, lease = held
        consumption.ack(partition, delivery, lease.number, BitMap64((offset,)), now)


def nack(
    partition: Partition, group: str, offset: int, now: Now, *, owner: str | None, error: str
) -> None:
    """Give a message back as failed, if it is held."""
    held = _held(partition, group, offset, now, owner=owner)
    if held is not None:
        delivery, lease = held
        offsets = BitMap64((offset,))
        consumption.nack(partition, delivery, lease.number, offsets, now, error=error)


def ack_cumulative(
    partition: Partition, group: str, offset: int, now: Now, *, owner: str | None
) -> bool:
    """Finish everything up to an offset, that one included. False: it was."""
    delivery = partition.group(group)
    consumption.expire(partition, delivery, now)
    for lease in delivery.leases.by_number.values():
        held = lease.offsets()
        if owner is not None and lease.member != owner and held.min() <= offset:
            place = f"{partition.topic}/{partition.number}/{held.min()}"
            raise WrongOwner(place, owner=lease.member)
    return groups.commit(partition, delivery, offset + 1, now)


def _held(
    partition: Partition, group: str, offset: int, now: Now, *, owner: str | None
) -> tuple[Delivery, Lease] | None:
    log = partition.messages
    if not 0 <= offset < log.end_offset:
        raise OffsetOutOfRange(offset, start=log.start_offset, end=log.end_offset)
    delivery = partition.group(group)
    consumption.expire(partition, delivery, now)
    for lease in delivery.leases.by_number.values():
        if offset in lease.offsets():
            if owner is not None and lease.member != owner:
                place = f"{partition.topic}/{partition.number}/{offset}"
                raise WrongOwner(place, owner=lease.member)
            return delivery, lease
    return None
