"""The demo keeps its own promise, ends by itself, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from penstock.cli.exits import Exit

SCENES = ["encoding", "writing", "recovery", "proof", "seeking", "verify", "orders"]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "penstock", "demo", *words]


def surroundings(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(tmp_path)}


def demo(tmp_path: Path, *words: str) -> str:
    done = subprocess.run(
        command(*words), capture_output=True, text=True, timeout=60, env=surroundings(tmp_path)
    )
    assert done.returncode == Exit.OK, done.stderr
    assert not list(tmp_path.iterdir())
    return done.stdout


def test_demo_recovers_everything_that_was_promised(tmp_path):
    found = json.loads(demo(tmp_path, "--json"))
    assert list(found) == SCENES
    proof, writing, recovery = found["proof"], found["writing"], found["recovery"]
    assert proof["acknowledged"] == proof["present"] == writing["batches"] > 10
    assert recovery["cut_bytes"] == writing["torn_bytes"] > 0
    assert recovery["scanned_bytes"] <= recovery["log_bytes"]
    assert found["verify"]["batches"] == proof["present"] + proof["unacknowledged"]
    assert found["seeking"]["offset_at_its_time"] <= found["seeking"]["offset"]


@pytest.mark.tier("test")
def test_demo_is_readable_in_a_pipe(tmp_path):
    shown = demo(tmp_path)
    assert "Nothing promised is lost" in shown
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) < 120


def test_interrupted_demo_leaves_nothing_behind(tmp_path):
    with subprocess.Popen(
        command(),
        stdout=subprocess.DEVNULL,
        env=surroundings(tmp_path),
        # A shell that runs the tests in the background makes their children deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        while not list(tmp_path.rglob("*.log")):
            assert process.poll() is None
            Event().wait(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == Exit.INTERRUPTED
    assert not list(tmp_path.iterdir())
    assert not writers_of(tmp_path)


def writers_of(tmp_path: Path) -> list[str]:
    """Processes that still have something to do with this directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().decode(errors="replace")
        except OSError:
            continue  # It ended while we looked.
        if str(tmp_path) in words:
            found.append(words)
    return found
