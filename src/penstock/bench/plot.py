"""Results against their goals, as a picture."""

from collections.abc import Sequence
from pathlib import Path

from .report import Result
from .table import shown

MET, MISSED = "#2a7f62", "#b23a48"


def plot(results: Sequence[Result], path: Path) -> None:
    """Write one bar for each result that was judged: how many times better than its goal it is.

    Units differ from case to case, so the bars share the only scale that they have in common.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    judged = [(result, margin) for result in results if (margin := result.margin) is not None]
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.45 * max(len(judged), 1)))
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


def label(result: Result) -> str:
    return f"{shown(result.value)} {result.unit}, goal {result.goal}"


def left_out(count: int) -> str:
    return f"; not judged, so not shown: {count}" if count else ""
