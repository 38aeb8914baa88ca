"""How many requests one process can take at once."""

from collections.abc import Callable

from ...errors import TooManyRequests

_WAIT_S_MAX = 10.0
# Many clients that come back are refused again, so in a second only this part of the room is told to come back.
_RETURNING = 0.25


class Room:
    """Bounds the requests that are under way.

    A client that finds no room is told when to come back, and the more are refused, the later: a quarter of what fits
    in each second. If all came back together, refusing them would cost what serving others needs.
    """

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        self.limit, self._now = limit, now
        self.under_way = 0
        self._line_ends = 0.0

    @property
    def is_full(self) -> bool:
        return self.under_way >= self.limit

    def enter(self) -> bool:
        """Whether there was room for one more, which is under way until `leave`."""
        if self.is_full:
            return False
        self.under_way += 1
        return True

    def leave(self) -> None:
        self.under_way -= 1

    def refusal(self, wait_ms: int) -> TooManyRequests:
        return TooManyRequests("requests at once", limit=self.limit, retry_after_ms=wait_ms)

    def wait_ms(self) -> int:
        """How long the next client that is refused has to stay away."""
        now = self._now()
        wait = min(max(self._line_ends, now) + 1 / (_RETURNING * self.limit) - now, _WAIT_S_MAX - 1)
        self._line_ends = now + wait
        return int((1 + wait) * 1000)
