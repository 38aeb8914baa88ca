"""The page docs/restore.md works as it is written: a lake goes into a broker that is really new."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.server import running_server

from ...cli.test_tour import STEP, pattern_of

PAGE = (Path(__file__).parents[3] / "docs" / "restore.md").read_text(encoding="utf-8")


@pytest.mark.tier("test")
def test_every_step_of_the_restore(tmp_path):
    before, after = PAGE.split("## The disaster")
    steps = [STEP.findall(one) for one in (before, after)]
    assert sum(map(len, steps)) == PAGE.count("```sh\n") == 5
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    surroundings = {
        **os.environ,
        "PATH": path,
        "PENSTOCK_CONTEXTS": str(tmp_path / "contexts.json"),
    }
    for number, part in enumerate(steps):
        # The first broker ends with its block; the second has a directory of its own.
        with running_server(tmp_path / f"data-{number}") as address:
            for _, code, expected in part:
                done = subprocess.run(
                    ["bash", "-euc", re.sub(r"penstock://127\.0\.0\.1:9192", address, code)],
                    capture_output=True,
                    text=True,
                    timeout=1200,
                    cwd=tmp_path,
                    env={**surroundings, "PENSTOCK_SERVER": address if number == 0 else ""},
                )
                found = "".join(done.stdout.split())
                assert pattern_of(expected).fullmatch(found), (code, done.stdout, done.stderr)
