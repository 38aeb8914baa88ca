"""The list of planted bugs fits the tree, and the tool says what became of each."""

import ast
import json
from pathlib import Path
from textwrap import dedent

import pytest

import planted

BUGS = planted.read_bugs(planted.ROOT)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_every_bug_can_be_planted(bug):
    for file in bug.files:
        text = (planted.ROOT / planted.SOURCE / file).read_text()
        ast.parse(bug.planted(file, text))
    assert bug.old != bug.new
    assert bug.bug
    assert bug.tier in planted.TIERS
    assert bug.tests
    assert all((planted.ROOT / one.partition("::")[0]).exists() for one in bug.tests)


SOURCE = "src/penstock/sums.py"
TREE = {
    "src/penstock/__init__.py": "",
    SOURCE: "def add(a, b):\n    return a + b\n\n\ndef twice(a):\n    return a * 2\n",
    "tests/test_sums.py": "from penstock.sums import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n",
    "tests/conftest.py": "def pytest_addoption(parser):\n    parser.addoption('--tier')\n",
    "tests/planted/sums.toml": """
        [minus]
        bug = "adds the wrong way"
        file = "sums.py"
        old = "return a + b"
        new = "return a - b"
        tests = ["tests"]

        [thrice]
        bug = "no test looks"
        file = "sums.py"
        old = "return a * 2"
        new = "return a * 3"
        tests = ["tests/test_sums.py"]
        """,
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path, text in TREE.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text))
    return tmp_path


@pytest.mark.tier("test")
def test_a_bug_is_caught_or_survives_and_the_tree_stays_as_it_was(tree, capsys):
    assert planted.main(["--root", str(tree), "--json"]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["name"], one["outcome"], one["test"]) for one in found] == [
        ("minus", "caught", "tests/test_sums.py::test_add"),
        ("thrice", "survived", ""),
    ]
    assert (tree / SOURCE).read_text() == TREE[SOURCE]


@pytest.mark.parametrize("text", ["", "def add(a, b):\n    return a + b\n    return a + b\n"])
def test_a_bug_whose_lines_are_not_there_once_cannot_be_planted(tree, text):
    (tree / SOURCE).write_text(text)
    with pytest.raises(ValueError, match=r"minus: the old lines occur \d times in sums.py"):
        planted.main(["--root", str(tree), "--only", "minus"])


def test_a_name_that_is_not_in_the_list_is_refused(tree, capsys):
    with pytest.raises(SystemExit):
        planted.main(["--root", str(tree), "--only", "nothing"])
    assert "there is no bug nothing" in capsys.readouterr().err
