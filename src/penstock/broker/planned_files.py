"""Files of partitions that an intent in meta names: made durably before meta knows the partitions, or removed.

What a crash leaves of them is removed by the next start, because of the intent.
"""

from dataclasses import dataclass, field

from ..errors import Refused
from ..log.reign import Reign
from ..ports import Disk
from .directories import is_untouched, partition_number, remove_partition, remove_topic
from .partition import Now, Partition, PartitionContext, PartitionId
from .partition.opening import create_partitions
from .topics import FilesPlanned, FilesRemoved, TopicFacts, Topics

# New ones have six files each open until they are synced: together far fewer than a disk keeps open.
_PARTITIONS_AT_ONCE = 50


@dataclass(slots=True)
class PlannedPartitions:
    """New partitions of a topic: the intent that names them, and those that were made so far."""

    plan: FilesPlanned
    facts: TopicFacts
    made: list[Partition] = field(default_factory=list)


class PlannedFiles:
    """Makes and removes what intents name. The catalogue records them in meta."""

    def __init__(self, disk: Disk, reign: Reign, topics: Topics) -> None:
        self._disk, self._reign, self._topics = disk, reign, topics

    def make(self, planned: PlannedPartitions, context: PartitionContext, now: Now) -> None:
        """Make the partitions durably; `made` has them, also those before the one that failed."""
        plan, facts = planned.plan, planned.facts
        self._disk.make_directories(facts.directory)
        for first in range(plan.first, plan.total, _PARTITIONS_AT_ONCE):
            directories = {
                facts.partition_directory(number): PartitionId(facts.topic_id, number)
                for number in range(first, min(first + _PARTITIONS_AT_ONCE, plan.total))
            }
            planned.made += create_partitions(self._disk, directories, context, now)

    def discard(self, planned: PlannedPartitions) -> FilesRemoved:
        """Remove files of partitions that meta does not know yet. Returns what meta is to know of it."""
        plan, facts = planned.plan, planned.facts
        for partition in planned.made:
            partition.discard()
        if plan.first == 0:
            self.remove(facts.directory)
        for number in range(plan.first, plan.total) if plan.first else ():
            self.remove(facts.partition_directory(number))
        return FilesRemoved(plan.topic_id, plan.first)

    def remove(self, directory: str) -> None:
        """Remove the files of a topic, or of a partition, that an intent names."""
        is_partition = partition_number(directory.rpartition("/")[2]) is not None
        (remove_partition if is_partition else remove_topic)(self._disk, directory)
        self._reign.removed(directory)

    def require_free(self, plan: FilesPlanned, facts: TopicFacts) -> None:
        """Refuse to use files that are there already; an attempt that failed before may have left its own."""
        before = self._topics.planned.get((plan.topic_id, plan.first))
        for number in range(plan.first, plan.total):
            path = facts.partition_directory(number)
            if not self._disk.exists(path):
                continue
            if before is None or number >= before.total or not is_untouched(self._disk, path):
                raise Refused(
                    f"{path} is there already and not known; a restart sets it aside", path=path
                )
            self.remove(path)
