"""`penstock topic`: the topics of a server."""

import json
from pathlib import Path
from typing import Any

import click

from ..errors import AlreadyExists
from .confirm import confirm, yes_option
from .exits import Exit
from .lazy_group import PlainGroup
from .output import Output, output_options
from .remote import BrokerOptions, complete_topic, connected, remote_options

EPILOG = """\b
Examples:
  penstock topic create orders --partitions 6        make one
  penstock topic create jobs --set max_retries=5     with settings of its own
  penstock topic create orders --if-missing          for scripts that run twice
  penstock topic list                                all of them, with sizes
  penstock topic show orders --json                  offsets and settings
  penstock topic set orders retention_hours=7d       change settings; the others stay
  penstock topic grow orders 12                      more partitions
  penstock topic compact orders                      free what retention lets go, now
  penstock topic delete orders                       with everything in it
  penstock topic adopt data/set-aside/orders.3       take back what a start set aside
"""


@click.group(cls=PlainGroup, epilog=EPILOG)
def topic() -> None:
    """Make, list, look at, change and delete topics of a server."""


@topic.command(epilog="Example: penstock topic create orders --partitions 6")
@click.argument("name")
@click.option("--partitions", type=int, help="How many; the server's default if not said.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting; repeatable."
)
@click.option("--if-missing", is_flag=True, help="Leave a topic that is there as it is.")
@remote_options
@output_options
def create(
    name: str,
    *,
    partitions: int | None,
    settings: tuple[str, ...],
    if_missing: bool,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Make a topic."""
    config = pairs_of(settings, "--set")
    if config.keys() & {"partitions", "exist_ok"}:
        raise click.UsageError("--set is for settings; see --partitions and --if-missing")
    from ..api.json.topics import CreatedOut

    with connected(broker) as client:
        is_new = True
        try:
            count = client.create_topic(name, partitions=partitions, **config).partitions
        except AlreadyExists:
            if not if_missing:
                raise
            count, is_new = client.topic(name).partitions, False
    output.outcome(f"{name}: {count} partitions", CreatedOut(name, count, is_new))


def pairs_of(written: tuple[str, ...], what: str) -> dict[str, Any]:
    """Returns KEY=VALUE pairs; a value that is JSON is parsed. UsageError: one is no pair."""
    found = {}
    for one in written:
        key, equals, value = one.partition("=")
        if not equals:
            raise click.UsageError(f"{what}: {one!r} is not KEY=VALUE")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


@topic.command("list", epilog="Example: penstock topic list --output yaml")
@remote_options
@output_options
def list_topics(*, broker: BrokerOptions, output: Output) -> None:
    """Show all topics."""
    from ..api.bounds import NAMES_MAX
    from ..api.json.topics import topic_out
    from ..api.topics import DescribeTopics, TopicDescription

    with connected(broker) as client:
        names, found = client.topics(), list[TopicDescription]()
        for start in range(0, len(names), NAMES_MAX):
            part = client.execute(DescribeTopics(names[start : start + NAMES_MAX]))
            found += part
    columns = ["name", "partitions", "total_messages", "total_size_bytes"]
    empty = "no topics yet; penstock topic create NAME makes one"
    output.rows(map(topic_out, found), columns, empty=empty)


@topic.command(epilog="Example: penstock topic show orders")
@click.argument("name", shell_complete=complete_topic)
@remote_options
@output_options
def show(name: str, *, broker: BrokerOptions, output: Output) -> None:
    """Show offsets and settings of a topic."""
    from ..api.json.topics import topic_out
    from ..api.topics import DescribeTopic

    with connected(broker) as client:
        found = topic_out(client.execute(DescribeTopic(name)))
    if not output.is_table:
        output.record(found)
        return
    output.rows(
        [
            {"partition": int(number), "earliest": ends.earliest, "latest": ends.latest}
            for number, ends in found.partition_offsets.items()
        ],
        ["partition", "earliest", "latest"],
    )
    for number, reason in found.faulty.items():
        click.echo(f"partition {number} is FAULTY: {reason}")
    for key, value in found.config.items():
        click.echo(f"{key}: {json.dumps(value)}")


@topic.command("set", epilog="Example: penstock topic set orders retention_hours=24 max_retries=5")
@click.argument("name", shell_complete=complete_topic)
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@remote_options
@output_options
def change(name: str, settings: tuple[str, ...], *, broker: BrokerOptions, output: Output) -> None:
    """Change settings of a topic; those that are not named stay."""
    from ..api.json.topics import topic_out
    from ..api.topics import ConfigureTopic

    wanted = pairs_of(settings, "KEY=VALUE")
    with connected(broker) as client:
        found = topic_out(client.execute(ConfigureTopic(name, wanted)))
    changed = {key: found.config.get(key) for key in wanted}
    output.record({"name": name, **changed} if output.is_table else found)


@topic.command(epilog="Example: penstock topic grow orders 12")
@click.argument("name", shell_complete=complete_topic)
@click.argument("total", type=int)
@remote_options
@output_options
def grow(name: str, total: int, *, broker: BrokerOptions, output: Output) -> None:
    """Add partitions, up to TOTAL. Keys may then go elsewhere than before."""
    from ..api.json.topics import grown_out

    with connected(broker) as client:
        before = client.add_partitions(name, total).old_partition_count
    said = f"{name}: {before} partitions before, {total} now"
    output.outcome(said, grown_out(name, before, total))


@topic.command(epilog="Example: penstock topic compact orders")
@click.argument("name", shell_complete=complete_topic)
@remote_options
@output_options
def compact(name: str, *, broker: BrokerOptions, output: Output) -> None:
    """Remove what retention lets go, now."""
    from ..api.json.topics import CompactOut

    with connected(broker) as client:
        done = client.compact_topic(name)
    freed = f"removed {done.segments_removed} files, freed {done.bytes_freed:,} bytes"
    output.outcome(f"{name}: {freed}", CompactOut(name, done.segments_removed, done.bytes_freed))


@topic.command(epilog="Example: penstock topic delete orders")
@click.argument("name", shell_complete=complete_topic)
@yes_option
@remote_options
@output_options
def delete(name: str, *, is_sure: bool, broker: BrokerOptions, output: Output) -> None:
    """Delete a topic with everything in it, dead letters included."""
    with connected(broker) as client:
        loss = f"topic {name} is deleted with its messages, delayed ones and dead letters"
        confirm(name, loss, client.url, is_sure=is_sure)
        client.delete_topic(name)
    output.outcome(f"{name} is deleted", {"name": name, "deleted": True})


@topic.command(
    epilog="""\b
Examples:
  penstock topic adopt data/set-aside/orders.3                    under the name that it had
  penstock topic adopt data/set-aside/orders.3 --name orders-old  under another one
  penstock topic adopt set-aside/orders.3 --data data --json
  penstock topic adopt data/topics/default/orders.3               as it is now, whatever meta says of it
"""
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="The data directory; PATH is relative to it then.",
)
@click.option(
    "--name", default="", help="The topic's name; the one in the directory's if not said."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting; repeatable."
)
@output_options
def adopt(
    path: Path, *, data: Path | None, name: str, settings: tuple[str, ...], output: Output
) -> None:
    """Take a topic that was set aside back into a stopped broker's data directory."""
    from .offline import adopt_topic

    found, faults = adopt_topic(data, path, name=name, settings=pairs_of(settings, "--set"))
    record = {"name": found.topic, "id": found.topic_id, "partitions": len(found.partitions)}
    faulty = [{"partition": one.number, "path": one.path, "reason": one.reason} for one in faults]
    how_many = f"{len(found.partitions)} partitions"
    output.outcome(
        f"{found.topic}: {how_many} of {found.target} are known again", {**record, "faulty": faulty}
    )
    for one in faults:
        click.echo(f"partition {one.number} is faulty: {one.path}: {one.reason}", err=True)
    if faults:
        raise click.exceptions.Exit(Exit.FOUND_PROBLEMS)
