"""`penstock standby` and `penstock promote`: look at the two nodes of a pair, and say which one leads."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .output import Output, output_options
from .serve import CONFIG, load_settings

if TYPE_CHECKING:
    from ..server.settings import Settings

SETTINGS = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Any setting of penstock config reference; may be given again.",
)


def operation(action: str, *, is_forced: bool = False, settings: "Settings") -> dict[str, Any]:
    """What the node of these settings answers, asked on its listener for peers. Unreachable, Refused."""
    from ..errors import Refused
    from ..server.standby.link import Operation
    from ..server.standby.operating import operate

    if not settings.cluster.is_on:
        raise Refused("these settings have no standby: cluster.listen is empty")
    asked = Operation(action, is_forced)
    found: dict[str, Any] = asyncio.run(operate(settings, settings.cluster.listen, asked))
    return found


@click.command(
    epilog="""\b
Examples:
  penstock promote --config /etc/penstock.yaml            on the machine that is to lead
  penstock promote --config /etc/penstock.yaml --force    although it may lack what was acknowledged

\b
A leader that is there hands over first, and nothing is lost. Without one the standby leads if it had everything; see
docs/replication.md before you use --force.
"""
)
@CONFIG
@SETTINGS
@click.option("--force", is_flag=True, help="Lead although acknowledged messages may be missing.")
@output_options
def promote(file: Path | None, settings: tuple[str, ...], *, force: bool, output: Output) -> None:
    """Have the node of this machine lead from now on."""
    found = load_settings(file, {"settings": settings})
    output.record(operation("promote", is_forced=force, settings=found))


@click.group(
    epilog="""\b
Examples:
  penstock standby status --config /etc/penstock.yaml
  penstock standby status --json                        for scripts: role, epoch, in_sync, lag
"""
)
def standby() -> None:
    """Look at a broker and its standby."""


@standby.command(epilog="Example: penstock standby status --config /etc/penstock.yaml --json")
@CONFIG
@SETTINGS
@output_options
def status(file: Path | None, settings: tuple[str, ...], *, output: Output) -> None:
    """The role of the node of this machine, and how far the standby is behind."""
    found = load_settings(file, {"settings": settings})
    output.record(operation("status", settings=found))
