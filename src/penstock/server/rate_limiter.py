"""How many requests a second a client may send, on all protocols together."""

from collections import OrderedDict
from collections.abc import Callable

from ..errors import TooManyRequests

_CLIENTS_KEPT = 10_000


class RateLimiter:
    """A bucket for each key or address: so many requests a second, and as many at once."""

    def __init__(self, per_s: int, now: Callable[[], float]) -> None:
        self.per_s, self._now = per_s, now
        # For each the time at which the bucket would be full again, in the order of the last visit.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def admit(self, name: str) -> None:
        """Count a request; TooManyRequests over the rate."""
        if self.per_s <= 0:
            return
        now = self._now()
        full_at = max(self._full_at.get(name, 0.0), now) + 1 / self.per_s
        if full_at - now > 1.0:
            wait_ms = int((full_at - now - 1.0) * 1000) + 1
            raise TooManyRequests("requests a second", limit=self.per_s, retry_after_ms=wait_ms)
        self._full_at[name] = full_at
        self._full_at.move_to_end(name)
        if len(self._full_at) > _CLIENTS_KEPT:
            self._full_at.popitem(last=False)
