"""What a partition is told when it is opened: which one it is, its settings, and what a node's partitions share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ...config import LimitsConfig, TopicConfig
from ...journeys.latency import Latencies
from ...log import Log
from ...log.reign import ALONE, Reign
from ...ports import Entropy, Zones
from ...schedules.timing import UtcOnly
from .batch_cache import BatchCache
from .changes import Changes
from .damage import DamageLedger
from .delay_prefetch import PrefetchCache
from .group_owners import GroupOwners

if TYPE_CHECKING:
    from .partition import Now, Partition


class PartitionId(NamedTuple):
    """Names a partition for as long as its topic exists; a recreated topic has another id."""

    topic_id: int
    number: int

    @property
    def as_source(self) -> int:
        """The partition as one number, for outboxes and log ids."""
        return self.topic_id << 20 | self.number


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """What a partition is told besides its own name."""

    topic: str
    config: TopicConfig
    limits: LimitsConfig
    entropy: Entropy
    # Raises if the checkpoint of a message log knows a later meta than there is.
    require_meta: Callable[[Log], None]
    # Has meta know, durably, how far a partition is; False: there is no room for that.
    note_ends: Callable[["Partition", "Now"], bool]
    cache: BatchCache
    changes: Changes
    damage: DamageLedger = field(default_factory=DamageLedger)
    prefetch: PrefetchCache = field(default_factory=PrefetchCache)
    latencies: Latencies = field(default_factory=Latencies)
    zones: Zones = field(default_factory=UtcOnly)
    reign: Reign = ALONE
    group_owners: GroupOwners = field(default_factory=GroupOwners)
    # State may name an epoch up to this one at an end of the messages at which no batch of it was written.
    begun_in_all_logs: int = 0
