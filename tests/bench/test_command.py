"""`python -m bench`, driven with a bench whose figures are known."""

import json
import sys
from types import ModuleType

import pytest

import bench
from bench.command import bench as command
from bench.report import Case, CaseResult, Unit, on_ratio, on_value
from penstock.cli.exits import Exit, run


def fixed(value, baseline_value=None, **more):
    return lambda _effort: CaseResult(value, baseline_value, **more)


CASES = (
    Case(name="quick_enough", unit=Unit.NS, measure=fixed(150.0), goal=on_value("<=200")),
    Case(
        name="too_slow",
        unit=Unit.MB_PER_S,
        measure=fixed(300.0, 1000.0),
        goal=on_ratio(">=0.7"),
        baseline="os.write",
    ),
    Case(
        name="no_peer",
        unit=Unit.MESSAGES_PER_S,
        measure=fixed(5000.0, missing=("redis-server",)),
        goal=on_ratio(">=2"),
        baseline="redis",
    ),
    Case(name="only_watched", unit=Unit.BYTES, measure=fixed(112.0)),
)


@pytest.fixture(autouse=True)
def bench_with_known_figures(monkeypatch):
    module = ModuleType("known_figures")
    module.CASES = CASES
    monkeypatch.setitem(sys.modules, "known_figures", module)
    table = {"known": bench.Bench("known_figures", "figures that are known")}
    monkeypatch.setattr("bench.command.BENCHES", table)
    monkeypatch.setattr(bench, "BENCHES", table)


def lines_of(capsys) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_json_is_one_object_a_line_in_the_order_of_the_cases(capsys):
    assert run(command, ["known", "--json"]) == Exit.OK
    results = [json.loads(line) for line in lines_of(capsys)]
    assert [(line["case"], line["ok"]) for line in results] == [
        ("quick_enough", True),
        ("too_slow", False),
        ("no_peer", None),
        ("only_watched", None),
    ]


def test_table_names_what_was_missed_and_what_was_missing(capsys):
    assert run(command, ["known"]) == Exit.OK
    verdicts = {line.split()[0]: line for line in lines_of(capsys)}
    assert " ok " in verdicts["quick_enough"]
    assert " missed " in verdicts["too_slow"]
    assert "missing: redis-server" in verdicts["no_peer"]
    assert "no goal" in verdicts["only_watched"]


@pytest.mark.parametrize(
    ("cases", "code"),
    [
        (["quick_enough", "only_watched"], Exit.OK),
        (["quick_enough", "too_slow"], Exit.FOUND_PROBLEMS),
        (["no_peer"], Exit.FOUND_PROBLEMS),
    ],
)
def test_check_fails_when_a_goal_is_missed_or_cannot_be_judged(cases, code):
    chosen = [word for case in cases for word in ("--case", case)]
    assert run(command, ["known", "--check", *chosen]) == code


def test_only_the_cases_asked_for_run(capsys):
    run(command, ["known", "--json", "--case", "too_slow"])
    (line,) = lines_of(capsys)
    assert json.loads(line)["case"] == "too_slow"


def test_lists_of_benches_and_of_cases(capsys):
    assert run(command, ["--list"]) == Exit.OK
    assert lines_of(capsys) == ["known       figures that are known"]
    assert run(command, ["known", "--list"]) == Exit.OK
    assert lines_of(capsys) == [case.name for case in CASES]


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["knwon"], "no such bench 'knwon'; did you mean known?"),
        (["zzz"], "no such bench 'zzz'; known: known"),
        (["known", "--case", "to_slow"], "no such case 'to_slow'; did you mean too_slow?"),
        ([], "name a bench, or list them with --list"),
        (["known", "--plot", "nowhere/x.png"], "--plot: there is no directory nowhere"),
    ],
)
def test_wrong_word_is_a_usage_error_with_advice(words, advice, capsys):
    assert run(command, words) == Exit.USAGE
    assert advice in capsys.readouterr().err


def test_picture_is_written(tmp_path, capsys):
    picture = tmp_path / "known.png"
    assert run(command, ["known", "--plot", str(picture)]) == Exit.OK
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_missing_plot_library_is_said_before_anything_runs(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run(command, ["known", "--plot", "x.png"]) == Exit.USAGE
    shown = capsys.readouterr()
    assert "matplotlib" in shown.err
    assert shown.out == ""
