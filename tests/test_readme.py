"""The tour in the README is true: its code runs, its commands work, its links lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def tour_commands() -> list[str]:
    """Commands of the tour: all that call penstock, without those that take minutes."""
    lines = "\n".join(blocks("sh")).splitlines()
    return [
        line.split("#")[0].strip()
        for line in lines
        if line.startswith("penstock") and "#" not in line
    ]


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the Python of the tour has run."""
    directory = tmp_path_factory.mktemp("tour")
    program = "\n".join(blocks("python"))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=directory, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return directory


@pytest.mark.parametrize("command", tour_commands())
def test_the_commands_of_the_tour_work(tour: Path, command: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command.split(),
        cwd=tour,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stderr or done.stdout
    assert done.stdout


def test_every_link_leads_somewhere() -> None:
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_it_stays_short() -> None:
    assert len(README.splitlines()) < 150
