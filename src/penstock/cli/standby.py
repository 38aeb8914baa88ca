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


def operation(
    action: str, *, is_forced: bool = False, is_alone: bool = False, settings: "Settings"
) -> dict[str, Any]:
    """What the node of these settings answers, asked on its listener for peers. Unreachable, Refused."""
    from ..errors import Refused
    from ..server.standby.link import Operation
    from ..server.standby.operator_requests import operate

    if not settings.cluster.is_on:
        raise Refused("these settings have no standby: cluster.listen is empty")
    asked = Operation(action, is_forced, is_alone)
    found: dict[str, Any] = asyncio.run(operate(settings, settings.cluster.listen, asked))
    return found


def _print(report: dict[str, Any], output: Output) -> None:
    """Print what a node says of itself. As text it has a line for each standby, and epochs as the log writes them."""
    if not output.is_table:
        output.record(report)
        return
    from ..api.units import time_text
    from .overview import standby_line
    from .overview_view import size, standby_text

    shown: dict[str, object] = {}
    for name, value in report.items():
        if name in {"epoch", "forced_epoch"}:
            shown[name] = str(value)
        elif name == "set_aside_files":
            shown |= {f"set aside {number}": file for number, file in enumerate(value, 1)}
        elif name == "heard_ns":
            shown["heard"] = time_text(value) if value else None
        elif name == "standbys" and value:
            for one in value:
                sent = f"{size(one['sent_bytes'])} sent"
                shown[f"standby {one['node']}"] = f"{standby_text(standby_line(one))}, {sent}"
        else:
            shown[name] = value
    output.record(shown)


@click.command(
    epilog="""\b
Examples:
  penstock promote --config /etc/penstock.yaml            on the machine that is to lead
  penstock promote --config /etc/penstock.yaml --force    although it may lack what was acknowledged
  penstock promote --config /etc/penstock.yaml --alone    and go on without the other machine until it is back

\b
A leader that is there hands over first, and nothing is lost. Without one the standby leads if it had everything; see
docs/replication.md before you use --force.
"""
)
@CONFIG
@SETTINGS
@click.option("--force", is_flag=True, help="Lead although acknowledged messages may be missing.")
@click.option(
    "--alone",
    is_flag=True,
    help="Acknowledge without the others until enough of them are in sync; also on the node that leads.",
)
@output_options
def promote(
    file: Path | None, settings: tuple[str, ...], *, force: bool, alone: bool, output: Output
) -> None:
    """Have the node of this machine lead from now on."""
    found = load_settings(file, {"settings": settings})
    _print(operation("promote", is_forced=force, is_alone=alone, settings=found), output)


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
    _print(operation("status", settings=found), output)
