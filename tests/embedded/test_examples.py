"""The examples run and say what they promise, and so does every piece of code in the guide."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAID = {
    "work_queue": "50 done, 50 different, 0 left\n",
    "poison": (
        "sum 6\n"
        'dead: {"amount": "7"} after 4, MAX_RETRIES_EXCEEDED: amount is \'7\'\n'
        "dead: five after 1, REJECTED: not JSON: Expecting value\n"
        "sum 7 after the fix\nstill dead: 1\n"
    ),
    "assigned": (
        "bob gets orders/3, orders/4, orders/5\n"
        "bob gets orders/0, orders/1, orders/2\n"
        "left to do: 0\n"
        "generation 1: ann joined; 6 partitions pass on\n"
        "generation 2: bob joined; 3 partitions pass on\n"
        "generation 3: ann left; 3 partitions pass on\n"
    ),
}


# In one process, which takes half a second to start; each piece with names and a directory of its own.
RUN_PIECES = """
import os
start = os.getcwd()
for number, piece in enumerate({pieces!r}):
    directory = os.path.join(start, str(number))
    os.mkdir(directory)
    os.chdir(directory)
    try:
        exec(compile(piece, f"piece {{number}}", "exec"), {{"__name__": "__main__"}})
    except BaseException as error:
        error.add_note(piece)
        raise
"""


def test_every_example_is_run():
    elsewhere = {"two_groups", "produce", "consume", "worker", "schedule", "standby"}
    assert {path.stem for path in ROOT.joinpath("examples").glob("*.py")} == {*SAID, *elsewhere}


@pytest.mark.parametrize("name", SAID)
def test_example_says_what_it_promises(name, capsys):
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert sorted(said.splitlines()) == sorted(SAID[name].splitlines())


def test_groups_of_the_example_each_see_every_order(capsys):
    runpy.run_path(str(ROOT / "examples" / "two_groups.py"), run_name="__main__")
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["billing"] == "chair, desk, lamp, shelf"
    shipped = f"{lines['shipping']}, {lines['shipping, after a restart']}"
    assert sorted(shipped.split(", ")) == ["chair", "desk", "lamp", "shelf"]
    assert lines["lag"] == "{'billing': 0, 'shipping': 0}"


@pytest.mark.parametrize(("guide", "count"), [("embedded.md", 5), ("groups.md", 3)])
def test_code_of_the_guide_runs(tmp_path, guide, count):
    text = ROOT.joinpath("docs", guide).read_text(encoding="utf-8")
    pieces = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(pieces) >= count
    program = RUN_PIECES.format(pieces=pieces)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert len([*tmp_path.iterdir()]) == len(pieces)
