"""Compares the benches of this tree with those of another one, in runs that take turns.

    git worktree add ../before 3ccc507
    python tools/compare_benches.py ../before                           every case of BENCHES, which takes hours
    python tools/compare_benches.py ../before --quick --bench codec     one bench, shorter
    python tools/compare_benches.py ../before --case put --case get     only these cases

Each case runs in a process of its own, first in one tree and then in the other, and the next round begins with the
other tree: the speed of a shared machine drifts, so only figures of neighbours compare. The best of a tree's rounds
counts, because noise only ever adds time. One JSON line a case; `ratio` is above 1 where this tree is better. Ends with
exit code 1 if a ratio is below `--least`.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

THIS = Path(__file__).parents[1]
BENCHES = (
    "codec",
    "log",
    "embedded",
    "delivery",
    "server",
    "broker",
    "replication",
    "transactions",
)
# The race without its peers: one tree is compared with the other.
FLAGS = {"broker": ("--peers", "none")}
# Of these a larger figure is better; all others are times, sizes and counts.
RATES = frozenset({"messages/s", "MB/s", "x"})


class Comparison(NamedTuple):
    """The best figures of one case in both trees; None: a tree has none, because something it needs is missing."""

    bench: str
    case: str
    unit: str
    here: float | None
    there: float | None

    @property
    def ratio(self) -> float | None:
        if self.here is None or self.there is None or not (self.here and self.there):
            return None
        better, worse = self.here, self.there
        if self.unit not in RATES:
            better, worse = worse, better
        return round(better / worse, 3)

    def to_json(self) -> str:
        return json.dumps({**self._asdict(), "ratio": self.ratio})


def run(tree: Path, *arguments: str) -> str:
    """The output of a bench of a tree. Older trees have them inside of the package."""
    module = ["bench"] if (tree / "bench").is_dir() else ["penstock", "bench"]
    done = subprocess.run(  # noqa: S603 - our own benches
        [sys.executable, "-m", *module, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{tree}: {' '.join(arguments)} ended with {done.returncode}\n{done.stderr}")
    return done.stdout


def cases_of(bench: str, there: Path, wanted: Sequence[str]) -> list[str]:
    """The cases that both trees have."""
    asked = (bench, *FLAGS.get(bench, ()), "--list")
    known = {*run(there, *asked).split()}
    cases = [case for case in run(THIS, *asked).split() if case in known]
    return [case for case in cases if not wanted or case in wanted]


def best(results: Sequence[Mapping[str, Any]]) -> float | None:
    figures = [one["value"] for one in results if one["value"] is not None]
    if not figures:
        return None
    chosen: float = max(figures) if results[0]["unit"] in RATES else min(figures)
    return chosen


def compare(
    there: Path, benches: Sequence[str], wanted: Sequence[str], *, rounds: int, is_quick: bool
) -> Iterator[Comparison]:
    for bench in benches:
        flags = ["--json", *FLAGS.get(bench, ()), *(["--quick"] if is_quick else [])]
        for case in cases_of(bench, there, wanted):
            found: dict[Path, list[Mapping[str, Any]]] = {THIS: [], there: []}
            for number in range(rounds):
                for tree in [*found] if number % 2 else [*found][::-1]:
                    found[tree].append(json.loads(run(tree, bench, "--case", case, *flags)))
            unit = found[THIS][0]["unit"]
            yield Comparison(bench, case, unit, best(found[THIS]), best(found[there]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("there", type=Path, metavar="TREE", help="the other tree")
    parser.add_argument("--bench", action="append", choices=BENCHES, help="only this one")
    parser.add_argument("--case", action="append", default=[], help="only this one")
    parser.add_argument("--rounds", type=int, default=5, help="runs in each tree (5)")
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--least", type=float, default=0.95, help="the least ratio (0.95)")
    asked = parser.parse_args()
    is_worse = False
    for found in compare(
        asked.there.resolve(),
        asked.bench or BENCHES,
        asked.case,
        rounds=asked.rounds,
        is_quick=asked.quick,
    ):
        print(found.to_json(), flush=True)
        is_worse |= found.ratio is not None and found.ratio < asked.least
    sys.exit(int(is_worse))


if __name__ == "__main__":
    main()
