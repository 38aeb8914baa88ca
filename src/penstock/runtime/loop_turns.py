"""How work that can wait shares an event loop with requests that are done at once."""

import asyncio
from collections import deque

from ..ports import Clock

# With a slice of a millisecond that has just begun, the loop is back within 3 ms.
_TURN_NS = 1_500_000
# So many of those that wait are woken for a turn, in which some may have little to do.
_WOKEN_MAX = 16


class LoopTurns:
    """Turns of an event loop. Belongs to the loop.

    All that walks or has many items to do in one request has so much time of each turn of the loop, together. What
    finds no time left waits, in the order in which it came, and goes to the end when it has had its turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop, self._clock = loop, clock
        self._waiting: deque[_Place] = deque()
        # Of those that were woken for this turn.
        self._first: _Place | None = None
        # When the time of this turn of the loop is over; None before anything was asked in it.
        self._until_ns: int | None = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def is_spent(self) -> bool:
        """Whether this turn of the loop has had its time: then await `turn` before going on."""
        now_ns = self._clock.monotonic_ns()
        if self._until_ns is None:
            self._until_ns = now_ns + _TURN_NS
            self._loop.call_soon(self._begin)
        return now_ns >= self._until_ns

    async def turn(self) -> None:
        """Return in a later turn of the loop, when there is time and all have had theirs that waited before."""
        place = _Place(self._loop.create_future())
        self._waiting.append(place)
        # Has the loop begin another turn, if no call has asked in this one.
        self.is_spent()
        try:
            await place.woken
            # The first goes on, however long other calls of the loop took before it.
            while self._first is not place and self.is_spent():
                place.woken = self._loop.create_future()
                await place.woken
        finally:
            # Mostly the first.
            self._waiting.remove(place)
            if self._first is place:
                self._first = None

    def _begin(self) -> None:
        """A turn of the loop begins."""
        self._until_ns = None
        if not self._waiting:
            return
        self._first = self._waiting[0]
        # Before they are woken: they have the time of the next turn, before what arrives in it.
        self.is_spent()
        for _, place in zip(range(_WOKEN_MAX), self._waiting, strict=False):
            if not place.woken.done():
                place.woken.set_result(None)


class _Place:
    """One that waits, in its order."""

    __slots__ = ("woken",)

    def __init__(self, woken: "asyncio.Future[None]") -> None:
        self.woken = woken
