"""Timing, with a clock that moves only when a contender says so."""

import gc

import pytest

from bench.measure import Effort, best_ns, collector_off


class FakeClock:
    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        return self.ns


class Contender:
    """Costs a base, plus noise in the turns that are disturbed."""

    def __init__(self, clock: FakeClock, name: str, cost_ns: int, calls: list[str]) -> None:
        self.clock, self.name, self.cost_ns, self.calls = clock, name, cost_ns, calls

    def __call__(self) -> None:
        noise_ns = 700 * (len(self.calls) % 3)
        self.clock.ns += self.cost_ns + noise_ns
        self.calls.append(self.name)


def test_best_turn_counts_and_contenders_take_turns():
    clock, calls = FakeClock(), []
    contenders = {
        "slow": Contender(clock, "slow", 3_000_000, calls),
        "slower": Contender(clock, "slower", 6_000_000, calls),
    }
    best = best_ns(contenders, Effort(turns=4, turn_ms_min=1), clock=clock)
    assert best == {"slow": 3_000_000, "slower": 6_000_000}
    assert calls == ["slow", "slower"] * 5  # One warm-up and four turns.


def test_short_calls_are_repeated_until_a_turn_is_long_enough():
    clock, calls = FakeClock(), []
    best_ns(
        {"a": Contender(clock, "a", 100_000, calls)}, Effort(turns=3, turn_ms_min=1), clock=clock
    )
    assert len(calls) == (1 + 2 + 4 + 8 + 16) + 3 * 16


@pytest.mark.parametrize(
    "settings", [{"turns": 2, "turn_ms_min": 1}, {"turns": 3, "turn_ms_min": 0}]
)
def test_too_little_effort_is_refused(settings):
    with pytest.raises(ValueError, match="at least"):
        Effort(**settings)


@pytest.mark.parametrize("was_on", [True, False])
def test_collector_is_off_inside_and_as_it_was_after_even_on_error(was_on):
    seen = []

    def fail() -> None:
        with collector_off():
            seen.append(gc.isenabled())
            raise KeyError

    try:
        gc.enable() if was_on else gc.disable()
        with pytest.raises(KeyError):
            fail()
        assert (seen, gc.isenabled()) == ([False], was_on)
    finally:
        gc.enable()
