"""`penstock topic`: the topics of a server."""

import json

import click

from .remote import JSON, SERVER, connected

EPILOG = """\b
Examples:
  penstock topic create orders --partitions 6        make one
  penstock topic create jobs --set max_retries=5     with settings of its own
  penstock topic list                                all of them, with sizes
  penstock topic show orders --json                  offsets and settings
  penstock topic delete orders                       with everything in it
"""


@click.group(epilog=EPILOG)
def topic() -> None:
    """Make, list, look at and delete topics of a server."""


@topic.command(epilog="Example: penstock topic create orders --partitions 6")
@click.argument("name")
@click.option("--partitions", type=int, help="How many; the server's default if not said.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting; repeatable."
)
@SERVER
def create(name: str, *, partitions: int | None, settings: tuple[str, ...], server: str) -> None:
    """Make a topic."""
    with connected(server) as client:
        made = client.create_topic(name, partitions=partitions, config=dict(map(_pair, settings)))
    click.echo(f"{made.name}: {made.partitions} partitions")


def _pair(written: str) -> tuple[str, object]:
    key, equals, value = written.partition("=")
    if not equals:
        raise click.UsageError(f"--set: {written!r} is not KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


@topic.command("list", epilog="Example: penstock topic list --json")
@SERVER
@JSON
def list_topics(*, server: str, is_json: bool) -> None:
    """Show all topics."""
    from msgspec.json import encode

    with connected(server) as client:
        for one in client.describe_topics():
            if is_json:
                click.echo(encode(one))
            else:
                sizes = f"{one.total_messages:>14,} messages {one.total_size_bytes:>16,} bytes"
                click.echo(f"{one.name:30} {one.partitions:>4} partitions {sizes}")


@topic.command(epilog="Example: penstock topic show orders")
@click.argument("name")
@SERVER
@JSON
def show(name: str, *, server: str, is_json: bool) -> None:
    """Show offsets and settings of a topic."""
    from msgspec.json import encode

    with connected(server) as client:
        found = client.topic(name)
    if is_json:
        click.echo(encode(found))
        return
    for number, ends in found.partition_offsets.items():
        click.echo(f"partition {number}: {ends.earliest} to {ends.latest}")
    for key, value in found.config.items():
        click.echo(f"{key}: {json.dumps(value)}")


@topic.command(epilog="Example: penstock topic delete orders")
@click.argument("name")
@SERVER
def delete(name: str, *, server: str) -> None:
    """Delete a topic with everything in it, dead letters included."""
    with connected(server) as client:
        client.delete_topic(name)
    click.echo(f"{name} is deleted")
