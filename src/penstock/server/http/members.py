"""Assigned groups: members join, say that they live, poll what is theirs, and let go of what passes on."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ...api.consume import Poll
from ...api.groups import ListRebalances, Mode, OpenGroup
from ...api.leased import LeasedMessages
from ...api.members import (
    Assignor,
    DescribeMember,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    PollMember,
    ReleasePartitions,
    Standing,
)
from ...api.principals import Action
from ...api.units import time_text
from ...broker.authorise import authorise_member
from ...broker.groups import check_group
from ...errors import (
    BadRequest,
    DamagedBatch,
    ModeConflict,
    NotFound,
    NotOwner,
    StaleGeneration,
    TooManyGroups,
    UnknownMember,
)
from ...model import TopicPartition, check_name
from .consuming import (
    checked_request_id,
    lane_of,
    lease_ms,
    poll_limit,
    poll_timeout_ns,
    shown,
    within_bytes,
)
from .leased import OPENED_BYTES, leased_response
from .requests import Request
from .responses import BATCH, Answer, json_response, nothing
from .routing import Route, TopicIn
from .shapes import Int64, ReceivedOut, Strict, is_base64_wanted
from .sharing import SharedMember
from .times import Span, span_ms

_ASSIGNORS = {one.value: one for one in Assignor}
_ORDERS = {"relaxed": Mode.RELAXED, "strict": Mode.STRICT}
_SESSION = "30s"
_SESSION_MS_MIN = 1000
# How a member of a shared group stands.
_SHARED = Standing(0, "stable", (), (), 0)


class JoinIn(Strict):
    """Who comes, and what it wants to read. A `member_id` of before takes that member's place.

    `keeps_leases`: it is the same member after all, which has lost the broker for a while, with messages in its hands.
    """

    topics: list[str]
    client_id: str = "member"
    member_id: str = ""
    mode: str = "assigned"
    order: str | None = None
    assignor: str | None = None
    session_timeout: Span = _SESSION
    auto_commit: bool = False
    keeps_leases: bool = False


class JoinOut(msgspec.Struct):
    """`assigned_partitions` are to be read now; more may follow when others have let go."""

    member_id: str
    generation: int
    leader: bool
    assigned_partitions: list[str]
    rebalance_required: bool


class MemberIn(Strict):
    member_id: str
    generation: Int64 | None = None


class HeartbeatOut(msgspec.Struct):
    """`partitions_assigned` is the whole assignment; what is in `partitions_to_revoke` has to be let go of.

    `changes` is another number whenever one of the two is.
    """

    state: str
    generation: int
    rebalance_required: bool
    partitions_to_revoke: list[str]
    partitions_assigned: list[str]
    changes: int = 0


class RevokeIn(Strict):
    """Partitions that the member has finished with, such as "orders/0"."""

    member_id: str
    partitions: list[str]
    generation: Int64 | None = None


class RevokeOut(msgspec.Struct):
    released: list[str]


class MemberPollQuery(Strict):
    """A poll of a member. It ends at once when the member has to let go of something or may take something.

    With the `changes` of its last heartbeat also if that happened before.
    """

    member_id: str
    max_messages: Int64 | None = None
    limit: Int64 | None = None
    timeout: Span = 30_000
    generation: Int64 | None = None
    visibility_timeout: Span | None = None
    priority: str | None = None
    request_id: str = ""
    changes: Int64 | None = None
    encoding: str | None = None


class MemberPollOut(msgspec.Struct):
    messages: list[ReceivedOut]
    generation: int
    rebalance_required: bool


class RebalancesOut(msgspec.Struct):
    """By group: why its assignment changed lately, newest last."""

    groups: dict[str, list[dict[str, Any]]]


_JOIN = msgspec.json.Decoder(JoinIn)
_MEMBER = msgspec.json.Decoder(MemberIn)
_REVOKE = msgspec.json.Decoder(RevokeIn)


def written(partitions: Sequence[TopicPartition]) -> list[str]:
    return [f"{one.topic}/{one.number}" for one in partitions]


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("/")
    if not (topic and number.isascii() and number.isdecimal() and len(number) <= 6):
        raise BadRequest(
            f'a partition looks like "orders/0", got {text[:60]!r}', field="partitions"
        )
    return TopicPartition(topic, int(number))


def _session_ms(sent: JoinIn) -> int:
    session_ms = span_ms("session_timeout", sent.session_timeout)
    if session_ms < _SESSION_MS_MIN:
        raise BadRequest("session_timeout must be at least 1s", field="session_timeout")
    return session_ms


async def join(request: Request) -> Answer:
    sent, group = await request.json(_JOIN), request.params["group"]
    if not sent.topics:
        raise BadRequest("topics is empty", field="topics")
    # A name that is taken takes that member's place.
    find_shared(request, sent.member_id)
    if sent.mode == "shared":
        # Forbidden if it is the name of a member whose topics the caller does not reach.
        await request.execute(DescribeMember(group, sent.member_id))
        return await _join_shared(request, sent)
    if sent.mode != "assigned":
        raise BadRequest(f"mode must be assigned or shared, got {sent.mode[:40]!r}", field="mode")
    if sent.order is not None and sent.order not in _ORDERS:
        raise BadRequest(f"order must be relaxed or strict, got {sent.order[:40]!r}", field="order")
    if sent.assignor is not None and sent.assignor not in _ASSIGNORS:
        known = ", ".join(_ASSIGNORS)
        raise BadRequest(f"assignor must be one of {known}", field="assignor")
    command = JoinGroup(
        group,
        sent.member_id,
        tuple(sent.topics),
        client=sent.client_id,
        session_ms=_session_ms(sent),
        assignor=None if sent.assignor is None else _ASSIGNORS[sent.assignor],
        mode=None if sent.order is None else _ORDERS[sent.order],
        is_auto_commit=sent.auto_commit,
        keeps_leases=sent.keeps_leases,
    )
    joined = await request.execute(command)
    standing = joined.standing
    return json_response(
        JoinOut(
            joined.member,
            standing.generation,
            joined.is_first,
            written(standing.assigned),
            bool(standing.to_release),
        )
    )


async def _join_shared(request: Request, sent: JoinIn) -> Answer:
    group, topics = check_group(request.params["group"]), sorted(set(sent.topics))
    if sent.order is not None or sent.assignor is not None or sent.auto_commit:
        raise BadRequest("order, assignor and auto_commit are for assigned groups", field="mode")
    shared = request.door.shared
    session_s = _session_ms(sent) / 1000
    await request.execute(OpenGroup(group, tuple(topics)))
    # A poll for nothing finds out if it is an assigned group.
    name = check_name(sent.member_id or "http", "member")
    polls = [Poll(topic, group, name, 0, 1000) for topic in topics]
    await request.door.driver.poll(polls, request.principal, 0)
    member = shared.join(group, sent.member_id, sent.client_id, topics, session_s)
    return json_response(JoinOut(member.name, 0, False, [], False))


def find_shared(request: Request, name: str) -> SharedMember | None:
    """A member of a shared group, if that is what the name stands for. Forbidden: its topics are not the caller's."""
    known = request.door.shared.get(request.params["group"], name)
    if known is None:
        return None
    with request.noting_refusal():
        authorise_member(request.principal, name, known.topics)
    return request.door.shared.find(request.params["group"], name)


