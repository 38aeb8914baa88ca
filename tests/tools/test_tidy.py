"""Every fault that tidy knows is planted once in a small tree, and seen."""

from pathlib import Path
from textwrap import dedent

import pytest

import tidy

CLEAN = {
    "src/penstock/__init__.py": '"""Root."""\n',
    "src/penstock/model.py": "from penstock.errors import Refused\n",
    "src/penstock/errors.py": "class Refused(Exception):\n    code = 1\n",
    "src/penstock/codec/__init__.py": "from .batch import encode as encode\n",
    "src/penstock/codec/batch.py": "from ..model import Refused\n\n\ndef encode():\n    return Refused\n",
    "src/penstock/log/segment.py": "from ..codec.batch import encode\n",
    "src/penstock/runtime/disk.py": "import os\n\nfrom penstock.log import segment\n",
    "src/penstock/client/session.py": "import time\n\nfrom penstock.codec import encode\n",
    "tests/log/test_segment.py": "def test_it():\n    assert True\n",
}
TEN_LINES = "".join(f"    total += {number}\n" for number in range(10))


def plant(root: Path, files: dict[str, str]) -> list[str]:
    for path, text in {**CLEAN, **files}.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text))
    return tidy.problems(root)


def test_clean_tree_has_no_problems(tmp_path):
    assert plant(tmp_path, {}) == []


