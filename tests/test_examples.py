"""The programs of ten lines: the README shows them as they are, and they run against a broker."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from penstock.client import Client
from penstock.errors import NotFound
from penstock.testing.server import running_server

ROOT = Path(__file__).parent.parent
PROGRAMS = ("produce", "consume", "worker", "schedule")


def program(name: str) -> str:
    """A program of the examples, without what it says about itself."""
    return (ROOT / "examples" / f"{name}.py").read_text().split('"""\n\n', 1)[1]


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_readme_shows_it(name: str) -> None:
    (block,) = re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    shown = block.split(f"# examples/{name}.py\n")[1].split("# examples/")[0]
    assert lines(shown) == lines(program(name))
    assert len(lines(shown)) <= 10


def started(name: str, url: str) -> "subprocess.Popen[str]":
    code = program(name).replace("Client()", f"Client({url!r})")
    command = [sys.executable, "-u", "-c", code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ran(name: str, url: str) -> list[str]:
    with started(name, url) as process:
        said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    return said.splitlines()


def is_behind(client: Client, group: str) -> bool:
    try:
        return client.lag(group).total > 0
    except NotFound:
        return True


def worked(url: str, client: Client) -> str:
    """What the worker says until nothing is left, and then on Ctrl-C. Its threads may print into each other's lines."""
    with started("worker", url) as process:
        while is_behind(client, "packing"):
            Event().wait(0.05)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    return said


@pytest.mark.tier("test")
def test_they_work_together(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as url, Client(url) as client:
        assert ran("produce", url) == ["100 stored"]
        assert len(ran("consume", url)) == 100
        said = worked(url, client)
        assert said.count("packed") == 100
        assert len(set(re.findall("order [0-9]+", said))) == 100
        assert [client.lag(group).total for group in ("billing", "packing")] == [0, 0]
        later = ran("schedule", url)
        assert [line.split(" ", 1)[1] for line in later] == ["b'remind ann'", "b'wake bob'"]
