"""`penstock delay`: messages that wait for their time."""

from typing import TYPE_CHECKING, Any

import click

from .arguments import partition_offset, span
from .output import Output, one_line_of, output_options, text_of
from .remote import BrokerOptions, complete_topic, connected, remote_options

if TYPE_CHECKING:
    from ..api.schedules import ScheduleDescription
    from ..client.delays import Delayed

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
        found = client.delayed(topic, limit=limit)
        schedules = client.schedules(topic)
    show_all(found, schedules, output)


def show_all(
    found: "list[Delayed]", schedules: "list[ScheduleDescription]", output: Output
) -> None:
    """Print delayed messages and the next of each schedule, together in the order in which they come."""
    rows = [row_of(one, output) for one in found]
    rows += [next_row_of(one, output) for one in schedules if one.next_due is not None]
    rows.sort(key=lambda row: str(row["deliver_at"]))
    output.rows(rows, _COLUMNS, empty="nothing waits for its time")
    damage = [one.damage for one in found if one.damage is not None]
    if damage:
        click.echo(f"{len(damage)} cannot be read: {damage[0]}", err=True)


def next_row_of(one: "ScheduleDescription", output: Output) -> dict[str, object]:
    message = one.recurrence.message
    row: dict[str, object] = {
        "place": f"schedule {one.key}",
        "deliver_at": one.next_due,
        "state": "RECURRING",
        "priority": message.priority,
    }
    if output.is_table:
        return {**row, "value": one_line_of(message.value)}
    del row["place"]
    place = {"topic": one.topic, "partition": one.partition, "schedule": one.key}
    return {**place, **row, "key": text_of(message.key), "value": text_of(message.value)}


def row_of(one: "Delayed", output: Output) -> dict[str, object]:
    if output.is_table:
        return {
            "place": f"{one.partition}/{one.offset}",
            "deliver_at": one.deliver_at,
            "seconds_left": one.time_remaining / 1000,
            "state": one.state,
            "priority": one.priority,
            "delay_key": None if one.delay_key is None else one_line_of(one.delay_key),
            "value": one_line_of(one.value) if one.damage is None else "(damaged)",
        }
    return {
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "deliver_at": one.deliver_at,
        "time_remaining_ms": one.time_remaining,
        "state": one.state,
        "priority": one.priority,
        "delay_key": text_of(one.delay_key),
        "key": text_of(one.key),
        "value": text_of(one.value),
        "damage": one.damage,
    }


def asked(where: str | None, delay_key: str | None) -> dict[str, Any]:
    """Returns the keywords by which the client knows a delayed message. UsageError: none, or two of them."""
    if (where is None) == (delay_key is None):
        raise click.UsageError("say which: PARTITION/OFFSET, or --delay-key")
    if where is None:
        return {"delay_key": delay_key}
    partition, offset = partition_offset(where)
    return {"partition": partition, "offset": offset}


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
    wanted = asked(where, delay_key)
    with connected(broker) as client:
        found = client.delayed_get(topic, **wanted)
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
    wanted = asked(where, delay_key)
    if (span is None) == (deliver_at is None):
        raise click.UsageError("say when: --delay or --deliver-at")
    with connected(broker) as client:
        moved = client.reschedule(topic, **wanted, delay=span, deliver_at=deliver_at)
    output.outcome(f"comes at {moved.deliver_at}", row_of(moved, output))


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
    wanted = asked(where, delay_key)
    with connected(broker) as client:
        gone = client.cancel_delayed(topic, **wanted)
    output.outcome(f"{gone.partition}/{gone.offset} is cancelled", row_of(gone, output))


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
