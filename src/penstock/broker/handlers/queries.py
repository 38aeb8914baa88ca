"""What engines such as Spark ask for: the ends of many partitions, files of messages, where a query first began."""

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.principals import Principal
from ...api.queries import (
    EndsReply,
    ForgetQueryStart,
    HeldFiles,
    HoldFiles,
    KeepQueryStart,
    ListEnds,
    PartitionEnds,
    QueryStart,
    SealedFile,
    SeeQueryStart,
    TopicEnds,
)
from ...errors import Forbidden, OffsetOutOfRange
from ...log.lookup import offset_at
from ..partition import Now
from ..partition.changes import Handler
from ..partition.slots import Fault
from ..partition.start import visible_end
from ..queries import QueryForgotten, QueryStarted
from ..shares import QUERY_START_BYTES, QUERY_STARTS
from ..walks import Slices, slots_in

if TYPE_CHECKING:
    from ..node import Node

_MS = 1_000_000


def list_ends(node: "Node", command: ListEnds, _now: Now) -> Slices[EndsReply]:
    """Asked for some hundred times a second by every idle stream: no more than a look at numbers in memory."""
    ends: dict[str, TopicEnds] = {}
    missing: list[str] = []
    at_ns = command.at_ns
    for name in command.names:
        topic = node.open.get(name)
        partitions: dict[str, PartitionEnds] = {}
        for slot in slots_in(node, [name]):
            if isinstance(slot, Fault):
                raise slot.error() from slot.cause
            log = slot.messages
            at = None if at_ns is None else offset_at(log, at_ns)
            partitions[str(slot.number)] = PartitionEnds(log.start_offset, visible_end(log), at)
            yield 1
        if topic is None or node.open.get(name) is not topic:
            missing.append(name)
        else:
            ends[name] = TopicEnds(topic.facts.topic_id, partitions)
        yield 1
    return EndsReply(ends, missing)


def hold_files(node: "Node", command: HoldFiles, now: Now) -> HeldFiles:
    partition = node.partition(command.topic, command.partition)
    log = partition.messages
    if not log.start_offset <= command.offset <= log.end_offset:
        raise OffsetOutOfRange(command.offset, start=log.start_offset, end=log.end_offset)
    partition.pins.hold(command.offset, now.monotonic_ns + command.hold_ms * _MS)
    files = [
        SealedFile(one.path, one.base_offset, following.base_offset, one.size)
        for one, following in pairwise(log.segments)
        if one.base_offset < command.end and following.base_offset > command.offset
    ]
    return HeldFiles(log.seed, files)


def keep_start(node: "Node", command: KeepQueryStart, now: Now) -> QueryStart:
    queries, by = node.queries, node.principal
    known = queries.by_name.get(command.start.query)
    if known is not None:
        _require_reach(by, known)
    kept = queries.keep(command.start, owner=by.key_id)
    if kept is not known:
        _require_room(node, kept, known)
        node.record_meta((kept,), now)
    return _query_start(kept)


def _require_room(node: "Node", start: QueryStarted, known: QueryStarted | None) -> None:
    """ShareFull, unless a start may be kept in place of the known one."""
    queries, by = node.queries, node.principal
    count, size = (0, 0) if known is None else (1, known.size_bytes)
    own_count, own_size = (
        (count, size) if known is not None and known.owner == by.key_id else (0, 0)
    )
    QUERY_STARTS.require_room(
        node.limits, by, (queries.counts,), of_key=1 - own_count, in_all=1 - count
    )
    adding = start.size_bytes
    QUERY_START_BYTES.require_room(
        node.limits, by, (queries.bytes,), of_key=adding - own_size, in_all=adding - size
    )


def see_start(node: "Node", command: SeeQueryStart, _now: Now) -> QueryStart:
    return _query_start(_reached(node, command.query))


def forget_start(node: "Node", command: ForgetQueryStart, now: Now) -> None:
    node.record_meta((QueryForgotten(_reached(node, command.query).name),), now)


def _reached(node: "Node", name: str) -> QueryStarted:
    """What is kept for a query. NotFound; Forbidden."""
    kept = node.queries.find(name)
    _require_reach(node.principal, kept)
    return kept


def _require_reach(principal: Principal, kept: QueryStarted) -> None:
    """Forbidden, unless the principal reaches the topics of a start, which it is not told."""
    if not all(map(principal.reaches, _query_start(kept).topics())):
        raise Forbidden(
            f"{principal.name} does not reach the topics of query {kept.name[:60]}",
            principal=principal.name,
        )


def _query_start(kept: QueryStarted) -> QueryStart:
    return QueryStart(kept.name, kept.offsets, kept.ids, kept.asked)


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    ListEnds: list_ends,
    HoldFiles: hold_files,
    KeepQueryStart: keep_start,
    SeeQueryStart: see_start,
    ForgetQueryStart: forget_start,
}
