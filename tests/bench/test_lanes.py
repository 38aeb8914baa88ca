"""The cases of priority lanes run and report what is promised. No timings here."""

import pytest

from bench import embedded, lanes
from bench.measure import Effort
from bench.report import result_of

EFFORT = Effort(turns=3, turn_ms_min=1)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(lanes, "MESSAGES", 5000)
    monkeypatch.setattr(lanes, "SMALL_BACKLOG", 6000)
    monkeypatch.setattr(embedded, "CYCLE", 4000)
    yield
    lanes.cycles.cache_clear()


@pytest.mark.parametrize("case", lanes.CASES, ids=lambda case: case.name)
def test_a_case_reports(case):
    result = result_of("delivery", case, case.measure(EFFORT))
    assert result.value is not None
    if case.unit is lanes.Unit.POINTS:
        assert result.ok, result
