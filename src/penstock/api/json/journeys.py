"""Journeys as JSON."""

from typing import Any

import msgspec

from ...errors import BadRequest
from ..journeys import (
    Journey,
    JourneyPage,
    JourneyRow,
    JourneyStats,
    JourneyStatus,
    LaneLatency,
    SearchJourneys,
    Span,
)
from ..units import time_text
from .messages import PRIORITY_NAMES, ContentOut, Int64, Strict, content_of, headers_out
from .paging import page_limit
from .times import time_ns

_MS = 1_000_000


class TracesQuery(Strict):
    """The latest first; of one topic, if it is named."""

    topic: str | None = None
    limit: Int64 = 20


class TraceQuery(Strict):
    """In which topic to search for a trace id that a message came with, and where to go on."""

    topic: str | None = None
    cursor: str | None = None


class TraceSearchQuery(Strict):
    """Which journeys: of messages with this key, or this header (a name, or name=value), published in this time."""

    topic: str | None = None
    partition: Int64 | None = None
    key: str | None = None
    header: str | None = None
    trace_id: str | None = None
    consumer_group: str | None = None
    status: str | None = None
    start: str | None = None
    end: str | None = None
    limit: Int64 = 100
    cursor: str | None = None


class SpanOut(msgspec.Struct):
    """An event. `duration_ns` is the time since the event that it answers."""

    span_id: str
    event_type: str
    timestamp: str
    timestamp_ns: str
    topic: str
    partition: int
    offset: int
    consumer_group: str | None
    consumer_id: str | None
    duration_ns: int
    error: str | None
    attributes: dict[str, Any]
    parent_span_id: str | None


class StandingOut(msgspec.Struct):
    """What the message is for a group now."""

    group: str
    status: str
    attempts: int
    consumer_id: str | None
    error: str | None


class TraceRowOut(msgspec.Struct, kw_only=True):
    """A journey in one line."""

    trace_id: str
    topic: str
    partition: int
    offset: int | None
    start: str
    end: str
    duration_ms: float
    status: str
    span_count: int


class TraceOut(TraceRowOut, kw_only=True):
    """A journey. `gaps`: what could not be read, or is not kept any more."""

    delay_id: int | None
    key: ContentOut
    headers: list[tuple[str, ContentOut]]
    priority: str
    groups: list[StandingOut]
    gaps: list[str]
    spans: list[SpanOut]


class TracePageOut(msgspec.Struct):
    """`cursor`: where the search goes on, also if nothing was found yet; null: it is over."""

    traces: list[TraceRowOut]
    scanned_bytes: int
    cursor: str | None


class HistoryOut(msgspec.Struct):
    """What is kept of a topic; `since` null: everything."""

    topic: str
    partitions: int
    history_bytes: int
    since: str | None
    retention_hours: float
    retention_bytes: int


class TraceStatsOut(msgspec.Struct):
    """What journeys can be told of, and how long messages took since the start: seconds, and attempts until the ack."""

    topics: list[HistoryOut]
    latency: list[LaneLatency]


def search_of(asked: TraceSearchQuery, prefixes: tuple[str, ...]) -> SearchJourneys:
    header = None
    if asked.header is not None:
        name, equals, value = asked.header.partition("=")
        header = (name, value.encode() if equals else None)
    status = None
    if asked.status is not None:
        try:
            status = JourneyStatus(asked.status)
        except ValueError:
            known = ", ".join(one.value for one in JourneyStatus)
            raise BadRequest(
                f"status must be one of {known}, got {asked.status[:40]!r}", field="status"
            ) from None
    return SearchJourneys(
        topic=asked.topic,
        prefixes=() if asked.topic is not None else prefixes,
        partition=asked.partition,
        key=None if asked.key is None else asked.key.encode(),
        header=header,
        trace_id=asked.trace_id,
        group=asked.consumer_group,
        status=status,
        start_ns=None if asked.start is None else time_ns("start", asked.start),
        end_ns=None if asked.end is None else time_ns("end", asked.end),
        limit=page_limit(asked.limit),
        cursor=asked.cursor,
    )


def page_out(page: JourneyPage) -> TracePageOut:
    return TracePageOut([*map(row_out, page.rows)], page.scanned_bytes, page.cursor)


def row_out(row: JourneyRow) -> TraceRowOut:
    return TraceRowOut(
        trace_id=row.trace_id,
        topic=row.topic,
        partition=row.partition,
        offset=row.offset,
        start=time_text(row.start_ns),
        end=time_text(row.end_ns),
        duration_ms=(row.end_ns - row.start_ns) / _MS,
        status=row.status.value,
        span_count=row.span_count,
    )


def trace_out(journey: Journey) -> TraceOut:
    return TraceOut(
        trace_id=journey.trace_id,
        topic=journey.topic,
        partition=journey.partition,
        offset=None if journey.offset < 0 else journey.offset,
        start=time_text(journey.start_ns),
        end=time_text(journey.end_ns),
        duration_ms=(journey.end_ns - journey.start_ns) / _MS,
        status=journey.status.value,
        span_count=len(journey.spans),
        delay_id=None if journey.delay_id < 0 else journey.delay_id,
        key=content_of(journey.key, is_base64=False),
        headers=headers_out(journey.headers, is_base64=False),
        priority=PRIORITY_NAMES[journey.priority],
        groups=[
            StandingOut(
                one.group, one.status.value, one.attempts, one.consumer or None, one.error or None
            )
            for one in journey.groups
        ],
        gaps=journey.gaps,
        spans=[*map(span_out, journey.spans)],
    )


def span_out(span: Span) -> SpanOut:
    return SpanOut(
        span.span_id,
        span.event_type.value,
        time_text(span.at_ns),
        str(span.at_ns),
        span.topic,
        span.partition,
        span.offset,
        span.group or None,
        span.consumer or None,
        span.duration_ns,
        span.error or None,
        span.attributes,
        span.parent_span_id or None,
    )


def stats_out(stats: JourneyStats) -> TraceStatsOut:
    topics = [
        HistoryOut(
            one.topic,
            one.partitions,
            one.history_bytes,
            time_text(one.from_ns) if one.from_ns else None,
            one.retention_hours,
            one.retention_bytes,
        )
        for one in stats.topics
    ]
    return TraceStatsOut(topics, stats.latency)
