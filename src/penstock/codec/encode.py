"""Encodes lists or messages to a batch."""

from collections.abc import Sequence

import msgspec
import numpy as np

from ..config import LimitsConfig
from ..errors import Refused, TooLarge
from ..model import Buffer, Headers, Message, Priority
from .blobs import blobs_of
from .body import FORMS_BYTES, HAS_NULLS, RULES, USUAL_PRIORITIES, Body, Column, priorities_in
from .checksum import checksum
from .columns import Columns, Ints, columns_of
from .compression import Compression, compress
from .head import (
    ALIGNMENT,
    CONTROL,
    COUNT_MAX,
    ENCODING_COLUMNAR,
    HEAD_BYTES,
    MAGIC,
    NO_MARKS,
    ORIGIN_SHIFT,
    PADDING_SHIFT,
    PRIORITIES_SHIFT,
    UNSYNCED_MAX,
    VERSION,
    Head,
    Marks,
    head_of,
    pack_head,
)
from .numbers import (
    CONSTANT,
    CONSTANT_NUMBER,
    I64_MAX,
    I64_MIN,
    Numbers,
    int64_array,
    narrow,
    starts_of,
    write_array,
)

_LIMITS = LimitsConfig()
_NORMAL = int(Priority.NORMAL)
# A copy of this much costs less than another piece.
_COPIED_BYTES_MAX = 64 * 1024
PADDINGS = [bytes(padding) for padding in range(ALIGNMENT)]


Span = tuple[int, int, int]
"""The smallest and the largest timestamp of a batch, and its last offset minus its first."""


class Encoded(msgspec.Struct, frozen=True):
    """A batch in pieces: its head, and its body with the padding."""

    head: Head
    body: list[Buffer]
    # Of any message; a head does not say it.
    has_idempotency_keys: bool

    def pieces(self) -> tuple[Buffer, ...]:
        """Returns the batch as it is sent: a head without a log, then the body."""
        return pack_head(self.head), *self.body

    def to_bytes(self) -> bytes:
        return b"".join(self.pieces())

    def whole_body(self) -> Buffer:
        """Returns the body in one piece, copied only if it is in several."""
        return self.body[0] if len(self.body) == 1 else b"".join(self.body)


def encode(
    columns: Columns,
    *,
    compression: Compression = Compression.NONE,
    limits: LimitsConfig = _LIMITS,
    marks: Marks = NO_MARKS,
) -> Encoded:
    """Returns a batch of columns. TooLarge names the limit that is exceeded."""
    count = len(columns.values)
    if count == 0:
        raise Refused("a batch needs at least one message")
    if count > COUNT_MAX:
        raise TooLarge("batch in messages", found=count, limit=COUNT_MAX)
    body = Body(count)
    if not isinstance(columns.timestamps, int):
        base, latest = _add_timestamps(body, columns.timestamps)
    elif I64_MIN <= columns.timestamps <= I64_MAX:
        base = latest = columns.timestamps
    else:
        raise Refused(f"timestamp must be an integer of 64 bits, got {columns.timestamps}")
    blobs = blobs_of(columns.values, "value", limit=limits.value_bytes_max)
    if blobs.lengths is not None:
        body.blobs[Column.VALUES] = blobs
    if columns.keys is not None:
        _add_keys(body, Column.KEYS, columns.keys, "key", limits)
    if columns.idempotency_keys is not None:
        keys = columns.idempotency_keys
        _add_keys(body, Column.IDEMPOTENCY_KEYS, keys, "idempotency key", limits)
    if columns.delay_keys is not None:
        _add_keys(body, Column.DELAY_KEYS, columns.delay_keys, "delay key", limits)
    if columns.headers is not None:
        _add_headers(body, columns.headers, limits.headers_bytes_max)
    if not (isinstance(columns.priorities, int) and columns.priorities == _NORMAL):
        _add_priorities(body, columns.priorities)
    if columns.expires_at is not None:
        _add_optional(body, Column.EXPIRES_AT, columns.expires_at, "expires_at")
    if columns.schema_ids is not None:
        _add_optional(body, Column.SCHEMA_IDS, columns.schema_ids, "schema_id")
    if columns.due_at is not None:
        _add_times_of_delay(body, Column.DUE_AT, columns.due_at, "due_at", lowest=1)
    if columns.delay_ids is not None:
        _add_times_of_delay(body, Column.DELAY_IDS, columns.delay_ids, "delay_id", lowest=0)
    span = base, latest, count - 1
    return assemble(body, span, marks, compression=compression, size_max=limits.batch_bytes_max)


