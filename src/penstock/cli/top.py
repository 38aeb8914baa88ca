"""`penstock top`: topics, lanes, groups and lag of a server, live."""

import os
import select
import sys
import termios
import time
import tty
from typing import TYPE_CHECKING, Any, Self

import click

from .output import Output, output_options
from .remote import BrokerOptions, connected, remote_options

if TYPE_CHECKING:
    from ..client import Client
    from .overview import Overview

EPILOG = """\b
Examples:
  penstock top                        until q or Ctrl-C
  penstock top --interval 0.5         twice a second
  penstock top --once                 one look, for a pipe or a log
  penstock top --json                 one look, as one JSON object
  penstock top --context live

\b
"waiting by lane" counts the messages that wait for the group furthest behind: critical / high / normal / low /
background. Rates are those between two looks; with --once there is none. Of more than 200 groups those that are
furthest behind are shown.
"""

# Above the tables, between them, and their titles.
_LINES_AROUND = 12
_ROWS_MIN = 3


@click.command(epilog=EPILOG)
@click.option("--once", "is_once", is_flag=True, help="One look, and end.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@remote_options
@output_options
def top(*, is_once: bool, interval: float, broker: BrokerOptions, output: Output) -> None:
    """Watch topics, lanes, groups and lag; one look if the output is not a terminal."""
    from .overview import query_overview

    with connected(broker) as client:
        found = query_overview(client)
        if not output.is_table:
            output.record(found.record())
        elif is_once or not sys.stdout.isatty():
            print_once(found)
        else:
            watch(client, found, interval)


def print_once(found: "Overview") -> None:
    from rich.console import Console

    from .overview_view import render

    # In a pipe lines are not wrapped, so that a program can read them.
    width = None if sys.stdout.isatty() else 160
    Console(width=width, highlight=False).print(render(found))


class Keyboard:
    """Single keys of the terminal, while it is entered; without a terminal as input there are none."""

    def __enter__(self) -> Self:
        self._before: list[Any] | None = None
        if sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def is_q_pressed(self, within_s: float) -> bool:
        """Whether q is pressed before so much time is over; other keys do nothing."""
        until_s = time.monotonic() + within_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self._before is None:
                time.sleep(left_s)
            elif select.select([sys.stdin], [], [], left_s)[0]:
                pressed = os.read(sys.stdin.fileno(), 1)
                if not pressed:
                    # The terminal is gone.
                    self._before = None
                elif pressed in b"qQ":
                    return True
        return False


def watch(client: "Client", found: "Overview", interval: float) -> None:
    """Show the server until q or Ctrl-C. While it is unavailable, ask again at each interval."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from ..errors import PenstockError, Unavailable
    from .overview import query_overview
    from .overview_view import render

    console = Console(highlight=False)
    with Keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        trouble: PenstockError | None = None
        while True:
            rows = max(_ROWS_MIN, (console.height - _LINES_AROUND) // 2)
            note = Text(f"q or Ctrl-C ends; every {interval:g} s", "dim")
            if trouble is not None:
                note = Text(f"{trouble}; trying again", "bold red")
            live.update(Group(render(found, rows_max=rows), note), refresh=True)
            if keys.is_q_pressed(interval):
                return
            try:
                found, trouble = query_overview(client, found), None
            except Unavailable as error:
                trouble = error
