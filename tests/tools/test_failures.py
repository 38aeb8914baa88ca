"""What a failing test leaves behind fails no other test."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = """
import gc
import socket

class Client:
    def __init__(self):
        self.socket, self.itself = socket.socket(), self

def test_fails():
    client = Client()
    assert client is None

def test_is_next():
    gc.collect()

def test_is_the_last():
    gc.collect()
"""


def test_a_failing_test_stays_one(tmp_path: Path) -> None:
    (tmp_path / "test_leak.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest"]
    done = subprocess.run(
        [*command, "-c", ROOT / "pyproject.toml", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 2 passed" in done.stdout, done.stdout
