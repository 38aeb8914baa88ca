"""A poll's answer in binary: batches as clients read them, with receipts in columns beside them."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from operator import attrgetter
from typing import cast

from ...broker.received import Received, content_bytes
from ...codec import encode
from ...codec.encode import columns_of
from ...codec.leased import Lent, collapsed, encode_leased
from ...config import LimitsConfig
from ...model import Message
from .responses import BATCH, HeaderPairs, Response

# What is within its own limits is sent, whatever the limits of today are.
_LIMITS = LimitsConfig(
    value_bytes_max=1 << 30,
    key_bytes_max=1 << 30,
    headers_bytes_max=1 << 30,
    batch_bytes_max=1 << 31,
)
# Far below what a client is ready to take in one answer.
ANSWER_BYTES = 16 << 20
# What is opened for it: values and keys count above, but there is more in a batch.
OPENED_BYTES = ANSWER_BYTES + (1 << 20)
# Parts stay small enough to be read without a second thought about memory.
_PART_BYTES = 8 << 20


def leased_response(
    messages: Sequence[Received],
    errors: Mapping[tuple[str, int, int], str],
    headers: HeaderPairs = (),
) -> Response:
    """`errors` is what went wrong last, by topic, partition and offset."""
    parts = [
        (_lent(some, errors), encode(columns_of(cast("Sequence[Message]", some)), limits=_LIMITS))
        for _, same in groupby(messages, key=attrgetter("place", "lease"))
        for some in _pieces(list(same))
    ]
    return Response(encode_leased(parts), 200, BATCH, headers)


def _pieces(messages: Sequence[Received]) -> Iterator[Sequence[Received]]:
    """So many at a time that a part does not become too large, and at least one."""
    while messages:
        count = fitting_count(messages, _PART_BYTES)
        yield messages[:count]
        messages = messages[count:]


def fitting_count(messages: Sequence[Received], bytes_max: int = ANSWER_BYTES) -> int:
    """How many of these stay below so many bytes together; at least one."""
    if content_bytes(messages) <= bytes_max:
        return len(messages)
    sizes = [len(one.value or b"") + len(one.key or b"") for one in messages]
    return max(1, bisect_right(list(accumulate(sizes)), bytes_max))


def _lent(messages: Sequence[Received], errors: Mapping[tuple[str, int, int], str]) -> Lent:
    place = messages[0].place
    return Lent(
        place.topic,
        place.partition,
        place.group,
        messages[0].lease,
        [one.offset for one in messages],
        collapsed([one.attempts for one in messages]),
        {
            one.offset: errors[place.topic, place.partition, one.offset]
            for one in (messages if errors else ())
            if (place.topic, place.partition, one.offset) in errors
        },
    )
