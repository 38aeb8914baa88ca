"""The server bench has every case that is promised. Measuring takes seconds, so only a short one runs here."""

import pytest

from bench import server
from bench.measure import Effort
from bench.report import result_of
from bench.server_process import ports_of

BRIEF = Effort(turns=3, turn_ms_min=1)
PROMISED = {
    "publish_json_batch",
    "publish_json_single",
    "publish_fsync_connections",
    "idle",
    "start",
    "rss",
    "overload",
    "overload_large_crowd",
}


def test_promised_cases_are_there():
    assert {case.name for case in server.CASES} >= PROMISED
    assert all(case.goal is not None for case in server.CASES)


@pytest.mark.tier("test")
def test_a_case_measures_from_another_process(monkeypatch):
    monkeypatch.setattr(server, "seconds_of", lambda _effort: 1.0)
    case = next(case for case in server.CASES if case.name == "publish_fsync_connections")
    result = result_of("server", case, case.measure(BRIEF))
    assert result.value >= 0
    assert result.ok is not None


def test_a_server_that_logs_before_it_listens_is_found():
    said = ["data in /tmp: a new directory\n", "listens on http://h:1 and penstock://h:2\n"]
    assert ports_of(said) == (1, 2)
    assert ports_of(["listens on http://h:1\n"]) == (1, None)
    with pytest.raises(RuntimeError, match="no such directory"):
        ports_of(["no such directory\n"])
