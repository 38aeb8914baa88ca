"""The batch of one value, or of some of one size, and nothing else: what is stored when messages come one by one.

The same bytes as `encode` makes, by hand: of all that a batch can need, this one needs little.
"""

import struct

from ..config import LimitsConfig
from ..errors import Refused, TooLarge
from ..model import Buffer, Message, Priority
from .body import FORMS_BYTES, VALUES
from .checksum import checksum
from .compression import Compression
from .encode import Encoded, encoded_of
from .head import (
    ALIGNMENT,
    ENCODING_COLUMNAR,
    HEAD,
    HEAD_BYTES,
    MAGIC,
    NO_MARKS,
    OFFSET_MAX,
    UNSYNCED_MAX,
    VERSION,
    Head,
    head_of,
    pack_attributes,
)
from .numbers import CONSTANT, I64_MAX, I64_MIN

# The form of each column, and the one column there is: the length of each value.
_COLUMNS = struct.Struct(f"<{FORMS_BYTES}sQ")
_FORMS = bytes(CONSTANT if column == VALUES else 0 for column in range(FORMS_BYTES))
_ATTRIBUTES = [
    pack_attributes(Compression.NONE, NO_MARKS, priorities=1 << Priority.NORMAL, padding=padding)
    for padding in range(8)
]
_SIZE_MIN = HEAD_BYTES + _COLUMNS.size
_CHECKED_BYTES = HEAD_BYTES - 4
# A copy of this much costs less than another piece.
_COPIED_BYTES_MAX = 64 * 1024
_USUAL = frozenset(_ATTRIBUTES)
_PADDINGS = [bytes(padding) for padding in range(8)]
_UNMARKED = (
    NO_MARKS.producer_id,
    NO_MARKS.producer_epoch,
    NO_MARKS.first_sequence,
    NO_MARKS.transaction_id,
    NO_MARKS.origin_source,
    NO_MARKS.origin_sequence,
)


def encode_value(value: bytes, timestamp: int, limits: LimitsConfig) -> Encoded:
    """As `encode_in_pieces` with this value and timestamp alone. TooLarge over a limit."""
    return encode_even(value, len(value), 1, timestamp, limits)


def encode_even(
    blob: bytes, size: int, count: int, timestamp: int, limits: LimitsConfig
) -> Encoded:
    """The same for so many values of one size, end to end."""
    if size > limits.value_bytes_max:
        raise TooLarge("value in bytes", found=size, limit=limits.value_bytes_max)
    if not I64_MIN <= timestamp <= I64_MAX:
        raise Refused(f"timestamp must be an integer of 64 bits, got {timestamp}")
    columns = _COLUMNS.pack(_FORMS, size)
    body_size = _COLUMNS.size + len(blob)
    padding = -body_size % ALIGNMENT
    length = HEAD_BYTES + body_size + padding
    if length > limits.batch_bytes_max:
        raise TooLarge("batch in bytes", found=length, limit=limits.batch_bytes_max)
    body: list[Buffer]
    if len(blob) <= _COPIED_BYTES_MAX:
        stored = columns + blob
        body_checksum, body = checksum(stored), [stored + _PADDINGS[padding]]
    else:
        body_checksum = checksum(blob, checksum(columns))
        body = [columns, blob, _PADDINGS[padding]]
    # In the order of the head's fields; those that a log gives are 0.
    before = (MAGIC, length, VERSION, ENCODING_COLUMNAR, _ATTRIBUTES[padding], count, 0, count - 1)
    marks = (0, timestamp, timestamp, *_UNMARKED)
    head = head_of((*before, UNSYNCED_MAX, 0, body_size, *marks, body_checksum, 0))
    return encoded_of((head, body))


def read_value(batch: Buffer, seed: int) -> tuple[Head, Message] | None:
    """Head and message of such a batch, if it is all there is in `batch` and both checksums are right.

    None: it is of another kind, or something is wrong with it, which is for `verify` to say. What that looks at is
    looked at here, too, in fewer steps.
    """
    size = len(batch)
    if type(batch) is not bytes or not _SIZE_MIN <= size <= _COPIED_BYTES_MAX:
        return None
    head = head_of(HEAD.unpack_from(batch))
    if head.head_checksum != checksum(batch[:_CHECKED_BYTES], seed):
        return None
    start, end = HEAD_BYTES + _COLUMNS.size, HEAD_BYTES + head.body_size
    if not start <= end <= size:
        return None
    if head[:6] != (MAGIC, size, VERSION, ENCODING_COLUMNAR, _ATTRIBUTES[(size - end) & 7], 1):
        return None
    if batch[end:] != _PADDINGS[(size - end) & 7] or not 0 <= head.base_offset < OFFSET_MAX:
        return None
    if head.body_checksum != checksum(batch[HEAD_BYTES:end]):
        return None
    # All of the columns is known, but for the length of the value, which is what is left.
    if batch[HEAD_BYTES:start] != _COLUMNS.pack(_FORMS, end - start):
        return None
    if head.last_delta or head.base_timestamp != head.max_timestamp:
        return None
    return head, Message(batch[start:end], timestamp=head.base_timestamp, offset=head.base_offset)


def decode_value(batch: Buffer, head: Head) -> Message | None:
    """The message of such a batch, whose head somebody has verified; None: it is of another kind, or does not add up.

    That is for `decode_messages` to say, which reads all of them.
    """
    if head.message_count != 1 or head.attributes not in _USUAL or head.last_delta:
        return None
    if head.body_size < _COLUMNS.size:
        return None
    forms, size = _COLUMNS.unpack_from(batch, HEAD_BYTES)
    is_whole = head.stored_size == head.body_size == _COLUMNS.size + size
    if not is_whole or forms != _FORMS or head.base_timestamp != head.max_timestamp:
        return None
    start = HEAD_BYTES + _COLUMNS.size
    value = bytes(memoryview(batch)[start : start + size])
    return Message(value, timestamp=head.base_timestamp, offset=head.base_offset)
