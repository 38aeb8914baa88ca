"""The same bytes, cut in every way that a network may cut them: the answers and what is stored have to be the same."""

import asyncio
import re
from collections.abc import Iterator
from typing import NamedTuple

from .rigs import InProcess, until
from .wires import connected, is_answered

# The last word on every connection that is still open: when it is answered, everything before it was.
LAST = b"GET /last-word HTTP/1.1\r\nHost: localhost\r\n\r\n"
_VARYING = re.compile(
    rb"date: [^\r]*\r\n|x-request-id: [^\r]*\r\n|HTTP/1.1 100 Continue\r\n\r\n|\d+"
)
_SMALL_BYTES = 2000


class Seen(NamedTuple):
    """What a client and the topic `orders` saw of a request. Answers are without numbers: offsets differ."""

    answers: bytes
    statuses: tuple[int, ...]
    stored: tuple[str, ...]
    is_closed: bool


def segmentations(raw: bytes, step: int) -> Iterator[tuple[bytes, ...]]:
    """`raw` as one piece, as two, cut at every `step`th place and around its blank line, and byte by byte.

    What is large, and the same for most of its length, is cut at fewer places.
    """
    is_small = len(raw) <= _SMALL_BYTES
    step = step if is_small else len(raw) // 5
    yield (raw,)
    end = raw.find(b"\r\n\r\n")
    cuts = {*range(1, len(raw), step), *range(max(end, 1), min(end + 6, len(raw))), len(raw) - 1}
    for cut in sorted(cuts):
        yield (raw[:cut], raw[cut:])
    size = 1 if is_small else _SMALL_BYTES // 10
    yield tuple(raw[at : at + size] for at in range(0, len(raw), size))


async def seen(broker: InProcess, pieces: tuple[bytes, ...], before: bytes = b"") -> Seen:
    """Say the pieces on a new connection, or on one that has said `before`, each time alone, twice already."""
    connection, wire = connected(broker)
    for _ in range(2 if before else 0):
        connection.data_received(before)
        async with asyncio.timeout(10):
            await until(lambda: wire.written and is_answered(connection))
        await asyncio.sleep(0)
        wire.written = b""
    first = await _end(broker)
    for piece in (*pieces, LAST):
        if wire.is_paused:
            # The network waits, too, while nothing is read.
            async with asyncio.timeout(10):
                await until(lambda: not wire.is_paused or wire.is_closing())
        if not wire.is_closing():
            connection.data_received(piece)
            await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await until(
            lambda: wire.is_closing() or (b"/last-word" in wire.written and is_answered(connection))
        )
    is_closed, written = wire.is_closing(), wire.written
    connection.connection_lost(None)
    statuses = tuple(int(one) for one in re.findall(rb"HTTP/1\.1 (\d+) ", written) if one != b"100")
    reply = await broker.call("GET", f"/topics/orders/partitions/0/messages?offset={first}")
    stored = tuple(one["value"] for one in reply.json["messages"])
    return Seen(_VARYING.sub(b"", written), statuses, stored, is_closed)


async def _end(broker: InProcess) -> int:
    reply = await broker.call("GET", "/offsets?topics=orders")
    return int(reply.json["topics"]["orders"]["partitions"]["0"]["latest"])
