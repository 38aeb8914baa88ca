"""`penstock delay`: messages that wait for their time."""

import time
from typing import TYPE_CHECKING

import click

from .arguments import partition_offset, span
from .output import Output, Row, one_line_of, output_options, say_more
from .remote import BrokerOptions, complete_topic, connected, remote_options

if TYPE_CHECKING:
    from msgspec import Struct

    from ..api.delays import DelayedId, DelayedMessage, DelayedPage, NextOccurrence
    from ..client import Client

EPILOG = """\b
Examples:
  penstock delay list orders                       what is to come, the next first
  penstock delay show orders 0/17                  one of them, also when it has come
  penstock delay move orders 0/17 --delay 3h       at another time
  penstock delay move orders --delay-key cart-7 --deliver-at 2026-01-31T12:00:00Z
  penstock delay cancel orders --delay-key cart-7  never
  penstock delay stats                             how many wait, by topic

penstock produce TOPIC VALUE --delay 2h sends one.
"""

_WHERE = click.argument("where", required=False, metavar="[PARTITION/OFFSET]")
_KEY = click.option("--delay-key", help="Its business key, instead of its place.")
_PAGE_ITEMS = 500
_COLUMNS = ["place", "deliver_at", "seconds_left", "state", "priority", "delay_key", "value"]


@click.group(epilog=EPILOG)
def delay() -> None:
    """List, move and cancel messages that wait for their time."""


@delay.command("list", epilog="Example: penstock delay list orders --limit 20")
@click.argument("topic", shell_complete=complete_topic)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@remote_options
@output_options
def list_delayed(topic: str, *, limit: int, broker: BrokerOptions, output: Output) -> None:
    """Show what is to come, the next first, also the next message of each schedule."""
    with connected(broker) as client:
        found = first_page(client, topic, limit + 1)
        faulty = client.topic(topic).faulty
    messages = found.messages[:limit]
    coming: list[DelayedMessage | NextOccurrence] = [*messages, *found.schedules]
    coming.sort(key=lambda one: one.due_ns)
    rows = [row_of(one, output) for one in coming]
    output.rows(rows, _COLUMNS, empty="nothing waits for its time")
    if len(found.messages) > limit:
        say_more(limit)
    damage = [one.damage for one in messages if one.damage is not None]
    if damage:
        click.echo(f"{len(damage)} cannot be read: {damage[0]}", err=True)
    for number, reason in faulty.items():
        click.echo(f"without those of {topic}/{number}, which is FAULTY: {reason}", err=True)


def first_page(client: "Client", topic: str, limit: int) -> "DelayedPage":
    """Returns the messages that come first, at most `limit`, and the next occurrences of all schedules."""
    from msgspec.structs import replace

    from ..api.delays import ListDelayed

    command = ListDelayed(topic, min(limit, _PAGE_ITEMS))
    page = client.execute(command)
    found = page.messages
    while page.cursor is not None and len(found) < limit:
        following = client.execute(replace(command, after=page.cursor))
        found += following.messages
        page = replace(page, cursor=following.cursor)
    return replace(page, messages=found[:limit])


def row_of(one: "DelayedMessage | NextOccurrence", output: Output) -> "Row | Struct":
    """Returns what is to come for a table, otherwise as over HTTP."""
    from ..api.delays import NextOccurrence
    from ..api.json.delays import delayed_out, next_out

    if isinstance(one, NextOccurrence):
        coming = next_out(one)
        row = {"place": f"schedule {one.key}", "deliver_at": coming.next_due, "state": "RECURRING"}
        return row if output.is_table else coming
    shape = delayed_out(one, time.time_ns())
    if not output.is_table:
        return shape
    return {
        "place": f"{one.partition}/{one.id}",
        "deliver_at": shape.deliver_at,
        "seconds_left": shape.time_remaining / 1000,
        "state": shape.state,
        "priority": shape.priority,
        "delay_key": None if one.delay_key is None else one_line_of(one.delay_key),
        "value": "(damaged)" if one.message is None else one_line_of(one.message.value),
    }


def asked(topic: str, where: str | None, delay_key: str | None) -> "tuple[str, DelayedId | bytes]":
    """Returns the topic and the delayed message that is meant. UsageError: none, or two of them."""
    from ..client.delays import which_of

    if (where is None) == (delay_key is None):
        raise click.UsageError("say which: PARTITION/OFFSET, or --delay-key")
    partition, offset = (None, None) if where is None else partition_offset(where)
    return topic, which_of(partition, offset, delay_key)


@delay.command(epilog="Example: penstock delay show orders 0/17")
@click.argument("topic", shell_complete=complete_topic)
@_WHERE
@_KEY
@remote_options
@output_options
def show(
    topic: str, where: str | None, *, delay_key: str | None, broker: BrokerOptions, output: Output
) -> None:
    """Show a delayed message, also if it is finished."""
    from ..api.delays import GetDelayed

    wanted = asked(topic, where, delay_key)
    with connected(broker) as client:
        found = client.execute(GetDelayed(*wanted))
    output.record(row_of(found, output))


@delay.command(epilog="Example: penstock delay move orders 0/17 --delay 3h")
@click.argument("topic", shell_complete=complete_topic)
@_WHERE
@_KEY
@click.option("--delay", "span", type=span, help='So long from now: "30s", "2h".')
@click.option("--deliver-at", help="At this time: 2026-01-31T12:00:00Z.")
@remote_options
@output_options
def move(
    topic: str,
    where: str | None,
    *,
    delay_key: str | None,
    span: str | None,
    deliver_at: str | None,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Deliver a message at another time."""
    from ..api.delays import RescheduleDelayed
    from ..api.units import time_text
    from ..client.delays import due_ns

    wanted = asked(topic, where, delay_key)
    if (span is None) == (deliver_at is None):
        raise click.UsageError("say when: --delay or --deliver-at")
    due = due_ns(span, deliver_at, time.time_ns())
    assert due is not None, "one of them is given"
    with connected(broker) as client:
        moved = client.execute(RescheduleDelayed(*wanted, due))
    output.outcome(f"comes at {time_text(moved.due_ns)}", row_of(moved, output))


@delay.command(epilog="Example: penstock delay cancel orders --delay-key cart-7")
@click.argument("topic", shell_complete=complete_topic)
@_WHERE
@_KEY
@remote_options
@output_options
def cancel(
    topic: str, where: str | None, *, delay_key: str | None, broker: BrokerOptions, output: Output
) -> None:
    """Never deliver a message. Exit code 3 if it came already."""
    from ..api.delays import CancelDelayed

    wanted = asked(topic, where, delay_key)
    with connected(broker) as client:
        gone = client.execute(CancelDelayed(*wanted))
    output.outcome(f"{gone.partition}/{gone.id} is cancelled", row_of(gone, output))


@delay.command(epilog="Example: penstock delay stats --json")
@remote_options
@output_options
def stats(*, broker: BrokerOptions, output: Output) -> None:
    """Show how many messages wait, and what became of others, by topic."""
    with connected(broker) as client:
        found = client.delay_stats()
    rows = [{"topic": name, **figures} for name, figures in found.by_topic.items()]
    columns = ["topic", "pending", "delivered", "cancelled", "expired", "lost"]
    output.rows(rows, columns, empty="nothing was ever delayed")
