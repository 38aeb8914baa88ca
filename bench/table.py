"""Results as text: a coloured table on a terminal, plain columns in a file or a pipe."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .report import GoalFigure, Result

if TYPE_CHECKING:
    from rich.table import Table

HEADINGS = ("case", "value", "goal", "verdict", "ratio", "baseline")


def verdict(result: Result) -> str:
    if result.missing:
        return f"missing: {', '.join(result.missing)}"
    if result.ok is None:
        return "no goal"
    return "ok" if result.ok else "missed"


def row(result: Result) -> tuple[str, ...]:
    return (
        result.case,
        f"{shown(result.value)} {result.unit}",
        goal(result),
        verdict(result),
        shown(result.ratio),
        f"{result.baseline}: {shown(result.baseline_value)}" if result.baseline else "",
    )


def goal(result: Result) -> str:
    if result.goal is None:
        return ""
    return f"ratio {result.goal}" if result.goal.judged is GoalFigure.RATIO else str(result.goal)


def shown(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def plain(results: Sequence[Result]) -> str:
    return _columns([HEADINGS, *map(row, results)])


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in rows
    )


def coloured(results: Sequence[Result]) -> "Table":
    from rich.box import SIMPLE
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE)
    for heading in HEADINGS:
        table.add_column(heading, no_wrap=heading != "baseline")
    for result in results:
        style = {True: "green", False: "red", None: "yellow" if result.missing else None}[result.ok]
        table.add_row(*map(escape, row(result)), style=style)
    return table


def peers_table(results: Sequence[Result]) -> str:
    """Returns a line for each case and a column for each broker, or an empty text without peers."""
    raced = [(one, peers) for one in results if (peers := peers_of(one))]
    names = list(dict.fromkeys(name for _, peers in raced for name in peers))
    if not names:
        return ""
    rows = [["case", "unit", "penstock", *names]]
    for result, peers in raced:
        figures = [shown(peers.get(name)) for name in names]
        rows.append([result.case, result.unit, shown(result.value), *figures])
    return _columns(rows)


def peers_of(result: Result) -> Mapping[str, float]:
    found = result.settings.get("peers", {})
    assert isinstance(found, dict)
    return found


def skipped(results: Sequence[Result]) -> dict[str, str]:
    """Returns the brokers that were left out, and why."""
    found: dict[str, str] = {}
    for result in results:
        left_out = result.settings.get("skipped", {})
        assert isinstance(left_out, dict)
        found |= left_out
    return found
