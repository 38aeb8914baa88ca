"""Groups as JSON: progress, lag, what members hold."""

from typing import Any

import msgspec

from ...errors import BadRequest
from ..groups import FaultyPartition, GroupFacts, GroupLag, InFlight, Move
from ..units import time_text
from .members import written
from .messages import Int64, Strict
from .paging import PageQuery
from .times import time_text_or_none

_MS = 1_000_000


class GroupsQuery(PageQuery):
    """`details`: state, members and lag of each group, not names alone; 100 groups a page at most. `topics`: names with
    their topics."""

    details: bool = False
    topics: bool = False


class GroupsOut(msgspec.Struct):
    """Names, or with `details` groups as `GET /groups/{group}` has them, and their `lag`, or with
    `topics` alone `group` and `topics`."""

    groups: list[str | dict[str, Any]]
    cursor: str | None


class OffsetsQuery(Strict):
    """`topic`: of this one alone."""

    topic: str | None = None


class MemberOut(msgspec.Struct):
    """A member; of a shared group those that polled of late, or hold messages.

    `host` is where it is, `last_poll` when it polled last, and `last_heartbeat` when anything was heard of it;
    null: not since the broker started.
    """

    member_id: str
    client_id: str
    in_flight: int
    assigned_partitions: list[str]
    partitions_to_revoke: list[str]
    host: str = ""
    last_poll: str | None = None
    last_heartbeat: str | None = None


class GroupOut(msgspec.Struct):
    """`modes` says by topic how it is read; `protocol` is how partitions are assigned."""

    group: str
    state: str
    generation: int
    protocol: str
    modes: dict[str, str]
    topics: list[str]
    members: list[MemberOut]


class LagOut(msgspec.Struct, omit_defaults=True):
    """`faulty`: partitions of the group's topics that cannot be used, and so are not in the total."""

    group: str
    total: int
    partitions: list[dict[str, Any]]
    faulty: list[FaultyPartition] = []


class OffsetsOut(msgspec.Struct):
    """By topic and partition the floor: everything below it is finished, and it is read next."""

    group: str
    offsets: dict[str, dict[str, int]]


class CommitIn(Strict):
    """By topic and partition the offset below which everything is finished; of an assigned group by its owner."""

    offsets: dict[str, dict[str, Int64]]
    member_id: str | None = None
    generation: Int64 | None = None


class CommitOut(msgspec.Struct):
    """`advanced`: whether any floor moved; below the floor a commit changes nothing."""

    group: str
    offsets: dict[str, dict[str, int]]
    advanced: bool


class ResetIn(Strict):
    """Where to begin again: `to` is earliest, latest, an offset or a time.

    Without `topic` on all topics; with `partitions` on these of the topic alone.
    """

    to: str | int
    topic: str | None = None
    partitions: list[Int64] | None = None
    dry_run: bool = False
    force: bool = False


class ResetOut(msgspec.Struct):
    group: str
    dry_run: bool
    partitions: list[dict[str, Any]]


class InFlightOut(msgspec.Struct):
    group: str
    in_flight: list[dict[str, Any]]
    cursor: str | None


def lag_out(group: str, found: GroupLag) -> LagOut:
    total = sum(one.lag for one in found.partitions)
    return LagOut(group, total, [one._asdict() for one in found.partitions], found.faulty)


def moves_out(found: dict[str, list[Move]]) -> list[dict[str, Any]]:
    """Where a reset moved a group, or would move it, a row for each partition."""
    return [{"topic": topic, **one._asdict()} for topic, some in found.items() for one in some]


def offsets_by_topic(found: GroupLag) -> dict[str, dict[str, int]]:
    floors: dict[str, dict[str, int]] = {}
    for one in found.partitions:
        floors.setdefault(one.topic, {})[str(one.partition)] = one.floor
    return floors


def partition_number(written: str) -> int:
    if not (written.isascii() and written.isdecimal() and len(written) <= 6):
        raise BadRequest(f"a partition is a number, got {written[:40]!r}", field="offsets")
    return int(written)


def held_out(one: InFlight, group: str, now_ns: int) -> dict[str, Any]:
    """A message that a member holds."""
    return {
        "receipt_handle": one.receipt,
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "consumer": one.member,
        "group": group,
        "delivery_count": one.attempts,
        "first_delivery": time_text(one.first_delivery_ns),
        "last_delivery": time_text(one.last_delivery_ns),
        "deadline": time_text(now_ns + one.deadline_in_ms * _MS),
    }


def group_out(facts: GroupFacts) -> GroupOut:
    topics, held = list(facts.modes), dict(facts.in_flight)
    joined = [one for one in facts.members if not set(topics).isdisjoint(one.topics)]
    members = [
        MemberOut(
            one.id,
            one.client,
            held.pop(one.id, 0),
            written(one.assigned),
            written(one.to_release),
            one.host,
            time_text_or_none(one.last_poll_ns),
            time_text_or_none(one.last_heartbeat_ns),
        )
        for one in (*joined, *facts.classic_members)
    ]
    members += [
        MemberOut(one.id, one.id, held.pop(one.id, 0), [], [], one.host, polled, polled)
        for one, polled in ((one, time_text(one.last_poll_ns)) for one in facts.pollers)
    ]
    members += [MemberOut(one, one, count, [], []) for one, count in held.items()]
    return GroupOut(
        facts.group,
        facts.state,
        facts.generation,
        facts.assignor,
        facts.modes,
        topics,
        members,
    )