FAULTS = {
    "upward import": (
        "src/penstock/log/a.py",
        "from penstock.broker import node",
        "tiers: log may not import broker",
    ),
    "upward import inside a function": (
        "src/penstock/log/a.py",
        "def f():\n    import penstock.runtime.disk",
        "tiers: f: log may not import runtime",
    ),
    "sideways import, absolute": (
        "src/penstock/codec/a.py",
        "from penstock import kernel",
        "tiers: codec may not import kernel",
    ),
    "sideways import, relative": (
        "src/penstock/groups/a.py",
        "from ..delivery.wheel import Wheel",
        "tiers: groups may not import delivery",
    ),
    "sideways import from a package itself": (
        "src/penstock/groups/__init__.py",
        "from .. import delivery",
        "tiers: groups may not import delivery",
    ),
    "words importing upward": (
        "src/penstock/config.py",
        "from .codec import encode",
        "tiers: config may not import codec",
    ),
    "client reaching into the engine": (
        "src/penstock/client/a.py",
        "from penstock.log import segment",
        "tiers: client may not import log",
    ),
    "spark reaching into the broker": (
        "src/penstock/spark/a.py",
        "from penstock.broker import node",
        "tiers: spark may not import broker",
    ),
    "console reaching past the client": (
        "src/penstock/console/a.py",
        "from penstock.codec import encode",
        "tiers: console may not import codec",
    ),
    "a partition and its node": (
        "src/penstock/broker/partition/x.py",
        "from ..node import Node\n",
        "tiers: broker/partition may not import broker.node",
    ),
    "the running log and its doctor": (
        "src/penstock/log/opening.py",
        "from .doctor.verify import Problem\n",
        "tiers: log may not import its own doctor",
    ),
    "package without a tier": ("src/penstock/gadgets/a.py", "", "tiers: 'gadgets' has no tier"),
    "clock in the core": (
        "src/penstock/delivery/a.py",
        "import time",
        "purity: the core may not import time",
    ),
    "path in the broker": (
        "src/penstock/broker/a.py",
        "from pathlib import Path",
        "purity: the core may not import pathlib",
    ),
    "dates in the words": (
        "src/penstock/model.py",
        "import datetime as dt",
        "purity: the core may not import datetime",
    ),
    "files in the core": (
        "src/penstock/codec/a.py",
        "from io import BytesIO, FileIO",
        "purity: the core may not import io",
    ),
    "opened file in the core": (
        "src/penstock/log/a.py",
        "def f():\n    return open('x')",
        "purity: f: the core may not open files",
    ),
    "long file": ("tests/a.py", "x = 1\n" * 551, "file-lines: 551 lines, the most is 550"),
    "long function": (
        "tools/a.py",
        "class C:\n    def f(self):\n" + "        x = 1\n" * 70,
        "function-lines: C.f: 71 lines, the most is 70",
    ),
    "many parameters": (
        "src/penstock/cli/a.py",
        "class C:\n    def f(self, a, b, c, d, e, g, *, h): ...",
        "parameters: C.f: 6 positional parameters",
    ),
    "broad except": (
        "src/penstock/cli/a.py",
        "try:\n    x = 1\nexcept Exception:\n    x = 2",
        "broad-except: catches everything",
    ),
    "broad except among others": (
        "src/penstock/cli/a.py",
        "try:\n    x = 1\nexcept (ValueError, BaseException):\n    x = 2",
        "broad-except: catches everything",
    ),
    "bare except": (
        "tests/a.py",
        "try:\n    x = 1\nexcept:\n    x = 2",
        "broad-except: catches everything",
    ),
    "error in a local": (
        "src/penstock/log/a.py",
        "def f():\n    try:\n        g()\n    except E as error:\n        kept = kept or error\n",
        "kept-error: f: keeps error",
    ),
    "error in a list": (
        "src/penstock/log/a.py",
        "try:\n    g()\nexcept E as error:\n    errors.append(error)\n",
        "kept-error: keeps error",
    ),
    "error as a value": (
        "src/penstock/log/a.py",
        "def f():\n    try:\n        g()\n    except E as error:\n        return [error] * 2\n",
        "kept-error: f: keeps error",
    ),
    "kept error that is raised": (
        "src/penstock/log/a.py",
        "class A:\n    def f(self):\n        raise self.error or self.other.fresh()\n",
        "kept-error: A.f: raises self.error",
    ),
    "error of a local that is raised": (
        "src/penstock/log/a.py",
        "def f():\n    damage = E()\n    raise damage if damage else E\n",
        "kept-error: f: raises damage",
    ),
    "broad suppress": (
        "src/penstock/cli/a.py",
        "with contextlib.suppress(Exception):\n    x = 2",
        "broad-except: suppresses everything",
    ),
    "empty class name": (
        "src/penstock/log/a.py",
        "class SegmentManager: ...",
        "name: SegmentManager",
    ),
    "handler away from the doors": (
        "src/penstock/log/a.py",
        "class FetchHandler: ...",
        "name: FetchHandler",
    ),
    "empty file name": ("src/penstock/log/utils.py", "", "name: 'utils' says nothing"),
    "empty last word of a file name": (
        "tools/log_helpers.py",
        "",
        "name: 'log_helpers' says nothing",
    ),
    "empty folder name": ("src/penstock/log/common/a.py", "", "name: 'common' says nothing"),
    "ignored type": (
        "src/penstock/log/a.py",
        "x = 1  # type: ignore[assignment]",
        "silenced: # type: ignore[assignment] gives no reason",
    ),
    "silenced linter": (
        "tests/a.py",
        "x = 1  # noqa: E501",
        "silenced: # noqa: E501 gives no reason",
    ),
    "silenced file": ("tests/a.py", "# ruff: noqa", "silenced: # ruff: noqa gives no reason"),
    "note for later": (
        "src/penstock/log/a.py",
        "x = 1  # TODO: finish",
        "unfinished: TODO: finish",
    ),
    "stub": (
        "src/penstock/log/a.py",
        "def f():\n    raise NotImplementedError",
        "unfinished: f: a stub",
    ),
    "bare skip": (
        "tests/a.py",
        "@pytest.mark.skip\ndef test(): ...",
        "skip: pytest.mark.skip gives",
    ),
    "skip with empty brackets": ("tests/a.py", "pytest.skip()", "skip: pytest.skip gives"),
    "skipif without reason": (
        "tests/a.py",
        "@pytest.mark.skipif(True)\ndef test(): ...",
        "skip: pytest.mark.skipif gives",
    ),
    "xfail without reason": (
        "tests/a.py",
        "@pytest.mark.xfail(raises=OSError)\ndef test(): ...",
        "skip: pytest.mark.xfail gives",
    ),
    "pickle": ("src/penstock/cli/a.py", "import pickle", "unsafe: pickle runs what it reads"),
    "marshal": ("tools/a.py", "from marshal import loads", "unsafe: marshal runs what it reads"),
    "eval": ("tests/a.py", "eval('1')", "unsafe: eval() runs"),
    "exec": ("tests/a.py", "exec('1')", "unsafe: exec() runs"),
    "yaml.load": ("src/penstock/cli/a.py", "yaml.load(text)", "unsafe: yaml.load() runs"),
    "broken file": ("src/penstock/log/a.py", "def f(:", "syntax:"),
}


