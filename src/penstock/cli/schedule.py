"""`penstock schedule`: messages that come again and again."""

from typing import TYPE_CHECKING, Any

import click

from .arguments import header_pairs, span
from .confirm import confirm, yes_option
from .output import Output, one_line_of, output_options
from .produce import PRIORITIES
from .remote import BrokerOptions, complete_topic, connected, remote_options

if TYPE_CHECKING:
    from ..api.schedules import ScheduleDescription

EPILOG = """\b
Examples:
  penstock schedule create jobs nightly '{"task": "report"}' --cron "0 3 * * *" --timezone Europe/Berlin
  penstock schedule create jobs poll check --every 15m --missed skip
  penstock schedule list jobs                  all of a topic, and when they come next
  penstock schedule show jobs nightly --json   one of them
  penstock schedule pause jobs nightly         nothing comes, and nothing is made up for
  penstock schedule resume jobs nightly        from now on
  penstock schedule run jobs nightly           once more, now
  penstock schedule delete jobs nightly        what it published stays

\b
A cron expression has five fields: minute, hour, day of month, month, day of week. Each is *, a number, a
range (1-5), a list (1,15) or a step (*/10); months and days may be named (mon-fri). Or @hourly, @daily,
@weekly, @monthly, @yearly.
"""

_TOPIC = click.argument("topic", shell_complete=complete_topic)
_KEY = click.argument("key")
_COLUMNS = ["key", "when", "next_due", "last_due", "missed", "paused", "value"]


@click.group(epilog=EPILOG)
def schedule() -> None:
    """Have messages come again and again."""


def row_of(one: "ScheduleDescription", output: Output) -> dict[str, object]:
    """Returns a schedule for a table, otherwise as over HTTP."""
    if not output.is_table:
        from ..api.json.forms import json_of

        return json_of(one)
    return {
        "key": one.key,
        "when": f"{one.cron} {one.timezone}"
        if one.cron
        else f"every {_span_text(one.every_ms or 0)}",
        "next_due": one.problem or one.next_due,
        "last_due": one.last_due,
        "missed": one.missed.value,
        "paused": one.is_paused,
        "value": one_line_of(one.value),
    }


def _span_text(milliseconds: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


@schedule.command(
    epilog='Example: penstock schedule create jobs weekly report --cron "0 3 * * MON"'
)
@_TOPIC
@_KEY
@click.argument("value")
@click.option("--cron", help='Minute, hour, day of month, month, day of week: "0 9 * * mon-fri".')
@click.option("--every", type=span, help='Each time so long is over: "30s", "15m", "1d".')
@click.option("--timezone", help="Of the cron expression, such as Europe/Berlin; UTC if not said.")
@click.option(
    "--missed",
    type=click.Choice(["latest", "all", "skip"]),
    default="latest",
    show_default=True,
    help="What fell due while the broker was down: only the latest of it, all, or nothing.",
)
@click.option("--paused", is_flag=True, help="Nothing comes before it is resumed.")
@click.option("--message-key", help="Key of the messages.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; repeatable."
)
@click.option("--partition", type=int, help="Where they go; otherwise the keys decide.")
@click.option("--priority", type=click.Choice(PRIORITIES), help="How urgent they are.")
@click.option("--ttl", type=span, help='Not handed out so long after it was due: "30s", "2h".')
@click.option("--if-missing", is_flag=True, help="Leave a schedule that is there as it is.")
@remote_options
@output_options
def create(
    topic: str,
    key: str,
    value: str,
    *,
    if_missing: bool,
    broker: BrokerOptions,
    output: Output,
    **given: Any,
) -> None:
    """Publish VALUE to TOPIC again and again, under a KEY."""
    if (given["cron"] is None) == (given["every"] is None):
        both = "" if given["cron"] is None else ", not both"
        raise click.UsageError(f"say when: --cron or --every{both}")
    given["headers"] = header_pairs(given["headers"])
    options = {name: one for name, one in given.items() if one not in (None, [])}
    with connected(broker) as client:
        made = client.create_schedule(topic, key, value, exist_ok=if_missing, **options)
    due = "is paused" if made.next_due is None else f"comes at {made.next_due}"
    output.outcome(f"{made.key} {due}", row_of(made, output))


@schedule.command("list", epilog="Example: penstock schedule list jobs")
@_TOPIC
@remote_options
@output_options
def list_schedules(topic: str, *, broker: BrokerOptions, output: Output) -> None:
    """Show the schedules of a topic, by key."""
    with connected(broker) as client:
        found = client.schedules(topic)
    empty = f"{topic} has no schedules; penstock schedule create makes one"
    output.rows([row_of(one, output) for one in found], _COLUMNS, empty=empty)


@schedule.command(epilog="Example: penstock schedule show jobs nightly --json")
@_TOPIC
@_KEY
@remote_options
@output_options
def show(topic: str, key: str, *, broker: BrokerOptions, output: Output) -> None:
    """Show a schedule, and when it comes next."""
    with connected(broker) as client:
        found = client.schedule(topic, key)
    output.record(row_of(found, output))


def _set_paused(
    topic: str, key: str, *, is_paused: bool, broker: BrokerOptions, output: Output
) -> None:
    with connected(broker) as client:
        found = client.change_schedule(topic, key, paused=is_paused)
    said = "is paused" if is_paused else f"comes at {found.next_due}"
    output.outcome(f"{found.key} {said}", row_of(found, output))


@schedule.command(epilog="Example: penstock schedule pause jobs nightly")
@_TOPIC
@_KEY
@remote_options
@output_options
def pause(topic: str, key: str, *, broker: BrokerOptions, output: Output) -> None:
    """Let nothing come of a schedule until it is resumed. What falls due meanwhile is not made up for."""
    _set_paused(topic, key, is_paused=True, broker=broker, output=output)


@schedule.command(epilog="Example: penstock schedule resume jobs nightly")
@_TOPIC
@_KEY
@remote_options
@output_options
def resume(topic: str, key: str, *, broker: BrokerOptions, output: Output) -> None:
    """Let a paused schedule go on, from now."""
    _set_paused(topic, key, is_paused=False, broker=broker, output=output)


@schedule.command(epilog="Example: penstock schedule run jobs nightly")
@_TOPIC
@_KEY
@remote_options
@output_options
def run(topic: str, key: str, *, broker: BrokerOptions, output: Output) -> None:
    """Publish the message of a schedule now. Its times stay as they are."""
    with connected(broker) as client:
        stored = client.run_schedule(topic, key)
    place = {"partition": stored.partition, "offset": stored.offset}
    output.outcome(
        f"stored at {stored.partition}/{stored.offset}", {"topic": topic, "key": key, **place}
    )


@schedule.command(epilog="Example: penstock schedule delete jobs nightly --yes")
@_TOPIC
@_KEY
@yes_option
@remote_options
@output_options
def delete(topic: str, key: str, *, is_sure: bool, broker: BrokerOptions, output: Output) -> None:
    """Delete a schedule. What it published stays."""
    with connected(broker) as client:
        client.schedule(topic, key)
        loss = f"schedule {key} of {topic} goes"
        confirm(key, loss, client.url, is_sure=is_sure)
        client.delete_schedule(topic, key)
    output.outcome(f"{key} is deleted", {"topic": topic, "key": key, "deleted": True})
