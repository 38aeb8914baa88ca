"""The case of idle partitions measures what it says, on a few. No timings here."""

import pytest

from bench import load_cases, partitions
from bench.measure import Effort
from bench.report import result_of


@pytest.mark.tier("test")
def test_the_case_is_there_and_judged(monkeypatch):
    monkeypatch.setattr(partitions, "MANY", 3)
    monkeypatch.setattr(partitions, "FEW", 2)
    monkeypatch.setattr(partitions, "CYCLES", 2)
    (case,) = [one for one in load_cases("delivery") if one.name == "idle_partitions"]
    result = result_of("delivery", case, case.measure(Effort(turns=3, turn_ms_min=1)))
    assert result.value > 0
    assert result.ok is not None
