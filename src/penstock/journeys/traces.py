"""Trace ids. A message that came without one has an id that follows from its place, so nothing is stored for it.

The id is a bijection of (topic id, partition, offset), or of (topic id, partition, id of the delayed message), so the
place follows from it and a look-up needs no index. The multiplication spreads ids: tracers sample by their bits.
"""

import re
from typing import NamedTuple

TRACEPARENT = "traceparent"
"""The header of W3C Trace Context; a message that has one belongs to that trace."""

TRACESTATE = "tracestate"
"""What a tracing system adds to it, passed on unread."""

_BITS = 128
_MASK = (1 << _BITS) - 1
# Odd, so that the product has an inverse; its bits are those of the golden ratio.
_FACTOR = 0x9E3779B97F4A7C15F39CC0605CEDC835
LOW_FACTOR = _FACTOR & ((1 << 64) - 1)
"""The last 64 bits of a derived trace id are those of the offset times this; the rest has no part in them."""

_INVERSE = pow(_FACTOR, -1, 1 << _BITS)
_DELAYED = 1 << 63
_PARTITION_BITS = 20
_TRACE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_HEADER = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_TRACE, _NO_SPAN = b"0" * 32, b"0" * 16
_VERSION_FORBIDDEN = b"ff"


class TracePlace(NamedTuple):
    """A message by its place: its offset, or with `is_delayed` its id among the delayed ones."""

    topic_id: int
    partition: int
    number: int
    is_delayed: bool = False


class TraceParent(NamedTuple):
    """The trace that a message belongs to, and the span in which it was sent."""

    trace_id: str
    span_id: str
    is_sampled: bool


def trace_id_of(place: TracePlace) -> str:
    """The trace id of a message that was sent without one."""
    number = place.number | (_DELAYED if place.is_delayed else 0)
    source = place.topic_id << _PARTITION_BITS | place.partition
    return f"{(source << 64 | number) * _FACTOR & _MASK:032x}"


def place_of(trace_id: str) -> TracePlace:
    """The place that a trace id would stand for; any 32 hexadecimal digits give one, which need not exist."""
    raw = int(trace_id, 16) * _INVERSE & _MASK
    source, number = raw >> 64, raw & ((1 << 64) - 1)
    partition = source & ((1 << _PARTITION_BITS) - 1)
    is_delayed = bool(number & _DELAYED)
    return TracePlace(source >> _PARTITION_BITS, partition, number & ~_DELAYED, is_delayed)


def is_trace_id(text: str) -> bool:
    return _TRACE_ID.fullmatch(text) is not None and text != _NO_TRACE.decode()


def parse_traceparent(value: bytes | None) -> TraceParent | None:
    """What a `traceparent` header says; None if it is not one, as W3C Trace Context has it."""
    found = None if value is None else _HEADER.fullmatch(value)
    if found is None:
        return None
    version, trace, span, flags, rest = found.groups()
    is_later = version != b"00"
    if version == _VERSION_FORBIDDEN or trace == _NO_TRACE or span == _NO_SPAN:
        return None
    if rest is not None and not is_later:
        return None
    return TraceParent(trace.decode(), span.decode(), bool(int(flags, 16) & 1))
