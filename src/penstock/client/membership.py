"""The calls of a group's member: join, heartbeat, release partitions, poll, commit, leave."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from .calls import ACCEPT_BATCH, Call, given, nothing, path_of, send, span, with_query
from .consumer_options import ConsumerSettings
from .leased_messages import Delivered, Polled, parts_of
from .wire import Answer


class JoinReply(msgspec.Struct, frozen=True):
    member_id: str
    generation: int


class HeartbeatReply(msgspec.Struct, frozen=True):
    """All partitions of a member, and those that it shall release."""

    generation: int
    partitions_to_revoke: list[str]
    partitions_assigned: list[str]
    changes: int = 0


class CommitReply(msgspec.Struct, frozen=True):
    advanced: bool


class Membership(NamedTuple):
    """A member of a group. `changes` is the last change of the group that it knows of."""

    group: str
    member: str
    generation: int = 0
    changes: int | None = None


def join(
    membership: Membership, topics: Sequence[str], settings: ConsumerSettings, *, is_rejoin: bool
) -> Call[JoinReply]:
    """Repeatable: a member that joins again under its name takes its own place. A rejoin keeps its leases."""
    body = given(
        topics=topics,
        mode=settings.mode,
        member_id=membership.member,
        order=settings.order,
        assignor=settings.assignor,
        session_timeout=span(settings.session_timeout),
        keeps_leases=True if is_rejoin and settings.is_assigned else None,
    )
    return send("POST", path_of("groups", membership.group, "join"), body, JoinReply)


def _post(verb: str, membership: Membership, kind: type[Any], **more: object) -> Call[Any]:
    body = {"member_id": membership.member, "generation": membership.generation or None, **more}
    return send("POST", path_of("groups", membership.group, verb), given(**body), kind)


def heartbeat(membership: Membership) -> Call[HeartbeatReply]:
    return _post("heartbeat", membership, HeartbeatReply)


def revoke(membership: Membership, partitions: Sequence[str]) -> Call[Any]:
    return _post("revoke", membership, Any, partitions=list(partitions))


def leave(membership: Membership) -> Call[None]:
    call = _post("leave", membership, Any)
    return Call(call.method, call.target, nothing, call.body, call.headers)


def commit(membership: Membership, offsets: Mapping[str, int]) -> Call[CommitReply]:
    """Offsets are by partition, such as "orders/0". A commit of any generation counts."""
    by_topic: dict[str, dict[str, int]] = {}
    for place, offset in offsets.items():
        topic, _, number = place.rpartition("/")
        by_topic.setdefault(topic, {})[number] = offset
    return _post("offsets", membership._replace(generation=0), CommitReply, offsets=by_topic)


def poll(
    membership: Membership,
    settings: ConsumerSettings,
    *,
    limit: int,
    wait_s: float,
    request_id: str,
) -> Call[Polled[Delivered]]:
    """Repeated under its `request_id` it brings the messages of the first time."""
    lease = settings.visibility_timeout
    fields = {
        "member_id": membership.member,
        "generation": membership.generation or None,
        "limit": limit,
        "timeout": span(wait_s),
        "request_id": request_id,
        "visibility_timeout": None if lease is None else span(lease),
        "priority": settings.priority,
        "changes": membership.changes,
    }
    target = with_query(path_of("groups", membership.group, "poll"), fields)
    return Call("GET", target, _read_polled, b"", ACCEPT_BATCH, wait_s=wait_s)


def _read_polled(answer: Answer) -> Polled[Delivered]:
    return Polled(parts_of(answer), Delivered, answer.headers.number(b"penstock-changes"))
