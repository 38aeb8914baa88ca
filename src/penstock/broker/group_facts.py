"""A group as others see it: its members, what each of them owns, and why that changed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ..delivery import Delivery
from ..groups import Membership, Rebalance, TopicPartition
from .modes import mode_of
from .partition import Partition


class MemberFacts(NamedTuple):
    """One member. What it shall release is not assigned to it any more, but still its own."""

    id: str
    client: str
    topics: tuple[str, ...]
    assigned: tuple[TopicPartition, ...]
    to_release: tuple[TopicPartition, ...]


class GroupFacts(NamedTuple):
    """The whole group. `modes` by topic; `rebalances` says why the assignment changed, newest last."""

    group: str
    state: str
    generation: int
    assignor: str
    modes: dict[str, str]
    members: tuple[MemberFacts, ...]
    rebalances: tuple[Rebalance, ...]


def describe(membership: Membership, places: Sequence[tuple[Partition, Delivery]]) -> GroupFacts:
    """Facts that stay as they are; `places` are all that the group reads."""
    topics = sorted({partition.topic for partition, _ in places})
    return GroupFacts(
        membership.group,
        membership.state,
        membership.generation,
        membership.assignor.value,
        {topic: str(mode_of([one for one in places if one[0].topic == topic])) for topic in topics},
        tuple(
            MemberFacts(
                one.id,
                one.client,
                tuple(sorted(one.topics)),
                tuple(membership.readable(one.id)),
                tuple(membership.to_release(one.id)),
            )
            for one in membership.members.values()
        ),
        tuple(replace(one) for one in membership.rebalances),
    )
