"""Messages of a poll in binary: batches as clients read them, with receipts in columns beside them."""

from bisect import bisect_right
from itertools import accumulate

from ..api.leased import LeasedMessages, LeasedPart
from ..codec import Columns, Encoded, encode
from ..codec.columns import one_or_all, without_empty
from ..codec.leased import LeaseColumns, collapsed, encode_leased
from ..config import LimitsConfig

# What is within its own limits is sent, whatever the limits of today are.
_LIMITS = LimitsConfig(
    value_bytes_max=1 << 30,
    key_bytes_max=1 << 30,
    headers_bytes_max=1 << 30,
    batch_bytes_max=1 << 31,
)
# Far below what a client is ready to take in one answer.
ANSWER_BYTES = 16 << 20
# Parts stay small enough to be read without a second thought about memory.
_PART_BYTES = 8 << 20


def leased_parts(messages: LeasedMessages) -> bytes:
    """Messages in the form of docs/formats/leased.md."""
    parts: list[tuple[LeaseColumns, Encoded]] = []
    while messages:
        some, messages = fitting(messages, _PART_BYTES)
        parts += [(_lent(part), encode(_columns(part), limits=_LIMITS)) for part in some.leased()]
    return encode_leased(parts)


def _columns(part: LeasedPart) -> Columns:
    """Returns the columns of a part for an encoder. A bare part has values and timestamps only."""
    if not part.is_bare:
        return without_empty(part.columns)
    return Columns(values=part.columns.values, timestamps=one_or_all(part.columns.timestamps))


def fitting(
    messages: LeasedMessages, bytes_max: int = ANSWER_BYTES
) -> tuple[LeasedMessages, LeasedMessages]:
    """The first of these, as many as stay below so many bytes together, at least one; and the others."""
    if messages.content_bytes() <= bytes_max:
        return messages, LeasedMessages()
    sizes = accumulate(messages.content_sizes())
    return messages.cut(max(1, bisect_right(list(sizes), bytes_max)))


def _lent(part: LeasedPart) -> LeaseColumns:
    attempts, offsets = part.attempts, list(part.offsets)
    errors = part.last_errors
    return LeaseColumns(
        *part.place,
        part.lease,
        offsets,
        attempts if isinstance(attempts, int) else collapsed(attempts),
        {offset: errors[offset] for offset in offsets if offset in errors} if errors else {},
    )
