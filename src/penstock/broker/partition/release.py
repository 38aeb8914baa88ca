"""Leased messages that come back without an answer: the member left, or gives back what it has not looked at."""

from pyroaring import BitMap64

from ...delivery import AnswerResult, Delivery, claims, commands
from ...delivery.offsets import runs_of
from ...delivery.records import Cause, Released
from . import consumption
from .partition import Now, Partition

_COUNTS_FOR_NONE = -1


def release(partition: Partition, delivery: Delivery, member: str, now: Now) -> None:
    """A member went away: what it holds is ready again at once."""
    consumption.expire(partition, delivery, now)
    partition.record(
        commands.release(delivery, member, consumption.failing_of(partition, now)), now
    )
    partition.record(claims.disown(delivery, member), now)


def give_back(
    partition: Partition, delivery: Delivery, lease: int, offsets: BitMap64, now: Now
) -> None:
    """Make what the lease still holds of these ready at once; none of them keeps the attempt."""
    held = offsets & delivery.leases.holding(lease)
    if held:
        given = (lease, runs_of(held), _COUNTS_FOR_NONE, Cause.GIVEN_BACK)
        record = Released(delivery.group, *given)
        partition.record((record,), now)


def take_back(
    partition: Partition, delivery: Delivery, lease: int, offsets: BitMap64, now: Now
) -> AnswerResult:
    """Give messages of a lease back for an administrator. Those that the lease does not hold any more are stale."""
    consumption.expire(partition, delivery, now)
    held = offsets & delivery.leases.holding(lease)
    give_back(partition, delivery, lease, offsets, now)
    return AnswerResult(done=held, repeated=BitMap64(), stale=offsets - held)


def give_back_all(partition: Partition, delivery: Delivery, member: str, now: Now) -> None:
    """Give back everything that a member holds."""
    for lease in [one for one in delivery.leases.by_number.values() if one.member == member]:
        give_back(partition, delivery, lease.number, lease.offsets(), now)
