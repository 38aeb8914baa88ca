"""Messages as hypothesis makes them: every column absent, constant or mixed, and the ends of every range."""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from penstock.codec import Columns, Marks, Origin
from penstock.model import Message, MessageColumns

from . import twin

I64 = st.integers(-(2**63), 2**63 - 1)
NOW = 1_700_000_000_000_000_000
BLOBS = st.one_of(
    st.just(b""),
    st.binary(max_size=3),
    st.binary(max_size=40),
    st.sampled_from([bytes(range(256)), b"\0" * 5, b"\xff" * 255, b"\x80" * 256]),
)
NAMES = st.one_of(st.sampled_from(["a", "trace", "naïve", "漢字", "🜁"]), st.text("aé漢🜁\0"))
HEADERS = st.lists(st.tuples(NAMES, st.one_of(BLOBS, st.none())), max_size=3).map(tuple)
TIMES = st.one_of(st.integers(NOW, NOW + 300), st.integers(NOW, NOW + 2**33), I64)
EXPIRIES = st.one_of(st.integers(1, 300), st.integers(1, 2**63 - 1))
SCHEMA_IDS = st.one_of(st.integers(1, 300), st.integers(1, 2**32 - 1))
PRIORITIES = st.integers(0, 4)


def column(
    draw: st.DrawFn, values: st.SearchStrategy[Any], nothing: object, count: int
) -> list[Any]:
    """All absent, all equal, all different, or a mix with absent ones."""
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return [nothing] * count
    if kind == 1:
        return [draw(values)] * count
    some = values if kind == 2 else st.one_of(values, st.just(nothing))
    return draw(st.lists(some, min_size=count, max_size=count))


@st.composite
def message_lists(draw: st.DrawFn, min_size: int = 1, max_size: int = 20) -> list[Message]:
    """Fresh messages, as a producer has them."""
    count = draw(st.integers(min_size, max_size))
    columns = (
        column(draw, BLOBS, None, count),
        column(draw, BLOBS, None, count),
        column(draw, HEADERS, (), count),
        column(draw, PRIORITIES, 2, count),
        column(draw, TIMES, 0, count),
        column(draw, EXPIRIES, None, count),
        column(draw, BLOBS, None, count),
        column(draw, SCHEMA_IDS, None, count),
    )
    return [Message(*fields) for fields in zip(*columns, strict=True)]


@st.composite
def marks(draw: st.DrawFn) -> Marks:
    return Marks(
        control=draw(st.booleans()),
        producer_id=draw(st.integers(-1, 2**63 - 1)),
        producer_epoch=draw(st.integers(-1, 2**31 - 1)),
        first_sequence=draw(st.integers(-1, 2**31 - 1)),
        transaction_id=draw(st.integers(0, 2**64 - 1)),
        origin=draw(st.sampled_from(Origin)),
        origin_source=draw(st.integers(0, 2**64 - 1)),
        origin_sequence=draw(st.integers(0, 2**64 - 1)),
    )


@st.composite
def placed_batches(draw: st.DrawFn, max_size: int = 20) -> tuple[list[Message], twin.Place, Marks]:
    """Messages of a log with their offsets, dense or with the gaps that compaction leaves."""
    fresh = draw(message_lists(min_size=0, max_size=max_size))
    base = draw(st.sampled_from([0, 7, 2**40]))
    gaps = [draw(st.sampled_from([0, 0, 0, 1, 300, 70_000])) for _ in range(len(fresh) + 1)]
    if draw(st.booleans()) and fresh:
        gaps = [0] * len(gaps)
    messages, offset = [], base
    for message, gap in zip(fresh, gaps, strict=False):
        messages.append(at(message, offset + gap))
        offset += gap + 1
    place = twin.Place(
        base_offset=base,
        last_offset=max(offset + gaps[-1] - 1, base),
        epoch=draw(st.integers(0, 2**32 - 1)),
        append_time=draw(I64),
        unsynced=draw(st.integers(0, 2**32 - 1)),
        empty_timestamp=draw(I64),
        log_id=draw(st.one_of(st.none(), st.integers(0, 2**64 - 1))),
    )
    return messages, place, draw(marks())


def at(message: Message, offset: int) -> Message:
    return msgspec.structs.replace(message, offset=offset)


def fresh(messages: Sequence[Message]) -> list[Message]:
    """The same messages before a log gave them their offsets."""
    return [at(message, -1) for message in messages]


def columns_of(messages: Sequence[Message]) -> Columns:
    return Columns(
        values=[message.value for message in messages],
        keys=[message.key for message in messages],
        headers=[message.headers for message in messages],
        priorities=[message.priority for message in messages],
        timestamps=[message.timestamp for message in messages],
        expires_at=[message.expires_at for message in messages],
        idempotency_keys=[message.idempotency_key for message in messages],
        schema_ids=[message.schema_id for message in messages],
    )


def messages_of(columns: MessageColumns) -> list[Message]:
    return list(map(Message, *columns))
