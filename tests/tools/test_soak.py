"""The soaks: what their verdict sees, and that a short one runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import soak

TOOL = Path(__file__).parents[2] / "tools" / "soak.py"


def samples(*resident: float, open_files: float = 10) -> list[soak.Sample]:
    return [
        {"at": float(at), "resident_bytes": size, "open_files": open_files}
        for at, size in enumerate(resident)
    ]


def test_a_warm_up_and_a_saw_are_no_growth():
    saw = [100.0 + (at % 10) / 10 for at in range(190)]
    found = soak.verdict(samples(*range(10, 30), *saw))
    assert found["is_flat"]
    assert abs(found["growth"]["resident_bytes"]) < 0.002


def test_a_slow_leak_is_growth():
    assert soak.verdict(samples(*(100 + at / 250 for at in range(200))))["is_flat"]
    found = soak.verdict(samples(*(100 + at / 150 for at in range(200))))
    assert not found["is_flat"]
    assert found["growth"]["resident_bytes"] == pytest.approx(0.012, rel=0.05)


def test_files_that_stay_open_are_growth():
    one_more_each = samples(*[100.0] * 50)
    for at, sample in enumerate(one_more_each):
        sample["open_files"] += at
    assert not soak.verdict(one_more_each)["is_flat"]


@pytest.mark.tier("test")
@pytest.mark.parametrize(
    "words",
    [
        ("library", "--messages", "2000"),
        ("partitions", "--partitions", "4", "--rounds", "12"),
        ("server", "--minutes", "0.05", "--rate", "200"),
    ],
    ids=lambda words: words[0],
)
def test_a_short_soak_says_what_it_saw(words):
    done = subprocess.run(
        [sys.executable, str(TOOL), *words], capture_output=True, text=True, check=False
    )
    found = json.loads(done.stdout)
    # Nothing so short is flat, or has to be.
    assert done.returncode == (0 if found["verdict"]["is_flat"] else 1), done.stderr
    assert {"at", "resident_bytes", "open_files", "threads"} <= found["samples"][-1].keys()
    assert found["verdict"]["growth"].keys() >= {"resident_bytes"}
