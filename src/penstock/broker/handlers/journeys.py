"""Journeys of messages: by place, by trace id, and the search for them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...api.command import Command
from ...api.journeys import (
    DescribeJourney,
    DescribeJourneys,
    FindTrace,
    Journey,
    JourneyPage,
    JourneyStats,
    ListJourneys,
    SearchJourneys,
    TopicHistory,
)
from ...errors import NotFound, OffsetOutOfRange, Refused, TraceNotFound
from ...journeys.latency import OTHER
from ...journeys.traces import is_trace_id, place_of
from .. import journey_search, journeys
from ..catalogue import Topic
from ..partition import Now
from ..partition.changes import Handler
from ..walks import Slices, names_covered, partitions_in

if TYPE_CHECKING:
    from ..node import Node


def describe(node: "Node", command: DescribeJourney, _now: Now) -> Slices[Journey]:
    return (yield from journeys.describe(node, command.topic, command.partition, command.offset))


def find_trace(node: "Node", command: FindTrace, _now: Now) -> Slices[Journey]:
    trace_id = command.trace_id
    if not is_trace_id(trace_id):
        raise Refused(
            f"a trace id is 32 hexadecimal digits, not all 0, got {trace_id[:40]!r}",
            field="trace_id",
        )
    derived = yield from _derived(node, command)
    if derived is not None:
        return derived
    page = yield from journey_search.search(
        node,
        SearchJourneys(
            topic=command.topic,
            prefixes=command.prefixes,
            trace_id=trace_id,
            limit=1,
            bytes_max=command.bytes_max,
            cursor=command.cursor,
        ),
    )
    if not page.rows:
        raise TraceNotFound(trace_id, cursor=page.cursor, scanned_bytes=page.scanned_bytes)
    row = page.rows[0]
    return (yield from journeys.describe(node, row.topic, row.partition, row.offset))


def _derived(node: "Node", command: FindTrace) -> Slices[Journey | None]:
    """The journey of a message whose trace id follows from its place."""
    topic_id, partition, number, is_delayed = place_of(command.trace_id)
    facts = node.topics.by_id.get(topic_id)
    if facts is None or not command.covers(facts.name) or partition >= facts.partitions:
        return None
    try:
        if is_delayed:
            place = node.partition(facts.name, partition)
            journey = yield from journeys.describe_delay(node, place, number)
        else:
            journey = yield from journeys.describe(node, facts.name, partition, number)
    except (NotFound, OffsetOutOfRange):
        return None
    # One that came with a trace id of its own is known by that one only.
    return journey if journey.trace_id == command.trace_id else None


def search(node: "Node", command: SearchJourneys, _now: Now) -> Slices[JourneyPage]:
    if command.limit < 1 or command.bytes_max < 1:
        raise Refused("a search needs room for at least one journey and one byte", field="limit")
    if command.trace_id is not None and not is_trace_id(command.trace_id):
        raise Refused("a trace id is 32 hexadecimal digits, not all 0", field="trace_id")
    return (yield from journey_search.search(node, command))


def list_latest(node: "Node", command: ListJourneys, _now: Now) -> Slices[JourneyPage]:
    return (yield from journey_search.latest(node, command))


def describe_all(node: "Node", command: DescribeJourneys, _now: Now) -> Slices[JourneyStats]:
    names = sorted((yield from names_covered(node, command)))
    if command.topic is not None:
        names = [node.topic(command.topic).facts.name]
    histories: list[TopicHistory] = []
    for name in names:
        topic, size, start_ns = node.open.get(name), 0, 0
        for partition in partitions_in(node, [name]):
            size += partition.history.size
            start_ns = max(start_ns, partition.history.start().at_ns)
            yield 1
        if topic is not None and node.open.get(name) is topic:
            histories.append(_history_of(topic, size, start_ns))
        yield 1
    shown = {*names, OTHER} if command.topic is None and not command.prefixes else {*names}
    return JourneyStats(histories, [row for row in node.latencies.rows() if row.topic in shown])


def _history_of(topic: Topic, size: int, start_ns: int) -> TopicHistory:
    partitions, config = topic.partitions.serving, topic.facts.config
    is_served = bool(partitions)
    return TopicHistory(
        topic.facts.name,
        len(partitions),
        size,
        start_ns,
        config.journey_retention_hours if is_served else 0,
        config.journey_retention_bytes if is_served else 0,
    )


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    DescribeJourney: describe,
    FindTrace: find_trace,
    SearchJourneys: search,
    ListJourneys: list_latest,
    DescribeJourneys: describe_all,
}
