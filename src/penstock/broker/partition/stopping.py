"""What a partition writes before its files are closed in good order."""

from ...config import OFF
from .partition import Partition
from .plan import PartitionPlan

_HOUR_NS = 3600 * 1_000_000_000
# That a group asked for messages is in no record. A stop writes it down if it is more than this part of its retention.
_ACTIVITY_PARTS = 8


def plan_close(
    partition: Partition, *, with_checkpoint: bool, with_snapshot: bool
) -> PartitionPlan:
    """Make everything durable. What is all on the disk already is not written, unless a checkpoint of the messages is
    asked for.
    """
    if with_snapshot or _has_unrecorded_time(partition):
        partition.hold_snapshot()
    plan = PartitionPlan(
        partition.messages.plan_close(with_checkpoint=with_checkpoint),
        partition.journal.log.plan_close(),
        None,
        partition.delayed.plan_close(),
        partition.staging.plan_close(),
    )
    partition.add_held(plan)
    return plan


def _has_unrecorded_time(partition: Partition) -> bool:
    """Whether time has passed that is in no record: a retry would wait anew after a restart, or a group that was active
    be taken for idle, by a good part of the time that it is kept."""
    groups, hours = partition.machine.groups.values(), partition.config.group_retention_hours
    if any(one.failures for one in groups):
        return True
    known = partition.activity
    lost_ns = (one.active_at_ns - known.get(one.group, one.active_at_ns) for one in groups)
    return hours != OFF and max(lost_ns, default=0) > hours * _HOUR_NS / _ACTIVITY_PARTS
