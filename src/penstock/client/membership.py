"""Calls of a member: join, heartbeat, let go, poll, commit, leave."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..api.units import Duration
from .ack_batcher import Delivered
from .calls import (
    ACCEPT_BATCH,
    Call,
    given,
    nothing,
    path_of,
    send,
    span,
    with_query,
)
from .leased_messages import Polled, parts_of
from .wire import Answer


class Joining(NamedTuple):
    """Who joins what. Under a `member` name of before it takes that one's place.

    `keeps_leases`: it is the same one, and has messages in its hands.
    """

    group: str
    topics: Sequence[str]
    mode: str = "shared"
    member: str = ""
    order: str | None = None
    assignor: str | None = None
    session_timeout: Duration = 30
    keeps_leases: bool = False


class JoinReply(msgspec.Struct, frozen=True):
    member_id: str
    generation: int
    assigned_partitions: list[str]
    rebalance_required: bool


class HeartbeatReply(msgspec.Struct, frozen=True):
    """What a member has to know: all that is its own, and what it shall let go of."""

    state: str
    generation: int
    rebalance_required: bool
    partitions_to_revoke: list[str]
    partitions_assigned: list[str]
    changes: int = 0


class RevokeReply(msgspec.Struct, frozen=True):
    released: list[str]


class CommitReply(msgspec.Struct, frozen=True):
    advanced: bool


class Membership(NamedTuple):
    """Who we are in a group, and which of its changes we know of."""

    group: str
    member: str
    generation: int
    changes: int | None = None


def join(joining: Joining) -> Call[JoinReply]:
    """Repeatable: under a name of its own a member only takes its own place; without one, a lost answer is raised."""
    body = given(
        topics=list(joining.topics),
        mode=joining.mode,
        member_id=joining.member or None,
        order=joining.order,
        assignor=joining.assignor,
        session_timeout=span(joining.session_timeout),
        keeps_leases=True if joining.keeps_leases and joining.mode == "assigned" else None,
    )
    target = path_of("groups", joining.group, "join")
    return send("POST", target, body, JoinReply, is_repeatable=bool(joining.member))


def _post(verb: str, who: Membership, kind: type[Any], **more: object) -> Call[Any]:
    body = {"member_id": who.member, "generation": who.generation or None, **more}
    return send("POST", path_of("groups", who.group, verb), given(**body), kind)


def heartbeat(who: Membership) -> Call[HeartbeatReply]:
    return _post("heartbeat", who, HeartbeatReply)


def revoke(who: Membership, partitions: Sequence[str]) -> Call[RevokeReply]:
    return _post("revoke", who, RevokeReply, partitions=list(partitions))


def leave(who: Membership) -> Call[None]:
    call = _post("leave", who, Any)
    return Call(call.method, call.target, nothing, call.body, call.headers)


def commit(who: Membership, offsets: Mapping[str, Mapping[str, int]]) -> Call[CommitReply]:
    return _post("offsets", who, CommitReply, offsets=offsets)


class MemberPoll(NamedTuple):
    """A poll of a member. Repeated under its `request_id` it brings the same messages."""

    limit: int
    wait_s: float
    request_id: str
    visibility_timeout: Duration | None = None
    priority: str | None = None


def poll(who: Membership, asked: MemberPoll) -> Call[Polled[Delivered]]:
    lent = asked.visibility_timeout
    fields = {
        "member_id": who.member,
        "generation": who.generation or None,
        "limit": asked.limit,
        "timeout": span(asked.wait_s),
        "request_id": asked.request_id,
        "visibility_timeout": None if lent is None else span(lent),
        "priority": asked.priority,
        "changes": who.changes,
    }
    target = with_query(path_of("groups", who.group, "poll"), fields)
    return Call("GET", target, _read_polled, b"", ACCEPT_BATCH, wait_s=asked.wait_s)


def _read_polled(answer: Answer) -> Polled[Delivered]:
    return Polled(
        parts_of(answer),
        Delivered,
        answer.number(b"penstock-changes"),
    )
