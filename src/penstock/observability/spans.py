"""Spans of messages, as tracing systems know them, put together from the events that the broker tells.

A message has a span `publish`. Each delivery to a group has a span `process`, from the lease to the answer, which is a
child of the first one, and linked to it. All are of the message's trace.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from pyroaring import BitMap64

from ..api.journeys import EventType
from ..api.spans import PartitionIdentity, SpanPart, SpanPosition

# Messages that are followed, and deliveries that have no answer yet; of more the oldest are forgotten.
_FOLLOWED_MAX = 100_000
_SPAN_BYTES = 8
_ENDS = {
    EventType.ACKED: "acked",
    EventType.NACKED: "nacked",
    EventType.REJECTED: "rejected",
    EventType.RELEASED: "released",
    EventType.VISIBILITY_EXPIRED: "lease expired",
}
_FAILURES = frozenset({EventType.NACKED, EventType.REJECTED, EventType.VISIBILITY_EXPIRED})
_GIVEN_UP = frozenset({EventType.ROUTED, EventType.DROPPED})


class FinishedSpan(NamedTuple):
    """A span; `error` is why a delivery failed, None if it did not. A delivery is linked to the span of its publish."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    link_span_id: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int | bool]
    error: str | None = None


class _Published(NamedTuple):
    trace_id: str
    span_id: str


_Message = tuple[PartitionIdentity, int]
_Delivery = tuple[PartitionIdentity, int, str, int]


class SpanAssembler:
    """Remembers what was published and what is leased, of sampled messages."""

    def __init__(self) -> None:
        self._published: OrderedDict[_Message, _Published] = OrderedDict()
        self._leased: OrderedDict[_Delivery, SpanPart] = OrderedDict()

    def add(self, parts: Iterable[SpanPart]) -> list[FinishedSpan]:
        """The spans that these events finish."""
        done: list[FinishedSpan] = []
        ended: dict[_Delivery, int] = {}
        for part in parts:
            delivery = (part.identity, part.offset, part.group, part.lease)
            if part.event_type is EventType.PERSISTED:
                done.append(self._publish(part))
            elif part.event_type is EventType.FETCHED:
                self._leased[delivery] = part
                if len(self._leased) > _FOLLOWED_MAX:
                    self._leased.popitem(last=False)
            elif part.event_type in _ENDS and (leased := self._leased.pop(delivery, None)):
                published = self._published.get((part.identity, part.offset))
                if published is not None:
                    ended[delivery] = len(done)
                    done.append(_process(leased, part, published))
            elif part.event_type in _GIVEN_UP and delivery in ended:
                span = done[ended[delivery]]
                outcome = {**span.attributes, "penstock.dead_letter": True}
                done[ended[delivery]] = span._replace(attributes=outcome)
        return done

    def _publish(self, part: SpanPart) -> FinishedSpan:
        span_id = _span_id(part, "publish")
        self._published[part.identity, part.offset] = _Published(part.trace_id, span_id)
        attributes = _attributes(part, "publish")
        return FinishedSpan(
            f"publish {part.topic}",
            part.trace_id,
            span_id,
            part.parent_span_id,
            "",
            part.at_ns,
            part.at_ns,
            attributes,
        )

    def bounded(
        self, positions: Mapping[PartitionIdentity, SpanPosition]
    ) -> dict[PartitionIdentity, SpanPosition]:
        """Positions that follow no more messages than there is room for: the oldest are forgotten."""
        forgotten: dict[PartitionIdentity, BitMap64] = {}
        while len(self._published) > _FOLLOWED_MAX:
            (identity, offset), _ = self._published.popitem(last=False)
            forgotten.setdefault(identity, BitMap64()).add(offset)
        return {
            identity: SpanPosition(
                one.message_offset, one.state_offset, one.followed - forgotten[identity]
            )
            if identity in forgotten
            else one
            for identity, one in positions.items()
        }


def _process(leased: SpanPart, end: SpanPart, published: _Published) -> FinishedSpan:
    attributes = _attributes(end, "process") | {
        "messaging.consumer.group.name": end.group,
        "messaging.client.id": leased.consumer,
        "penstock.outcome": _ENDS[end.event_type],
    }
    error = (end.error or _ENDS[end.event_type]) if end.event_type in _FAILURES else None
    return FinishedSpan(
        f"process {end.topic}",
        published.trace_id,
        _span_id(end, f"process/{end.group}/{end.lease}"),
        published.span_id,
        published.span_id,
        leased.at_ns,
        max(leased.at_ns, end.at_ns),
        attributes,
        error,
    )


def _attributes(part: SpanPart, operation: str) -> dict[str, str | int | bool]:
    return {
        "messaging.system": "penstock",
        "messaging.operation.name": operation,
        "messaging.operation.type": "send" if operation == "publish" else operation,
        "messaging.destination.name": part.topic,
        "messaging.destination.partition.id": str(part.identity[1]),
        "messaging.message.id": f"{part.identity[1]}/{part.offset}",
    }


def _span_id(part: SpanPart, what: str) -> str:
    """An id that follows from the message and what was done, so that a span has one however often it is told."""
    topic_id, number = part.identity
    name = f"{topic_id}/{number}/{part.offset}/{what}"
    return blake2b(name.encode(), digest_size=_SPAN_BYTES).hexdigest()