@pytest.mark.parametrize(("path", "text", "expected"), FAULTS.values(), ids=FAULTS)
def test_planted_fault_is_the_only_one_reported(tmp_path, path, text, expected):
    (found,) = plant(tmp_path, {path: text})
    assert found.startswith(path)
    assert expected in found


HARMLESS = {
    "impurity in a shell": ("src/penstock/sim/a.py", "import time\nopen('x')"),
    "bytes that are read on in the core": ("src/penstock/codec/a.py", "from io import BytesIO"),
    "words that import each other": ("src/penstock/ports.py", "from .model import Refused"),
    "method called open": ("src/penstock/log/a.py", "def f(disk):\n    return disk.open('x')"),
    "errors that are not kept": (
        "src/penstock/log/a.py",
        """
        def f(self):
            try:
                g()
            except E as error:
                self.kept = error.fresh()
                self.text = str(error), h(error)
                raise error from None
            if self.kept:
                raise self.kept.fresh()
            raise E
        """,
    ),
    "broad except that cleans up": (
        "src/penstock/cli/a.py",
        "try:\n    x = 1\nexcept BaseException:\n    x = 2\n    raise",
    ),
    "narrow except": ("src/penstock/cli/a.py", "try:\n    x = 1\nexcept OSError:\n    x = 2"),
    "handler at a door": ("src/penstock/server/a.py", "class FetchHandler: ..."),
    "word that only ends alike": ("src/penstock/log/a.py", "class Metadata: ..."),
    "reason after a type comment": (
        "src/penstock/log/a.py",
        "x = 1  # type: ignore[assignment]  # numpy types it as Any",
    ),
    "reason after noqa": ("tests/a.py", "x = 1  # noqa: E501, S101 - a table reads better wide"),
    "fault inside a string": ("tests/a.py", "x = '# TODO: import pickle  # noqa'"),
    "skip with a reason": (
        "tests/a.py",
        "@pytest.mark.skipif(True, reason='no strace')\ndef test(): ...",
    ),
    "skip with a text": ("tests/a.py", "pytest.skip('no strace')"),
    "many fixtures in a test": ("tests/a.py", "def test(a, b, c, d, e, f, g): ..."),
    "keyword-only parameters": ("tools/a.py", "def f(a, *, b, c, d, e, g, h): ..."),
}


@pytest.mark.parametrize(("path", "text"), HARMLESS.values(), ids=HARMLESS)
def test_what_only_looks_like_a_fault_is_not_reported(tmp_path, path, text):
    assert plant(tmp_path, {path: text}) == []


COMMANDS = """\
class Base(command.Command[R]): ...
class A(Base[int]): ...
class B(Base[int]): ...
class C(Command[int]): ...
class Reply: ...
"""


@pytest.mark.parametrize("table", ["{A: 1, b.B: 2, C: 3}", "frozenset({A, B, C})", "(A, B, C)"])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "client/a.py",
            [
                "src/penstock/client/a.py:2: command-table: 3 commands: what holds for each of them stands on its class"
            ],
        ),
        ("broker/handlers/a.py", []),
        ("api/a.py", []),
    ],
)
def test_a_table_of_commands_stands_in_api_or_is_that_of_the_handlers(
    tmp_path, table, path, expected
):
    files = {"src/penstock/api/commands.py": COMMANDS, f"src/penstock/{path}": f"\nX = {table}\n"}
    assert plant(tmp_path, files) == expected


