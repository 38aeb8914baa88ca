"""A progress bar on terminals; scripts get none."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# To draw it for every message would cost more than to send the message.
_EVERY_S = 0.1


class Bar:
    """Counts `done` units of `total` on stderr if that is a terminal; shows a rate when the total is not known."""

    def __init__(self, title: str, total: int | None = None, *, is_wanted: bool = True) -> None:
        self._title, self._total = title, total
        self._is_shown = is_wanted and sys.stderr.isatty()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._drawn_s = 0.0

    def at(self, done: int, note: str | int) -> None:
        """Show how much is done, with a note or a number of messages."""
        if self._bar is None or self._task is None:
            return
        now_s = time.monotonic()
        if now_s - self._drawn_s >= _EVERY_S:
            self._drawn_s = now_s
            text = f"{note:,} messages" if isinstance(note, int) else note
            self._bar.update(self._task, completed=done, note=text)

    def __enter__(self) -> Self:
        if self._is_shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=self._total, note="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
