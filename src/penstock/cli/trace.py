"""`penstock trace`: where a message is, and everything that happened to it."""

from typing import TYPE_CHECKING, Any

import click

from .arguments import header_pairs, partition_offset, time_argument
from .output import Output, Row, fields_of, one_line, one_line_of, output_options
from .remote import BrokerOptions, complete_group, complete_topic, connected, remote_options

if TYPE_CHECKING:
    from msgspec import Struct

    from ..api.journeys import Journey, JourneyRow, LaneLatency, Span

EPILOG = """\b
Examples:
  penstock trace message orders 0/17         the story of a message, drawn as a time line
  penstock trace show 9f1c...                the same, by its trace id
  penstock trace list                        the latest messages, and what came of them
  penstock trace search orders --key cart-7  the messages of a key
  penstock trace search orders --status failed --since 1h
  penstock trace latency                     how long messages take, by topic, group and lane
"""

_ROW_COLUMNS = ["trace_id", "topic", "place", "start", "duration_ms", "status", "span_count"]
_LATENCY_COLUMNS = [
    "topic",
    "group",
    "lane",
    "delivered",
    "delivery_p50_ms",
    "delivery_p95_ms",
    "delivery_p99_ms",
    "acked",
    "ack_p50_ms",
    "ack_p95_ms",
    "ack_p99_ms",
    "attempts_p99",
]
_STATUSES = ("in_progress", "completed", "failed", "retrying", "delayed", "expired")
_MARKS = {
    "publish": "*",
    "delay": "~",
    "consume.acked": "+",
    "consume.committed": "+",
    "archive": "+",
    "transaction": "*",
    "consume.nacked": "!",
    "consume.rejected": "!",
    "visibility.expired": "!",
    "dlq": "x",
    "ttl": "x",
}


@click.group(epilog=EPILOG)
def trace() -> None:
    """Show where a message is, and everything that happened to it."""


@trace.command(epilog="Example: penstock trace message orders 0/17")
@click.argument("topic", shell_complete=complete_topic)
@click.argument("where", metavar="PARTITION/OFFSET")
@remote_options
@output_options
def message(topic: str, where: str, *, broker: BrokerOptions, output: Output) -> None:
    """Show the journey of a message, by its place."""
    place = partition_offset(where)
    with connected(broker) as client:
        found = client.journey(topic, *place)
    show_journey(found, output)


@trace.command(epilog="Example: penstock trace show 9f1c5d0e2b7a4c6d8e0f1a2b3c4d5e6f")
@click.argument("trace_id")
@click.option(
    "--topic",
    shell_complete=complete_topic,
    help="Search for a trace id that a message came with in this topic only.",
)
@remote_options
@output_options
def show(trace_id: str, *, topic: str | None, broker: BrokerOptions, output: Output) -> None:
    """Show the journey of a trace id: a message's own, or the one that it came with (traceparent)."""
    with connected(broker) as client:
        found = client.trace(trace_id.lower(), topic=topic)
    show_journey(found, output)


def show_journey(journey: "Journey", output: Output) -> None:
    if not output.is_table:
        from ..api.json.journeys import trace_out

        output.record(trace_out(journey))
        return
    for line in drawn(journey):
        click.echo(line)


def drawn(journey: "Journey") -> list[str]:
    """A journey as a time line."""
    from ..api.units import time_text

    delayed = f", delay id {journey.delay_id}" if journey.delay_id >= 0 else ""
    place = "not fired yet" if journey.offset < 0 else str(journey.offset)
    lines = [
        f"trace   {journey.trace_id}",
        f"message {journey.topic} {journey.partition}/{place}{delayed}, key {one_line_of(journey.key)}",
        f"status  {journey.status.value}",
    ]
    if journey.spans:
        lines += [f"start   {time_text(journey.start_ns)}", ""]
    home = (journey.topic, journey.offset)
    offsets = [_since(one.at_ns - journey.start_ns) for one in journey.spans]
    width = max(map(len, offsets), default=0)
    events = max((len(one.event_type.value) for one in journey.spans), default=0)
    for span, at in zip(journey.spans, offsets, strict=True):
        event = span.event_type.value
        line = f"{at.rjust(width)}  {_mark(event)}  {event.ljust(events)}  {_details(span, home)}"
        lines.append(line.rstrip())
    if journey.groups:
        lines.append("")
    for one in journey.groups:
        attempts = f", {one.attempts} attempts" if one.attempts != 1 else ", 1 attempt"
        by = f", last by {one_line(one.consumer)}" if one.consumer else ""
        lines.append(f"group {one.group}: {one.status.value}{attempts}{by}")
    lines += [f"not told: {one_line(gap)}" for gap in journey.gaps]
    return lines


def _mark(event: str) -> str:
    family = event.partition(".")[0]
    return _MARKS.get(event) or _MARKS.get(family) or "|"


def _since(elapsed_ns: int) -> str:
    if elapsed_ns < 1_000_000_000:
        return f"+{elapsed_ns / 1e6:.1f} ms"
    seconds = elapsed_ns / 1e9
    if seconds < 120:
        return f"+{seconds:.2f} s"
    return f"+{seconds / 60:.1f} min"


