"""Plants bugs that such a broker could have, one at a time, and says which of them the tests catch.

    python tools/planted.py [--only NAME]... [--file STEM]... [--tier TIER] [--json] [--list]

The bugs are in `tests/planted/*.toml`, a file for each package and a table for each bug:

    [name_of_the_bug]
    bug = "what it does, in a sentence"
    file = "delivery/machine.py"          below src/penstock
    also = ["delivery/twin.py"]           other files with the same lines; may be left out
    old = "..."                           occurs exactly once in each of them
    new = "..."
    tests = ["tests/delivery"]            what pytest is given: the nearest first
    tier = "check"                        the lowest tier that has to catch it; check if it is left out

The tree is copied into a temporary directory and changed there; the working tree is never touched. A bug is `caught`
when a test fails, `hung` when the tests do not end in time, `survived` when they pass, and `broken` when pytest could
not run them. Files of long tests come last, since mostly a short one fails. Exit code 1 unless every bug was caught or
hung.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import cache_from_source
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = "tests/planted"
SOURCE = "src/penstock"
TIERS = ("check", "test", "torture")
_COPIED = ("src", "bench", "tests", "tools", "docs", "examples", "deploy")
_NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".hypothesis", ".*_cache", "build")
_FIELDS = {"bug", "file", "also", "old", "new", "tests", "tier"}
_OUTCOMES = {0: "survived", 1: "caught"}
_LONG = (
    "_crashes",
    "test_kill",
    "test_process",
    "test_node",
    "test_spark",
    "test_cluster",
    "test_storm",
)
_GOOD = frozenset({"caught", "hung"})


@dataclass(frozen=True, slots=True)
class Bug:
    """One bug: lines of a file, and the lines that replace them."""

    name: str
    bug: str
    files: tuple[str, ...]
    old: str
    new: str
    tests: tuple[str, ...]
    tier: str

    def planted(self, file: str, text: str) -> str:
        """Returns the text of a file with the bug in it. ValueError: the old lines are not there exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: the old lines occur {count} times in {file}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one bug; `test` is the first that failed."""

    name: str
    outcome: str
    test: str
    seconds: float


def read_bugs(root: Path, stems: Sequence[str] = ()) -> list[Bug]:
    """Returns all bugs, or those of some files. ValueError: a table is not a bug, or a name comes twice."""
    bugs: dict[str, Bug] = {}
    for path in sorted((root / LIST).glob("*.toml")):
        if stems and path.stem not in stems:
            continue
        for name, table in tomllib.loads(path.read_text()).items():
            if name in bugs:
                raise ValueError(f"{name} is planted twice")
            if unknown := set(table) - _FIELDS:
                raise ValueError(f"{name}: unknown {', '.join(sorted(unknown))}")
            bugs[name] = Bug(
                name,
                table["bug"],
                (table["file"], *table.get("also", ())),
                # Lines may stand between two lines of quotes.
                table["old"].strip("\n"),
                table["new"].strip("\n"),
                tuple(table["tests"]),
                table.get("tier", TIERS[0]),
            )
    return list(bugs.values())


@contextmanager
def copied_tree(root: Path) -> Iterator[Path]:
    """Returns a copy of the files that tests need, with compiled ones, which save seconds for each bug."""
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        copy = Path(directory) / "tree"
        copy.mkdir()
        for path in root.iterdir():
            if path.name in _COPIED:
                shutil.copytree(path, copy / path.name, ignore=_NOT_COPIED)
            elif path.is_file() and path.name != ".git":
                shutil.copy2(path, copy / path.name)
        yield copy


@contextmanager
def with_bug(tree: Path, bug: Bug) -> Iterator[None]:
    """Inside, a copied tree has the bug."""
    before: dict[Path, bytes] = {}
    try:
        for file in bug.files:
            path = tree / SOURCE / file
            before[path] = path.read_bytes()
            _replace(path, bug.planted(file, before[path].decode()).encode())
        yield
    finally:
        for path, content in before.items():
            _replace(path, content)


def _replace(path: Path, content: bytes) -> None:
    """Replace a text and remove its compiled file, whose time and size may fit the new text by chance."""
    path.write_bytes(content)
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def outcome_of(tree: Path, bug: Bug, *, tier: str, timeout_s: float) -> Outcome:
    """Plant a bug in a copied tree and run its tests, up to the first that fails."""
    began_s = time.monotonic()
    outcome, failed = "survived", ""
    with with_bug(tree, bug):
        for tests in _stages(tree, bug.tests):
            left_s = timeout_s - (time.monotonic() - began_s)
            outcome, failed = _run(tree, tests, tier, left_s)
            if outcome != "survived":
                break
    return Outcome(bug.name, outcome, failed, round(time.monotonic() - began_s, 1))


def _stages(tree: Path, tests: Sequence[str]) -> Iterator[list[str]]:
    """Returns the tests to run first, and those to run after them."""
    files: list[str] = []
    for one in tests:
        found = sorted((tree / one).rglob("test_*.py"))
        files += [str(path.relative_to(tree)) for path in found] or [one]
    is_long = {file: any(name in file for name in _LONG) for file in files}
    for wanted in (False, True):
        if stage := [file for file in files if is_long[file] is wanted]:
            yield stage


def _run(tree: Path, tests: Sequence[str], tier: str, timeout_s: float) -> tuple[str, str]:
    """Returns the outcome, and the first test that failed."""
    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "planted", "--tier", tier]
    # The reason is not shown, and pytest takes minutes to compare two large values line by line.
    options += ["--assert=plain", "--tb=no"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{Path(__file__).parent}"}
    try:
        ended = subprocess.run(  # noqa: S603 - our own tests
            command,
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "hung", ""
    # 5: all of them belong to a higher tier.
    outcome = "survived" if ended.returncode == 5 else _OUTCOMES.get(ended.returncode, "broken")
    if outcome == "broken":
        print(f"{ended.stdout}\n{ended.stderr}", file=sys.stderr)
    lines = (line.partition(" - ")[0].partition(" ") for line in ended.stdout.splitlines())
    failed = (test for word, _, test in lines if word in {"FAILED", "ERROR"})
    return outcome, next(failed, "")


def pytest_sessionstart() -> None:
    """Hook of pytest: hypothesis need not shrink a failure."""
    from hypothesis import Phase, settings

    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    settings.register_profile(
        "planted", parent=settings(), phases=phases, report_multiple_bugs=False
    )
    settings.load_profile("planted")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Plant bugs and see which of them the tests catch."
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--file", action="append", default=[], metavar="STEM")
    parser.add_argument("--tier", choices=TIERS, help="run this tier instead of each bug's own")
    parser.add_argument("--timeout", type=float, default=900, metavar="SECONDS")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--list", action="store_true", help="show them and end")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    bugs = read_bugs(asked.root, asked.file)
    if unknown := set(asked.only) - {one.name for one in bugs}:
        parser.error(f"there is no bug {', '.join(sorted(unknown))}")
    wanted = [one for one in bugs if not asked.only or one.name in asked.only]
    if asked.list:
        for one in wanted:
            print(json.dumps(asdict(one)) if asked.json else f"{one.name}: {one.bug}")
        return 0
    found: list[Outcome] = []
    with copied_tree(asked.root) as tree:
        for number, bug in enumerate(wanted, 1):
            print(f"[{number}/{len(wanted)}] {bug.name}", file=sys.stderr, flush=True)
            tier = asked.tier or bug.tier
            end = outcome_of(tree, bug, tier=tier, timeout_s=asked.timeout)
            found.append(end)
            text = f"{end.outcome:8}  {end.name}  {end.test}  {end.seconds} s"
            print(json.dumps(asdict(end)) if asked.json else text, flush=True)
    caught = sum(one.outcome in _GOOD for one in found)
    print(f"{caught} of {len(found)} caught", file=sys.stderr)
    return 0 if caught == len(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
