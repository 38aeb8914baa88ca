"""What one process can take at once: requests, and bytes of bodies."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
