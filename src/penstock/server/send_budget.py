"""Answers that wait in our memory, because the clients that asked for them do not read.

Each is cut off after a while (`http.write_timeout_ms`); until then what all of them wait for together is bounded here.
"""

from typing import Protocol

from ..errors import TooManyRequests

_RETRY_MS = 1000


class Slow(Protocol):
    """A connection whose client does not read."""

    def unsent_bytes(self) -> int:
        """What waits for it now."""
        ...


class SendBudget:
    """How much waits for each client. Over `bytes_max` large reads are refused; what was promised is sent."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.used = bytes_max, 0
        self._waiting: dict[Slow, int] = {}

    def begin(self, connection: Slow) -> None:
        """From here to `end` its client does not read."""
        size = connection.unsent_bytes()
        self.used += size - self._waiting.get(connection, 0)
        self._waiting[connection] = size

    def end(self, connection: Slow) -> None:
        self.used -= self._waiting.pop(connection, 0)

    def require_room(self) -> None:
        """TooManyRequests, if too much waits already. Asked before an answer is made that may be large."""
        if self.used < self.bytes_max:
            return
        # Some were slow and not stuck: what they have read since does not count.
        for one in self._waiting:
            self.begin(one)
        if self.used >= self.bytes_max:
            raise TooManyRequests(
                "bytes of answers that clients do not read",
                limit=self.bytes_max,
                retry_after_ms=_RETRY_MS,
            )
