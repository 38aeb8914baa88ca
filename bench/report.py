"""One case, what was measured, and the line that says so.

A result is one JSON object with exactly these keys:

    bench, case      what ran
    value, unit      ours; null when something it needs is missing
    baseline         what we are compared with, or null
    baseline_value   its figure in the same run and unit; null when it is missing
    ratio            bigger is better: ours/baseline for rates, baseline/ours for times and sizes
    goal             such as ">=0.7" or "<=200", or null
    ok               whether the goal is met; null when there is none or it could not be judged
    settings         sizes and counts; `goal_on` says what the goal judges, `missing` what was absent
"""

import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .measure import Effort


class Unit(Enum):
    NS = "ns"
    US = "us"
    MS = "ms"
    BYTES = "bytes"
    POINTS = "points"
    TIMES = "x"
    MESSAGES_PER_S = "messages/s"
    MB_PER_S = "MB/s"
    SYNCS = "fsyncs an append"
    PARTITIONS = "partitions"

    @property
    def is_bigger_better(self) -> bool:
        return self in {Unit.TIMES, Unit.MESSAGES_PER_S, Unit.MB_PER_S}


class GoalFigure(Enum):
    """The number that a goal is about."""

    RATIO = "ratio"
    VALUE = "value"


RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
GOAL_PATTERN = re.compile(r"(>=|<=|>|<)\s*([0-9]+(?:\.[0-9]+)?)")


@dataclass(frozen=True, slots=True)
class Goal:
    relation: str
    bound: float
    judged: GoalFigure

    @classmethod
    def parse(cls, text: str, *, on: GoalFigure) -> "Goal":
        found = GOAL_PATTERN.fullmatch(text)
        if not found:
            raise ValueError(f"a goal looks like '>=0.7' or '<=200', not {text!r}")
        return cls(found[1], float(found[2]), on)

    def __str__(self) -> str:
        return f"{self.relation}{self.bound:g}"

    def is_met_by(self, number: float) -> bool:
        return RELATIONS[self.relation](number, self.bound)

    def pick(self, *, value: float | None, ratio: float | None) -> float | None:
        """Returns the number that this goal is about."""
        return ratio if self.judged is GoalFigure.RATIO else value

    def margin(self, number: float) -> float:
        """Returns how many times better than the bound a number is; 1 is just on it."""
        better, worse = (number, self.bound) if self.relation[0] == ">" else (self.bound, number)
        return better / worse if worse else float("inf")


def on_ratio(text: str) -> Goal:
    return Goal.parse(text, on=GoalFigure.RATIO)


def on_value(text: str) -> Goal:
    return Goal.parse(text, on=GoalFigure.VALUE)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The figures of one case. One is None only when `missing` names the reason."""

    value: float | None
    baseline_value: float | None = None
    missing: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    unit: Unit
    measure: Callable[["Effort"], CaseResult]
    goal: Goal | None = None
    baseline: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    bench: str
    case: str
    value: float | None
    unit: str
    baseline: str | None
    baseline_value: float | None
    ratio: float | None
    goal: Goal | None
    ok: bool | None
    settings: Mapping[str, object]

    @property
    def margin(self) -> float | None:
        """How many times better than the goal the result is, or None if that is not known."""
        if self.goal is None:
            return None
        number = self.goal.pick(value=self.value, ratio=self.ratio)
        return None if number is None else self.goal.margin(number)

    @property
    def missing(self) -> tuple[str, ...]:
        names = self.settings.get("missing", ())
        assert isinstance(names, tuple)
        return names

    def to_json(self) -> str:
        line = {each.name: getattr(self, each.name) for each in fields(self)}
        line["goal"] = None if self.goal is None else str(self.goal)
        for name in ("value", "baseline_value", "ratio"):
            line[name] = rounded(line[name])
        return json.dumps(line)


def result_of(bench: str, case: Case, measured: CaseResult) -> Result:
    assert measured.value is not None or measured.missing, f"{case.name} has no value and no reason"
    ratio = ratio_of(case.unit, measured.value, measured.baseline_value)
    settings = dict(measured.settings)
    is_met = None
    if case.goal is not None:
        settings["goal_on"] = case.goal.judged.value
        number = case.goal.pick(value=measured.value, ratio=ratio)
        is_met = None if number is None else case.goal.is_met_by(number)
    if measured.missing:
        settings["missing"] = measured.missing
    return Result(
        bench=bench,
        case=case.name,
        value=measured.value,
        unit=case.unit.value,
        baseline=case.baseline,
        baseline_value=measured.baseline_value,
        ratio=ratio,
        goal=case.goal,
        ok=is_met,
        settings=settings,
    )


def ratio_of(unit: Unit, value: float | None, baseline_value: float | None) -> float | None:
    if not value or not baseline_value:
        return None
    return value / baseline_value if unit.is_bigger_better else baseline_value / value


def rounded(number: float | None) -> float | None:
    # Four digits: on a shared machine the fifth is noise.
    return None if number is None else float(f"{number:.4g}")
