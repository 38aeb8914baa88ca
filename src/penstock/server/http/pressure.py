"""What one process can take at once: requests, bytes of bodies, slow senders, requests a second."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from ...errors import TooManyRequests, TooSlow

_CLIENTS_KEPT = 10_000
_WAIT_S_MAX = 10.0
# Of those who come back many are refused again, so in a second only a part of the room may come back.
_RETURNING = 0.25


class Room:
    """Bounds the requests that are under way.

    Whoever finds no room is told to come back, and the more are turned away, the later each: a second a quarter of what
    fits in. If all came back together, refusing them would cost what serving others needs.
    """

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        self.limit, self._now = limit, now
        self.under_way = 0
        # Let in by their connection, and not begun yet.
        self.coming = 0
        self._line_ends = 0.0

    def __enter__(self) -> None:
        """Inside, one more is under way; TooManyRequests if there is no room."""
        if self.under_way >= self.limit:
            raise self.refusal(self.wait_ms())
        self.under_way += 1

    def refusal(self, wait_ms: int) -> TooManyRequests:
        return TooManyRequests("requests at once", limit=self.limit, retry_after_ms=wait_ms)

    def __exit__(self, *_error: object) -> None:
        self.under_way -= 1

    def wait_ms(self) -> int:
        """How long the next one who is turned away has to stay away."""
        now = self._now()
        wait = min(max(self._line_ends, now) + 1 / (_RETURNING * self.limit) - now, _WAIT_S_MAX - 1)
        self._line_ends = now + wait
        return int((1 + wait) * 1000)


class Reservation:
    """The share of one request."""

    def __init__(self, memory: "BodyMemory", client: str) -> None:
        self._memory, self._client, self._size = memory, client, 0

    def grow(self, size: int) -> int | None:
        """Ask for so many bytes in all. A number is the limit that they would pass; then nothing changes."""
        memory = self._memory
        more, of_client = size - self._size, memory.of_clients.get(self._client, 0)
        if memory.used + more > memory.bytes_max:
            return memory.bytes_max
        if of_client + more > memory.client_bytes_max:
            return memory.client_bytes_max
        memory.used += more
        memory.of_clients[self._client] = of_client + more
        self._size = size
        return None

    def end(self) -> None:
        self.grow(0)
        if not self._memory.of_clients.get(self._client):
            self._memory.of_clients.pop(self._client, None)


class BodyMemory:
    """Bounds the bodies that are being received: those of all clients, and those of each."""

    def __init__(self, bytes_max: int, client_bytes_max: int) -> None:
        self.bytes_max, self.client_bytes_max = bytes_max, client_bytes_max
        self.used = 0
        self.of_clients: dict[str, int] = {}

    @contextmanager
    def reserved(self, client: str) -> Iterator[Reservation]:
        reservation = Reservation(self, client)
        try:
            yield reservation
        finally:
            reservation.end()


class Arriving(Protocol):
    """A connection that receives a body."""

    def body_late(self, error: TooSlow) -> None:
        """It comes too slowly, and is not waited for any more."""
        ...


class Arrivals:
    """Ends bodies that come too slowly: each span has to bring the end of a body, or so much of it.

    One look a second costs less than a timer for each.
    """

    def __init__(self, seconds: float, bytes_per_s: int, now: Callable[[], float]) -> None:
        self.seconds, self.bytes_per_s, self._now = seconds, bytes_per_s, now
        # When the span ends, and what has come in it.
        self._spans: dict[Arriving, list[float]] = {}

    def begin(self, connection: Arriving) -> None:
        """A body is being received from here to `end`. Called again, it changes nothing."""
        if connection not in self._spans:
            self._spans[connection] = [self._now() + self.seconds, 0]

    def add(self, connection: Arriving, size: int) -> None:
        span = self._spans.get(connection)
        if span is not None:
            span[1] += size

    def end(self, connection: Arriving) -> None:
        self._spans.pop(connection, None)

    def sweep(self) -> None:
        now, enough = self._now(), self.seconds * self.bytes_per_s
        over = [(one, size) for one, (until, size) in self._spans.items() if until <= now]
        for connection, size in over:
            if size >= enough:
                self._spans[connection] = [now + self.seconds, 0]
                continue
            del self._spans[connection]
            connection.body_late(
                TooSlow(
                    f"the body did not come within {self.seconds:g} s, nor {self.bytes_per_s} bytes of it a second"
                )
            )


class RateLimiter:
    """A bucket for everybody who asks: so many requests a second, and as many at once."""

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
