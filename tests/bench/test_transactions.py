"""The cases of transactions run and report. No timings here."""

import pytest

from bench import transactions
from bench.measure import Effort
from bench.report import result_of

EFFORT = Effort(turns=3, turn_ms_min=1)


@pytest.mark.parametrize("case", transactions.CASES[:3], ids=lambda case: case.name)
def test_a_case_reports(case, monkeypatch):
    monkeypatch.setattr(transactions, "READ_QUICK", 1000)
    assert result_of("transactions", case, case.measure(EFFORT)).value is not None
