"""A poll's answer in binary: batches as clients read them, with receipts in columns beside them."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import cast

from ...broker.received import Received
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
# Parts stay small enough to be read without a second thought about memory.
_PART_BYTES = 8 << 20


def leased_response(messages: Sequence[Received], headers: HeaderPairs = ()) -> Response:
    parts = [
        (_lent(some), encode(columns_of(cast("Sequence[Message]", some)), limits=_LIMITS))
        for _, same in groupby(messages, key=attrgetter("place", "lease"))
        for some in _pieces(list(same))
    ]
    return Response(encode_leased(parts), 200, BATCH, headers)


def _pieces(messages: Sequence[Received]) -> Iterator[Sequence[Received]]:
    """So many at a time that a part does not become too large, and at least one."""
    first = size = 0
    for index, one in enumerate(messages):
        here = len(one.value or b"") + len(one.key or b"")
        if index > first and size + here > _PART_BYTES:
            yield messages[first:index]
            first, size = index, 0
        size += here
    yield messages[first:]


def _lent(messages: Sequence[Received]) -> Lent:
    place = messages[0].place
    return Lent(
        place.topic,
        place.partition,
        place.group,
        messages[0].lease,
        [one.offset for one in messages],
        collapsed([one.attempts for one in messages]),
    )