async def heartbeat(request: Request) -> Answer:
    sent, group = await request.json(_MEMBER), request.params["group"]
    if find_shared(request, sent.member_id) is not None:
        return json_response(HeartbeatOut("stable", 0, False, [], []))
    standing = await request.execute(Heartbeat(group, sent.member_id, sent.generation))
    return json_response(
        HeartbeatOut(
            standing.state,
            standing.generation,
            bool(standing.to_release),
            written(standing.to_release),
            written(standing.assigned),
            standing.changes,
        )
    )


async def leave(request: Request) -> Answer:
    sent, group = await request.json(_MEMBER), request.params["group"]
    if find_shared(request, sent.member_id) is not None:
        request.door.release_shared(request.door.shared.leave(group, sent.member_id))
    else:
        await request.execute(LeaveGroup(group, sent.member_id))
    return nothing()


async def revoke(request: Request) -> Answer:
    sent, group = await request.json(_REVOKE), request.params["group"]
    partitions = tuple(_partition(one) for one in sent.partitions)
    released = await request.execute(
        ReleasePartitions(group, sent.member_id, partitions, sent.generation)
    )
    return json_response(RevokeOut(written(released)))


async def poll(request: Request) -> Answer:
    asked, group = request.query(MemberPollQuery), request.params["group"]
    is_base64 = is_base64_wanted(asked.encoding)
    if asked.max_messages is not None and asked.limit is not None:
        raise BadRequest("give one of max_messages and limit", field="limit")
    most = request.door.settings.consumer.max_poll_records
    given = asked.limit if asked.max_messages is None else asked.max_messages
    lent = asked.visibility_timeout
    limit = poll_limit(request, most if given is None else given)
    shared = find_shared(request, asked.member_id)
    if shared is not None:
        return await _poll_shared(request, asked, shared, limit)
    command = PollMember(
        group,
        asked.member_id,
        limit,
        asked.generation,
        None if lent is None else max(1, span_ms("visibility_timeout", lent)),
        lane_of(asked.priority),
        checked_request_id(asked.request_id),
        bytes_max=OPENED_BYTES,
        changes=asked.changes,
    )
    messages: LeasedMessages
    with request.noting_refusal(), request.ends_with_client():
        messages = await request.door.driver.poll_member(
            command, request.principal, poll_timeout_ns(request, asked.timeout)
        )
    standing = await request.execute(DescribeMember(group, asked.member_id))
    messages = await within_bytes(request, messages)
    return _polled(request, messages, standing, is_base64=is_base64)


