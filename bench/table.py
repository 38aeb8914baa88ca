"""Results for people: a coloured table on a terminal, plain columns in a file or a pipe."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .report import Judged, Result

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
    return f"ratio {result.goal}" if result.goal.judged is Judged.RATIO else str(result.goal)


def shown(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def plain(results: Sequence[Result]) -> str:
    rows = [HEADINGS, *map(row, results)]
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
