"""Groups: what they have finished, how far they are behind, what their members hold."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import asdict

from ...api.answers import Kind, checked_reason
from ...api.groups import (
    CloseGroup,
    Commit,
    DescribeGroup,
    DescribeLag,
    GroupLag,
    ListGroups,
    ListInFlight,
    PartitionOffset,
    PlanReset,
    ResetGroup,
)
from ...api.json.answers import ExtendIn, ExtendOut, ManyOut, NackOut, ReceiptsIn, RejectIn
from ...api.json.groups import (
    CommitIn,
    CommitOut,
    GroupOut,
    GroupsOut,
    GroupsQuery,
    InFlightOut,
    LagOut,
    OffsetsOut,
    OffsetsQuery,
    ResetIn,
    ResetOut,
    group_out,
    held_out,
    lag_out,
    moves_out,
    offsets_by_topic,
    partition_number,
)
from ...api.json.paging import PageQuery, page_of
from ...api.json.start import start_of
from ...api.members import CommitAsMember
from ...api.principals import Action
from ...errors import (
    BadRequest,
    GroupBusy,
    NotFound,
    NotOwner,
    OffsetOutOfRange,
    ShareFull,
    StaleGeneration,
    StaleReceipt,
    TooManyGroups,
)
from .answers import extend as extend_receipts
from .answers import nack_out, respond
from .requests import Request
from .responses import Answer, json_response, nothing
from .routing import Route, TopicIn

# Groups of a page with details: each is two commands.
_DETAILED_MAX = 100
_COMMIT = msgspec.json.Decoder(CommitIn)
_RESET = msgspec.json.Decoder(ResetIn)
_RECEIPTS = msgspec.json.Decoder(ReceiptsIn)
_REJECT = msgspec.json.Decoder(RejectIn)


def partition_offsets(sent: Mapping[str, Mapping[str, int]]) -> tuple[PartitionOffset, ...]:
    """Offsets as a client writes them, by topic and partition. BadRequest: there are none, or one is negative."""
    offsets = tuple(
        PartitionOffset(topic, partition_number(number), offset)
        for topic, numbers in sent.items()
        for number, offset in numbers.items()
    )
    if not offsets:
        raise BadRequest("offsets is empty", field="offsets")
    for one in offsets:
        if one.offset < 0:
            raise BadRequest(f"an offset is not negative, got {one.offset}", field="offsets")
    return offsets


async def list_groups(request: Request) -> Answer:
    asked = request.query(GroupsQuery)
    found = await request.execute(ListGroups(prefixes=request.principal.prefixes))
    if not asked.details:
        seen, cursor = page_of(list(found), asked, str)
        if asked.topics:
            named = [{"group": name, "topics": found[name]} for name in seen]
            return json_response(GroupsOut([*named], cursor))
        return json_response(GroupsOut([*seen], cursor))
    asked.limit = min(asked.limit, _DETAILED_MAX)
    seen, cursor = page_of(list(found), asked, str)
    groups: list[str | dict[str, Any]] = []
    for name in seen:
        with suppress(NotFound):  # It was deleted meanwhile.
            facts = await request.execute(DescribeGroup(name, prefixes=request.principal.prefixes))
            lag = await request.execute(DescribeLag(name, prefixes=request.principal.prefixes))
            groups.append({**asdict(group_out(facts)), "lag": lag_out(name, lag).total})
    return json_response(GroupsOut(groups, cursor))


async def describe(request: Request) -> Answer:
    name, prefixes = request.params["group"], request.principal.prefixes
    facts = await request.execute(DescribeGroup(name, prefixes=prefixes))
    return json_response(group_out(facts))


async def delete(request: Request) -> Answer:
    """Forget a group: its progress, leases and attempts."""
    name = request.params["group"]
    await request.execute_audited(CloseGroup(name, prefixes=request.principal.prefixes))
    return nothing()


async def lag(request: Request) -> Answer:
    return json_response(lag_out(request.params["group"], await _lag(request)))


async def _lag(request: Request, topic: str | None = None) -> GroupLag:
    """How far the group in the path is behind on a topic, or on all that the principal reaches."""
    name, prefixes = request.params["group"], request.principal.prefixes
    return await request.execute(DescribeLag(name, topic=topic, prefixes=prefixes))


async def offsets(request: Request) -> Answer:
    found = await _lag(request, request.query(OffsetsQuery).topic)
    return json_response(OffsetsOut(request.params["group"], offsets_by_topic(found)))


async def commit(request: Request) -> Answer:
    """Finish everything below some offsets."""
    sent = request.json(_COMMIT)
    name = request.params["group"]
    offsets = partition_offsets(sent.offsets)
    if sent.member_id is None:
        advanced = await request.execute(Commit(name, offsets, opens_group=True))
    else:
        advanced = await request.execute(
            CommitAsMember(name, sent.member_id, offsets, sent.generation)
        )
    return json_response(CommitOut(name, offsets_by_topic(await _lag(request)), advanced))


async def reset(request: Request) -> Answer:
    """Start a group again from another place."""
    sent = request.json(_RESET)
    name, to = request.params["group"], start_of(sent.to)
    prefixes = request.principal.prefixes
    partitions = None if sent.partitions is None else tuple(sent.partitions)
    if sent.dry_run:
        found = await request.execute(
            PlanReset(name, topic=sent.topic, prefixes=prefixes, to=to, partitions=partitions)
        )
    else:
        found = await request.execute_audited(
            ResetGroup(
                name,
                topic=sent.topic,
                prefixes=prefixes,
                to=to,
                partitions=partitions,
                is_forced=sent.force,
            )
        )
    return json_response(ResetOut(name, sent.dry_run, moves_out(found)))


async def in_flight(request: Request) -> Answer:
    """What the members hold."""
    asked, name = request.query(PageQuery), request.params["group"]
    found = await request.execute(ListInFlight(name, prefixes=request.principal.prefixes))
    now_ns = request.now_ns()
    seen, cursor = page_of(
        found, asked, lambda one: f"{one.topic}/{one.partition:06}/{one.offset:020}"
    )
    return json_response(InFlightOut(name, [held_out(one, name, now_ns) for one in seen], cursor))


async def release(request: Request) -> Answer:
    """Take messages from their holders: they are ready at once, and the attempt does not count."""
    request.admit_line()
    released = await respond(request, request.json(_RECEIPTS), Kind.RELEASE, nack_out)
    await request.audit(f"group {request.params['group']}: messages taken back")
    return released


async def bury(request: Request) -> Answer:
    """Make dead letters of messages that consumers hold."""
    sent = request.json(_REJECT)
    reason = checked_reason(sent.reason)
    request.admit_line()
    buried = await respond(request, sent, Kind.REJECT, nack_out, reason=reason)
    await request.audit(f"group {request.params['group']}: dead letters by hand")
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
        errors=(NotFound,) if "{group}" in path else (),
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
    _see("/groups", list_groups, "List groups", GroupsOut, GroupsQuery),
    _see("/groups/{group}", describe, "Describe a group", GroupOut),
    Route(
        method="DELETE",
        path="/groups/{group}",
        call=delete,
        action=Action.CHANGE_GROUP,
        summary="Forget a group and its progress",
        tag=_TAG,
        status=204,
        errors=(NotFound, GroupBusy),
    ),
    _see("/groups/{group}/lag", lag, "How far a group is behind", LagOut),
    _see("/groups/{group}/offsets", offsets, "What a group has finished", OffsetsOut, OffsetsQuery),
    Route(
        method="POST",
        path="/groups/{group}/offsets",
        call=commit,
        action=Action.COMMIT,
        summary="Finish everything below some offsets",
        tag=_TAG,
        body=CommitIn,
        answer=CommitOut,
        errors=(NotFound, OffsetOutOfRange, NotOwner, StaleGeneration, ShareFull, TooManyGroups),
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
