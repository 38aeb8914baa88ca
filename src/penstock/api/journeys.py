"""Journeys: what happened to a message, for every group, and the search for messages whose journey is wanted."""

from collections.abc import Iterable
from enum import Enum
from typing import Annotated

import msgspec

from ..model import Headers
from .bounds import PAGE_MAX, Within
from .command import Command, ScopedCommand
from .dead_letters import DEAD_LETTER_SUFFIX
from .principals import Action

SEARCH_BYTES = 16 << 20
"""How many bytes of messages one page of a search reads at most."""


LATENCY_BOUNDS_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0),
)
"""Upper bounds of the buckets in which latencies are counted; one more is for everything above."""

ATTEMPT_BOUNDS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0, 50.0)


class EventType(Enum):
    """What may happen to a message."""

    RECEIVED = "publish.received"
    PERSISTED = "publish.persisted"
    SCHEDULED = "delay.scheduled"
    RESCHEDULED = "delay.rescheduled"
    FIRED = "delay.fired"
    CANCELED = "delay.canceled"
    DELAY_LOST = "delay.lost"
    FETCHED = "consume.fetched"
    ACKED = "consume.acked"
    NACKED = "consume.nacked"
    REJECTED = "consume.rejected"
    RELEASED = "consume.released"
    COMMITTED = "consume.committed"
    REOPENED = "consume.reopened"
    REWOUND = "consume.rewound"
    SKIPPED = "consume.skipped"
    EXTENDED = "visibility.extended"
    VISIBILITY_EXPIRED = "visibility.expired"
    TTL_EXPIRED = "ttl.expired"
    ROUTED = "dlq.routed"
    DROPPED = "dlq.dropped"
    REDRIVEN = "dlq.redriven"
    RETURNED = "dlq.returned"
    GROUP_DELETED = "group.deleted"
    CLAIMED = "transaction.claimed"
    TRANSACTION_COMMITTED = "transaction.committed"
    TRANSACTION_ABORTED = "transaction.aborted"
    ARCHIVED = "archive.stored"


class JourneyStatus(Enum):
    """What came of a message so far."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    RETRYING = "retrying"
    DELAYED = "delayed"
    EXPIRED = "expired"


class Span(msgspec.Struct, frozen=True):
    """One event of a journey. Times are wall time; `duration_ns` is the time since the event that it answers."""

    span_id: str
    event_type: EventType
    at_ns: int
    topic: str
    partition: int
    # Of the message, or of a delayed one its id.
    offset: int
    group: str = ""
    consumer: str = ""
    duration_ns: int = 0
    error: str = ""
    attributes: dict[str, str | int | bool] = {}
    parent_span_id: str = ""


class GroupStanding(msgspec.Struct, frozen=True):
    """What a message is for one group now."""

    group: str
    status: JourneyStatus
    attempts: int = 0
    consumer: str = ""
    error: str = ""


class JourneyRow(msgspec.Struct, frozen=True):
    """A journey in one line of a list."""

    trace_id: str
    topic: str
    partition: int
    offset: int
    start_ns: int
    end_ns: int
    status: JourneyStatus
    span_count: int


class Journey(msgspec.Struct, frozen=True):
    """The story of a message: everything that the records tell of it, in order.

    `gaps` says what could not be read, or is older than the history that is kept. `delay_id` is below zero unless it
    was delayed, `offset` below zero while it still is.
    """

    trace_id: str
    topic: str
    partition: int
    offset: int
    delay_id: int
    key: bytes | None
    headers: Headers
    priority: int
    status: JourneyStatus
    spans: list[Span]
    groups: list[GroupStanding]
    gaps: list[str] = []

    @property
    def start_ns(self) -> int:
        return self.spans[0].at_ns if self.spans else 0

    @property
    def end_ns(self) -> int:
        return self.spans[-1].at_ns if self.spans else 0


class JourneyPage(msgspec.Struct, frozen=True):
    """Journeys that a search found, and where it goes on; no cursor: there are no more."""

    rows: list[JourneyRow]
    scanned_bytes: int
    cursor: str | None = None


class Distribution(msgspec.Struct, frozen=True):
    """How many, their sum, and below what half of them are, 95 and 99 of 100: bounds of buckets; and the buckets."""

    count: int
    total: float
    p50: float
    p95: float
    p99: float
    buckets: list[int]


class LaneLatency(msgspec.Struct, frozen=True):
    """How long the messages of one lane took for one group since the start: seconds, and attempts until the ack."""

    topic: str
    group: str
    lane: str
    first_delivery: Distribution
    acked: Distribution
    attempts: Distribution


class TopicHistory(msgspec.Struct, frozen=True):
    """What is kept of a topic for journeys; `from_ns` is 0 where all of it is."""

    topic: str
    partitions: int
    history_bytes: int
    from_ns: int
    retention_hours: float
    retention_bytes: int


class JourneyStats(msgspec.Struct, frozen=True):
    """What journeys can be told of, and how long messages took."""

    topics: list[TopicHistory]
    latency: list[LaneLatency]


class DescribeJourney(Command[Journey], frozen=True):
    """The journey of one message. NotFound, OffsetOutOfRange, PartitionFaulty, DamagedBatch."""

    action = Action.FETCH
    is_query = True
    is_walk = True

    topic: str
    partition: int
    offset: int

    def topics(self) -> Iterable[str]:
        # The journey of a dead letter begins in the topic in which it died.
        return (self.topic, self.topic.removesuffix(DEAD_LETTER_SUFFIX))


class FindTrace(ScopedCommand[Journey], frozen=True, kw_only=True):
    """The journey with a trace id: one that follows from a message's place, or one that a message came with.

    For the second kind messages are searched, at most `bytes_max` of them. TraceNotFound: there is none, or it is
    behind the cursor that the error has. Refused: it is no trace id.
    """

    action = Action.FETCH
    is_query = True
    is_walk = True

    trace_id: str
    bytes_max: Annotated[int, Within(1, SEARCH_BYTES, is_cut=True)] = SEARCH_BYTES
    cursor: str | None = None


class SearchJourneys(ScopedCommand[JourneyPage], frozen=True, kw_only=True):
    """Journeys of messages that were published from `start_ns` on, before `end_ns`, in the order of their places.

    A page reads at most `bytes_max` of messages, and gives a cursor while there are more. Refused: a cursor that no
    page gave.
    """

    action = Action.FETCH
    is_query = True
    is_walk = True

    partition: int | None = None
    key: bytes | None = None
    # Name and value; without a value the name is enough.
    header: tuple[str, bytes | None] | None = None
    trace_id: str | None = None
    group: str | None = None
    status: JourneyStatus | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    limit: Annotated[int, Within(1, PAGE_MAX, is_cut=True)] = 100
    bytes_max: Annotated[int, Within(1, SEARCH_BYTES, is_cut=True)] = SEARCH_BYTES
    cursor: str | None = None


class ListJourneys(ScopedCommand[JourneyPage], frozen=True, kw_only=True):
    """The journeys of the messages that were published last, the latest first."""

    action = Action.FETCH
    is_query = True
    is_walk = True

    limit: Annotated[int, Within(1, PAGE_MAX, is_cut=True)] = 100


class DescribeJourneys(ScopedCommand[JourneyStats], frozen=True, kw_only=True):
    """What is kept for journeys, and latencies."""

    action = Action.SEE_STATS
    is_query = True
    is_walk = True
