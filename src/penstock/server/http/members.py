"""Assigned groups: members join, say that they live, poll what is theirs, and let go of what passes on."""

from typing import Any

import msgspec
from msgspec.structs import replace

from ...api.bounds import POLL_BYTES_MAX
from ...api.consume import Poll
from ...api.groups import ListRebalances, OpenGroup
from ...api.json.members import (
    HeartbeatOut,
    JoinIn,
    JoinOut,
    MemberIn,
    MemberPollOut,
    MemberPollQuery,
    RebalancesOut,
    RevokeIn,
    RevokeOut,
    join_of,
    join_out,
    partition_of,
    rebalances_out,
    session_ms_of,
    written,
)
from ...api.json.messages import is_base64_wanted, polled_out
from ...api.json.poll import checked_request_id, lane_of, lease_ms
from ...api.json.start import start_of
from ...api.json.times import span_ms
from ...api.leased import LeasedMessages
from ...api.members import (
    DescribeMember,
    Heartbeat,
    JoinReply,
    LeaveGroup,
    PollMember,
    ReleasePartitions,
    Standing,
)
from ...api.principals import Action
from ...broker.authorise import authorise_member
from ...broker.groups import check_group
from ...errors import (
    BadRequest,
    DamagedBatch,
    ModeConflict,
    NotFound,
    NotOwner,
    ShareFull,
    StaleGeneration,
    TooManyGroups,
    UnknownMember,
)
from ...model import check_name
from ..shared_members import SharedMember
from .consume import leased_response, poll_limit, poll_timeout_ns, within_bytes
from .requests import Request
from .responses import BATCH, Answer, json_response, nothing
from .routing import Route, TopicIn

# How a member of a shared group stands.
_SHARED = Standing(0, "stable", (), (), 0)


_JOIN = msgspec.json.Decoder(JoinIn)
_MEMBER = msgspec.json.Decoder(MemberIn)
_REVOKE = msgspec.json.Decoder(RevokeIn)


async def join(request: Request) -> Answer:
    sent, group = request.json(_JOIN), request.params["group"]
    if not sent.topics:
        raise BadRequest("topics is empty", field="topics")
    # A name that is taken takes that member's place.
    find_shared(request, sent.member_id)
    if sent.mode == "shared":
        # Forbidden if it is the name of a member whose topics the caller does not reach.
        await request.execute(DescribeMember(group, sent.member_id))
        return await _join_shared(request, sent)
    joined = await request.execute(replace(join_of(group, sent), host=request.client))
    return json_response(join_out(joined, *_times_of(request, sent)))


def _times_of(request: Request, sent: JoinIn) -> tuple[int, int]:
    """How long the session of a member lasts, and how often it should send a heartbeat, in milliseconds."""
    consumer = request.app.settings.consumer
    return session_ms_of(sent) or consumer.session_timeout_ms, consumer.heartbeat_interval_ms


async def _join_shared(request: Request, sent: JoinIn) -> Answer:
    group, topics = check_group(request.params["group"]), sorted(set(sent.topics))
    if sent.order is not None or sent.assignor is not None or sent.auto_commit:
        raise BadRequest("order, assignor and auto_commit are for assigned groups", field="mode")
    shared = request.app.shared
    times = _times_of(request, sent)
    await request.execute(OpenGroup(group, tuple(topics), start_of(sent.start, "start")))
    # A poll for nothing finds out if it is an assigned group.
    name = check_name(sent.member_id or "http", "member")
    polls = [Poll(topic, group, name, 0, 1000) for topic in topics]
    await request.app.driver.poll(polls, request.principal, 0)
    member = shared.join(
        *(group, sent.member_id, sent.client_id, topics, times[0] / 1000),
        by=request.principal,
        limits=request.app.limits,
    )
    return json_response(join_out(JoinReply(member.name, _SHARED, False), *times))


def find_shared(request: Request, name: str) -> SharedMember | None:
    """A member of a shared group, if that is what the name stands for. Forbidden: its topics are not the caller's."""
    known = request.app.shared.get(request.params["group"], name)
    if known is None:
        return None
    with request.noting_refusal():
        authorise_member(request.principal, name, known.topics)
    return request.app.shared.find(request.params["group"], name)


async def heartbeat(request: Request) -> Answer:
    sent, group = request.json(_MEMBER), request.params["group"]
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
    sent, group = request.json(_MEMBER), request.params["group"]
    if find_shared(request, sent.member_id) is not None:
        request.app.release_shared(request.app.shared.leave(group, sent.member_id))
    else:
        await request.execute(LeaveGroup(group, sent.member_id))
    return nothing()


async def revoke(request: Request) -> Answer:
    sent, group = request.json(_REVOKE), request.params["group"]
    partitions = tuple(partition_of(one) for one in sent.partitions)
    released = await request.execute(
        ReleasePartitions(group, sent.member_id, partitions, sent.generation)
    )
    return json_response(RevokeOut(written(released)))


async def poll(request: Request) -> Answer:
    asked, group = request.query(MemberPollQuery), request.params["group"]
    is_base64 = is_base64_wanted(asked.encoding)
    if asked.max_messages is not None and asked.limit is not None:
        raise BadRequest("give one of max_messages and limit", field="limit")
    most = request.app.settings.consumer.max_poll_records
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
        bytes_max=POLL_BYTES_MAX,
        changes=asked.changes,
    )
    messages: LeasedMessages
    with request.noting_refusal(), request.ends_with_client():
        messages = await request.app.driver.poll_member(
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
        headers = (
            (b"penstock-generation", b"%d" % generation),
            (b"penstock-rebalance-required", b"%d" % must_release),
            (b"penstock-changes", b"%d" % changes),
        )
        return leased_response(messages, headers)
    out = polled_out(messages, is_base64=is_base64)
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
            bytes_max=POLL_BYTES_MAX,
            host=request.client,
        )
        for topic in member.topics
    ]
    member.polls += 1
    try:
        with request.ends_with_client():
            messages: LeasedMessages = await request.app.driver.poll(
                polls, request.principal, poll_timeout_ns(request, asked.timeout)
            )
    finally:
        member.polls -= 1
        request.app.shared.find(member.group, member.name)
    is_base64 = is_base64_wanted(asked.encoding)
    messages = await within_bytes(request, messages)
    return _polled(request, messages, _SHARED, is_base64=is_base64)


async def rebalances(request: Request) -> Answer:
    found = await request.execute(ListRebalances(prefixes=request.principal.prefixes))
    return json_response(rebalances_out(found))


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
        errors=(NotFound, ModeConflict, ShareFull, TooManyGroups),
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
