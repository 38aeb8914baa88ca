"""Reading a batch of one value and nothing else: what is stored when messages come one by one.

What the usual way looks at is looked at here, too, in fewer steps.
"""

from ..model import Buffer, Message
from .checksum import checksum
from .encode import EVEN_ATTRIBUTES, EVEN_COLUMNS, EVEN_FORMS, PADDINGS
from .head import ENCODING_COLUMNAR, HEAD, HEAD_BYTES, MAGIC, OFFSET_MAX, VERSION, Head, head_of

_SIZE_MIN = HEAD_BYTES + EVEN_COLUMNS.size
# What is longer takes longer to copy than the usual way takes.
_SIZE_MAX = 64 * 1024
_CHECKED_BYTES = HEAD_BYTES - 4
_USUAL = frozenset(EVEN_ATTRIBUTES)


def read_value(batch: Buffer, seed: int) -> tuple[Head, Message] | None:
    """Head and message of such a batch, if it is all there is in `batch` and both checksums are right.

    None: it is of another kind, or something is wrong with it, which is for `verify` to say. What that looks at is
    looked at here, too, in fewer steps.
    """
    size = len(batch)
    if type(batch) is not bytes or not _SIZE_MIN <= size <= _SIZE_MAX:
        return None
    head = head_of(HEAD.unpack_from(batch))
    if head.head_checksum != checksum(batch[:_CHECKED_BYTES], seed):
        return None
    start, end = HEAD_BYTES + EVEN_COLUMNS.size, HEAD_BYTES + head.body_size
    if not start <= end <= size:
        return None
    if head[:6] != (MAGIC, size, VERSION, ENCODING_COLUMNAR, EVEN_ATTRIBUTES[(size - end) & 7], 1):
        return None
    if batch[end:] != PADDINGS[(size - end) & 7] or not 0 <= head.base_offset < OFFSET_MAX:
        return None
    if head.body_checksum != checksum(batch[HEAD_BYTES:end]):
        return None
    # All of the columns is known, but for the length of the value, which is what is left.
    if batch[HEAD_BYTES:start] != EVEN_COLUMNS.pack(EVEN_FORMS, end - start):
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
    if head.body_size < EVEN_COLUMNS.size:
        return None
    forms, size = EVEN_COLUMNS.unpack_from(batch, HEAD_BYTES)
    is_whole = head.stored_size == head.body_size == EVEN_COLUMNS.size + size
    if not is_whole or forms != EVEN_FORMS or head.base_timestamp != head.max_timestamp:
        return None
    start = HEAD_BYTES + EVEN_COLUMNS.size
    value = bytes(memoryview(batch)[start : start + size])
    return Message(value, timestamp=head.base_timestamp, offset=head.base_offset)
