"""Showing long work on a log while it goes on, and what it found."""

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ..errors import AlreadyOpen
from .exits import complain
from .log_places import Place

if TYPE_CHECKING:
    from ..log.doctor.repair import Change
    from ..log.doctor.verify import Problem, Progress, Report

Result = TypeVar("Result")


def run_steps(
    steps: "Generator[Progress | Problem, None, Result]",
    place: Place,
    tell: Callable[["Problem"], None],
) -> Result:
    """Go through the steps of long work; on a terminal a bar shows how far it is."""
    from ..log.doctor.verify import Progress

    bar: AbstractContextManager[Callable[[Progress], None]] = nullcontext(ignore)
    if sys.stderr.isatty():
        bar = _bar(place.shown)
    with bar as show:
        while True:
            try:
                step = next(steps)
            except StopIteration as finished:
                result: Result = finished.value
                return result
            if isinstance(step, Progress):
                show(step)
            else:
                tell(step)


@contextmanager
def _bar(text: str) -> Iterator[Callable[["Progress"], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    # Gone when it is done, so that only the findings stay on the screen.
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda step: bar.update(task, completed=step.done_bytes, total=step.total_bytes)


def ignore(_step: object) -> None:
    """Nobody wants to know."""


class InUse:
    """Who has the directories of logs open. Said once for each directory, however many logs are in it."""

    def __init__(self) -> None:
        self._said: set[Path] = set()

    def warn(self, place: Place) -> bool:
        """Say that somebody has the log open; true if so."""
        from ..runtime.lock import holder_of

        holder = holder_of(place.root)
        if holder is not None and place.root not in self._said:
            self._said.add(place.root)
            click.echo(f"{place.root} is in use by {holder}: the end of a log may change", err=True)
        return holder is not None

    def refuse(self, place: Place, error: AlreadyOpen) -> None:
        """Say that nothing can be changed there."""
        if place.root not in self._said:
            self._said.add(place.root)
            hint = (
                "nothing was changed. Stop it first; --dry-run says meanwhile what there is to do"
            )
            complain(f"{error}: {hint} ({error.code})")


def say(place: Place, fields: dict[str, object], text: str, *, is_json: bool) -> None:
    """The same thing for programs or for people."""
    from .log_words import json_line

    click.echo(json_line({"log": place.shown, **fields}) if is_json else text)


def say_name(place: Place, *, is_json: bool) -> None:
    if not is_json:
        click.echo(place.shown)


def say_problem(problem: "Problem", place: Place, *, is_json: bool) -> None:
    from .log_words import problem_fields, problem_text

    path = place.show(problem.path)
    fields = {"type": "problem", **problem_fields(problem, path)}
    say(place, fields, problem_text(problem, Path(path).name), is_json=is_json)


def say_change(change: "Change", place: Place, *, is_json: bool) -> None:
    from .log_words import change_fields, change_text

    path, kept_as = place.show(change.path), place.show(change.kept_as) if change.kept_as else ""
    fields = {"type": "change", **change_fields(change, path, kept_as)}
    text = change_text(change, Path(path).name, Path(kept_as).name)
    say(place, fields, text, is_json=is_json)


def say_report(report: "Report", place: Place, *, is_json: bool) -> None:
    from .log_words import report_fields, report_text

    fields = {"type": "summary", **report_fields(report)}
    say(place, fields, report_text(report), is_json=is_json)