def encode_messages(
    messages: Sequence[Message],
    *,
    compression: Compression = Compression.NONE,
    limits: LimitsConfig = _LIMITS,
    marks: Marks = NO_MARKS,
) -> Encoded:
    """Returns a batch of messages. Their offsets are ignored: the log gives them. TooLarge: see `encode`."""
    return encode(columns_of(messages), compression=compression, limits=limits, marks=marks)


def assemble(
    body: Body, span: Span, marks: Marks, *, compression: Compression, size_max: int
) -> Encoded:
    """Compress a body and return it with its head. TooLarge: the batch would be over `size_max`."""
    pieces, kind = _write_body(body), Compression.NONE
    stored_size = body_size = sum(map(len, pieces))
    # The limit is one of the body before it is compressed, and holds for readers too.
    size = HEAD_BYTES + body_size + -body_size % ALIGNMENT
    if size > size_max:
        raise TooLarge("batch in bytes", found=size, limit=size_max)
    if compression is not Compression.NONE:
        kind, packed = compress(b"".join(pieces), compression)
        pieces, stored_size = [packed], len(packed)
    priorities = USUAL_PRIORITIES if body.count else 0
    if Column.PRIORITIES in body.numbers:
        priorities = priorities_in(body.numbers[Column.PRIORITIES])
    return with_head(
        pieces,
        span,
        marks,
        encoding=ENCODING_COLUMNAR,
        sizes=(stored_size, body_size),
        message_count=body.count,
        compression=kind,
        priorities=priorities,
        has_idempotency_keys=Column.IDEMPOTENCY_KEYS in body.blobs,
    )


def with_head(
    pieces: list[Buffer],
    span: Span,
    marks: Marks,
    *,
    encoding: int,
    sizes: tuple[int, int],
    message_count: int,
    compression: Compression,
    priorities: int,
    has_idempotency_keys: bool,
) -> Encoded:
    """Returns a batch of the pieces of its body, whose sizes are as stored and once decompressed."""
    stored_size, body_size = sizes
    padding = -stored_size % ALIGNMENT
    attributes = compression | priorities << PRIORITIES_SHIFT | marks.origin << ORIGIN_SHIFT
    if marks.control:
        attributes |= CONTROL
    if stored_size <= _COPIED_BYTES_MAX:
        stored = b"".join(pieces)
        body_checksum, pieces = checksum(stored), [stored + PADDINGS[padding]]
    else:
        body_checksum = 0
        for piece in pieces:
            body_checksum = checksum(piece, body_checksum)
        pieces.append(PADDINGS[padding])
    base_timestamp, max_timestamp, last_delta = span
    head = head_of(
        (
            MAGIC,
            HEAD_BYTES + stored_size + padding,
            VERSION,
            encoding,
            attributes | padding << PADDING_SHIFT,
            message_count,
            0,  # The base offset.
            last_delta,
            UNSYNCED_MAX,
            0,  # The epoch.
            body_size,
            0,  # The append time.
            base_timestamp,
            max_timestamp,
            marks.producer_id,
            marks.producer_epoch,
            marks.first_sequence,
            marks.transaction_id,
            marks.origin_source,
            marks.origin_sequence,
            body_checksum,
            0,  # The head checksum.
        )
    )
    return Encoded(head, pieces, has_idempotency_keys)


def _write_body(body: Body) -> list[Buffer]:
    """Returns the body in pieces, so that the caller copies the blobs only once."""
    forms = bytearray(FORMS_BYTES)
    columns: list[bytes] = []
    blobs: list[Buffer] = []
    for column in sorted((*body.numbers, *body.blobs)):
        numbers, valid = body.numbers.get(column), None
        if numbers is None:
            numbers, valid, blob = body.blobs[column]
            assert numbers is not None
            blobs.append(blob)
        if isinstance(numbers, int):
            forms[column] = CONSTANT
            columns.append(CONSTANT_NUMBER.pack(numbers))
        else:
            forms[column], raw = write_array(numbers)
            columns += (raw, PADDINGS[-len(raw) % ALIGNMENT])
        if valid is not None:
            forms[column] |= HAS_NULLS
            raw = np.packbits(valid, bitorder="little").tobytes()
            columns += (raw, PADDINGS[-len(raw) % ALIGNMENT])
    return [b"".join((forms, *columns)), *blobs]


