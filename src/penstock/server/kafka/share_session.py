"""What a share session of a Kafka client remembers between its requests."""

from dataclasses import dataclass, field

Partition = tuple[str, int]


@dataclass(slots=True)
class ShareSession:
    """The partitions that a member fetches, and what it holds of them: lease and number of the group, by offset."""

    partitions: set[Partition] = field(default_factory=set)
    held: dict[Partition, dict[int, tuple[int, int]]] = field(default_factory=dict)

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.partitions} | {topic for topic, _ in self.held}
