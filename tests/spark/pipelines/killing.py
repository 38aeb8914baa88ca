"""Tasks, drivers and brokers that die at chosen points. Imported by workers of Spark too, so it imports little."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TASK_POINTS = ("before reading", "while writing", "when all is written")
DRIVER_POINTS = (
    "before the manifest",
    "with a draft of the manifest",
    "when the manifest is there",
    "when half of the files are moved",
    "before the group is told",
)


THE_BROKER = "the broker, while it is read"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(mark: str, victim: int = 0) -> None:
    """The first process that comes here dies, or kills the broker; later ones go on."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(victim or os.getpid(), signal.SIGKILL)


def checked(poison: str) -> Any:
    """A transform that fails for some values, given as "3, 17"."""
    value = "CAST(value AS STRING)"
    made = f"IF({value} IN ({poison or -1}), raise_error('poison'), {value})"
    return lambda rows: rows.selectExpr(f"CAST({made} AS STRING) AS value")


@dataclass(frozen=True)
class KillingTask:
    """A task's call whose first attempt dies at a point. Runs in a worker of Spark, and changes that one only."""

    call: Any
    point: str
    mark: str
    broker: int = 0

    def __call__(self, task: Any) -> bytes:
        from penstock.spark.pipelines import ranges, task_files

        if self.point == "before reading":
            die_once(self.mark)
        flush, close, step = task_files._flush, ranges.TaskFiles.close, ranges._step
        try:
            if self.point == THE_BROKER:
                ranges._step = lambda *words: (die_once(self.mark, self.broker), step(*words))
            if self.point == "while writing":
                task_files._flush = lambda file: (flush(file), die_once(self.mark))
            if self.point == "when all is written":
                ranges.TaskFiles.close = lambda one: (close(one), die_once(self.mark))[0]
            return self.call(task)
        finally:
            task_files._flush, ranges.TaskFiles.close, ranges._step = flush, close, step


def killing(spread: Any, point: str, mark: Path, broker: int = 0) -> Any:
    """A task runner whose tasks die once, or kill the broker once."""
    return lambda call, tasks: spread(KillingTask(call, point, str(mark), broker), tasks)


def arm_driver(point: str) -> None:
    """Have this process die at a point of the next commit."""
    from penstock.spark.pipelines import lake
    from penstock.spark.pipelines.archive import Archive

    def dying(_self: Any, *_words: Any, **_more: Any) -> None:
        die()

    if point == "before the manifest":
        lake.Lake.decide = dying
    elif point == "with a draft of the manifest":
        Path.hardlink_to = dying
    elif point == "when the manifest is there":
        lake.Lake.publish = dying
    elif point == "when half of the files are moved":
        move, moved = lake.Lake._move, []

        def some(self: Any, file: Any) -> Any:
            if moved:
                die()
            moved.append(file)
            return move(self, file)

        lake.Lake._move = some
    else:
        assert point == "before the group is told"
        tell, told = Archive._tell_group, []

        def telling(self: Any, *words: Any, **more: Any) -> None:
            if told:
                die()
            told.append(words)
            tell(self, *words, **more)

        Archive._tell_group = telling
