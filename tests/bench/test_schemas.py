"""The cases of schemas run and report. No timings here."""

import pytest

from bench import schemas
from bench.measure import Effort
from bench.report import result_of

EFFORT = Effort(turns=3, turn_ms_min=1)


@pytest.mark.parametrize("case", schemas.CASES[:4], ids=lambda case: case.name)
def test_a_case_reports(case):
    assert result_of("schemas", case, case.measure(EFFORT)).value is not None
