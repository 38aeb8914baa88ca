"""Every piece of code in the guide runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["penstock.testing.fixtures"]
GUIDE = Path(__file__).parents[2] / "docs" / "client.md"


@pytest.mark.tier("test")
def test_code_of_the_guide_runs(penstock_server):
    pieces = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(pieces) == 9
    for piece in pieces:
        code = piece.replace("penstock://127.0.0.1:9092", penstock_server)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"{piece}\n{done.stderr}"
