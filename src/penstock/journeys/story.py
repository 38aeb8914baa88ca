"""The story of a message: events in order become spans, and say what the message is for each group."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import NamedTuple

from ..api.journeys import EventType, GroupStanding, JourneyStatus, Span

Attribute = str | int | bool
_SPAN_BYTES = 8

STATUS_AFTER: Mapping[EventType, JourneyStatus] = MappingProxyType(
    {
        EventType.FETCHED: JourneyStatus.IN_PROGRESS,
        EventType.ACKED: JourneyStatus.COMPLETED,
        EventType.COMMITTED: JourneyStatus.COMPLETED,
        EventType.ARCHIVED: JourneyStatus.COMPLETED,
        EventType.NACKED: JourneyStatus.RETRYING,
        EventType.VISIBILITY_EXPIRED: JourneyStatus.RETRYING,
        EventType.RELEASED: JourneyStatus.IN_PROGRESS,
        EventType.REJECTED: JourneyStatus.FAILED,
        EventType.ROUTED: JourneyStatus.FAILED,
        EventType.DROPPED: JourneyStatus.FAILED,
        EventType.TTL_EXPIRED: JourneyStatus.EXPIRED,
        EventType.SKIPPED: JourneyStatus.EXPIRED,
        EventType.REOPENED: JourneyStatus.IN_PROGRESS,
        EventType.REWOUND: JourneyStatus.IN_PROGRESS,
    }
)
"""What a message is for a group after an event."""

FINISHED = frozenset({JourneyStatus.COMPLETED, JourneyStatus.FAILED, JourneyStatus.EXPIRED})
# What a message is to all groups together is the first of these that it is to one of them.
_URGENCY = (
    JourneyStatus.RETRYING,
    JourneyStatus.IN_PROGRESS,
    JourneyStatus.FAILED,
    JourneyStatus.EXPIRED,
    JourneyStatus.COMPLETED,
)
# These finish whatever is not finished, so they say nothing of a message that was.
_SWEEPING = frozenset({EventType.COMMITTED, EventType.ARCHIVED, EventType.SKIPPED})


class MessagePlace(NamedTuple):
    """Where a message lies."""

    topic: str
    partition: int
    offset: int


class Event(NamedTuple):
    """Something that happened to a message. `lease` joins the events of one delivery; 0: of none."""

    at_ns: int
    kind: EventType
    group: str = ""
    consumer: str = ""
    error: str = ""
    lease: int = 0
    attributes: Mapping[str, Attribute] = MappingProxyType({})


@dataclass(slots=True)
class _GroupPart:
    """What the story knows of one group so far."""

    status: JourneyStatus = JourneyStatus.IN_PROGRESS
    attempts: int = 0
    consumer: str = ""
    error: str = ""
    fetched: dict[int, Span] = field(default_factory=dict)
    last_span_id: str = ""


class Story:
    """The part of a journey that one message has: from its own publish on."""

    def __init__(self, trace_id: str, place: MessagePlace, parent_span_id: str = "") -> None:
        self.trace_id, self.place = trace_id, place
        self.spans: list[Span] = []
        self.groups: dict[str, _GroupPart] = {}
        self._parent_span_id = parent_span_id
        self._published_ns = 0

    @property
    def start_ns(self) -> int:
        return self.spans[0].at_ns if self.spans else 0

    @property
    def last_span_id(self) -> str:
        return self.spans[-1].span_id if self.spans else self._parent_span_id

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.group:
                self._add_of_group(event)
            else:
                self._append(event, self._parent_span_id, 0)
                self._parent_span_id = self.spans[-1].span_id
                self._published_ns = event.at_ns

    def _add_of_group(self, event: Event) -> None:
        part = self.groups.setdefault(event.group, _GroupPart())
        if event.kind in _SWEEPING and part.status in FINISHED:
            return
        if event.kind is EventType.GROUP_DELETED:
            self._append(event, part.last_span_id or self._parent_span_id, 0)
            del self.groups[event.group]
            return
        attributes = dict(event.attributes)
        if event.kind is EventType.FETCHED:
            part.attempts += 1
            attributes["attempt"] = part.attempts
        elif event.kind is EventType.RELEASED and not attributes.get("counted"):
            part.attempts = max(0, part.attempts - 1)
        elif event.kind is EventType.REWOUND:
            part.attempts = 0
        elif event.kind is EventType.REOPENED:
            part.attempts, part.fetched = 0, {}
        self._append_of_group(part, event._replace(attributes=attributes))

    def _append_of_group(self, part: _GroupPart, event: Event) -> None:
        """Join an answer to the delivery that it is about, and a delivery to the publish."""
        fetched = part.fetched.get(event.lease)
        is_delivery = event.kind is EventType.FETCHED
        if fetched is not None and not is_delivery:
            consumer = event.consumer or fetched.consumer
            event = event._replace(consumer=consumer)
            self._append(event, fetched.span_id, max(0, event.at_ns - fetched.at_ns))
        else:
            since_ns = self._published_ns if is_delivery and self._published_ns else event.at_ns
            parent = self._parent_span_id if is_delivery else part.last_span_id
            parent = parent or self._parent_span_id
            self._append(event, parent, max(0, event.at_ns - since_ns))
        span = self.spans[-1]
        part.last_span_id = span.span_id
        part.consumer, part.error = span.consumer or part.consumer, span.error or part.error
        if is_delivery:
            part.fetched[event.lease] = span
        part.status = STATUS_AFTER.get(event.kind, part.status)
        if event.kind is EventType.REWOUND and event.attributes.get("skipped"):
            part.status = JourneyStatus.COMPLETED

    def _append(self, event: Event, parent_span_id: str, duration_ns: int) -> None:
        topic, partition, offset = self.place
        name = f"{self.trace_id}/{topic}/{partition}/{offset}/{len(self.spans)}"
        self.spans.append(
            Span(
                blake2b(name.encode(), digest_size=_SPAN_BYTES).hexdigest(),
                event.kind,
                event.at_ns,
                topic,
                partition,
                offset,
                event.group,
                event.consumer,
                duration_ns,
                event.error,
                dict(event.attributes),
                parent_span_id,
            )
        )

    def standings(self) -> list[GroupStanding]:
        return [
            GroupStanding(name, part.status, part.attempts, part.consumer, part.error)
            for name, part in self.groups.items()
        ]


def status_of(standings: Iterable[GroupStanding]) -> JourneyStatus:
    """What a message is to all groups together; in progress while there is none."""
    found = {one.status for one in standings}
    return next((one for one in _URGENCY if one in found), JourneyStatus.IN_PROGRESS)
