"""Results against their goals, as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .report import Result, Unit, ratio_of
from .table import peers_of, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MET, MISSED = "#2a7f62", "#b23a48"


def plot(results: Sequence[Result], path: Path) -> None:
    """Write one bar for each result that was judged: how many times better than its goal it is.

    Units differ from case to case, so the bars share the only scale that they have in common.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    judged = [(result, margin) for result in results if (margin := result.margin) is not None]
    raced = [result for result in results if peers_of(result)]
    height = 1.2 + 0.45 * max(len(judged), 1)
    if raced:
        figure, (axes, beside) = plt.subplots(
            2, 1, figsize=(9, height + 0.8 * len(raced)), height_ratios=(height, 0.8 * len(raced))
        )
        draw_race(beside, raced)
    else:
        figure, axes = plt.subplots(figsize=(9, height))
    bars = axes.barh(
        [result.case for result, _ in judged],
        [margin for _, margin in judged],
        color=[MET if result.ok else MISSED for result, _ in judged],
    )
    axes.bar_label(bars, labels=[label(result) for result, _ in judged], padding=4, fontsize=8)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlim(0, 1.5 * max([1.0, *(margin for _, margin in judged)]))
    axes.invert_yaxis()
    axes.set_xlabel(
        f"times better than the goal (line: the goal){left_out(len(results) - len(judged))}"
    )
    axes.set_title(", ".join(sorted({result.bench for result in results})))
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_race(axes: "Axes", raced: Sequence[Result]) -> None:
    """Draw how many times better Penstock is than each peer, for every case."""
    names = list(dict.fromkeys(name for result in raced for name in peers_of(result)))
    thick = 0.8 / len(names)
    for place, name in enumerate(names):
        times = [times_better(result, peers_of(result).get(name)) for result in raced]
        rows = [row + (place + 0.5) * thick - 0.4 for row in range(len(raced))]
        axes.barh(rows, times, height=thick, label=name)
    axes.set_yticks(range(len(raced)), [result.case for result in raced])
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel("times better than each peer (line: equal)")
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def times_better(result: Result, theirs: float | None) -> float:
    """Returns the factor, or 0, which is no bar, if one of the two is not known."""
    return ratio_of(Unit(result.unit), result.value, theirs) or 0.0


def label(result: Result) -> str:
    return f"{shown(result.value)} {result.unit}, goal {result.goal}"


def left_out(count: int) -> str:
    return f"; not judged, so not shown: {count}" if count else ""
