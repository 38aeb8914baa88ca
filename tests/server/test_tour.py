"""The tour of docs/server.md works as it is written."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .rigs import served

TOUR = Path(__file__).parents[2] / "docs" / "server.md"
STEP = re.compile(r"```sh\n(.*?)```\s+```json\n(.*?)```", re.DOTALL)


def pattern_of(expected: str) -> re.Pattern[str]:
    """Spaces do not count, and three dots stand for anything."""
    plain = "".join(expected.split())
    return re.compile(".*?".join(re.escape(part) for part in plain.split("...")), re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed here")
def test_every_step_of_the_tour(tmp_path):
    steps = STEP.findall(TOUR.read_text())
    assert len(steps) >= 10
    with served(tmp_path / "data") as broker:
        for command, expected in steps:
            script = command.replace("http://127.0.0.1:8080", broker.address)
            done = subprocess.run(
                ["bash", "-euc", script], capture_output=True, text=True, timeout=60
            )
            found = "".join(done.stdout.split())
            assert pattern_of(expected).fullmatch(found), (command, done.stdout, done.stderr)
