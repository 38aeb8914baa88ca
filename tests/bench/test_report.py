"""Goals, ratios and the line that reports them."""

import json

import pytest

from bench.report import (
    Case,
    CaseResult,
    Goal,
    GoalFigure,
    Unit,
    on_ratio,
    on_value,
    result_of,
)

KEYS = [
    "bench",
    "case",
    "value",
    "unit",
    "baseline",
    "baseline_value",
    "ratio",
    "goal",
    "ok",
    "settings",
]


def result(unit=Unit.NS, goal=None, baseline="peer", **figures):
    case = Case(name="append", unit=unit, measure=lambda _: None, goal=goal, baseline=baseline)
    return result_of("log", case, CaseResult(**figures))


def test_line_has_exactly_the_promised_keys_in_order():
    assert list(json.loads(result(value=1.0).to_json())) == KEYS


def test_line_reads_as_promised():
    shown = result(
        Unit.MB_PER_S, on_ratio(">=0.7"), "os.write", value=812.44, baseline_value=960.1
    ).to_json()
    assert json.loads(shown) == {
        "bench": "log",
        "case": "append",
        "value": 812.4,
        "unit": "MB/s",
        "baseline": "os.write",
        "baseline_value": 960.1,
        "ratio": 0.8462,
        "goal": ">=0.7",
        "ok": True,
        "settings": {"goal_on": "ratio"},
    }


@pytest.mark.parametrize(
    ("text", "number", "is_met"),
    [
        (">=0.7", 0.7, True),
        (">=0.7", 0.69, False),
        ("<=200", 200, True),
        ("<=200", 200.1, False),
        ("<5", 5, False),
        ("<5", 4.99, True),
        (">2", 2, False),
        ("> 2", 2.01, True),
    ],
)
def test_goal_is_met_exactly_at_its_bound(text, number, is_met):
    assert on_value(text).is_met_by(number) is is_met


@pytest.mark.parametrize("text", ["", "200", "=200", "<=", "<=abc", ">= 1 x", "<=-3"])
def test_text_that_is_not_a_goal_is_refused(text):
    with pytest.raises(ValueError, match="a goal looks like"):
        Goal.parse(text, on=GoalFigure.VALUE)


@pytest.mark.parametrize(
    ("unit", "ratio"),
    [
        (Unit.MB_PER_S, 0.5),
        (Unit.MESSAGES_PER_S, 0.5),
        (Unit.TIMES, 0.5),
        (Unit.NS, 2.0),
        (Unit.US, 2.0),
        (Unit.BYTES, 2.0),
    ],
)
def test_ratio_is_bigger_when_we_are_better(unit, ratio):
    assert result(unit, value=100.0, baseline_value=200.0).ratio == ratio


def test_goal_on_value_does_not_look_at_the_ratio():
    assert result(goal=on_value("<=200"), value=100.0, baseline_value=1.0).ok is True


def test_goal_on_ratio_does_not_look_at_the_value():
    assert result(goal=on_ratio(">=2"), value=100.0, baseline_value=150.0).ok is False


def test_goal_is_judged_before_rounding():
    assert result(goal=on_value("<=200"), value=200.004).ok is False


def test_missing_peer_leaves_the_goal_unjudged_and_is_named():
    found = result(goal=on_ratio(">=2"), value=100.0, missing=("redis",))
    line = json.loads(found.to_json())
    assert (line["value"], line["baseline_value"], line["ratio"], line["ok"]) == (
        100.0,
        None,
        None,
        None,
    )
    assert line["settings"]["missing"] == ["redis"]


def test_value_may_only_be_absent_with_a_reason():
    with pytest.raises(AssertionError, match="no reason"):
        result(value=None)


@pytest.mark.parametrize(
    ("goal", "value", "margin"), [("<=200", 100.0, 2.0), (">=4", 6.0, 1.5), ("<=200", 400.0, 0.5)]
)
def test_margin_says_how_many_times_better_than_asked(goal, value, margin):
    assert result(goal=on_value(goal), value=value).margin == margin
