"""Groups: what they have finished, how far they are behind, what their members hold."""

from typing import Any

import msgspec

from ...api.answers import Kind, checked_reason
from ...api.groups import (
    CloseGroup,
    Commit,
    DescribeGroup,
    DescribeLag,
    FaultyPartition,
    GroupLag,
    InFlight,
    ListGroups,
    ListInFlight,
    PartitionOffset,
    PlanReset,
    ResetGroup,
)
from ...api.members import CommitAsMember
from ...api.principals import Action
from ...api.start import EARLIEST, LATEST, Start
from ...api.units import time_text
from ...errors import (
    BadRequest,
    GroupBusy,
    NotFound,
    NotOwner,
    OffsetOutOfRange,
    StaleGeneration,
    StaleReceipt,
    TooManyGroups,
)
from .answering import (
    ExtendIn,
    ExtendOut,
    ManyOut,
    NackOut,
    ReceiptsIn,
    RejectIn,
    nack_out,
    respond,
)
from .answering import extend as extend_receipts
from .members import written
from .paging import PageQuery, page_of
from .requests import Request
from .responses import Answer, json_response, nothing
from .routing import Route, TopicIn
from .shapes import Int64, Strict
from .times import time_ns

_MS = 1_000_000


class GroupsOut(msgspec.Struct):
    """Groups with the topics that they read."""

    groups: list[dict[str, Any]]
    cursor: str | None


class MemberOut(msgspec.Struct):
    """A member; of a shared group only those are known who hold messages."""

    member_id: str
    client_id: str
    in_flight: int
    assigned_partitions: list[str]
    partitions_to_revoke: list[str]


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
    """Where to begin again: `to` is earliest, latest, an offset or a time; without `topic` on all topics."""

    to: str | int
    topic: str | None = None
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


_COMMIT = msgspec.json.Decoder(CommitIn)
_RESET = msgspec.json.Decoder(ResetIn)
_RECEIPTS = msgspec.json.Decoder(ReceiptsIn)
_REJECT = msgspec.json.Decoder(RejectIn)


async def list_groups(request: Request) -> Answer:
    asked = request.query(PageQuery)
    found = await request.execute(ListGroups(prefixes=request.principal.prefixes))
    seen, cursor = page_of(list(found), asked, str)
    return json_response(
        GroupsOut([{"group": name, "topics": found[name]} for name in seen], cursor)
    )


async def describe(request: Request) -> Answer:
    name, prefixes = request.params["group"], request.principal.prefixes
    facts = await request.execute(DescribeGroup(name, prefixes=prefixes))
    topics, held = list(facts.modes), dict(facts.in_flight)
    members = [
        MemberOut(
            one.id,
            one.client,
            held.pop(one.id, 0),
            written(one.assigned),
            written(one.to_release),
        )
        for one in facts.members
        if not set(topics).isdisjoint(one.topics)
    ]
    members += [MemberOut(one, one, count, [], []) for one, count in held.items()]
    return json_response(
        GroupOut(
            facts.group,
            facts.state,
            facts.generation,
            facts.assignor,
            facts.modes,
            topics,
            members,
        )
    )


async def delete(request: Request) -> Answer:
    """Forget a group: its progress, leases and attempts."""
    name = request.params["group"]
    await request.execute(CloseGroup(name, prefixes=request.principal.prefixes))
    request.audit(f"group {name} deleted")
    return nothing()


async def lag(request: Request) -> Answer:
    found = await _lag(request)
    total = sum(one.lag for one in found.partitions)
    lags = [one._asdict() for one in found.partitions]
    return json_response(LagOut(request.params["group"], total, lags, found.faulty))


async def _lag(request: Request) -> GroupLag:
    """How far the group in the path is behind on the topics that the principal reaches."""
    name, prefixes = request.params["group"], request.principal.prefixes
    return await request.execute(DescribeLag(name, prefixes=prefixes))


async def offsets(request: Request) -> Answer:
    return json_response(OffsetsOut(request.params["group"], _by_topic(await _lag(request))))


def _by_topic(found: GroupLag) -> dict[str, dict[str, int]]:
    floors: dict[str, dict[str, int]] = {}
    for one in found.partitions:
        floors.setdefault(one.topic, {})[str(one.partition)] = one.floor
    return floors


async def commit(request: Request) -> Answer:
    """Finish everything below some offsets."""
    sent = await request.json(_COMMIT)
    name = request.params["group"]
    offsets = tuple(
        PartitionOffset(topic, _partition(number), offset)
        for topic, numbers in sent.offsets.items()
        for number, offset in numbers.items()
    )
    if not offsets:
        raise BadRequest("offsets is empty", field="offsets")
    if sent.member_id is None:
        advanced = await request.execute(Commit(name, offsets, opens_group=True))
    else:
        advanced = await request.execute(
            CommitAsMember(name, sent.member_id, offsets, sent.generation)
        )
    return json_response(CommitOut(name, _by_topic(await _lag(request)), advanced))


