"""Everybody's figures side by side, from results that have some of peers."""

from collections.abc import Mapping, Sequence

from .report import Result
from .table import shown


def peers_table(results: Sequence[Result]) -> str:
    """A line for each case, a column for each who took part; empty if nobody did."""
    raced = [(one, peers) for one in results if (peers := peers_of(one))]
    names = list(dict.fromkeys(name for _, peers in raced for name in peers))
    if not names:
        return ""
    rows = [["case", "unit", "penstock", *names]]
    for result, peers in raced:
        figures = [shown(peers.get(name)) for name in names]
        rows.append([result.case, result.unit, shown(result.value), *figures])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def peers_of(result: Result) -> Mapping[str, float]:
    found = result.settings.get("peers", {})
    assert isinstance(found, dict)
    return found


def skipped(results: Sequence[Result]) -> dict[str, str]:
    """Who did not take part, and why."""
    found: dict[str, str] = {}
    for result in results:
        left_out = result.settings.get("skipped", {})
        assert isinstance(left_out, dict)
        found |= left_out
    return found
