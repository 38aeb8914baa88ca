"""The rebalance cases measure what they say, on a small group. No timings here."""

import pytest

from bench import load_cases, rebalance
from bench.measure import Effort
from bench.report import result_of

BRIEF = Effort(turns=3, turn_ms_min=1)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(rebalance, "MEMBERS", 5)
    monkeypatch.setattr(rebalance, "PARTITIONS", 20)
    rebalance.idle_group.cache_clear()
    yield
    rebalance.idle_group.cache_clear()


def test_every_case_is_there_and_judged():
    names = {case.name for case in load_cases("delivery")}
    assert names >= {"rebalance", "rebalance_moves", "rebalance_settle"}
    for case in rebalance.CASES:
        result = result_of("delivery", case, case.measure(BRIEF))
        assert result.value > 0, case.name
        assert result.ok is not None, case.name


def test_a_join_moves_the_share_of_the_new_member_and_settles_in_network_time():
    moved = rebalance.measure_moves(BRIEF)
    assert moved.value == moved.baseline_value == 4
    # To be told, to release, and for the new member to be told.
    assert rebalance.measure_settle(BRIEF).value <= 4 * rebalance.NETWORK_MS_MAX
