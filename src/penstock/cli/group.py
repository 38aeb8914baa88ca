"""`penstock group`: groups of a server, how far they are, and moving them."""

import click

from .arguments import time_argument
from .confirm import confirm, yes_option
from .lazy_group import PlainGroup
from .output import Output, fields_of, output_options
from .remote import BrokerOptions, complete_group, complete_topic, connected, remote_options

EPILOG = """\b
Examples:
  penstock group list                                      all, with their topics and lag
  penstock group show billing                              state, members, what each one owns and holds
  penstock group lag billing                               how far behind, by partition
  penstock group held billing                              messages that members have in their hands
  penstock group reset billing --to earliest --dry-run     what would happen
  penstock group reset billing --to 2026-01-31T12:00:00Z   once more from that time on
  penstock group reset billing --to 1h --topic orders      once more the last hour of one topic
  penstock group reset billing --to 0 --topic orders --partition 2   one partition alone
  penstock group delete billing                            forget its progress
"""


@click.group(cls=PlainGroup, epilog=EPILOG)
def group() -> None:
    """Look at groups, move them and forget them."""


@group.command("list", epilog="Example: penstock group list --json")
@remote_options
@output_options
def list_groups(*, broker: BrokerOptions, output: Output) -> None:
    """Show all groups."""
    from ..api.groups import ListGroups
    from ..api.health import LagFigures, SeeLags

    with connected(broker) as client:
        groups, lags = client.execute(ListGroups()), client.execute(SeeLags())
    rows = [
        {"group": name, "topics": topics, "lag": lags.get(name, LagFigures()).lag}
        for name, topics in groups.items()
    ]
    empty = "no groups yet; the first poll of a group makes it"
    output.rows(rows, ["group", "topics", "lag"], empty=empty)


@group.command(epilog="Example: penstock group show billing")
@click.argument("name", shell_complete=complete_group)
@remote_options
@output_options
def show(name: str, *, broker: BrokerOptions, output: Output) -> None:
    """Show the state of a group and its members."""
    from ..api.groups import DescribeGroup
    from ..api.json.groups import group_out

    with connected(broker) as client:
        found = group_out(client.execute(DescribeGroup(name)))
    if not output.is_table:
        output.record(found)
        return
    output.record({key: one for key, one in fields_of(found).items() if key != "members"})
    columns = ["member_id", "client_id", "host", "last_poll", "in_flight", "assigned_partitions"]
    output.rows(found.members, columns, empty="no members at the moment")


@group.command(epilog="Example: penstock group lag billing --json")
@click.argument("name", shell_complete=complete_group)
@remote_options
@output_options
def lag(name: str, *, broker: BrokerOptions, output: Output) -> None:
    """Show how far a group is behind, by partition."""
    from ..api.groups import DescribeLag
    from ..api.json.groups import lag_out

    with connected(broker) as client:
        found = lag_out(name, client.execute(DescribeLag(name)))
    columns = ["topic", "partition", "floor", "end", "lag", "lag_seconds", "in_flight"]
    output.rows(found.partitions, columns, empty="nothing is finished or committed yet")
    for one in found.faulty:
        click.echo(f"{one.topic}/{one.partition} is FAULTY: {one.reason}", err=True)


@group.command(epilog="Example: penstock group held billing")
@click.argument("name", shell_complete=complete_group)
@remote_options
@output_options
def held(name: str, *, broker: BrokerOptions, output: Output) -> None:
    """Show the messages that members of a group have in their hands."""
    with connected(broker) as client:
        rows = client.in_flight(name)
    columns = ["topic", "partition", "offset", "consumer", "delivery_count", "deadline"]
    output.rows(rows, columns, empty="no consumer holds a message of this group")


@group.command(epilog="Example: penstock group reset billing --to earliest --dry-run")
@click.argument("name", shell_complete=complete_group)
@click.option(
    "--to", required=True, help="earliest, latest, an offset, a time, or 1h for an hour ago."
)
@click.option(
    "--topic",
    shell_complete=complete_topic,
    help="Only on this topic; on all of its topics if not said.",
)
@click.option(
    "--partition", "partitions", type=int, multiple=True, help="Only this one of the topic; repeat."
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only show what would happen.")
@click.option("--force", "is_forced", is_flag=True, help="Even while members hold messages.")
@remote_options
@output_options
def reset(
    name: str,
    *,
    to: str,
    topic: str | None,
    partitions: tuple[int, ...],
    is_dry_run: bool,
    is_forced: bool,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Start a group again from another place."""
    with connected(broker) as client:
        moves = client.reset(
            name,
            target_of(to),
            topic=topic,
            partitions=partitions or None,
            dry_run=is_dry_run,
            force=is_forced,
        )
    output.rows(moves, list(moves[0]) if moves else [])
    if output.is_table:
        click.echo("nothing was changed: a dry run" if is_dry_run else f"{name} was moved")


def target_of(to: str) -> str | int:
    """Returns an offset as a number, and all other targets as text for the server. UsageError: it is no target."""
    if to.isascii() and to.isdecimal():
        return int(to)
    return (
        to
        if to in {"earliest", "latest"}
        else time_argument("--to", to, "earliest, latest, an offset, ")
    )


@group.command(epilog="Example: penstock group delete billing")
@click.argument("name", shell_complete=complete_group)
@yes_option
@remote_options
@output_options
def delete(name: str, *, is_sure: bool, broker: BrokerOptions, output: Output) -> None:
    """Forget a group: its progress, leases and attempts."""
    with connected(broker) as client:
        loss = f"group {name} is forgotten with its progress and leases"
        confirm(name, loss, client.url, is_sure=is_sure)
        client.delete_group(name)
    output.outcome(f"{name} is forgotten", {"group": name, "deleted": True})