def _require_count(found: int, count: int, what: str) -> None:
    if found != count:
        raise Refused(f"{found} {what}s for {count} messages")


def _add_keys(
    body: Body, column: int, keys: Sequence[bytes | None], what: str, limits: LimitsConfig
) -> None:
    _require_count(len(keys), body.count, what)
    body.put_blobs(column, blobs_of(keys, what, limit=limits.key_bytes_max))


def _add_timestamps(body: Body, timestamps: Ints) -> tuple[int, int]:
    """Store the distance from the smallest. Returns smallest and largest."""
    _require_count(len(timestamps), body.count, "timestamp")
    array = int64_array(timestamps, "timestamps")
    base, latest = int(array.min()), int(array.max())
    if base != latest:
        # Wraps in i64 and reads right as u64, whatever the signs.
        body.numbers[Column.TIMESTAMPS] = (array - np.int64(base)).view(np.uint64)
    return base, latest


def _add_priorities(body: Body, priorities: Ints | int) -> None:
    if isinstance(priorities, int):
        lowest = highest = int(priorities)
        numbers: Numbers = lowest
    else:
        _require_count(len(priorities), body.count, "priority")
        array = int64_array(priorities, "priorities")
        lowest, highest = int(array.min()), int(array.max())
        numbers = lowest if lowest == highest else array.view(np.uint64)
    if lowest < Priority.CRITICAL or highest > Priority.BACKGROUND:
        raise Refused(f"priority must be in 0..4, got {lowest if lowest < 0 else highest}")
    body.put_numbers(Column.PRIORITIES, numbers)


def _add_times_of_delay(
    body: Body, column: int, numbers: Ints | int, what: str, *, lowest: int
) -> None:
    """Add due times, or the ids of delayed messages that fired."""
    array = int64_array([numbers] if isinstance(numbers, int) else numbers, what)
    if not isinstance(numbers, int):
        _require_count(len(array), body.count, what)
    if int(array.min()) < lowest:
        raise Refused(f"{what} must be at least {lowest}, got {int(array.min())}")
    body.put_numbers(column, narrow(array.view(np.uint64)))


def _add_optional(body: Body, column: int, numbers: Sequence[int | None] | int, what: str) -> None:
    """Add a column in which 0 stands for none, so 0 itself is refused."""
    limit = RULES[column].limit
    if isinstance(numbers, int):
        if not 0 < numbers <= limit:
            raise Refused(f"{what} must be in 1..{limit}, got {numbers}")
        body.numbers[column] = numbers
        return
    _require_count(len(numbers), body.count, what)
    if 0 in numbers:
        raise Refused(f"{what} must be in 1..{limit}, got 0")
    array = int64_array([0 if number is None else number for number in numbers], what)
    lowest, highest = int(array.min()), int(array.max())
    if lowest < 0 or highest > limit:
        raise Refused(f"{what} must be in 1..{limit}, got {lowest if lowest < 0 else highest}")
    body.put_numbers(column, narrow(array.view(np.uint64)))


def _add_headers(body: Body, headers: Sequence[Headers], limit: int) -> None:
    """Add headers. Loops over the headers, so messages without any cost nothing."""
    _require_count(len(headers), body.count, "header list")
    try:
        names = [name.encode() for pairs in headers for name, _ in pairs]
        values: list[bytes | None] = [value for pairs in headers for _, value in pairs]
        counts = np.fromiter(map(len, headers), dtype=np.uint32, count=body.count)
    except (TypeError, ValueError, AttributeError) as error:
        raise Refused(f"headers must be pairs of a name and bytes: {error}") from None
    if not names:
        return
    name_blobs = blobs_of(names, "header name", limit=limit)
    value_blobs = blobs_of(values, "header value", limit=limit)
    starts = starts_of(counts, body.count)
    sizes = name_blobs.starts(len(names))[starts] + value_blobs.starts(len(names))[starts]
    largest = int(np.diff(sizes).max())
    if largest > limit:
        raise TooLarge("headers of a message in bytes", found=largest, limit=limit)
    body.put_header_counts(narrow(counts))
    body.blobs[Column.HEADER_NAMES] = name_blobs
    body.put_blobs(Column.HEADER_VALUES, value_blobs)
