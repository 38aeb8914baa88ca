"""What a tracing system is told: parts of spans of sampled messages, as the logs of partitions have them."""

from collections.abc import Iterable, Mapping

import msgspec
from pyroaring import BitMap64

from .command import EVERY_TOPIC, Command
from .journeys import EventType
from .principals import Action

SAMPLED_ALL = 1 << 64
"""The bound with which every message is sampled."""


PartitionIdentity = tuple[int, int]
"""A partition by the id of its topic, which one of the same name that was made later does not have, and its number."""


class SpanPosition(msgspec.Struct, frozen=True):
    """How far a partition is told: offsets of the message log and of the state log, and whose messages are followed."""

    message_offset: int
    state_offset: int
    followed: BitMap64


class SpanPart(msgspec.Struct, frozen=True):
    """An event of a sampled message. One of `PERSISTED` has its trace, and the span in which it was sent."""

    topic: str
    identity: PartitionIdentity
    offset: int
    event_type: EventType
    at_ns: int
    trace_id: str = ""
    parent_span_id: str = ""
    group: str = ""
    consumer: str = ""
    lease: int = 0
    error: str = ""


class SpanPage(msgspec.Struct, frozen=True):
    """Events in their order, where to go on in each partition, and how many messages were left out to keep up."""

    parts: list[SpanPart]
    positions: dict[PartitionIdentity, SpanPosition]
    is_caught_up: bool
    skipped: int = 0


class TailSpans(Command[SpanPage], frozen=True):
    """The events of sampled messages behind some positions, so many at most.

    A message is sampled if the last 64 bits of its trace id are below `bound`; one that came with a trace, if that is
    sampled. A partition without a position is told from its beginning, or from its end if `starts_at_end`.
    """

    action = Action.SEE_STATS
    is_query = True
    is_walk = True

    positions: Mapping[PartitionIdentity, SpanPosition]
    bound: int
    starts_at_end: bool = False

    def topics(self) -> Iterable[str]:
        return EVERY_TOPIC