def _polled(
    request: Request, messages: LeasedMessages, standing: Standing | None, *, is_base64: bool
) -> Answer:
    """Without a standing: it is a member no more, and has to join again."""
    generation = changes = 0
    must_release = True
    if standing is not None:
        generation, changes = standing.generation, standing.changes
        must_release = bool(standing.to_release)
    if request.accepts(BATCH):
        request.door.traffic.delivered += len(messages)
        headers = (
            (b"penstock-generation", b"%d" % generation),
            (b"penstock-rebalance-required", b"%d" % must_release),
            (b"penstock-changes", b"%d" % changes),
        )
        return leased_response(messages, headers)
    out = shown(request, messages, is_base64=is_base64)
    return json_response(MemberPollOut(out, generation, must_release))


async def _poll_shared(
    request: Request, asked: MemberPollQuery, member: SharedMember, limit: int
) -> Answer:
    """Of any of its topics. A poll that is open is a sign of life."""
    polls = [
        Poll(
            topic,
            member.group,
            member.name,
            limit,
            lease_ms(asked.visibility_timeout),
            lane_of(asked.priority),
            checked_request_id(asked.request_id),
            bytes_max=OPENED_BYTES,
        )
        for topic in member.topics
    ]
    member.polls += 1
    try:
        with request.ends_with_client():
            messages: LeasedMessages = await request.door.driver.poll(
                polls, request.principal, poll_timeout_ns(request, asked.timeout)
            )
    finally:
        member.polls -= 1
        request.door.shared.find(member.group, member.name)
    is_base64 = is_base64_wanted(asked.encoding)
    messages = await within_bytes(request, messages)
    return _polled(request, messages, _SHARED, is_base64=is_base64)


async def rebalances(request: Request) -> Answer:
    found = await request.execute(ListRebalances(prefixes=request.principal.prefixes))
    shown = {
        name: [
            {
                "generation": one.generation,
                "cause": one.cause.value,
                "members": list(one.members),
                "at": time_text(one.wall_ns),
                "partitions_passed": len(one.passed),
                "forced": one.forced,
                "took_ms": one.took_ms,
            }
            for one in some
        ]
        for name, some in found.items()
    }
    return json_response(RebalancesOut(shown))


_TAG = "members"
_ERRORS = (UnknownMember, StaleGeneration, NotOwner)


def _post(name: str, call: Any, summary: str, **more: Any) -> Route:
    return Route(
        method="POST",
        path=f"/groups/{{group}}/{name}",
        call=call,
        action=Action.CONSUME,
        summary=summary,
        tag=_TAG,
        topic_in=TopicIn.REST,
        **{"errors": _ERRORS, **more},
    )


ROUTES = (
    _post(
        "join",
        join,
        "Become a member of an assigned group",
        body=JoinIn,
        answer=JoinOut,
        errors=(NotFound, ModeConflict, TooManyGroups),
    ),
    _post("heartbeat", heartbeat, "A sign of life", body=MemberIn, answer=HeartbeatOut),
    _post("leave", leave, "Be a member no more", body=MemberIn, status=204),
    _post("revoke", revoke, "Let go of partitions", body=RevokeIn, answer=RevokeOut),
    Route(
        method="GET",
        path="/groups/{group}/poll",
        call=poll,
        action=Action.CONSUME,
        summary="Lend messages of a member's own partitions to it",
        tag=_TAG,
        query=MemberPollQuery,
        answer=MemberPollOut,
        other_answers={BATCH.decode(): "docs/formats/leased.md, if the client accepts that"},
        errors=(*_ERRORS, DamagedBatch),
        topic_in=TopicIn.REST,
    ),
    Route(
        method="GET",
        path="/rebalance/stats",
        call=rebalances,
        action=Action.SEE_STATS,
        summary="Why assignments changed lately, by group",
        tag=_TAG,
        answer=RebalancesOut,
    ),
)
