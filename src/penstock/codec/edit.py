"""Makes batches from batches: some messages of one, or one with another expiry."""

import numpy as np
import numpy.typing as npt

from ..errors import TooLarge
from ..model import Buffer
from .blobs import Bools
from .body import HEADER_COLUMNS, U32_MAX, Body, Column
from .decode import BATCH_BYTES_MAX, offsets_of, open_body
from .encode import Encoded, assemble
from .head import BODY_BYTES_MAX, HEAD_BYTES, Head, place
from .numbers import Numbers, as_array, moved, narrow

Int64s = npt.NDArray[np.int64]


def select(
    batch: Buffer, head: Head, mask: Bools, *, last_offset: int, size_max: int = BATCH_BYTES_MAX
) -> Encoded:
    """Returns a batch of the messages where `mask` is true, at their old offsets: what compaction keeps.

    The result stands for the range up to `last_offset`, which may reach over later batches that kept
    nothing, so that ranges in a log stay adjacent; but by 2^32 offsets at the most. It is compressed as the
    batch was.
    """
    assert len(mask) == head.message_count
    assert head.last_offset <= last_offset <= head.base_offset + U32_MAX
    body = open_body(batch, head, size_max=size_max)
    return _rebuild(chosen(body, mask), _offsets(body, head)[mask], head, last_offset)


def from_offset(batch: Buffer, head: Head, offset: int) -> Encoded:
    """Returns a batch of the messages from an offset on, at their old offsets; its range begins there.

    A log that another node has to `offset` goes on with it, where compaction has made a range grow over that place.
    """
    assert head.base_offset < offset <= head.last_offset
    body = open_body(batch, head, size_max=BODY_BYTES_MAX)
    offsets = _offsets(body, head)
    mask = offsets >= offset
    moved_head = head._replace(
        base_offset=offset, last_delta=head.last_offset - offset, message_count=int(mask.sum())
    )
    return _rebuild(chosen(body, mask), offsets[mask], moved_head, head.last_offset)


def expiring(encoded: Encoded, expires_at: int, *, size_max: int) -> Encoded:
    """Returns the batch with this expiry for messages that have none. TooLarge: it would be larger than `size_max`."""
    head = encoded.head
    body = open_body(encoded.whole_body(), head, size_max=size_max, start=0)
    times = body.number(Column.EXPIRES_AT)
    if isinstance(times, int):
        if times:
            return encoded
        body.numbers[Column.EXPIRES_AT] = expires_at
    else:
        filled = np.where(times == 0, np.uint64(expires_at), times)
        _put(body, Column.EXPIRES_AT, filled)
    made = _rebuild(body, _offsets(body, head), head, head.last_offset)
    found = max(made.head.length, made.head.body_size)
    if found > size_max:
        raise TooLarge("batch in bytes, with when it expires,", found=found, limit=size_max)
    return made


def dense(batch: Buffer, head: Head) -> Encoded:
    """Returns a batch without the gaps that clearing left in its range, as its producer made it."""
    if head.is_dense:
        # Like a part of it, the body may lack keys: the partition that stores it looks.
        return Encoded(head, [memoryview(batch)[HEAD_BYTES : head.length]], True)
    body = open_body(batch, head, size_max=BODY_BYTES_MAX)
    body.numbers.pop(Column.OFFSET_DELTAS, None)
    span = head.base_timestamp, head.max_timestamp, head.message_count - 1
    return assemble(body, span, head.marks, compression=head.compression, size_max=BODY_BYTES_MAX)


def _offsets(body: Body, head: Head) -> Int64s:
    return np.asarray(offsets_of(body, head), dtype=np.int64)


def _put(body: Body, column: int, numbers: Numbers) -> None:
    if column == Column.HEADER_COUNTS:
        body.put_header_counts(narrow(numbers))
    else:
        body.put_numbers(column, narrow(numbers))


def chosen(body: Body, mask: Bools) -> Body:
    """Returns the messages where the mask is true, with their headers."""
    part = Body(int(mask.sum()))
    if part.count == 0:
        return part
    for column, numbers in body.numbers.items():
        if column != Column.OFFSET_DELTAS:
            _put(part, column, numbers if isinstance(numbers, int) else numbers[mask])
    header_mask = np.repeat(mask, as_array(body.number(Column.HEADER_COUNTS), body.count, np.int64))
    for column, blobs in body.blobs.items():
        picks = header_mask if column in HEADER_COLUMNS else mask
        if picks.any():
            part.put_blobs(column, blobs.chosen(picks, body.items(column)).plain())
    return part


def _rebuild(body: Body, offsets: Int64s, head: Head, last_offset: int) -> Encoded:
    """Returns a batch of edited columns, for the offsets up to `last_offset`, with the stamps of `head`."""
    last_delta = last_offset - head.base_offset
    if body.count == 0:
        span = head.max_timestamp, head.max_timestamp, last_delta
    else:
        times = moved(body.number(Column.TIMESTAMPS), body.count, head.base_timestamp)
        base, latest = int(times.min()), int(times.max())
        body.numbers.pop(Column.TIMESTAMPS, None)
        # Wraps in i64 and reads right as u64, whatever the signs.
        _put(body, Column.TIMESTAMPS, (times - np.int64(base)).view(np.uint64))
        span = base, latest, last_delta
        if body.count != last_delta + 1:
            body.numbers[Column.OFFSET_DELTAS] = narrow(
                (offsets - head.base_offset).view(np.uint64)
            )
    # What was within the limits once stays so: see open_body.
    made = assemble(body, span, head.marks, compression=head.compression, size_max=BODY_BYTES_MAX)
    placed = place(
        made.head,
        base_offset=head.base_offset,
        epoch=head.epoch,
        append_time=head.append_time,
        unsynced=head.unsynced,
    )
    return Encoded(placed, made.body, made.has_idempotency_keys)
