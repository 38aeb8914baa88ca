"""Groups: what they have finished, how far they are behind, what their members hold."""

from collections import Counter
from typing import Any

import msgspec

from ...api.answers import Kind, checked_reason
from ...api.principals import Action
from ...api.start import EARLIEST, LATEST, Start
from ...api.units import time_text
from ...broker import groups as group_facts
from ...broker.groups import InFlight, PartitionLag
from ...broker.partition import Now
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
from ...groups import TopicPartition
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
from .members import allow_member, written
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
    faulty: list[dict[str, Any]] = []


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
    found = request.door.driver.look(lambda _now: request.node.group_names())
    seen, cursor = page_of(
        [name for name, topics in found.items() if request.door.visible(request, topics)],
        asked,
        str,
    )
    shown = [{"group": name, "topics": request.door.visible(request, found[name])} for name in seen]
    return json_response(GroupsOut(shown, cursor))


def topics_of(request: Request) -> list[str]:
    """Topics of the group in the path, those that whoever asks may see; NotFound if there is none."""
    name = request.params["group"]
    found = request.node.group_names().get(name, [])
    seen = request.door.visible(request, found)
    if not seen:
        raise NotFound("group", name)
    return seen


async def describe(request: Request) -> Answer:
    name = request.params["group"]

    def look() -> GroupOut:
        topics, held = topics_of(request), Counter[str]()
        for one in request.node.in_flight(name):
            if one.topic in topics:
                held[one.member] += 1
        facts = request.node.assigned.describe(name)
        members = [
            MemberOut(
                one.id,
                one.client,
                held.pop(one.id, 0),
                written([place for place in one.assigned if place.topic in topics]),
                written([place for place in one.to_release if place.topic in topics]),
            )
            for one in facts.members
            if not set(topics).isdisjoint(one.topics)
        ]
        members += [MemberOut(one, one, count, [], []) for one, count in sorted(held.items())]
        modes = {topic: mode for topic, mode in facts.modes.items() if topic in topics}
        return GroupOut(name, facts.state, facts.generation, facts.assignor, modes, topics, members)

    return json_response(request.door.driver.look(lambda _now: look()))


async def delete(request: Request) -> Answer:
    """Forget a group: its progress, leases and attempts."""
    name = request.params["group"]

    def forget(now: Now) -> None:
        for topic in topics_of(request):
            request.node.close_group(topic, name, now)

    await request.door.driver.change(forget)
    request.audit(f"group {name} deleted")
    return nothing()


def _lags(request: Request, now: Now) -> list[PartitionLag]:
    seen = set(topics_of(request))
    return [one for one in request.node.lag(request.params["group"], now) if one.topic in seen]


async def lag(request: Request) -> Answer:
    found, faults = request.door.driver.look(
        lambda now: (_lags(request, now), request.node.faults())
    )
    total, topics = sum(one.lag for one in found), {one.topic for one in found}
    faulty = [
        {"topic": one.topic, "partition": one.number, "path": one.path, "reason": one.reason}
        for one in faults
        if one.topic in topics
    ]
    lags = [one._asdict() for one in found]
    return json_response(LagOut(request.params["group"], total, lags, faulty))


async def offsets(request: Request) -> Answer:
    found = request.door.driver.look(lambda now: _lags(request, now))
    return json_response(OffsetsOut(request.params["group"], _by_topic(found)))


def _by_topic(found: list[PartitionLag]) -> dict[str, dict[str, int]]:
    floors: dict[str, dict[str, int]] = {}
    for one in found:
        floors.setdefault(one.topic, {})[str(one.partition)] = one.floor
    return floors


async def commit(request: Request) -> Answer:
    """Finish everything below some offsets."""
    sent = await request.json(_COMMIT)
    name = group_facts.check_group(request.params["group"])
    places = [
        (request.allow(topic), _partition(number), offset)
        for topic, numbers in sent.offsets.items()
        for number, offset in numbers.items()
    ]
    if not places:
        raise BadRequest("offsets is empty", field="offsets")

    def run(now: Now) -> bool:
        # First everything that can be refused, so that nothing is done by halves.
        for topic, number, offset in places:
            log = request.node.partition(topic, number).messages
            if not 0 <= offset <= log.end_offset:
                raise OffsetOutOfRange(offset, start=log.start_offset, end=log.end_offset)
        if sent.member_id is not None:
            allow_member(request, sent.member_id)
            offsets = {TopicPartition(topic, number): to for topic, number, to in places}
            member, generation = sent.member_id, sent.generation
            done = request.node.assigned.commit(name, member, generation, offsets, now)
            return any(done.values())
        request.node.open_group_on(sent.offsets, name, now)
        moved = [request.node.commit(topic, number, name, to, now) for topic, number, to in places]
        return any(moved)

    advanced = await request.door.driver.change(run)
    found = request.door.driver.look(lambda now: _lags(request, now))
    return json_response(CommitOut(name, _by_topic(found), advanced))


def _partition(written: str) -> int:
    if not (written.isascii() and written.isdecimal() and len(written) <= 6):
        raise BadRequest(f"a partition is a number, got {written[:40]!r}", field="offsets")
    return int(written)


async def reset(request: Request) -> Answer:
    """Start a group again from another place."""
    sent = await request.json(_RESET)
    name, place = request.params["group"], _start(sent.to)
    if sent.topic is not None:
        request.allow(sent.topic)

    def run(now: Now) -> list[dict[str, Any]]:
        topics = topics_of(request) if sent.topic is None else [sent.topic]
        if not sent.dry_run:
            # First everything that can be refused, so that no topic is reset without the others.
            for topic in topics:
                request.node.check_reset(topic, name, place, now, is_forced=sent.force)
        moves = []
        for topic in topics:
            if sent.dry_run:
                found = request.node.plan_reset(topic, name, place)
            else:
                found = request.node.reset_group(topic, name, place, now, is_forced=sent.force)
            moves += [{"topic": topic, **one._asdict()} for one in found]
        return moves

    if sent.dry_run:
        moves = request.door.driver.look(run)
    else:
        moves = await request.door.driver.change(run)
        request.audit(f"group {name} to {sent.to}")
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

    def look(now: Now) -> tuple[list[InFlight], int]:
        seen = set(topics_of(request))
        return [one for one in request.node.in_flight(name) if one.topic in seen], now.wall_ns

    found, now_ns = request.door.driver.look(look)
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
