"""Batches made from batches: a part of one, some messages of one, one with another time to live, or several as one."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..config import LimitsConfig
from ..errors import OffsetOutOfRange, Refused, TooLarge
from ..model import Buffer
from .blobs import Bools, join_blobs
from .body import (
    BLOB_COLUMNS,
    EXPIRES_AT,
    HEADER_COLUMNS,
    HEADER_COUNTS,
    NUMBER_COLUMNS,
    OFFSET_DELTAS,
    TIMESTAMPS,
    U32_MAX,
    Body,
)
from .compression import Compression
from .decode import BATCH_BYTES_MAX, offsets_of, open_body
from .encode import Span, build
from .head import BODY_BYTES_MAX, COUNT_MAX, HEAD_BYTES, NO_MARKS, Head, read_head, stamp, verify
from .numbers import Numbers, as_array, moved, narrow, starts_of

Int64s = npt.NDArray[np.int64]
_LIMITS = LimitsConfig()
# Sequences go from 0 to 2^31 - 1 and start again, as they do in Kafka.
_SEQUENCE_MASK = (1 << 31) - 1


def slice_batch(
    batch: Buffer, head: Head, first: int, end: int, *, size_max: int = BATCH_BYTES_MAX
) -> bytes:
    """The messages with offsets in [first, end) as a batch of their own, uncompressed.

    Producer and origin marks stay; the first sequence moves with the first offset.
    """
    if not head.base_offset <= first < end <= head.next_offset:
        raise OffsetOutOfRange(first, start=head.base_offset, end=head.next_offset)
    body = open_body(batch, head, size_max=size_max)
    offsets = _offsets(body, head)
    start, stop = (int(index) for index in np.searchsorted(offsets, (first, end)))
    if head.first_sequence >= 0:
        # By offsets and not by messages: those that compaction took away had a sequence too.
        moved_on = head.first_sequence + first - head.base_offset
        head = head._replace(first_sequence=moved_on & _SEQUENCE_MASK)
    part, place = _part(body, start, stop), (first, end - 1)
    return _rebuild(part, offsets[start:stop], head, place, Compression.NONE)


def select(
    batch: Buffer, head: Head, mask: Bools, *, last_offset: int, size_max: int = BATCH_BYTES_MAX
) -> bytes:
    """The messages where `mask` is true, at their old offsets: what compaction keeps.

    The result stands for the range up to `last_offset`, which may reach over later batches that kept
    nothing, so that ranges in a log stay adjacent; but by 2^32 offsets at the most. It is compressed as the
    batch was.
    """
    assert len(mask) == head.message_count
    assert head.last_offset <= last_offset <= head.base_offset + U32_MAX
    body = open_body(batch, head, size_max=size_max)
    kept, place = chosen(body, mask), (head.base_offset, last_offset)
    return _rebuild(kept, _offsets(body, head)[mask], head, place, head.compression)


def expiring(batch: Buffer, head: Head, expires_at: int, *, size_max: int) -> Buffer:
    """The same batch, in which whatever did not say when it expires does so then. TooLarge if that does not fit in."""
    body = open_body(batch, head, size_max=size_max)
    times = body.number(EXPIRES_AT)
    if isinstance(times, int):
        if times:
            return batch
        body.numbers[EXPIRES_AT] = expires_at
    else:
        filled = np.where(times == 0, np.uint64(expires_at), times)
        _put(body, EXPIRES_AT, filled)
    place = head.base_offset, head.last_offset
    made = _rebuild(body, _offsets(body, head), head, place, head.compression)
    found = max(len(made), read_head(made).body_size)
    if found > size_max:
        raise TooLarge("batch in bytes, with when it expires,", found=found, limit=size_max)
    return made


def merge(batches: Sequence[Buffer], *, limits: LimitsConfig = _LIMITS) -> bytes:
    """Several fresh batches as one. Batches of a producer, transaction or origin stay as they are."""
    # A body is checked here, or the fresh checksum of the result would vouch for what was broken.
    heads = [verify(batch) for batch in batches]
    if not heads:
        raise Refused("nothing to merge")
    if any(head.marks != NO_MARKS for head in heads):
        raise Refused("a batch with a producer, transaction, origin or control mark stands alone")
    if not all(head.is_dense for head in heads):
        raise Refused("a batch with gaps belongs to a log")
    count = sum(head.message_count for head in heads)
    if count > COUNT_MAX:
        raise TooLarge("batch in messages", found=count, limit=COUNT_MAX)
    size_max = limits.batch_bytes_max
    bodies = [
        open_body(batch, head, size_max=size_max)
        for batch, head in zip(batches, heads, strict=True)
    ]
    merged = _joined(bodies, count)
    times = [_timestamps(body, head) for body, head in zip(bodies, heads, strict=True)]
    span = _set_times(merged, np.concatenate(times), last_delta=count - 1)
    return build(merged, span, NO_MARKS, compression=Compression.NONE, size_max=size_max)


def _offsets(body: Body, head: Head) -> Int64s:
    return np.asarray(offsets_of(body, head), dtype=np.int64)


def _timestamps(body: Body, head: Head) -> Int64s:
    return moved(body.number(TIMESTAMPS), body.count, head.base_timestamp)


def _set_times(body: Body, times: Int64s, *, last_delta: int) -> Span:
    base, latest = int(times.min()), int(times.max())
    # Wraps in i64 and reads right as u64, whatever the signs.
    _put(body, TIMESTAMPS, (times - np.int64(base)).view(np.uint64))
    return Span(base_timestamp=base, max_timestamp=latest, last_delta=last_delta)


def _put(body: Body, column: int, numbers: Numbers) -> None:
    if column == HEADER_COUNTS:
        body.put_header_counts(narrow(numbers))
    else:
        body.put_numbers(column, narrow(numbers))


def _joined(bodies: list[Body], count: int) -> Body:
    """The columns of all bodies end to end, timestamps left out: they have another base in each."""
    joined = Body(count)
    for column in NUMBER_COLUMNS:
        if column != TIMESTAMPS and any(column in body.numbers for body in bodies):
            arrays = [as_array(body.number(column), body.count, np.uint64) for body in bodies]
            _put(joined, column, np.concatenate(arrays))
    for column in BLOB_COLUMNS:
        parts = [(body.blob(column), body.items(column)) for body in bodies]
        joined.put_blobs(column, join_blobs(parts))
    return joined


def _part(body: Body, start: int, stop: int) -> Body:
    """Messages `start` to `stop`, and the headers that are theirs."""
    headers = starts_of(body.number(HEADER_COUNTS), body.count)
    header_range = int(headers[start]), int(headers[stop])
    part = Body(stop - start)
    if part.count == 0:
        return part
    for column, numbers in body.numbers.items():
        if column != OFFSET_DELTAS:
            _put(part, column, numbers if isinstance(numbers, int) else numbers[start:stop])
    for column, blobs in body.blobs.items():
        low, high = header_range if column in HEADER_COLUMNS else (start, stop)
        if low < high:
            part.put_blobs(column, blobs.part(low, high, body.items(column)).plain())
    return part


def chosen(body: Body, mask: Bools) -> Body:
    """Messages where the mask is true, and the headers that are theirs."""
    part = Body(int(mask.sum()))
    if part.count == 0:
        return part
    for column, numbers in body.numbers.items():
        if column != OFFSET_DELTAS:
            _put(part, column, numbers if isinstance(numbers, int) else numbers[mask])
    header_mask = np.repeat(mask, as_array(body.number(HEADER_COUNTS), body.count, np.int64))
    for column, blobs in body.blobs.items():
        picks = header_mask if column in HEADER_COLUMNS else mask
        if picks.any():
            part.put_blobs(column, blobs.chosen(picks, body.items(column)).plain())
    return part


def _rebuild(
    body: Body, offsets: Int64s, head: Head, place: tuple[int, int], compression: Compression
) -> bytes:
    """A batch from edited columns, from and to the offsets of `place`, with the stamps of `head`."""
    base, last = place
    if body.count == 0:
        span = Span(head.max_timestamp, head.max_timestamp, last - base)
    else:
        times = _timestamps(body, head)
        body.numbers.pop(TIMESTAMPS, None)
        span = _set_times(body, times, last_delta=last - base)
        if body.count != last - base + 1:
            body.numbers[OFFSET_DELTAS] = narrow((offsets - base).view(np.uint64))
    # What was within the limits once stays so: see open_body.
    batch = build(body, span, head.marks, compression=compression, size_max=BODY_BYTES_MAX)
    stamped = stamp(
        read_head(batch),
        base_offset=base,
        epoch=head.epoch,
        append_time=head.append_time,
        unsynced=head.unsynced + base - head.base_offset,  # The durable end stays where it was.
    )
    return stamped + memoryview(batch)[HEAD_BYTES:]
