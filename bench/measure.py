"""Timing contenders so that the ratio between them can be trusted.

The machine is shared and its speed drifts, so contenders take turns, and the best of several turns
counts: noise only ever adds time.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import repeat
from statistics import quantiles

Quantiles = tuple[float, float]
"""p50 and p99, in microseconds."""


class Clock(Enum):
    """CPU for work that only computes; WALL for anything that waits for a disk or a peer."""

    CPU = "cpu"
    WALL = "wall"

    def now_ns(self) -> int:
        return time.process_time_ns() if self is Clock.CPU else time.perf_counter_ns()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure: turns for each contender, and the least duration of a turn."""

    turns: int
    turn_ms_min: int

    def __post_init__(self) -> None:
        # One turn proves nothing, and with two there is no telling which one was disturbed.
        if self.turns < 3:
            raise ValueError(f"at least 3 turns, got {self.turns}")
        if self.turn_ms_min < 1:
            raise ValueError(f"turn_ms_min must be at least 1, got {self.turn_ms_min}")


FULL = Effort(turns=15, turn_ms_min=100)
QUICK = Effort(turns=3, turn_ms_min=30)


def best_ns(
    contenders: Mapping[str, Callable[[], object]], effort: Effort, *, clock: Clock = Clock.CPU
) -> dict[str, float]:
    """Returns nanoseconds of one call of each contender: the best of its turns, which alternate."""
    with collector_off():
        calls = {name: calls_per_turn(call, effort, clock) for name, call in contenders.items()}
        best = dict.fromkeys(contenders, float("inf"))
        for _ in range(effort.turns):
            for name, call in contenders.items():
                best[name] = min(best[name], turn_ns(call, calls[name], clock) / calls[name])
    return best


def calls_per_turn(call: Callable[[], object], effort: Effort, clock: Clock) -> int:
    """Returns how many calls fill a turn. The search also warms up."""
    calls = 1
    while turn_ns(call, calls, clock) < effort.turn_ms_min * 1_000_000:
        calls *= 2
    return calls


def turn_ns(call: Callable[[], object], calls: int, clock: Clock) -> int:
    start_ns = clock.now_ns()
    for _ in repeat(None, calls):
        call()
    return clock.now_ns() - start_ns


def least_us(known: Quantiles | None, times_ns: Sequence[int]) -> Quantiles:
    """Returns the smaller p50 and p99 of a turn and of those before."""
    cuts = quantiles(times_ns, n=100)
    turn = cuts[49] / 1000, cuts[98] / 1000
    return turn if known is None else (min(known[0], turn[0]), min(known[1], turn[1]))


@contextmanager
def collector_off() -> Iterator[None]:
    """Switch the garbage collector off: a collection would slow down the contender that happens to run."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
