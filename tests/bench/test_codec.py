"""The codec bench runs and reports every case that is promised. No timings here."""

import sys

import pytest

from bench import BENCHES, codec, load_cases
from bench.measure import Effort
from bench.report import result_of

BRIEF = Effort(turns=3, turn_ms_min=1)
PROMISED = {"encode", "scan", "decode_arrow", "decode_messages", "stamp", "bytes_per_message"}


@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_has_cases_with_names_of_their_own(name):
    names = [case.name for case in load_cases(name)]
    assert names
    assert len(set(names)) == len(names)


def test_promised_cases_are_there():
    assert {case.name for case in codec.CASES} >= PROMISED


@pytest.mark.parametrize("case", codec.CASES, ids=lambda case: case.name)
def test_case_measures_itself_and_its_baseline(case):
    result = result_of("codec", case, case.measure(BRIEF))
    assert result.value > 0
    assert result.baseline_value > 0
    assert result.ok is not None


def test_sizes_meet_their_goals():
    sizes = [case for case in codec.CASES if case.name.startswith(("bytes", "zstd"))]
    assert len(sizes) == 3
    assert all(result_of("codec", case, case.measure(BRIEF)).ok for case in sizes)


def test_payloads_are_distinct():
    values = [value for columns in codec.workload().columns for value in columns.values]
    assert len(set(values)) == len(values) == codec.BATCHES * codec.BATCH_MESSAGES
    assert {len(value) for value in values} == {codec.VALUE_BYTES}


def test_arrow_case_says_that_pyarrow_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(codec, "find_spec", lambda name: None)
    assert codec.measure_decode_arrow(BRIEF).missing == ("pyarrow",)
