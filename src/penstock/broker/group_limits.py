"""How many groups there may be: each costs memory and a journal on every partition, and any consumer can make one."""

from collections.abc import Iterable

from ..errors import TooManyGroups
from .catalogue import Catalogue, Topic


def require_group_room(catalogue: Catalogue, topics: Iterable[str], group: str) -> None:
    """TooManyGroups if a group that is new on some of these topics would be one too many, there or in all."""
    limits = catalogue.limits
    new = [topic for topic in map(catalogue.topic, topics) if not _is_known(topic, group)]
    for topic in new:
        if _count(topic) >= limits.groups_per_topic_max:
            name, limit = topic.facts.name, limits.groups_per_topic_max
            raise TooManyGroups(
                group, f"topic {name}", limit=limit, setting="limits.groups_per_topic_max"
            )
    if new and sum(map(_count, catalogue.open.values())) + len(new) > limits.groups_max:
        raise TooManyGroups(
            group, "all topics together", limit=limits.groups_max, setting="limits.groups_max"
        )


def _is_known(topic: Topic, group: str) -> bool:
    return any(group in one.machine.numbers for one in topic.partitions)


def _count(topic: Topic) -> int:
    """Groups of a topic, our own included, of which there are few."""
    return max((len(one.machine.numbers) for one in topic.partitions), default=0)
