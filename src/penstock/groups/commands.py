"""The decisions about requests of members: each function reads a `Membership` and returns records, or refuses.

The cooperative rule. A change of members or partitions makes a new target and a new generation. A partition that stays
with its owner is not touched. A partition without an owner is given at once. A partition that has to move is asked back
from its owner, and given to the next one when the owner has released it, has left, or has missed the deadline.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..api.groups import Cause, Passed
from ..api.members import Assignor, Standing
from ..config import SESSION_MS_MAX, SESSION_MS_MIN
from ..errors import NotOwner, Refused, StaleGeneration, UnknownMember
from ..kernel import Outcome
from ..model import TopicPartition
from .assignors import CurrentOwners, assign
from .membership import Membership
from .records import (
    GroupRecord,
    MemberJoined,
    MemberRemoved,
    MemberSeen,
    Partitions,
    PartitionsGiven,
    PartitionsReleased,
    ReleaseAsked,
    ReleaseWithdrawn,
    TargetSet,
)

_MS = 1_000_000

Records = tuple[GroupRecord, ...]


class GroupTime(NamedTuple):
    """The time of a decision: monotonic, which measures waiting, and wall time, which users read."""

    at_ns: int
    wall_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A client that wants to be a member. Without an assignor the group keeps its own."""

    member: str
    client: str
    topics: frozenset[str]
    session_ms: int
    assignor: Assignor | None = None


def standing(membership: Membership, member: str) -> Standing:
    return Standing(
        membership.generation,
        membership.state,
        tuple(membership.readable(member)),
        tuple(membership.to_release(member)),
        membership.members[member].changes,
    )


def require_member(membership: Membership, member: str, generation: int | None = None) -> None:
    """UnknownMember: it is no member. StaleGeneration: the generation is from before it joined."""
    known = membership.members.get(member)
    if known is None:
        raise UnknownMember(membership.group, member[:60])
    if generation is not None and not known.joined <= generation <= membership.generation:
        raise StaleGeneration(membership.group, asked=generation, current=membership.generation)


def require_current(membership: Membership, member: str, generation: int | None) -> None:
    """UnknownMember: it is no member. StaleGeneration: a generation is given, and it is not the present one."""
    require_member(membership, member)
    if generation is not None and generation != membership.generation:
        raise StaleGeneration(membership.group, asked=generation, current=membership.generation)


def require_owner(membership: Membership, member: str, partition: TopicPartition) -> None:
    owner = membership.owners.get(partition, "")
    if owner != member:
        raise NotOwner(membership.group, str(partition), member=member, owner=owner)


def join(
    membership: Membership,
    request: JoinRequest,
    partitions: Sequence[TopicPartition],
    time: GroupTime,
    generation: int,
) -> Records:
    """Add a member. It replaces one of the same name and takes over its partitions. Refused: see `require_joinable`."""
    require_joinable(membership, request)
    name = request.member
    joined = MemberJoined(
        name, request.client, request.topics, request.session_ms, generation, time.at_ns
    )
    cause = Cause.REPLACED if name in membership.members else Cause.JOINED
    given_up: Records = ()
    if cause is Cause.REPLACED and (asked := tuple(membership.to_release(name))):
        # The replaced member was asked to release them, and the new one has not begun with them.
        given_up = (PartitionsReleased(name, asked, True, time.at_ns),)
    after = _NextState(
        {**_subscriptions(membership), name: request.topics},
        {
            one: owner
            for one, owner in membership.owners.items()
            if not (owner == name and one in membership.asked)
        },
        request.assignor or membership.assignor,
    )
    rest = _rebalance(membership, after, partitions, _Reason(cause, (name,), time, generation))
    return (joined, *given_up, *rest)


def require_joinable(membership: Membership, request: JoinRequest) -> None:
    """Refused: without topics, with a session that is too short or too long, with another assignor than others."""
    if not request.topics:
        raise Refused("a member needs at least one topic")
    if not SESSION_MS_MIN <= request.session_ms <= SESSION_MS_MAX:
        raise Refused(
            f"session timeout must be in {SESSION_MS_MIN}..{SESSION_MS_MAX} ms, got {request.session_ms}"
        )
    others = membership.members.keys() - {request.member}
    if others and request.assignor not in (None, membership.assignor):
        raise Refused(
            f"group {membership.group} assigns by {membership.assignor.value}; that changes when all members have left"
        )


def heartbeat(
    membership: Membership, member: str, generation: int | None, time: GroupTime
) -> Records:
    """Record that a member is alive. Accepts any generation since it joined: by the reply it learns the new one."""
    require_member(membership, member, generation)
    return (MemberSeen(member, time.at_ns),)


def wait(membership: Membership, member: str, time: GroupTime, *, is_over: bool) -> Records:
    """Begin or end to wait for messages. No records: it is no member any more."""
    if member not in membership.members:
        return ()
    return (MemberSeen(member, time.at_ns, -1 if is_over else 1),)


def release(
    membership: Membership,
    member: str,
    generation: int | None,
    partitions: Iterable[TopicPartition],
    time: GroupTime,
) -> Outcome[GroupRecord, Partitions]:
    """Release partitions that were asked back. Returns them; others that are named stay with the member. NotOwner."""
    require_current(membership, member, generation)
    wanted = sorted(set(partitions))
    for one in wanted:
        require_owner(membership, member, one)
    freed = tuple(one for one in wanted if one in membership.asked)
    seen = MemberSeen(member, time.at_ns)
    if not freed:
        return Outcome((), (seen,))
    released = PartitionsReleased(member, freed, False, time.at_ns)
    return Outcome(freed, (seen, released, *_give(membership.target, freed)))


