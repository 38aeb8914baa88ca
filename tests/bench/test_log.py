"""The log bench runs and reports every case that is promised. No timings here, only counts and sizes."""

import json

import pytest

from bench import log
from bench.log_workload import batches_of, fill, opened, scaled
from bench.measure import FULL, Effort
from bench.report import result_of
from penstock.log.lookup import offset_at

BRIEF = Effort(turns=3, turn_ms_min=1)
PROMISED = {
    "append",
    "read_verified",
    "walk_heads",
    "lookup_offset",
    "lookup_time",
    "open_clean",
    "open_crash",
    "open_partitions",
    "group_commit",
    "rss",
}
CASES = {case.name: case for case in log.CASES}


def measured(name: str):
    case = CASES[name]
    return result_of("log", case, case.measure(BRIEF))


def test_promised_cases_are_there():
    assert set(CASES) >= PROMISED


@pytest.mark.tier("test")
@pytest.mark.parametrize("name", CASES)
def test_case_measures_and_judges_itself(name):
    result = measured(name)
    assert result.value > 0
    assert result.ok is not None
    assert result.baseline is None or result.baseline_value > 0
    assert json.loads(result.to_json())["settings"]["clock"] in {"cpu", "wall"}


@pytest.mark.tier("test")
def test_writing_cases_say_how_durable_they_were():
    assert measured("append").settings["fsync"] == "never"
    assert measured("group_commit").settings["fsync"] == "always"
    assert measured("rss").settings["fsync"] == "never"


def test_appenders_share_their_syncs():
    """How much depends on the disk; that a slow one gives a fifth or less is claimed beside the committer."""
    assert measured("group_commit").value < 1


@pytest.mark.tier("test")
def test_memory_and_descriptors_stay_bounded():
    partitions = measured("open_partitions_rss")
    assert partitions.ok
    assert partitions.settings["descriptors"] <= partitions.settings["open_files_max"] + 20
    assert measured("rss").ok


def test_full_effort_is_what_the_goals_are_about():
    assert scaled(10_000_000, FULL) == 10_000_000
    assert scaled(10_000_000, BRIEF) == 100_000


def test_payloads_are_distinct():
    assert len({one.to_bytes() for one in batches_of(10)}) == len(batches_of(10))


def test_prepared_log_holds_what_it_says(tmp_path):
    with opened(tmp_path) as log:
        fill(log, 5000, messages_a_batch=100)
        fill(log, 5000)
        assert log.end_offset == 10_000
        assert offset_at(log, log.append_time) == 9000
