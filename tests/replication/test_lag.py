"""For how long a follower has been behind."""

import pytest

from penstock.replication.lag import Lag


def test_a_follower_that_always_confirms_a_second_late_is_a_second_behind() -> None:
    lag = Lag()
    for number in range(1, 1001):
        now_s = number / 100
        lag.appended(number, now_s)
        lag.confirmed(number - 100)
        if number > 200:
            # Never too low, and hardly too high.
            assert -1e-9 <= lag.seconds(now_s) - 0.99 <= 1 / 64
    lag.confirmed(1000)
    assert lag.seconds(99) == 0


def test_what_is_confirmed_already_is_not_waited_for() -> None:
    lag = Lag()
    lag.confirmed(7)
    lag.appended(7, 1.0)
    assert lag.seconds(5.0) == 0
    lag.appended(8, 2.0)
    assert lag.seconds(5.0) == pytest.approx(3)


def test_a_follower_that_confirms_nothing_for_hours_costs_little_memory() -> None:
    lag = Lag()
    for number in range(1, 20_001):
        lag.appended(number, float(number))
    assert lag.seconds(20_001.0) == 20_000
    assert len(lag._marks) < 1000
