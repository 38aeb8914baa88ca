"""The commands of a group's member: join, heartbeat, release partitions, poll, commit, leave."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..api.arguments import choice, partition_number
from ..api.groups import Mode, PartitionOffset, PlanReset, ResetGroup
from ..api.members import (
    Assignor,
    CommitAsMember,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    PollMember,
    ReleasePartitions,
)
from ..api.units import Moment, duration_ms, priority_of
from ..errors import Refused
from ..model import Priority, TopicPartition
from .commands import start_of
from .consumer_options import ConsumerSettings

_ORDERS = {"relaxed": Mode.RELAXED, "strict": Mode.STRICT}
_ASSIGNORS = {one.value: one for one in Assignor}


class Membership(NamedTuple):
    """A member of a group. `changes` is the last change of the group that it knows of."""

    group: str
    member: str
    generation: int = 0
    changes: int | None = None


def join(
    membership: Membership, topics: Sequence[str], settings: ConsumerSettings, *, is_rejoin: bool
) -> JoinGroup:
    """A member that joins again under its name takes its own place, so this may be repeated. A rejoin keeps its leases.

    Refused if the settings name an order or an assignor that there is not.
    """
    order, assignor, session = settings.order, settings.assignor, settings.session_timeout
    mode = Mode.SHARED
    if settings.is_assigned:
        mode = None if order is None else choice("order", order, _ORDERS)  # type: ignore[assignment]  # None: as the group has it.
    return JoinGroup(
        membership.group,
        membership.member,
        tuple(topics),
        session_ms=0 if session is None else max(1, duration_ms(session)),
        assignor=None if assignor is None else choice("assignor", assignor, _ASSIGNORS),
        mode=mode,
        keeps_leases=is_rejoin and settings.is_assigned,
        start=start_of(settings.start),
        in_rounds=settings.in_rounds,
    )


def heartbeat(membership: Membership) -> Heartbeat:
    return Heartbeat(membership.group, membership.member, membership.generation or None)


def release(membership: Membership, places: Sequence[str]) -> ReleasePartitions:
    partitions = tuple(TopicPartition(*place_of(one)) for one in places)
    return ReleasePartitions(
        membership.group, membership.member, partitions, membership.generation or None
    )


def leave(membership: Membership, settings: ConsumerSettings) -> LeaveGroup:
    """Of a member that works in rounds only if it is still the one of its name."""
    generation = membership.generation if settings.in_rounds else None
    return LeaveGroup(membership.group, membership.member, generation)


def commit(membership: Membership, offsets: Mapping[str, int]) -> CommitAsMember:
    """Offsets are by partition, such as "orders/0". A commit of any generation counts. Refused if they are none."""
    found = tuple(
        PartitionOffset(*place_of(place), partition_number(one)) for place, one in offsets.items()
    )
    if not found:
        raise Refused("offsets is empty", field="offsets")
    return CommitAsMember(membership.group, membership.member, found)


def place_of(place: str) -> tuple[str, int]:
    """Topic and partition of what groups write as "orders/0". Refused."""
    topic, _, number = str(place).rpartition("/")
    if not (topic and number.isascii() and number.isdecimal() and len(number) <= 6):
        raise Refused(f'a partition looks like "orders/0", got {str(place)[:60]!r}')
    return topic, int(number)


def reset_commands(membership: Membership, to: Moment, places: Sequence[str]) -> list[ResetGroup]:
    """Move the group to another place on partitions ("orders/0"), or on whole topics ("orders")."""
    partitions: dict[str, list[int]] = {}
    for place in places:
        topic, number = place_of(place) if "/" in str(place) else (str(place), None)
        numbers = partitions.setdefault(topic, [])
        if number is not None:
            numbers.append(number)
    start = start_of(to, "to")
    return [
        ResetGroup(
            membership.group,
            topic=topic,
            to=start,
            partitions=tuple(numbers) or None,
            is_forced=True,
        )
        for topic, numbers in partitions.items()
    ]


def plan_of(reset: ResetGroup) -> PlanReset:
    """Asks what a reset would do."""
    return PlanReset(reset.group, topic=reset.topic, to=reset.to, partitions=reset.partitions)


class MembershipChange(NamedTuple):
    """The partitions that the consumer shall release, those that it lost, and whether it has just joined again."""

    to_release: list[str]
    lost: list[str]
    is_rejoin: bool = False


def poll(
    membership: Membership, settings: ConsumerSettings, *, limit: int, request_id: str
) -> PollMember:
    """Repeated under its `request_id` it brings the messages of the first time."""
    lease, lane = settings.visibility_timeout, settings.priority
    return PollMember(
        membership.group,
        membership.member,
        limit,
        membership.generation or None,
        None if lease is None else max(1, duration_ms(lease)),
        None if lane is None else Priority(priority_of(lane)),
        request_id,
        changes=membership.changes,
    )
