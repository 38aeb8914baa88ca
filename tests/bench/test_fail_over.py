"""The case of fail-overs measures what it says, on a few partitions. No timings here."""

import pytest

from bench import fail_over, load_cases
from bench.measure import Effort
from bench.report import result_of


@pytest.mark.tier("test")
def test_the_case_is_there_and_judged(monkeypatch):
    for name, value in {"TIMES_QUICK": 1, "FEW": 2, "MESSAGES_QUICK": 4}.items():
        monkeypatch.setattr(fail_over, name, value)
    (case,) = [one for one in load_cases("replication") if one.name == "fail-over-1000-data"]
    result = result_of("replication", case, case.measure(Effort(turns=3, turn_ms_min=1)))
    assert result.value > 0
    assert result.ok is not None
    assert result.settings["floor_fsync"] > 0
