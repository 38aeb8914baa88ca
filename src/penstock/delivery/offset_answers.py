"""Answers that name a message by its offset and the member by its name, without a receipt.

Each function reads a `Delivery` and returns records, or refuses. WrongOwner: another member holds the message. NotHeld:
no member holds it. `member` None stands for the member that holds it, or had it last.
"""

from pyroaring import BitMap64

from ..errors import NotHeld, WrongOwner
from .commands import Records, commit
from .leases import Lease
from .machine import Delivery
from .offsets import next_of, runs_of
from .records import Acked, AckedLate


def ack(delivery: Delivery, offset: int, *, member: str | None) -> Records:
    """Finish a message, also after its lease is over, while no other member holds it. No records: it was finished."""
    if delivery.progress.is_finished(offset):
        return ()
    runs = runs_of(BitMap64((offset,)))
    lease = _held(delivery, offset, member)
    if lease is not None:
        return (Acked(delivery.group, lease.number, runs),)
    _require_unclaimed(delivery, offset, offset)
    last = delivery.last_member(offset)
    if last is None:
        raise NotHeld(offset, "was never handed out to this group")
    if member is not None and last != member:
        raise NotHeld(offset, f"was handed out to {last} last")
    return (AckedLate(delivery.group, runs, last),)


def held(delivery: Delivery, offset: int, *, member: str | None) -> Lease:
    """Returns the lease under which a member holds a message."""
    lease = _held(delivery, offset, member)
    if lease is None:
        raise NotHeld(offset, "is held by no consumer: its lease is over, or it never had one")
    return lease


def ack_up_to(delivery: Delivery, offset: int, *, member: str | None) -> Records:
    """Finish everything up to and including an offset. No records: it was finished."""
    for lease in delivery.leases.by_number.values():
        first = lease.offsets().min()
        if member is not None and lease.member != member and first <= offset:
            raise WrongOwner(first, owner=lease.member)
    _require_unclaimed(delivery, 0, offset)
    unseen = delivery.first_unseen()
    if unseen <= offset:
        raise NotHeld(unseen, "was never handed out to this group")
    return commit(delivery, offset + 1, member=member or "")


def _require_unclaimed(delivery: Delivery, first: int, last: int) -> None:
    claimed = delivery.leases.claimed()
    if claimed.range_cardinality(first, last + 1):
        raise NotHeld(next_of(claimed, first), "belongs to a transaction that has not ended")


def _held(delivery: Delivery, offset: int, member: str | None) -> Lease | None:
    for lease in delivery.leases.by_number.values():
        if offset in lease.offsets():
            if member is not None and lease.member != member:
                raise WrongOwner(offset, owner=lease.member)
            return lease
    return None
