"""A clock that moves when it is told to."""


class SimClock:
    """Wall time may step either way; monotonic time only goes on."""

    def __init__(self, now_ns: int = 0) -> None:
        self._now_ns = now_ns
        self._monotonic_ns = 0

    def now_ns(self) -> int:
        return self._now_ns

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def advance(self, duration_ns: int) -> None:
        assert duration_ns >= 0
        self._now_ns += duration_ns
        self._monotonic_ns += duration_ns

    def step_wall(self, by_ns: int) -> None:
        """What a time server, an administrator or a leap second does."""
        self._now_ns += by_ns