def _details(span: "Span", home: tuple[str, int]) -> str:
    parts = []
    is_delay = span.event_type.value.startswith("delay.")
    if span.topic != home[0] or (span.offset != home[1] and not is_delay):
        parts.append(f"[{span.topic} {span.partition}/{span.offset}]")
    if span.group:
        parts.append(span.group)
    if span.consumer:
        parts.append(f"by {span.consumer}")
    parts += [f"{name}={value}" for name, value in span.attributes.items()]
    if span.duration_ns and span.parent_span_id:
        parts.append(f"after {_since(span.duration_ns)[1:]}")
    if span.error:
        parts.append(f'"{span.error}"')
    return one_line("  ".join(parts))


def show_rows(found: "list[JourneyRow]", output: Output, *, empty: str) -> None:
    from ..api.json.journeys import row_out

    rows: list[Row | Struct] = [row_out(one) for one in found]
    if output.is_table:
        places = [f"{one.partition}/{one.offset}" for one in found]
        rows = [{**fields_of(row), "place": place} for row, place in zip(rows, places, strict=True)]
    output.rows(rows, _ROW_COLUMNS, empty=empty)


@trace.command("list", epilog="Example: penstock trace list --topic orders --limit 5")
@click.option("--topic", shell_complete=complete_topic, help="Of this topic only.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True)
@remote_options
@output_options
def list_traces(*, topic: str | None, limit: int, broker: BrokerOptions, output: Output) -> None:
    """Show the messages that were published last, and what came of them."""
    with connected(broker) as client:
        found = client.journeys(topic, limit=limit)
    show_rows(found, output, empty="no messages")


@trace.command(epilog="Example: penstock trace search orders --key cart-7")
@click.argument("topic", required=False)
@click.option("--key", help="Messages with this key.")
@click.option("--header", metavar="NAME=VALUE", help="Messages with this header.")
@click.option("--group", shell_complete=complete_group, help="Messages that this group has had.")
@click.option("--status", type=click.Choice(_STATUSES), help="What came of them.")
@click.option("--since", help="Published since then: 2026-01-31T12:00:00Z, or 15m ago.")
@click.option("--until", help="Published before then.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@remote_options
@output_options
def search(topic: str | None, *, broker: BrokerOptions, output: Output, **asked: Any) -> None:
    """Search for journeys: by key, header, group, status and time."""
    from msgspec.structs import replace

    found: list[JourneyRow] = []
    command, limit = _search_of(topic, asked), int(asked["limit"])
    with connected(broker) as client:
        while len(found) < limit:
            page = client.search_journeys(command)
            found += page.rows
            if page.cursor is None:
                break
            command = replace(command, cursor=page.cursor)
    show_rows(found[:limit], output, empty="no such message")


def _search_of(topic: str | None, asked: dict[str, Any]) -> Any:
    from ..api.journeys import JourneyStatus, SearchJourneys
    from ..api.units import time_ns

    times: dict[str, Any] = {}
    for name, option in (("start_ns", "since"), ("end_ns", "until")):
        if asked[option] is not None:
            times[name] = time_ns(time_argument(f"--{option}", asked[option]), option)
    header = None
    if asked["header"] is not None:
        ((name, value),) = header_pairs((asked["header"],))
        header = (name, value.encode())
    return SearchJourneys(
        topic=topic,
        key=None if asked["key"] is None else asked["key"].encode(),
        header=header,
        group=asked["group"],
        status=None if asked["status"] is None else JourneyStatus(asked["status"]),
        limit=min(asked["limit"], 1000),
        **times,
    )


@trace.command(epilog="Example: penstock trace latency --json")
@click.option("--topic", shell_complete=complete_topic, help="Of this topic only.")
@remote_options
@output_options
def latency(*, topic: str | None, broker: BrokerOptions, output: Output) -> None:
    """Show how long messages took from publish to first delivery and to ack, since the broker started."""
    with connected(broker) as client:
        stats = client.journey_stats()
    found = [one for one in stats.latency if topic in (None, one.topic)]
    rows = map(_latency_row, found) if output.is_table else found
    output.rows(rows, _LATENCY_COLUMNS, empty="nothing was delivered since the broker started")


def _latency_row(one: "LaneLatency") -> dict[str, Any]:
    return {
        "topic": one.topic,
        "group": one.group,
        "lane": one.lane,
        "delivered": one.first_delivery.count,
        "delivery_p50_ms": one.first_delivery.p50 * 1000,
        "delivery_p95_ms": one.first_delivery.p95 * 1000,
        "delivery_p99_ms": one.first_delivery.p99 * 1000,
        "acked": one.acked.count,
        "ack_p50_ms": one.acked.p50 * 1000,
        "ack_p95_ms": one.acked.p95 * 1000,
        "ack_p99_ms": one.acked.p99 * 1000,
        "attempts_p99": one.attempts.p99,
    }
