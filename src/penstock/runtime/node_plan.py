"""What a node has to sync, as it stood at one moment."""

from collections.abc import Sequence

import msgspec

from ..broker.partition import Partition, PartitionPlan


class NodePlan(msgspec.Struct, eq=False):
    """The plans of all partitions that have something to sync."""

    parts: Sequence[tuple[Partition, PartitionPlan]]

    def run(self) -> None:
        for _, plan in self.parts:
            plan.run()
