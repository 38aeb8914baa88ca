"""What a node has to sync, as it stood at one moment."""

from collections.abc import Sequence

import msgspec

from ..broker.node import Node
from ..broker.partition import Now, Partition, PartitionPlan
from ..broker.partition.slots import Fault
from ..errors import DamagedFile, FileMissing, PenstockError
from .sync_threads import SyncThreads


class NodePlan(msgspec.Struct, eq=False):
    """The plans of all partitions that have something to sync. `lost` has those whose files have vanished.

    `owed` are partitions that failed before and cannot be synced any more, although some may wait for that.
    """

    parts: Sequence[tuple[Partition, PartitionPlan]]
    threads: SyncThreads
    owed: Sequence[Fault] = ()
    lost: list[tuple[Partition, PartitionPlan, PenstockError]] = msgspec.field(default_factory=list)

    def run(self) -> None:
        """Sync every partition. One that is not where it was does not keep the others from being synced."""
        logs = [(one, log) for one, plan in self.parts for log in plan.logs() if log.has_files]
        failures = self.threads.run([log.sync_files for _, log in logs])
        lost: dict[Partition, PenstockError] = {}
        for (partition, _), failure in zip(logs, failures, strict=True):
            if isinstance(failure, FileMissing | DamagedFile):
                lost.setdefault(partition, failure)
            elif failure is not None:
                raise failure.fresh()
        for partition, plan in self.parts:
            try:
                if partition in lost:
                    raise lost[partition].fresh()
                plan.finish()
            except (FileMissing, DamagedFile) as error:
                self.lost.append((partition, plan, error.fresh()))

    def settle(self, node: Node, now: Now) -> list[Fault]:
        """Have the node take note of what was synced, and of what is lost; why, for each partition."""
        if not self.lost:
            node.synced(self.parts, now)
            return []
        lost = [partition for partition, *_ in self.lost]
        node.synced([one for one in self.parts if one[0] not in lost], now)
        return [node.fail(partition, error, plan) for partition, plan, error in self.lost]