@pytest.mark.parametrize("table", ["{A: 1, B: 2}", "(A, Reply, Reply, B, C, Reply)"])
def test_two_commands_or_few_among_others_are_no_table(tmp_path, table):
    files = {"src/penstock/api/commands.py": COMMANDS, "src/penstock/client/a.py": f"X = {table}\n"}
    assert plant(tmp_path, files) == []


def test_copy_of_a_function_is_found_under_other_names(tmp_path):
    found = plant(
        tmp_path,
        {
            "src/penstock/log/a.py": f"def grow(total: int) -> int:\n{TEN_LINES}    return total\n",
            "tests/b.py": "@cache\ndef other(sum_):\n    '''Doc.'''\n"
            + TEN_LINES.replace("total", "sum_")
            + "    return sum_\n",
        },
    )
    assert found == ["tests/b.py:2: duplicate: other: the same as src/penstock/log/a.py:grow"]


@pytest.mark.parametrize(
    "change", [("+=", "-="), ("total += 3", "total += 4"), ("return", "yield")]
)
def test_functions_that_do_different_things_are_not_copies(tmp_path, change):
    text = f"def grow(total):\n{TEN_LINES}    return total\n"
    assert plant(tmp_path, {"tools/a.py": text, "tools/b.py": text.replace(*change)}) == []


def test_a_copy_that_a_tool_makes_is_no_duplicate(tmp_path):
    text = f"def grow(total):\n{TEN_LINES}    return total\n"
    made = f"# Made from ../asynchronous/a.py by tools/unasync.py.\n{text}"
    assert plant(tmp_path, {"tools/a.py": text, "tools/b.py": made}) == []


def test_short_functions_may_be_equal(tmp_path):
    text = "def f(a):\n    b = a\n    return b\n"
    assert plant(tmp_path, {"tools/a.py": text, "tools/b.py": text}) == []


LONG = "def f():\n" + "    x = 1\n" * 79  # 80 lines


def exemption(limit: int, *, where: str = "tools/a.py:f", reason: str = "one long table") -> str:
    return (
        f'[[exception]]\nwhere = "{where}"\nrule = "function-lines"\n'
        f'limit = {limit}\nreason = "{reason}"\n'
    )


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (80, []),
        (79, ["tools/a.py:1: function-lines: f: 80 lines, the most is 70"]),
        (
            81,
            [
                "exception for tools/a.py:f, function-lines, allows more than is there: lower its limit to 80"
            ],
        ),
    ],
)
def test_exception_fits_exactly_or_is_a_problem(tmp_path, limit, expected):
    files = {"tools/a.py": LONG, "tools/tidy_exceptions.toml": exemption(limit)}
    assert plant(tmp_path, files) == expected


def test_exception_that_is_not_needed_is_a_problem(tmp_path):
    files = {"tools/tidy_exceptions.toml": exemption(80)}
    (found,) = plant(tmp_path, files)
    assert found.endswith("allows more than is there: remove it")


def test_exception_counts_faults_that_have_no_size(tmp_path):
    twice = "try:\n    x = 1\nexcept Exception:\n    x = 2\n" * 2
    entry = exemption(2, where="tools/a.py").replace("function-lines", "broad-except")
    files = {"tools/a.py": twice, "tools/tidy_exceptions.toml": entry}
    assert plant(tmp_path, files) == []
    assert len(plant(tmp_path, {**files, "tools/a.py": twice + twice})) == 4


def test_exception_without_a_reason_is_refused(tmp_path):
    files = {"tools/a.py": LONG, "tools/tidy_exceptions.toml": exemption(80, reason="")}
    with pytest.raises(ValueError, match="needs a reason"):
        plant(tmp_path, files)


def test_exit_code_says_whether_problems_were_found(tmp_path, capsys):
    plant(tmp_path, {})
    assert tidy.main([str(tmp_path)]) == 0
    plant(tmp_path, {"tools/a.py": "import pickle"})
    assert tidy.main([str(tmp_path)]) == 1
    assert "tools/a.py:1: unsafe" in capsys.readouterr().out
