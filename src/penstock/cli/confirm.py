"""What cannot be taken back is asked at a terminal; a script has said what it wants."""

import sys
from collections.abc import Callable
from typing import Any

import click

from ..errors import Refused

yes_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--yes", "is_sure", is_flag=True, help="Do not ask; without a terminal nothing is asked."
)


def confirm(name: str, loss: str, server: str, *, is_sure: bool) -> None:
    """Have the user type the name of what is about to go. Refused if it is another one."""
    if is_sure or not sys.stdin.isatty():
        return
    click.echo(f"{loss}, on {server}; this cannot be taken back.", err=True)
    if click.prompt("Its name, to go on", err=True, default="", show_default=False) != name:
        raise Refused("that was another name: nothing has changed")
