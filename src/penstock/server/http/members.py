"""Assigned groups: members join, say that they live, poll what is theirs, and let go of what passes on."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from ...api.consume import Poll
from ...api.groups import ListRebalances, Mode, OpenGroup
from ...api.leased import LeasedMessages
from ...api.members import Assignor, Standing
from ...api.principals import Action
from ...api.units import time_text
from ...broker.groups import check_group
from ...broker.memberships import Ask, Join
from ...broker.partition import Now
from ...errors import (
    BadRequest,
    DamagedBatch,
    Forbidden,
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

_ORDERS = {"relaxed": Mode.RELAXED, "strict": Mode.STRICT}
_SESSION = "30s"
_SESSION_MS_MIN = 1000


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


def _wish(sent: JoinIn) -> Join:
    if sent.mode != "assigned":
        raise BadRequest(f"mode must be assigned or shared, got {sent.mode[:40]!r}", field="mode")
    assignors = {one.value: one for one in Assignor}
    if sent.order is not None and sent.order not in _ORDERS:
        raise BadRequest(f"order must be relaxed or strict, got {sent.order[:40]!r}", field="order")
    if sent.assignor is not None and sent.assignor not in assignors:
        known = ", ".join(assignors)
        raise BadRequest(f"assignor must be one of {known}", field="assignor")
    return Join(
        frozenset(sent.topics),
        member=sent.member_id,
        client=sent.client_id,
        session_ms=_session_ms(sent),
        assignor=None if sent.assignor is None else assignors[sent.assignor],
        mode=None if sent.order is None else _ORDERS[sent.order],
        is_auto_commit=sent.auto_commit,
        keeps_leases=sent.keeps_leases,
    )


def _session_ms(sent: JoinIn) -> int:
    session_ms = span_ms("session_timeout", sent.session_timeout)
    if session_ms < _SESSION_MS_MIN:
        raise BadRequest("session_timeout must be at least 1s", field="session_timeout")
    return session_ms


async def join(request: Request) -> Answer:
    sent, group = await request.json(_JOIN), request.params["group"]
    if not sent.topics:
        raise BadRequest("topics is empty", field="topics")
    for topic in sent.topics:
        request.allow(topic)
    # A name that is taken takes that member's place.
    find_shared(request, sent.member_id)
    if sent.mode == "shared":
        request.door.driver.look(lambda _now: allow_replaced(request, sent.member_id))
        return await _join_shared(request, sent)
    wish, driver = _wish(sent), request.door.driver.driver

    def command(now: Now) -> tuple[str, Standing, bool]:
        allow_replaced(request, sent.member_id)
        member, standing = driver.node.assigned.join(group, wish, now)
        first = next(iter(driver.node.assigned.groups[group].members))
        return member, standing, first == member

    member, standing, is_first = await request.door.driver.in_thread(
        lambda: driver.members.change(command)
    )
    out = JoinOut(
        member,
        standing.generation,
        is_first,
        written(standing.assigned),
        bool(standing.to_release),
    )
    return json_response(out)


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
    _allow_as(request, name, known.topics)
    return request.door.shared.find(request.params["group"], name)


def allow_member(request: Request, member: str) -> None:
    """A key that does not reach a member's topics may not speak for it. With the lock held."""
    if not allow_replaced(request, member):
        raise UnknownMember(request.params["group"], member[:60])


def allow_replaced(request: Request, member: str) -> bool:
    """Whether there is a member of this name; Forbidden if its topics are not the caller's. With the lock held."""
    membership = request.node.assigned.groups.get(request.params["group"])
    known = None if membership is None else membership.members.get(member)
    if known is None:
        return False
    _allow_as(request, member, known.topics)
    return True


def _allow_as(request: Request, member: str, topics: Iterable[str]) -> None:
    """Forbidden without the names of the topics, which the caller may not know."""
    try:
        for topic in topics:
            request.allow(topic)
    except Forbidden:
        name = request.principal.name
        raise Forbidden(
            f"{name} does not reach the topics of member {member[:60]}", principal=name
        ) from None


async def heartbeat(request: Request) -> Answer:
    sent, group = await request.json(_MEMBER), request.params["group"]
    driver = request.door.driver.driver
    if find_shared(request, sent.member_id) is not None:
        return json_response(HeartbeatOut("stable", 0, False, [], []))

    def command(now: Now) -> Standing:
        allow_member(request, sent.member_id)
        return driver.node.assigned.heartbeat(group, sent.member_id, sent.generation, now)

    standing = driver.members.sign(group, sent.member_id, command)
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
    driver = request.door.driver.driver
    if find_shared(request, sent.member_id) is not None:
        request.door.release_shared(request.door.shared.leave(group, sent.member_id))
        return nothing()

    def command(now: Now) -> None:
        allow_member(request, sent.member_id)
        driver.node.assigned.leave(group, sent.member_id, now)

    await request.door.driver.in_thread(lambda: driver.members.change(command))
    return nothing()


async def revoke(request: Request) -> Answer:
    sent, group = await request.json(_REVOKE), request.params["group"]
    partitions, driver = [_partition(one) for one in sent.partitions], request.door.driver.driver

    def command(now: Now) -> tuple[TopicPartition, ...]:
        allow_member(request, sent.member_id)
        return driver.node.assigned.release(group, sent.member_id, sent.generation, partitions, now)

    released = await request.door.driver.in_thread(lambda: driver.members.change(command))
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
    ask = Ask(
        asked.member_id,
        limit,
        generation=asked.generation,
        duration_ms=None if lent is None else max(1, span_ms("visibility_timeout", lent)),
        request_id=checked_request_id(asked.request_id),
        priority=lane_of(asked.priority),
        bytes_max=OPENED_BYTES,
        changes=asked.changes,
    )
    driver = request.door.driver
    driver.look(lambda _now: allow_member(request, ask.member))
    messages: LeasedMessages
    with request.ends_with_client():
        messages = await driver.poll_member(group, ask, poll_timeout_ns(request, asked.timeout))
    news = driver.look(lambda _now: _news(request, ask.member))
    messages = await within_bytes(request, messages)
    return _polled(request, messages, news, is_base64=is_base64)


class _News(NamedTuple):
    """How a member stands, as a poll tells it."""

    generation: int = 0
    must_release: bool = False
    changes: int = 0


def _polled(request: Request, messages: LeasedMessages, news: _News, *, is_base64: bool) -> Answer:
    if request.accepts(BATCH):
        request.door.traffic.delivered += len(messages)
        headers = (
            (b"penstock-generation", b"%d" % news.generation),
            (b"penstock-rebalance-required", b"%d" % news.must_release),
            (b"penstock-changes", b"%d" % news.changes),
        )
        return leased_response(messages, headers)
    out = shown(request, messages, is_base64=is_base64)
    return json_response(MemberPollOut(out, news.generation, news.must_release))


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
    return _polled(request, messages, _News(), is_base64=is_base64)


def _news(request: Request, member: str) -> _News:
    membership = request.node.assigned.groups.get(request.params["group"])
    if membership is None or member not in membership.members:
        return _News(must_release=True)
    changes = membership.members[member].changes
    return _News(membership.generation, bool(membership.to_release(member)), changes)


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
