"""Work that is begun at once, in the turn of the loop in which it came, and becomes a task only when it has to wait.

Most requests never do. A task costs them two more turns of the loop, which is more than what a small publish does.
"""

from asyncio import isfuture
from collections.abc import Coroutine, Generator
from typing import Any, NoReturn

Work = Coroutine[Any, None, None]
_NOTHING = object()


def begun(work: Work) -> "Left | None":
    """Run work up to its first wait; what is left of it is for a task, None if it is done.

    Up to there `asyncio.current_task` does not know of it.
    """
    try:
        waits_for = work.send(None)
    except StopIteration:
        return None
    return Left(work, waits_for)


class Left(Coroutine[Any, None, None]):
    """Work that waits already: the task is first told for what, as if it had begun the work itself."""

    def __init__(self, work: Work, waits_for: Any) -> None:
        self.work, self.waits_for = work, waits_for

    def send(self, value: None) -> Any:
        waits_for, self.waits_for = self.waits_for, _NOTHING
        # What came about before the task had its first turn needs no other one.
        is_here = waits_for is _NOTHING or (isfuture(waits_for) and waits_for.done())
        return self.work.send(value) if is_here else waits_for

    def throw(self, *error: Any) -> Any:
        """At the place where it waits, also if the task was cancelled before it was told."""
        self.waits_for = _NOTHING
        return self.work.throw(*error)

    def close(self) -> None:
        self.work.close()

    def __await__(self) -> Generator[Any, None, NoReturn]:
        raise TypeError("what is left of work goes to a task")
