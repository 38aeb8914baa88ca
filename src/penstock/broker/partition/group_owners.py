"""Which key has made which groups of which topics, over all partitions of a node.

Summed from the records of partitions that open and close groups, so a start sums it again. A group of a topic counts
once, however many of its partitions it reads.
"""

from collections import Counter

from ...api.principals import NO_KEY
from ...api.start import Start
from ...kernel import OwnerCounts


class GroupOwners:
    """Every question is one look in memory: a client may ask for a new group with each request."""

    def __init__(self) -> None:
        # On how many partitions a group of a topic is, and whose it is.
        self._places: dict[tuple[int, str], tuple[int, str]] = {}
        self._of_topic: Counter[int] = Counter()
        # The topics of each group, in the order in which it came to them.
        self._topics: dict[str, dict[int, None]] = {}
        # Where groups begin that are not on all partitions of a topic yet.
        self.starts: dict[tuple[int, str], Start] = {}
        self.counts = OwnerCounts()

    def opened(self, topic_id: int, group: str, owner: str) -> None:
        """A partition of a topic has the group from now on. It is of the key that the first of them names."""
        places, owner = self._places.get((topic_id, group), (0, owner))
        self._places[topic_id, group] = places + 1, owner
        if not places:
            self._of_topic[topic_id] += 1
            self._topics.setdefault(group, {})[topic_id] = None
            self.counts.add(owner)

    def closed(self, topic_id: int, group: str) -> None:
        """A partition of a topic has forgotten the group, or is forgotten itself."""
        places, owner = self._places[topic_id, group]
        if places > 1:
            self._places[topic_id, group] = places - 1, owner
            return
        del self._places[topic_id, group]
        self.starts.pop((topic_id, group), None)
        self.counts.remove(owner)
        self._of_topic[topic_id] -= 1
        if not self._of_topic[topic_id]:
            del self._of_topic[topic_id]
        del self._topics[group][topic_id]
        if not self._topics[group]:
            del self._topics[group]

    def topics_of(self, group: str) -> list[int]:
        """The ids of the topics that a group reads."""
        return [*self._topics.get(group, ())]

    def knows(self, topic_id: int, group: str) -> bool:
        return (topic_id, group) in self._places

    def owner(self, topic_id: int, group: str, new: str = NO_KEY) -> str:
        """Whose a group is; `new` if no partition of the topic has it yet."""
        return self._places.get((topic_id, group), (0, new))[1]

    def of_topic(self, topic_id: int) -> int:
        """How many groups a topic has, our own included, of which there are few."""
        return self._of_topic[topic_id]
