"""How long a failed message waits, and when it is given up."""

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.config import DeliveryConfig
from penstock.delivery.retry import backoff_ms, is_last

ENTROPY = random.Random(1)


def test_the_backoff_doubles_from_one_second_to_a_minute() -> None:
    waits = [backoff_ms(attempt, DeliveryConfig(), ENTROPY) for attempt in range(1, 9)]
    assert waits == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]


@given(st.integers(1, 10**9), st.floats(1, 100), st.integers(0, 10**9))
def test_the_backoff_never_passes_its_cap(attempts: int, multiplier: float, cap: int) -> None:
    config = DeliveryConfig(backoff_multiplier=multiplier, backoff_max_ms=cap)
    assert 0 <= backoff_ms(attempts, config, ENTROPY) <= cap


@given(st.integers(1, 12))
def test_jitter_takes_away_up_to_half(attempts: int) -> None:
    plain = backoff_ms(attempts, DeliveryConfig(), ENTROPY)
    config = DeliveryConfig(backoff_jitter=True)
    draws = {backoff_ms(attempts, config, ENTROPY) for _ in range(50)}
    assert plain // 2 <= min(draws) <= max(draws) <= plain
    assert len(draws) > 1


@given(st.integers(1, 100), st.integers(0, 20))
def test_one_delivery_and_max_retries_more_then_it_is_over(attempts: int, retries: int) -> None:
    assert is_last(attempts, DeliveryConfig(max_retries=retries)) == (attempts >= retries + 1)


@given(st.integers(1, 10**9))
def test_minus_one_retries_for_ever(attempts: int) -> None:
    assert not is_last(attempts, DeliveryConfig(max_retries=-1))
