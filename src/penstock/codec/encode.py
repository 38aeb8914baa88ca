"""From lists or messages to a batch."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ..config import LimitsConfig
from ..errors import Refused, TooLarge
from ..model import Buffer, Headers, Message, Priority
from .blobs import Blobs, blobs_of
from .body import (
    DELAY_IDS,
    DELAY_KEYS,
    DUE_AT,
    EXPIRES_AT,
    FORMS_BYTES,
    HEADER_NAMES,
    HEADER_VALUES,
    IDEMPOTENCY_KEYS,
    KEYS,
    PRIORITIES,
    RULES,
    SCHEMA_IDS,
    TIMESTAMPS,
    VALUES,
    Body,
    padding_of,
    write_body,
)
from .checksum import checksum
from .columns import Columns, Ints, columns_of
from .compression import Compression, compress
from .head import (
    ALIGNMENT,
    COUNT_MAX,
    ENCODING_COLUMNAR,
    HEAD_BYTES,
    MAGIC,
    NO_MARKS,
    UNSYNCED_MAX,
    VERSION,
    Head,
    Marks,
    head_of,
    pack_attributes,
    pack_head,
)
from .numbers import ABSENT, CONSTANT, I64_MAX, I64_MIN, Numbers, int64_array, narrow, starts_of

_LIMITS = LimitsConfig()
_NORMAL = int(Priority.NORMAL)
# A copy of this much costs less than another piece.
_COPIED_BYTES_MAX = 64 * 1024
# A body of values of one size: the form of each column, the one column there is, their size, and then the values.
EVEN_COLUMNS = struct.Struct(f"<{FORMS_BYTES}sQ")
EVEN_FORMS = bytes(CONSTANT if column == VALUES else ABSENT for column in range(FORMS_BYTES))
# By how many bytes of padding follow.
EVEN_ATTRIBUTES = [
    pack_attributes(Compression.NONE, NO_MARKS, priorities=1 << Priority.NORMAL, padding=padding)
    for padding in range(ALIGNMENT)
]
PADDINGS = [bytes(padding) for padding in range(ALIGNMENT)]
_UNMARKED = (
    NO_MARKS.producer_id,
    NO_MARKS.producer_epoch,
    NO_MARKS.first_sequence,
    NO_MARKS.transaction_id,
    NO_MARKS.origin_source,
    NO_MARKS.origin_sequence,
)


class Encoded(msgspec.Struct, frozen=True):
    """A batch that is not put together yet: its head, and its body in pieces, the padding included."""

    head: Head
    body: list[Buffer]
    # Whether a message has an idempotency key, which a head does not say.
    has_keys: bool

    def pieces(self) -> tuple[Buffer, ...]:
        """The batch as it is sent: the head of no log, then the body."""
        return pack_head(self.head), *self.body

    def to_bytes(self) -> bytes:
        return b"".join(self.pieces())

    def whole_body(self) -> Buffer:
        """The body in one piece. It is copied only if it is in several."""
        return self.body[0] if len(self.body) == 1 else b"".join(self.body)


def encode(
    columns: Columns,
    *,
    compression: Compression = Compression.NONE,
    limits: LimitsConfig = _LIMITS,
    marks: Marks = NO_MARKS,
) -> Encoded:
    """A batch from columns. Over a limit: TooLarge, with the limit; nothing is cut off silently."""
    count = len(columns.values)
    if count == 0:
        raise Refused("a batch needs at least one message")
    if count > COUNT_MAX:
        raise TooLarge("batch in messages", found=count, limit=COUNT_MAX)
    values = blobs_of(columns.values, "value", limit=limits.value_bytes_max)
    if compression is Compression.NONE and marks == NO_MARKS and _are_even(values, columns):
        return _encode_even(values, count, columns.timestamps, limits.batch_bytes_max)  # type: ignore[arg-type]  # One for all.
    body = Body(count)
    base, latest = _add_timestamps(body, columns.timestamps)
    _add_blobs(body, KEYS, columns.keys, "key", limits.key_bytes_max)
    body.put_blobs(VALUES, values)
    if columns.headers is not None:
        _add_headers(body, columns.headers, limits.headers_bytes_max)
    _add_priorities(body, columns.priorities)
    _add_optional(body, EXPIRES_AT, columns.expires_at, "expires_at")
    _add_optional(body, SCHEMA_IDS, columns.schema_ids, "schema_id")
    _add_blobs(
        body,
        IDEMPOTENCY_KEYS,
        columns.idempotency_keys,
        "idempotency key",
        limits.key_bytes_max,
    )
    _add_times_of_delay(body, columns)
    _add_blobs(body, DELAY_KEYS, columns.delay_keys, "delay key", limits.key_bytes_max)
    span = Span(base, latest, count - 1)
    return assemble(body, span, marks, compression=compression, size_max=limits.batch_bytes_max)


def encode_messages(
    messages: Sequence[Message],
    *,
    compression: Compression = Compression.NONE,
    limits: LimitsConfig = _LIMITS,
    marks: Marks = NO_MARKS,
) -> Encoded:
    """A batch from message objects. Their offsets are ignored: the log gives them."""
    return encode(columns_of(messages), compression=compression, limits=limits, marks=marks)


def _are_even(values: Blobs, columns: Columns) -> bool:
    """Whether the messages have values of one size, one timestamp for all, and nothing else."""
    return (
        type(values.lengths) is int
        and values.valid is None
        and isinstance(columns.timestamps, int)
        and columns.keys is None
        and columns.headers is None
        and isinstance(columns.priorities, int)
        and columns.priorities == _NORMAL
        and columns.expires_at is None
        and columns.idempotency_keys is None
        and columns.schema_ids is None
        and columns.due_at is None
        and columns.delay_keys is None
        and columns.delay_ids is None
    )


def _encode_even(values: Blobs, count: int, timestamp: int, size_max: int) -> Encoded:
    """What `assemble` makes of such values, in a fifth of the time: messages that come one by one are stored so."""
    _check_timestamp(timestamp)
    blob = values.blob
    columns = EVEN_COLUMNS.pack(EVEN_FORMS, values.lengths)
    body_size = len(columns) + len(blob)
    padding = padding_of(body_size)
    length = HEAD_BYTES + body_size + padding
    if length > size_max:
        raise TooLarge("batch in bytes", found=length, limit=size_max)
    body: list[Buffer]
    if body_size <= _COPIED_BYTES_MAX:
        stored = columns + blob
        body_checksum, body = checksum(stored), [stored + PADDINGS[padding]]
    else:
        body_checksum = checksum(blob, checksum(columns))
        body = [columns, blob, PADDINGS[padding]]
    head = head_of(
        (
            MAGIC,
            length,
            VERSION,
            ENCODING_COLUMNAR,
            EVEN_ATTRIBUTES[padding],
            count,
            0,  # The base offset.
            count - 1,
            UNSYNCED_MAX,
            0,  # The epoch.
            body_size,
            0,  # The append time.
            timestamp,
            timestamp,
            *_UNMARKED,
            body_checksum,
            0,  # The head checksum.
        )
    )
    return Encoded(head, body, False)


class Span(NamedTuple):
    """What a head says of its messages as a whole."""

    base_timestamp: int
    max_timestamp: int
    last_delta: int


def assemble(
    body: Body, span: Span, marks: Marks, *, compression: Compression, size_max: int
) -> Encoded:
    """Compress a body, pad it and say what it is in a head."""
    pieces, kind = write_body(body), Compression.NONE
    stored_size = body_size = sum(map(len, pieces))
    # The body counts as it unpacks: a reader with the same limit has to be able to hold it.
    unpacked_size = HEAD_BYTES + body_size + padding_of(body_size)
    if unpacked_size > size_max:
        raise TooLarge("batch in bytes", found=unpacked_size, limit=size_max)
    if compression is not Compression.NONE:
        kind, packed = compress(b"".join(pieces), compression)
        pieces, stored_size = [packed], len(packed)
    padding = padding_of(stored_size)
    body_checksum = 0
    for piece in pieces:
        body_checksum = checksum(piece, body_checksum)
    if padding:
        pieces.append(bytes(padding))
    if stored_size <= _COPIED_BYTES_MAX:
        pieces = [b"".join(pieces)]
    head = Head(
        magic=MAGIC,
        length=HEAD_BYTES + stored_size + padding,
        version=VERSION,
        encoding=ENCODING_COLUMNAR,
        attributes=pack_attributes(
            kind,
            marks,
            priorities=body.priorities_present() if body.count else 0,
            padding=padding,
        ),
        message_count=body.count,
        base_offset=0,
        last_delta=span.last_delta,
        unsynced=UNSYNCED_MAX,
        epoch=0,
        body_size=body_size,
        append_time=0,
        base_timestamp=span.base_timestamp,
        max_timestamp=span.max_timestamp,
        producer_id=marks.producer_id,
        producer_epoch=marks.producer_epoch,
        first_sequence=marks.first_sequence,
        transaction_id=marks.transaction_id,
        origin_source=marks.origin_source,
        origin_sequence=marks.origin_sequence,
        body_checksum=body_checksum,
        head_checksum=0,
    )
    return Encoded(head, pieces, IDEMPOTENCY_KEYS in body.blobs)


def _require_count(found: int, count: int, what: str) -> None:
    if found != count:
        raise Refused(f"{found} {what}s for {count} messages")


def _add_blobs(
    body: Body, column: int, items: Sequence[bytes | None] | None, what: str, limit: int
) -> None:
    if items is not None:
        _require_count(len(items), body.count, what)
        body.put_blobs(column, blobs_of(items, what, limit=limit))


def _check_timestamp(timestamp: int) -> None:
    if not I64_MIN <= timestamp <= I64_MAX:
        raise Refused(f"timestamp must be an integer of 64 bits, got {timestamp}")


def _add_timestamps(body: Body, timestamps: Ints | int) -> tuple[int, int]:
    """Store the distance from the smallest; return smallest and largest."""
    if isinstance(timestamps, int):
        _check_timestamp(timestamps)
        return timestamps, timestamps
    _require_count(len(timestamps), body.count, "timestamp")
    array = int64_array(timestamps, "timestamps")
    base, latest = int(array.min()), int(array.max())
    if base != latest:
        # Wraps in i64 and reads right as u64, whatever the signs.
        body.numbers[TIMESTAMPS] = (array - np.int64(base)).view(np.uint64)
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
    body.put_numbers(PRIORITIES, numbers)


def _add_times_of_delay(body: Body, columns: Columns) -> None:
    """When messages are due, or which delayed messages they were."""
    for column, numbers, what, lowest in (
        (DUE_AT, columns.due_at, "due_at", 1),
        (DELAY_IDS, columns.delay_ids, "delay_id", 0),
    ):
        if numbers is None:
            continue
        array = int64_array([numbers] if isinstance(numbers, int) else numbers, what)
        if not isinstance(numbers, int):
            _require_count(len(array), body.count, what)
        if int(array.min()) < lowest:
            raise Refused(f"{what} must be at least {lowest}, got {int(array.min())}")
        body.put_numbers(column, narrow(array.view(np.uint64)))


def _add_optional(
    body: Body, column: int, numbers: Sequence[int | None] | int | None, what: str
) -> None:
    """A column in which 0 stands for none; so 0 itself cannot be said."""
    if numbers is None:
        return
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
    """Flatten the pairs. A loop over headers, paid only by messages that have some."""
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
    if not all(names) or value_blobs.lengths is None or value_blobs.valid is not None:
        raise Refused(
            "a header needs a name of at least one character and a value that is not null"
        )
    starts = starts_of(counts, body.count)
    sizes = name_blobs.starts(len(names))[starts] + value_blobs.starts(len(names))[starts]
    largest = int(np.diff(sizes).max())
    if largest > limit:
        raise TooLarge("headers of a message in bytes", found=largest, limit=limit)
    body.put_header_counts(narrow(counts))
    body.blobs[HEADER_NAMES], body.blobs[HEADER_VALUES] = name_blobs, value_blobs