def _partition(written: str) -> int:
    if not (written.isascii() and written.isdecimal() and len(written) <= 6):
        raise BadRequest(f"a partition is a number, got {written[:40]!r}", field="offsets")
    return int(written)


async def reset(request: Request) -> Answer:
    """Start a group again from another place."""
    sent = await request.json(_RESET)
    name, to = request.params["group"], _start(sent.to)
    prefixes = request.principal.prefixes
    if sent.dry_run:
        found = await request.execute(PlanReset(name, topic=sent.topic, prefixes=prefixes, to=to))
    else:
        found = await request.execute(
            ResetGroup(name, topic=sent.topic, prefixes=prefixes, to=to, is_forced=sent.force)
        )
        request.audit(f"group {name} to {sent.to}")
    moves = [{"topic": topic, **one._asdict()} for topic, some in found.items() for one in some]
    return json_response(ResetOut(name, sent.dry_run, moves))


def _start(to: str | int) -> Start:
    if isinstance(to, int):
        if to < 0:
            raise BadRequest(f"an offset is not negative, got {to}", field="to")
        return Start.at_offset(to)
    named = {"earliest": EARLIEST, "latest": LATEST}
    return named.get(to) or Start.at_time(time_ns("to", to))


async def in_flight(request: Request) -> Answer:
    """What the members hold."""
    asked, name = request.query(PageQuery), request.params["group"]
    found = await request.execute(ListInFlight(name, prefixes=request.principal.prefixes))
    now_ns = request.door.driver.driver.now().wall_ns
    seen, cursor = page_of(
        found, asked, lambda one: f"{one.topic}/{one.partition:06}/{one.offset:020}"
    )
    return json_response(InFlightOut(name, [_held_out(one, name, now_ns) for one in seen], cursor))


def _held_out(one: InFlight, group: str, now_ns: int) -> dict[str, Any]:
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


async def release(request: Request) -> Answer:
    """Take messages from their holders: they are ready at once, and the attempt does not count."""
    released = await respond(request, await request.json(_RECEIPTS), Kind.RELEASE, nack_out)
    request.audit(f"group {request.params['group']}: messages taken back")
    return released


async def bury(request: Request) -> Answer:
    """Make dead letters of messages that consumers hold."""
    sent = await request.json(_REJECT)
    reason = checked_reason(sent.reason)
    buried = await respond(request, sent, Kind.REJECT, nack_out, reason=reason)
    request.audit(f"group {request.params['group']}: dead letters by hand")
    return buried


_TAG = "groups"


def _see(path: str, call: Any, summary: str, answer: type, query: type | None = None) -> Route:
    return Route(
        method="GET",
        path=path,
        call=call,
        action=Action.SEE_GROUPS,
        summary=summary,
        tag=_TAG,
        query=query,
        answer=answer,
        errors=(NotFound,),
    )


def _take(name: str, call: Any, summary: str, body: type, answer: Any) -> Route:
    return Route(
        method="POST",
        path=f"/groups/{{group}}/inflight/{name}",
        call=call,
        action=Action.CHANGE_GROUP,
        summary=summary,
        tag=_TAG,
        body=body,
        answer=answer,
        errors=(NotFound, StaleReceipt),
        topic_in=TopicIn.REST,
    )


ROUTES = (
    _see("/groups", list_groups, "List groups", GroupsOut, PageQuery),
    _see("/groups/{group}", describe, "Describe a group", GroupOut),
    Route(
        method="DELETE",
        path="/groups/{group}",
        call=delete,
        action=Action.CHANGE_GROUP,
        summary="Forget a group and its progress",
        tag=_TAG,
        status=204,
        errors=(NotFound,),
    ),
    _see("/groups/{group}/lag", lag, "How far a group is behind", LagOut),
    _see("/groups/{group}/offsets", offsets, "What a group has finished", OffsetsOut),
    Route(
        method="POST",
        path="/groups/{group}/offsets",
        call=commit,
        action=Action.COMMIT,
        summary="Finish everything below some offsets",
        tag=_TAG,
        body=CommitIn,
        answer=CommitOut,
        errors=(NotFound, OffsetOutOfRange, NotOwner, StaleGeneration, TooManyGroups),
        topic_in=TopicIn.REST,
    ),
    Route(
        method="POST",
        path="/groups/{group}/offsets/reset",
        call=reset,
        action=Action.CHANGE_GROUP,
        summary="Start a group again from another place; `dry_run` only says what would happen",
        tag=_TAG,
        body=ResetIn,
        answer=ResetOut,
        errors=(NotFound, OffsetOutOfRange, GroupBusy),
        topic_in=TopicIn.REST,
    ),
    _see("/groups/{group}/inflight", in_flight, "What its members hold", InFlightOut, PageQuery),
    _take("release", release, "Make held messages ready at once", ReceiptsIn, NackOut | ManyOut),
    _take("extend", extend_receipts, "Give holders more time", ExtendIn, ExtendOut | ManyOut),
    _take("dead-letter", bury, "Make dead letters of held messages", RejectIn, NackOut | ManyOut),
)
