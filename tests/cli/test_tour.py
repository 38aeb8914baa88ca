"""The tour of docs/tour.md works as it is written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.server import running_server

TOUR = (Path(__file__).parents[2] / "docs" / "tour.md").read_text(encoding="utf-8")
STEP = re.compile(r"```(sh|python)\n(.*?)```\s+```text\n(.*?)```", re.DOTALL)


def pattern_of(expected: str) -> re.Pattern[str]:
    """Spaces do not count, and three dots stand for anything."""
    plain = "".join(expected.split())
    return re.compile(".*?".join(re.escape(part) for part in plain.split("...")), re.DOTALL)


@pytest.mark.tier("test")
def test_every_step_of_the_tour(tmp_path):
    steps = STEP.findall(TOUR)
    assert len(steps) == TOUR.count("```sh\n") + TOUR.count("```python\n") >= 10
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with running_server(tmp_path / "data") as address:
        surroundings = {**os.environ, "PATH": path, "PENSTOCK_SERVER": address}
        surroundings["PENSTOCK_CONTEXTS"] = str(tmp_path / "contexts.json")
        for language, code, expected in steps:
            program = ["bash", "-euc"] if language == "sh" else [sys.executable, "-c"]
            done = subprocess.run(
                [*program, code.replace("penstock://127.0.0.1:9092", address)],
                capture_output=True,
                text=True,
                timeout=60,
                env=surroundings,
            )
            found = "".join(done.stdout.split())
            assert pattern_of(expected).fullmatch(found), (code, done.stdout, done.stderr)
