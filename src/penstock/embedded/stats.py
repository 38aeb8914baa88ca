"""Figures about a queue: how many, how large, how long."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..api.received import Received


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of the last thousand or so, in milliseconds; zero while there is none."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


class Durations:
    """The last durations of one kind. Threads may share it: adding is one step."""

    def __init__(self) -> None:
        self._kept_ns: deque[int] = deque(maxlen=1024)

    def add(self, duration_ns: int) -> None:
        self._kept_ns.append(duration_ns)

    def percentiles(self) -> Percentiles:
        kept = sorted(self._kept_ns.copy()) or [0]
        picked = (kept[min(len(kept) - 1, len(kept) * p // 100)] / 1_000_000 for p in (50, 95, 99))
        return Percentiles(*picked)


@dataclass(slots=True)
class Timings:
    """What a queue measures: writing a batch of puts, a sync, and how old messages are when handed out."""

    write: Durations = field(default_factory=Durations)
    age: Durations = field(default_factory=Durations)

    def hand_out(self, messages: Sequence[Received], now_ns: int) -> None:
        """The first of those that are handed out together stands for them."""
        if messages:
            self.age.add(max(0, now_ns - messages[0].timestamp))


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A queue at one moment.

    `put` counts every id ever given; of those, `waiting` are ready or wait for a retry, `in_flight` are held by
    callers, `done` are finished. `delayed` are to come later and have no id yet. `age` is how long messages had been in
    the queue when they were handed out, `write` how long it took to write a batch of puts.
    """

    put: int
    waiting: int
    in_flight: int
    done: int
    expired: int
    dead_letters: int
    first_id: int
    next_id: int
    bytes: int
    segments: int
    write: Percentiles
    age: Percentiles
    delayed: int = 0
