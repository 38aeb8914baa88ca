"""The demo keeps its own promise, ends by itself, and leaves what it says: data to look at, or nothing."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from examples.demo import ROOT
from examples.demo.command import PARTS
from examples.demo.command import demo as demo_command
from penstock.cli.exits import Exit
from penstock.cli.exits import run as run_command
from penstock.testing.server import running_server

LOG_SCENES = ["encoding", "writing", "recovery", "proof", "seeking", "verify"]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "examples.demo", *words]


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(tmp_path)}


def demo(tmp_path: Path, *words: str) -> str:
    done = subprocess.run(
        command(*words),
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(tmp_path),
        cwd=ROOT,
    )
    assert done.returncode == Exit.OK, (done.stderr, done.stdout)
    assert not processes_of(tmp_path)
    return done.stdout


@pytest.mark.tier("test")
def test_log_recovers_everything_that_was_promised(tmp_path):
    found = json.loads(demo(tmp_path, "--json", "--part", "log", "--remove"))
    assert not list(tmp_path.iterdir())
    assert list(found) == LOG_SCENES
    proof, writing, recovery = found["proof"], found["writing"], found["recovery"]
    assert proof["acknowledged"] == proof["present"] == writing["batches"] > 10
    # The kill may have cut a write of its own in two, behind the last page that the kernel took.
    assert recovery["cut_bytes"] >= writing["torn_bytes"] > 0
    assert recovery["scanned_bytes"] <= recovery["log_bytes"]
    assert found["verify"]["batches"] == proof["present"] + proof["unacknowledged"]
    assert found["seeking"]["offset_at_its_time"] <= found["seeking"]["offset"]


@pytest.mark.tier("test")
def test_shop_keeps_its_promises_and_its_data_can_be_looked_at(tmp_path, run, surroundings):
    found = json.loads(demo(tmp_path, "--json", "--part", "shop"))
    shop, look = found["shop"], found["look"]
    assert shop["promised"] == shop["present"] == 4000
    assert (shop["billed"], shop["packed"]) == (3940, 3990)
    assert shop["dead"] == {"billing": 60, "warehouse": 10}
    assert 0 < shop["killed_at"] < 4000
    assert shop["wait_ms"]["critical"] < shop["wait_ms"]["background"]
    data = Path(look["data_dir"])
    assert data.parent == tmp_path
    verify, serve, *others = look["commands"]
    assert run(*verify.split()[1:]).code == Exit.OK
    assert serve == f"penstock serve --data-dir {data / 'broker'}"
    with running_server(data / "broker") as address:
        surroundings.setenv("PENSTOCK_SERVER", address)
        for line in others:
            done = run(*line.split()[1:])
            # Of the dead letters it shows the first.
            rest = "the first 1, and there are more: --limit\n" if "--limit 1" in line else ""
            assert (done.code, done.err) == (Exit.OK, rest), line
            assert done.out, line


@pytest.mark.tier("test")
def test_demo_is_readable_in_a_pipe(tmp_path, run):
    shown = demo(tmp_path, "--part", "log", "--data-dir", str(tmp_path / "kept" / "here"))
    assert "Nothing promised is lost" in shown
    assert "\x1b" not in shown
    assert max(map(len, shown.replace(str(tmp_path), "").splitlines())) < 120
    assert f"penstock log stats {tmp_path / 'kept' / 'here' / 'log'}" in shown
    assert run("log", "stats", str(tmp_path / "kept" / "here" / "log")).code == Exit.OK


def test_demo_does_not_touch_a_directory_that_is_there(capsys, tmp_path):
    tmp_path.joinpath("mine").write_text("precious")
    assert run_command(demo_command, ["--data-dir", str(tmp_path)]) == Exit.UNAVAILABLE
    assert capsys.readouterr().err.count("\n") == 1
    assert tmp_path.joinpath("mine").read_text() == "precious"


def test_unknown_part_is_a_usage_error(capsys):
    assert run_command(demo_command, ["--part", "shp"]) == Exit.USAGE
    assert "did you mean shop?" in capsys.readouterr().err
    assert list(PARTS)[:2] == ["log", "shop"]


@pytest.mark.parametrize(
    ("part", "sign", "number"),
    [
        ("log", "*.log", signal.SIGINT),
        pytest.param("shop", "orders.*", signal.SIGINT, marks=pytest.mark.tier("test")),
        pytest.param("shop", "broker", signal.SIGTERM, marks=pytest.mark.tier("test")),
    ],
)
def test_interrupted_demo_leaves_nothing_behind(tmp_path, part, sign, number):
    with subprocess.Popen(
        command("--part", part),
        stdout=subprocess.DEVNULL,
        env=environment(tmp_path),
        cwd=ROOT,
        # A shell that runs the tests in the background makes their children deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        while not list(tmp_path.rglob(sign)):
            assert process.poll() is None
            Event().wait(0.05)
        process.send_signal(number)
        assert process.wait(timeout=240) == Exit.INTERRUPTED
    assert not list(tmp_path.iterdir())
    assert not processes_of(tmp_path)


def processes_of(tmp_path: Path) -> list[str]:
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
