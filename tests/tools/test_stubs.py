"""The types that mypy has of pyroaring refuse what leaks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

STUBS = Path(__file__).parents[2] / "tools" / "stubs"
CODE = """
from pyroaring import BitMap64
offsets = BitMap64([1])
assert 1 in offsets
{use}
"""


@pytest.mark.tier("test")
@pytest.mark.parametrize(
    "use",
    ["list(offsets)", "for one in offsets: print(one)", "first, *_ = offsets", "max(offsets)"],
)
def test_a_bare_iteration_over_a_set_of_offsets_is_refused(tmp_path, use):
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "-c", CODE.format(use=use)],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(STUBS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "<string>:5: error" in done.stdout
    assert "Found 1 error" in done.stdout
