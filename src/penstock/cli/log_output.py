"""Prints the progress and the findings of long work on a log."""

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ..errors import AlreadyOpen
from .exits import print_error
from .log_locations import LogLocation

if TYPE_CHECKING:
    from ..log.doctor.repair import Change
    from ..log.doctor.verify import Problem, ReadProgress, VerifyReport

Result = TypeVar("Result")


def run_steps(
    steps: "Generator[ReadProgress | Problem, None, Result]",
    location: LogLocation,
    tell: Callable[["Problem"], None],
) -> Result:
    """Run the steps of long work, with a bar on a terminal. Calls `tell` for each problem. Returns the result."""
    from ..log.doctor.verify import ReadProgress

    bar: AbstractContextManager[Callable[[ReadProgress], None]] = nullcontext(ignore)
    if sys.stderr.isatty():
        bar = _bar(location.shown)
    with bar as show:
        while True:
            try:
                step = next(steps)
            except StopIteration as finished:
                result: Result = finished.value
                return result
            if isinstance(step, ReadProgress):
                show(step)
            else:
                tell(step)


@contextmanager
def _bar(text: str) -> Iterator[Callable[["ReadProgress"], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    # Removed at the end, so that only the findings stay on the screen.
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda step: bar.update(task, completed=step.done_bytes, total=step.total_bytes)


def ignore(_step: object) -> None:
    """Drop a step."""


class LockNotices:
    """Prints which process has a directory open, once for each directory."""

    def __init__(self) -> None:
        self._printed: set[Path] = set()

    def warn(self, location: LogLocation) -> bool:
        """Print a warning if a process has the log open. Returns whether one has."""
        from ..runtime.lock import holder_of

        holder = holder_of(location.root)
        if holder is not None and location.root not in self._printed:
            self._printed.add(location.root)
            click.echo(
                f"{location.root} is in use by {holder}: the end of a log may change", err=True
            )
        return holder is not None

    def refuse(self, location: LogLocation, error: AlreadyOpen) -> None:
        """Print that the log cannot be changed while a process has it open."""
        if location.root not in self._printed:
            self._printed.add(location.root)
            hint = (
                "nothing was changed. Stop it first; --dry-run says meanwhile what there is to do"
            )
            print_error(f"{error}: {hint} ({error.code})")


def print_fields(
    location: LogLocation, fields: dict[str, object], text: str, *, is_json: bool
) -> None:
    """Print fields as JSON, or the text."""
    from .log_text import json_line

    click.echo(json_line({"log": location.shown, **fields}) if is_json else text)


def print_location(location: LogLocation, *, is_json: bool) -> None:
    if not is_json:
        click.echo(location.shown)


def print_problem(problem: "Problem", location: LogLocation, *, is_json: bool) -> None:
    from .log_text import problem_fields, problem_text

    path = location.show(problem.path)
    fields = {"type": "problem", **problem_fields(problem, path)}
    print_fields(location, fields, problem_text(problem, Path(path).name), is_json=is_json)


def print_change(change: "Change", location: LogLocation, *, is_json: bool) -> None:
    from .log_text import change_fields, change_text

    path, kept_as = (
        location.show(change.path),
        location.show(change.kept_as) if change.kept_as else "",
    )
    fields = {"type": "change", **change_fields(change, path, kept_as)}
    text = change_text(change, Path(path).name, Path(kept_as).name)
    print_fields(location, fields, text, is_json=is_json)


def print_report(report: "VerifyReport", location: LogLocation, *, is_json: bool) -> None:
    from .log_text import report_fields, report_text

    fields = {"type": "summary", **report_fields(report)}
    print_fields(location, fields, report_text(report), is_json=is_json)
