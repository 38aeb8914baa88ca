"""What members may ask for, decided: each function reads a `Membership` and returns records, or refuses.

The cooperative rule. A change of members or partitions makes a new target and a new generation. What stays where it is
is not touched. What nobody owns is given at once. What has to pass on is asked back from its owner, and given to the
next one when the owner has released it, has gone, or has not done so before the deadline.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..api.groups import Cause, Passed
from ..api.members import Assignor, Standing
from ..errors import NotOwner, Refused, StaleGeneration, UnknownMember
from ..kernel import Outcome
from ..model import TopicPartition
from .assignors import Held, assign
from .membership import Membership
from .records import (
    Asked,
    Given,
    Gone,
    GroupRecord,
    Joined,
    Kept,
    Partitions,
    Released,
    Seen,
    Targeted,
)

SESSION_MS_DEFAULT = 30_000
SESSION_MS_MIN = 1000
SESSION_MS_MAX = 3_600_000
_MS = 1_000_000

Records = tuple[GroupRecord, ...]


class Moment(NamedTuple):
    """When something is decided: what measures waiting, and what people read."""

    at_ns: int
    wall_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """Who wants to be a member. Without an assignor: the one that the group has."""

    member: str
    client: str
    topics: frozenset[str]
    session_ms: int = SESSION_MS_DEFAULT
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
    """Refuse whoever is no member, or was one under this name in an earlier life."""
    known = membership.members.get(member)
    if known is None:
        raise UnknownMember(membership.group, member[:60])
    if generation is not None and not known.joined <= generation <= membership.generation:
        raise StaleGeneration(membership.group, asked=generation, current=membership.generation)


def require_current(membership: Membership, member: str, generation: int | None) -> None:
    """Refuse whoever does not know the present assignment; without a generation it is enough to be a member."""
    require_member(membership, member)
    if generation is not None and generation != membership.generation:
        raise StaleGeneration(membership.group, asked=generation, current=membership.generation)


def require_owner(membership: Membership, member: str, partition: TopicPartition) -> None:
    owner = membership.owners.get(partition, "")
    if owner != member:
        raise NotOwner(membership.group, str(partition), member=member, owner=owner)


def join(
    membership: Membership,
    joining: Joining,
    partitions: Sequence[TopicPartition],
    moment: Moment,
    generation: int,
) -> Records:
    """Become a member. Under the name of one that is there, its partitions are taken over and nothing moves."""
    _check(membership, joining)
    name = joining.member
    joined = Joined(
        name, joining.client, joining.topics, joining.session_ms, generation, moment.at_ns
    )
    cause = Cause.REPLACED if name in membership.members else Cause.JOINED
    given_up: Records = ()
    if cause is Cause.REPLACED and (asked := tuple(membership.to_release(name))):
        # Whoever was asked for them is no more, and the new one has begun nothing yet.
        given_up = (Released(name, asked, True, moment.at_ns),)
    after = _After(
        {**_subscriptions(membership), name: joining.topics},
        {
            one: owner
            for one, owner in membership.owners.items()
            if not (owner == name and one in membership.asked)
        },
        joining.assignor or membership.assignor,
    )
    rest = _rebalance(membership, after, partitions, _Why(cause, (name,), moment, generation))
    return (joined, *given_up, *rest)


def _check(membership: Membership, joining: Joining) -> None:
    if not joining.topics:
        raise Refused("a member needs at least one topic")
    if not SESSION_MS_MIN <= joining.session_ms <= SESSION_MS_MAX:
        raise Refused(
            f"session timeout must be in {SESSION_MS_MIN}..{SESSION_MS_MAX} ms, got {joining.session_ms}"
        )
    others = membership.members.keys() - {joining.member}
    if others and joining.assignor not in (None, membership.assignor):
        raise Refused(
            f"group {membership.group} assigns by {membership.assignor.value}; that changes when all members have left"
        )


def heartbeat(
    membership: Membership, member: str, generation: int | None, moment: Moment
) -> Records:
    """A sign of life. Any generation since the member joined will do: it is how a member hears of a new one."""
    require_member(membership, member, generation)
    return (Seen(member, moment.at_ns),)


def wait(membership: Membership, member: str, moment: Moment, *, is_over: bool) -> Records:
    """Begin or end to wait for messages. Whoever is no member any more has nothing to end."""
    if member not in membership.members:
        return ()
    return (Seen(member, moment.at_ns, -1 if is_over else 1),)


def release(
    membership: Membership,
    member: str,
    generation: int | None,
    partitions: Iterable[TopicPartition],
    moment: Moment,
) -> Outcome[GroupRecord, Partitions]:
    """Let go of what was asked for. What was not asked for stays, also if it is named."""
    require_current(membership, member, generation)
    wanted = sorted(set(partitions))
    for one in wanted:
        require_owner(membership, member, one)
    freed = tuple(one for one in wanted if one in membership.asked)
    seen = Seen(member, moment.at_ns)
    if not freed:
        return Outcome((), (seen,))
    released = Released(member, freed, False, moment.at_ns)
    return Outcome(freed, (seen, released, *_given(membership.target, freed)))


def leave(
    membership: Membership,
    member: str,
    partitions: Sequence[TopicPartition],
    moment: Moment,
    generation: int,
) -> Records:
    """Be a member no more; what it owned passes on at once."""
    require_member(membership, member)
    return _go(membership, (member,), partitions, _Why(Cause.LEFT, (member,), moment, generation))


def expire(
    membership: Membership,
    partitions: Sequence[TopicPartition],
    moment: Moment,
    generation: int,
) -> Records:
    """Miss whoever was not heard of in time, and take what was not released in time."""
    late = tuple(one.id for one in membership.members.values() if one.deadline_ns <= moment.at_ns)
    if late:
        # Deadlines of releases are looked at when asked again: much of it may be settled by this.
        return _go(membership, late, partitions, _Why(Cause.TIMED_OUT, late, moment, generation))
    due = [one for one, deadline_ns in membership.asked.items() if deadline_ns <= moment.at_ns]
    freed = [
        Released(owner, of_owner, True, moment.at_ns)
        for owner, of_owner in _grouped((membership.owners[one], one) for one in due).items()
    ]
    return (*freed, *_given(membership.target, due))


def repartition(
    membership: Membership,
    partitions: Sequence[TopicPartition],
    moment: Moment,
    generation: int,
) -> Records:
    """Topics grew, or are gone."""
    present = frozenset(partitions)
    lost = [(owner, one) for one, owner in membership.owners.items() if one not in present]
    gone = [Released(owner, ones, True, moment.at_ns) for owner, ones in _grouped(lost).items()]
    owners = {one: owner for one, owner in membership.owners.items() if one in present}
    after = _After(_subscriptions(membership), owners, membership.assignor)
    why = _Why(Cause.PARTITIONS, (), moment, generation)
    return (*gone, *_rebalance(membership, after, partitions, why))


class _After(NamedTuple):
    """The group as it will be when what was decided so far has happened."""

    subscriptions: Mapping[str, frozenset[str]]
    owners: Mapping[TopicPartition, str]
    assignor: Assignor


class _Why(NamedTuple):
    """What a new target is about."""

    cause: Cause
    members: tuple[str, ...]
    moment: Moment
    generation: int


def _subscriptions(membership: Membership) -> dict[str, frozenset[str]]:
    return {one.id: one.topics for one in membership.members.values()}


def _go(
    membership: Membership,
    gone: tuple[str, ...],
    partitions: Sequence[TopicPartition],
    why: _Why,
) -> Records:
    left = {one: topics for one, topics in _subscriptions(membership).items() if one not in gone}
    owners = {one: owner for one, owner in membership.owners.items() if owner in left}
    after = _After(left, owners, membership.assignor)
    return (
        *(Gone(one, why.cause) for one in gone),
        *_rebalance(membership, after, partitions, why),
    )


def _rebalance(
    membership: Membership, after: _After, partitions: Sequence[TopicPartition], why: _Why
) -> Records:
    """From the present owners to a new target: who keeps, who is asked, who is given."""
    owners, asked = after.owners, membership.asked
    target = assign(after.assignor, after.subscriptions, partitions, Held(owners, asked.keys()))
    kept = [(to, one) for one, to in target.items() if owners.get(one) == to and one in asked]
    moving = [(owner, one) for one, owner in owners.items() if target.get(one) != owner]
    deadline_ns = why.moment.at_ns + membership.revocation_ms * _MS
    still = [(owner, one) for owner, one in moving if one not in asked]
    return (
        *(Kept(member, ones) for member, ones in _grouped(kept).items()),
        *(Asked(member, ones, deadline_ns) for member, ones in _grouped(still).items()),
        *_given(target, (one for one in target if one not in owners)),
        Targeted(
            why.generation,
            after.assignor,
            target,
            _passed(membership.owners, target),
            why.cause,
            why.members,
            why.moment.at_ns,
            why.moment.wall_ns,
        ),
    )


def _given(target: Mapping[TopicPartition, str], free: Iterable[TopicPartition]) -> Iterable[Given]:
    """Free partitions go to whoever should have them."""
    found = _grouped((target[one], one) for one in free if one in target)
    return [Given(member, ones) for member, ones in found.items()]


def _passed(
    owners: Mapping[TopicPartition, str], target: Mapping[TopicPartition, str]
) -> tuple[Passed, ...]:
    return tuple(
        Passed(one, owners.get(one, ""), target.get(one, ""))
        for one in sorted({*owners, *target})
        if owners.get(one, "") != target.get(one, "")
    )


def _grouped(pairs: Iterable[tuple[str, TopicPartition]]) -> dict[str, Partitions]:
    """Partitions by member, both in order."""
    found: dict[str, list[TopicPartition]] = {}
    for member, partition in sorted(pairs):
        found.setdefault(member, []).append(partition)
    return {member: tuple(ones) for member, ones in found.items()}
