"""`penstock produce` and `penstock consume`: messages to a server, and from it."""

import sys
from typing import TYPE_CHECKING

import click

from .queue import contents, pairs, printed, text_of
from .remote import JSON, SERVER, connected

if TYPE_CHECKING:
    from ..client import Received
    from ..model import Message

PRODUCE = """\b
Examples:
  penstock produce orders lamp desk            two messages
  cat lines.txt | penstock produce orders -    one message for each line
"""
CONSUME = """\b
Examples:
  penstock consume orders                                  all there is, and end
  penstock consume orders --follow                         and what comes, until Ctrl-C
  penstock consume orders --from-time 2026-01-31T12:00:00Z
  penstock consume orders --group billing --count 10       take ten as a member of a group, and finish them
"""


@click.command(epilog=PRODUCE)
@click.argument("topic")
@click.argument("values", nargs=-1, required=True)
@click.option("--key", help="Key of every message.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; repeatable."
)
@SERVER
def produce(
    topic: str, values: tuple[str, ...], *, key: str | None, headers: tuple[str, ...], server: str
) -> None:
    """Publish VALUES to TOPIC; `-` stands for the lines of the standard input."""
    given = pairs(headers)
    with connected(server) as client, client.producer(topic) as producer:
        for value in contents(values):
            producer.send(value, key, headers=given)
    click.echo(f"stored {producer.stored}")


@click.command(epilog=CONSUME)
@click.argument("topic")
@click.option("--group", help="Take them as a member of this group, and finish them.")
@click.option("--from-time", help="Only what came from this time on.")
@click.option("--follow", "is_followed", is_flag=True, help="Wait for more.")
@click.option("--count", type=int, default=0, help="Stop after so many.")
@SERVER
@JSON
def consume(
    topic: str,
    *,
    group: str | None,
    from_time: str | None,
    is_followed: bool,
    count: int,
    server: str,
    is_json: bool,
) -> None:
    """Print the messages of TOPIC."""
    if group is not None and from_time is not None:
        raise click.UsageError("--from-time is for reading without --group")
    shown = 0
    with connected(server) as client:
        if group is None:
            for partition, message in client.read(
                topic, start=from_time or "earliest", is_followed=is_followed
            ):
                show(partition, message, is_json=is_json)
                shown += 1
                if shown == count:
                    return
            return
        while not count or shown < count:
            limit = min(count - shown, 500) if count else 500
            messages = client.poll(topic, group, limit=limit, timeout=20 if is_followed else 0)
            for one in messages:
                show(one.partition, one, is_json=is_json)
            sys.stdout.flush()  # Before they are finished: a closed pipe must not cost a message.
            client.ack(messages)
            shown += len(messages)
            if not messages and not is_followed:
                return


def show(partition: int, message: "Message | Received", *, is_json: bool) -> None:
    if not is_json:
        click.echo(f"{partition}/{message.offset}\t{printed(message.value)}")
        return
    import json

    line = {"partition": partition, "offset": message.offset, "key": text_of(message.key)}
    headers = [[name, text_of(value)] for name, value in message.headers]
    click.echo(json.dumps({**line, "value": text_of(message.value), "headers": headers}))
