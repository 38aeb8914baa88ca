"""What a node has to sync, as it stood at one moment."""

from collections.abc import Sequence
from logging import Logger

import msgspec

from ..broker.closing import finish_close, plan_close
from ..broker.node import Node
from ..broker.partition import Now, Partition, PartitionPlan
from ..broker.partition.slots import Fault
from ..errors import DamagedFile, FileMissing, PenstockError
from ..ports import Clock
from .sync_threads import Sync, SyncThreads

# So many partitions are closed together, and after so long a line says how far that is.
_CLOSED_AT_ONCE = 256
_PROGRESS_NS = 2_000_000_000


class NodePlan(msgspec.Struct, eq=False):
    """The plans of all partitions that have something to sync. `lost` has those whose files have vanished.

    `owed` are partitions that failed before and cannot be synced any more, although some may wait for that.
    """

    parts: Sequence[tuple[Partition, PartitionPlan]]
    threads: SyncThreads
    owed: Sequence[Fault] = ()
    lost: list[tuple[Partition, PartitionPlan, PenstockError]] = msgspec.field(default_factory=list)

    @property
    def has_snapshot(self) -> bool:
        return any(plan.snapshot is not None for _, plan in self.parts)

    def run(self) -> None:
        """Sync every partition. One that is not where it was does not keep the others from being synced."""
        lost: dict[Partition, PenstockError] = {}
        logs = [(one, log) for one, plan in self.parts for log in plan.logs() if log.has_files]
        self._run([(one, log.sync_files) for one, log in logs], lost)
        rest = [(one, plan) for one, plan in self.parts if one not in lost and plan.has_rest]
        self._run([(one, plan.finish) for one, plan in rest], lost)
        self.lost += [(one, plan, lost[one].fresh()) for one, plan in self.parts if one in lost]

    def _run(
        self, syncs: Sequence[tuple[Partition, Sync]], lost: dict[Partition, PenstockError]
    ) -> None:
        failures = self.threads.run([sync for _, sync in syncs])
        for (partition, _), failure in zip(syncs, failures, strict=True):
            if isinstance(failure, FileMissing | DamagedFile):
                lost.setdefault(partition, failure)
            elif failure is not None:
                raise failure.fresh()

    def settle(self, node: Node, now: Now) -> list[Fault]:
        """Have the node take note of what was synced, and of what is lost; why, for each partition."""
        if not self.lost:
            node.synced(self.parts, now)
            return []
        lost = [partition for partition, *_ in self.lost]
        node.synced([one for one in self.parts if one[0] not in lost], now)
        return [node.fail(partition, error, plan) for partition, plan, error in self.lost]


def close_node(node: Node, threads: SyncThreads, clock: Clock, logger: Logger) -> None:
    """Close all partitions, many side by side, and say how far that is if it takes long."""
    plans, told_ns = plan_close(node), clock.monotonic_ns()
    for first in range(0, len(plans), _CLOSED_AT_ONCE):
        plan = NodePlan(plans[first : first + _CLOSED_AT_ONCE], threads)
        plan.run()
        for fault in plan.settle(node, Now(clock.now_ns(), clock.monotonic_ns())):
            logger.error("%s", fault.error())
        if clock.monotonic_ns() - told_ns > _PROGRESS_NS:
            told_ns = clock.monotonic_ns()
            logger.info("closing: %d of %d partitions", first + len(plan.parts), len(plans))
    finish_close(node)
