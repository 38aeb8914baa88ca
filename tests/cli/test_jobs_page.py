"""The page docs/jobs.md works as it is written, with two brokers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.server import running_server

from .test_tour import STEP, pattern_of

PAGE = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text(encoding="utf-8")


@pytest.mark.tier("test")
def test_every_step_of_the_jobs(tmp_path, url):
    steps = STEP.findall(PAGE)
    assert len(steps) == PAGE.count("```sh\n") == 8
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with running_server(tmp_path / "data") as address:
        surroundings = {
            **os.environ,
            "PATH": path,
            "PENSTOCK_SERVER": address,
            "PENSTOCK_CONTEXTS": str(tmp_path / "contexts.json"),
        }
        for _, code, expected in steps:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", code.replace("penstock://127.0.0.1:9192", url)],
                capture_output=True,
                text=True,
                timeout=120,
                cwd=tmp_path,
                env=surroundings,
            )
            found = "".join(done.stdout.split())
            assert pattern_of(expected).fullmatch(found), (code, done.stdout, done.stderr)
            assert done.returncode == 0, (code, done.stderr)
