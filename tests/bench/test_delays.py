"""The bench of delays runs and reports every case that is promised. No timings here."""

import pytest

from bench import delays
from bench.delivery import CASES
from bench.measure import Effort
from bench.report import result_of

BRIEF = Effort(turns=3, turn_ms_min=1)
PROMISED = {"delayed_insert", "delayed_memory", "delayed_cancel", "delayed_restart"}


def test_promised_cases_are_there():
    assert {case.name for case in CASES} >= PROMISED


@pytest.mark.tier("test")
@pytest.mark.parametrize("case", delays.CASES, ids=lambda case: case.name)
def test_every_case_measures_something(case, monkeypatch):
    monkeypatch.setattr(delays, "PENDING_QUICK", 6000)
    monkeypatch.setattr(delays, "CANCELS", 20)
    result = result_of("delivery", case, case.measure(BRIEF))
    assert result.value is not None
    assert case.goal is None or result.ok is not None