def leave(
    membership: Membership,
    member: str,
    partitions: Sequence[TopicPartition],
    time: GroupTime,
    generation: int,
) -> Records:
    """Remove a member; its partitions are given to others at once."""
    require_member(membership, member)
    return _remove_members(
        membership, (member,), partitions, _Reason(Cause.LEFT, (member,), time, generation)
    )


def expire(
    membership: Membership,
    partitions: Sequence[TopicPartition],
    time: GroupTime,
    generation: int,
) -> Records:
    """Remove members whose session is over, and take partitions that were not released in time."""
    late = tuple(one.id for one in membership.members.values() if one.deadline_ns <= time.at_ns)
    if late:
        # Deadlines of releases are looked at when asked again: much of it may be settled by this.
        return _remove_members(
            membership, late, partitions, _Reason(Cause.TIMED_OUT, late, time, generation)
        )
    due = [one for one, deadline_ns in membership.asked.items() if deadline_ns <= time.at_ns]
    freed = [
        PartitionsReleased(owner, of_owner, True, time.at_ns)
        for owner, of_owner in _grouped((membership.owners[one], one) for one in due).items()
    ]
    return (*freed, *_give(membership.target, due))


def repartition(
    membership: Membership,
    partitions: Sequence[TopicPartition],
    time: GroupTime,
    generation: int,
) -> Records:
    """Rebalance because topics got more partitions, or were deleted."""
    present = frozenset(partitions)
    lost = [(owner, one) for one, owner in membership.owners.items() if one not in present]
    gone = [
        PartitionsReleased(owner, ones, True, time.at_ns) for owner, ones in _grouped(lost).items()
    ]
    owners = {one: owner for one, owner in membership.owners.items() if one in present}
    after = _NextState(_subscriptions(membership), owners, membership.assignor)
    reason = _Reason(Cause.PARTITIONS, (), time, generation)
    return (*gone, *_rebalance(membership, after, partitions, reason))


class _NextState(NamedTuple):
    """The group after the records that were decided so far."""

    subscriptions: Mapping[str, frozenset[str]]
    owners: Mapping[TopicPartition, str]
    assignor: Assignor


class _Reason(NamedTuple):
    """The cause of a new target."""

    cause: Cause
    members: tuple[str, ...]
    time: GroupTime
    generation: int


def _subscriptions(membership: Membership) -> dict[str, frozenset[str]]:
    return {one.id: one.topics for one in membership.members.values()}


def _remove_members(
    membership: Membership,
    gone: tuple[str, ...],
    partitions: Sequence[TopicPartition],
    reason: _Reason,
) -> Records:
    left = {one: topics for one, topics in _subscriptions(membership).items() if one not in gone}
    owners = {one: owner for one, owner in membership.owners.items() if owner in left}
    after = _NextState(left, owners, membership.assignor)
    return (
        *(MemberRemoved(one, reason.cause) for one in gone),
        *_rebalance(membership, after, partitions, reason),
    )


def _rebalance(
    membership: Membership, after: _NextState, partitions: Sequence[TopicPartition], reason: _Reason
) -> Records:
    """Returns records from the present owners to a new target."""
    owners, asked = after.owners, membership.asked
    target = assign(
        after.assignor, after.subscriptions, partitions, CurrentOwners(owners, asked.keys())
    )
    kept = [(to, one) for one, to in target.items() if owners.get(one) == to and one in asked]
    moving = [(owner, one) for one, owner in owners.items() if target.get(one) != owner]
    deadline_ns = reason.time.at_ns + membership.revocation_ms * _MS
    still = [(owner, one) for owner, one in moving if one not in asked]
    return (
        *(ReleaseWithdrawn(member, ones) for member, ones in _grouped(kept).items()),
        *(ReleaseAsked(member, ones, deadline_ns) for member, ones in _grouped(still).items()),
        *_give(target, (one for one in target if one not in owners)),
        TargetSet(
            reason.generation,
            after.assignor,
            target,
            _changes(membership.owners, target),
            reason.cause,
            reason.members,
            reason.time.at_ns,
            reason.time.wall_ns,
        ),
    )


def _give(
    target: Mapping[TopicPartition, str], free: Iterable[TopicPartition]
) -> Iterable[PartitionsGiven]:
    """Returns records that give free partitions to the members of the target."""
    found = _grouped((target[one], one) for one in free if one in target)
    return [PartitionsGiven(member, ones) for member, ones in found.items()]


def _changes(
    owners: Mapping[TopicPartition, str], target: Mapping[TopicPartition, str]
) -> tuple[Passed, ...]:
    return tuple(
        Passed(one, owners.get(one, ""), target.get(one, ""))
        for one in sorted({*owners, *target})
        if owners.get(one, "") != target.get(one, "")
    )


def _grouped(pairs: Iterable[tuple[str, TopicPartition]]) -> dict[str, Partitions]:
    """Returns partitions by member, both in order."""
    found: dict[str, list[TopicPartition]] = {}
    for member, partition in sorted(pairs):
        found.setdefault(member, []).append(partition)
    return {member: tuple(ones) for member, ones in found.items()}
