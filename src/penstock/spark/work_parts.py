"""Finds the rows that make a job fail by themselves, in few jobs. Knows neither Spark nor the broker."""

from collections.abc import Callable, Sequence


class RowsFailed(Exception):  # Those who run parts catch it; what users see is a nack's reason.
    """A job, or the publishing of its rows, failed over these rows; with others it may go well.

    `task` is most likely the one that failed, of the `tasks` that read equal shares of the rows; None: not known.
    """

    def __init__(self, reason: str, task: int | None = None, tasks: int = 0) -> None:
        super().__init__(reason)
        self.task, self.tasks = task, tasks


RunRows = Callable[[Sequence[int]], None]
OnAlone = Callable[[int, RowsFailed], None]


def run_in_parts(rows: Sequence[int], run: RunRows, on_alone: OnAlone) -> None:
    """Run all rows, given by their places, those apart that fail alone. `run` raises RowsFailed for a part."""
    while rows:
        try:
            run(rows)
            return
        except RowsFailed as failure:
            rows = sorted(_narrowed(rows, failure, run, on_alone))


def _narrowed(
    rows: Sequence[int], failure: RowsFailed, run: RunRows, on_alone: OnAlone
) -> list[int]:
    """Find a row that fails alone; returns those that were not run on the way."""
    rest: list[int] = []
    while len(rows) > 1:
        start, end = _share(len(rows), failure)
        part, others = rows[start:end], [*rows[:start], *rows[end:]]
        try:
            run(part)
        except RowsFailed as error:
            rest += others
            rows, failure = part, error
            continue
        try:
            run(others)
        except RowsFailed as error:
            # It was not the task that it seemed to be: by halves from here on, so that no guess is wrong twice.
            is_guess = failure.task is not None
            rows, failure = others, RowsFailed(str(error)) if is_guess else error
        else:
            return rest
    on_alone(rows[0], failure)
    return rest


def _share(count: int, failure: RowsFailed) -> tuple[int, int]:
    """Returns which rows to try next: those that the failed task read, if it is known, else one half.

    Behind a shuffle the task has read rows from everywhere. Then its share does not fail, and the others do.
    """
    if failure.task is not None and failure.tasks > 1:
        share = -(-count // failure.tasks)
        start = failure.task * share
        if start < count:
            return start, min(start + share, count)
    return 0, count // 2
