"""How many bytes of requests both ports together hold while the rest of each is still to come."""

from collections.abc import Iterator
from contextlib import contextmanager


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
