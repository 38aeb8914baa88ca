"""What a node has to sync, as it stood at one moment."""

from dataclasses import dataclass

from ..broker.partition import Partition, PartitionPlan


@dataclass(slots=True, eq=False)
class NodePlan:
    """The plans of all partitions that have something to sync."""

    parts: tuple[tuple[Partition, PartitionPlan], ...]

    def run(self) -> None:
        for _, plan in self.parts:
            plan.run()
