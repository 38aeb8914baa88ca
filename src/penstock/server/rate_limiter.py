"""How often a client may do something, on all protocols together: requests a second, lines of the audit log an hour."""

from collections import OrderedDict
from collections.abc import Callable

from ..errors import TooManyRequests

_CLIENTS_KEPT = 10_000


class RateLimiter:
    """A bucket for each key or address: so many requests in a window, and as many at once."""

    def __init__(
        self,
        limit: int,
        now: Callable[[], float],
        *,
        window_s: float = 1.0,
        what: str = "requests a second",
    ) -> None:
        """`limit` 0 or below: there is none. `what` is counted, in words."""
        self.limit, self._now, self._window_s, self._what = limit, now, window_s, what
        # For each the time at which the bucket would be full again, in the order of the last visit.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def admit(self, name: str) -> None:
        """Count a request; TooManyRequests over the rate."""
        if self.limit <= 0:
            return
        now = self._now()
        full_at = max(self._full_at.get(name, 0.0), now) + self._window_s / self.limit
        if full_at - now > self._window_s:
            wait_ms = int((full_at - now - self._window_s) * 1000) + 1
            raise TooManyRequests(self._what, limit=self.limit, retry_after_ms=wait_ms)
        self._full_at[name] = full_at
        self._full_at.move_to_end(name)
        if len(self._full_at) > _CLIENTS_KEPT:
            self._full_at.popitem(last=False)
