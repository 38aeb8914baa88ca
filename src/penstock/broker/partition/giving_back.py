"""Messages that were leased and that no consumer has looked at: back they go, as if they had never left."""

from pyroaring import BitMap64

from ...delivery import AnswerResult, Delivery
from ...delivery.offsets import runs_of
from ...delivery.records import Cause, Released
from . import consumption
from .partition import Now, Partition

_COUNTS_FOR_NONE = -1


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
