"""What a node has to sync, as it stood at one moment."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..broker.partition import Partition, PartitionPlan


@dataclass(slots=True, eq=False)
class NodePlan:
    """The plans of all partitions that have something to sync."""

    parts: Sequence[tuple[Partition, PartitionPlan]]

    def run(self) -> None:
        for _, plan in self.parts:
            plan.run()
