"""`penstock commits`: names that commits were made under, what waits there, and a fresh start for one."""

from typing import TYPE_CHECKING

import click

from .output import Output, output_options
from .remote import BrokerOptions, connected, remote_options

if TYPE_CHECKING:
    from ..api.commits import CommitNameFacts

EPILOG = """\b
Examples:
  penstock commits list                 names, with the last sequence of each
  penstock commits show nightly         where its last commit is, and what is staged
  penstock commits reset nightly        another writer may use the name, from any sequence on
"""

_COLUMNS = ["name", "sequence", "writer", "age_s", "stagings", "messages", "bytes", "owner"]


@click.group(epilog=EPILOG)
def commits() -> None:
    """List names of commits, look at them and forget them."""


def row_of(one: "CommitNameFacts") -> dict[str, object]:
    return {
        "name": one.name,
        "sequence": one.sequence,
        "writer": one.writer,
        "age_s": None if one.age_ms is None else one.age_ms / 1000,
        "stagings": one.staging_count,
        "messages": one.staged_messages,
        "bytes": one.staged_bytes,
        "owner": one.owner,
    }


@commits.command("list", epilog="Example: penstock commits list --json")
@click.option("--after", default="", help="Only names behind this one.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@remote_options
@output_options
def list_names(*, after: str, limit: int, broker: BrokerOptions, output: Output) -> None:
    """Show names of commits, with the last sequence of each and what is staged."""
    from ..api.commits import ListCommitNames
    from ..api.json.forms import json_of

    with connected(broker) as client:
        found = client.execute(ListCommitNames(after, limit))
    rows = map(row_of, found) if output.is_table else map(json_of, found)
    output.rows(rows, _COLUMNS, empty="there are no named commits")


@commits.command(epilog="Example: penstock commits show nightly --json")
@click.argument("name")
@remote_options
@output_options
def show(name: str, *, broker: BrokerOptions, output: Output) -> None:
    """Show where the messages of the last commit are, and what is staged for the next ones."""
    from ..api.commits import DescribeCommitName
    from ..api.json.forms import json_of

    with connected(broker) as client:
        found = client.execute(DescribeCommitName(name))
    if not output.is_table:
        output.record(json_of(found))
        return
    offsets = [
        f"{one.topic}/{one.partition}/{one.offset}: {one.message_count}" for one in found.places
    ]
    staged = [
        f"{one.staging}: sequence {one.sequence}, {sum(each.messages for each in one.participants)}"
        f" messages of {one.writer} {one.attempt}".rstrip()
        for one in found.stagings or ()
    ]
    facts = {"complete": found.is_complete, "one_off": found.is_one_off, "holds": found.fingerprint}
    output.record({**row_of(found), **facts, "offsets": offsets, "staged": staged})


@commits.command(epilog="Example: penstock commits reset nightly")
@click.argument("name")
@remote_options
@output_options
def reset(name: str, *, broker: BrokerOptions, output: Output) -> None:
    """Forget a name: its stagings are dropped, and any writer may begin with any sequence.

    A writer that repeats a commit of before publishes it a second time.
    """
    from ..api.commits import ResetCommitName
    from ..api.json.forms import json_of

    with connected(broker) as client:
        was = client.execute(ResetCommitName(name))
    last = (
        "nothing was committed" if was.sequence is None else f"its last commit was {was.sequence}"
    )
    output.outcome(f"{name} is forgotten; {last}", json_of(was))
