"""The parts of the demo: each has a stage, yields scenes, and prints them."""

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import click


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a part may write, and whether it runs on a terminal. Earlier parts have their data below `directory`.

    `is_kept`: it will still be there when the show is over. `left` is what to look at then, and how.
    """

    directory: Path
    is_quiet: bool
    is_kept: bool = True
    left: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_live(self) -> bool:
        return not self.is_quiet and sys.stdout.isatty()

    def leave(self, label: str, command: str) -> None:
        """Add data that is left when the demo is over, and the command that shows it."""
        self.left.append((label, command))

    def say(self, text: str) -> None:
        """Print a line about the progress, unless a live view shows it."""
        if not self.is_quiet and not self.is_live:
            click.echo(f"... {text}")


class Scene(NamedTuple):
    """The result of a part. `facts` go into the JSON object under `name`."""

    name: str
    title: str
    lines: list[tuple[str, str]]
    facts: dict[str, object]
    is_good: bool = True


def waiting(text: str, stage: Stage) -> AbstractContextManager[object]:
    """A spinner on a terminal, nothing elsewhere."""
    if stage.is_quiet or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)


def show(scene: Scene) -> None:
    width = max(len(label) for label, _ in scene.lines)
    if not sys.stdout.isatty():
        click.echo(scene.title)
        for label, text in scene.lines:
            click.echo(f"  {label:{width}}  {text}")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", min_width=25, justify="right")
    for label, text in scene.lines:
        grid.add_row(label, Text(text, overflow="fold"))
    console.print(f"[bold {'green' if scene.is_good else 'red'}]{scene.title}")
    console.print(grid, "")
