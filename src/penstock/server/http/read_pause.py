"""Connections that are not read for a while.

What comes in on them waits in their sockets and costs nothing, while taking a request in only to refuse it costs a good
part of serving one. Without this, ten times the requests that fit leave no time for any.
"""

import asyncio
import select
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

# Long against a turn of the loop, short against what a client notices.
_LOOK_S = 0.01


class Held(Protocol):
    """A connection that can be left alone."""

    def stop_reading(self) -> None:
        """Until `read_on`."""
        ...

    def descriptor(self) -> int:
        """Of its socket, or -1."""
        ...

    def read_on(self, *, is_gone: bool) -> None:
        """`is_gone`: the client has closed its side, and would not read an answer."""
        ...


class Behind(Protocol):
    """A connection with more behind the request that is under way: it is not read, so its end is not heard."""

    def descriptor_if_waiting(self) -> int:
        """Of its socket, if the request that is under way ends with its client; otherwise -1."""
        ...

    def cut_off(self) -> None: ...


class _Place(NamedTuple):
    until: float
    connection: Held


class ReadPauses:
    """A client that was refused is read again when it was told to come back, and not before, whatever it sends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop, self._now = loop, now
        # Waits only grow (see `Room`), so the first is the one whose time is up first.
        self._held: deque[_Place] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.behind: set[Behind] = set()

    def sweep(self) -> None:
        """Now and then: end requests that wait for clients that have left, with more sent behind them."""
        waiting = {one.descriptor_if_waiting(): one for one in self.behind}
        for descriptor in gone_of(waiting):
            waiting[descriptor].cut_off()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, connection: Held, wait_s: float) -> None:
        """Read no more from it until its wait is over."""
        until = self._now() + wait_s
        connection.stop_reading()
        self._held.append(_Place(until, connection))
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        now, due = self._now(), list[tuple[Held, int]]()
        while self._held and self._held[0].until <= now:
            connection = self._held.popleft().connection
            due.append((connection, connection.descriptor()))
        gone = gone_of(descriptor for _, descriptor in due)
        for connection, descriptor in due:
            connection.read_on(is_gone=descriptor in gone)
        self._timer = self._loop.call_later(_LOOK_S, self._look) if self._held else None


def gone_of(descriptors: Iterable[int]) -> set[int]:
    """Sockets whose other side has closed. What waits in them would otherwise be served in vain."""
    poll = select.poll()
    for one in descriptors:
        if one >= 0:
            poll.register(one, select.POLLRDHUP)
    return {descriptor for descriptor, _ in poll.poll(0)}
