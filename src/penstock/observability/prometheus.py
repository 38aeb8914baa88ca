"""The text format of Prometheus, from samples."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..api.health import Sample
from .table import METRICS, MetricKind

Labels = Mapping[str, str]


class Histogram(NamedTuple):
    """Counts of a metric by upper bound, the last for everything above, and the sum of what was counted."""

    name: str
    labels: Labels
    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


def render(samples: Iterable[Sample | Histogram], *, is_whole: bool = True) -> bytes:
    """Returns all samples as text, metric by metric. A name that is not in the table is a bug.

    Every name of the table is there; on a page that `is_whole`, counters whose labels are known before their first
    event are zero. A standby, or a key with prefixes, does not see the others.
    """
    by_name: dict[str, list[str]] = {}
    for one in samples:
        metric = METRICS[one.name]
        assert set(one.labels) == set(metric.labels), f"{one.name} has labels {metric.labels}"
        lines = by_name.setdefault(one.name, [])
        if isinstance(one, Histogram):
            assert metric.kind is MetricKind.HISTOGRAM, f"{one.name} is a {metric.kind.value}"
            lines += _histogram_lines(one)
        else:
            lines.append(f"{one.name}{_labels(one.labels)} {_number(one.value)}")
    parts: list[str] = []
    for name, metric in METRICS.items():
        parts += [f"# HELP {name} {metric.text}", f"# TYPE {name} {metric.kind.value}"]
        lines = by_name.get(name, [])
        parts += lines
        if is_whole and metric.kind is MetricKind.COUNTER:
            series = [name] if not metric.labels else []
            series += [f"{name}{_labels({metric.labels[0]: value})}" for value in metric.values]
            seen = {line.rpartition(" ")[0] for line in lines}
            parts += [f"{one} 0" for one in series if one not in seen]
    return ("\n".join(parts) + "\n").encode()


def _histogram_lines(one: Histogram) -> list[str]:
    lines, count = [], 0
    for bound, here in zip((*one.bounds, float("inf")), one.counts, strict=True):
        count += here
        shown = "+Inf" if bound == float("inf") else f"{bound:g}"
        lines.append(f"{one.name}_bucket{_labels({**one.labels, 'le': shown})} {count}")
    lines.append(f"{one.name}_sum{_labels(one.labels)} {_number(one.total)}")
    lines.append(f"{one.name}_count{_labels(one.labels)} {count}")
    return lines


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
