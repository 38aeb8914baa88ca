"""`penstock consume`: messages of a server, read by position or taken as a member of a group."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import NotFound, PartitionFaulty, Unavailable
from .arguments import time_argument
from .message_format import Part, format_parts
from .output import Output, one_line_of, output_options
from .remote import BrokerOptions, complete_group, complete_topic, connected, remote_options

if TYPE_CHECKING:
    from ..api.json.messages import MessageOut, ReceivedOut
    from ..client import Client, Received
    from ..model import Message

EPILOG = """\b
Examples:
  penstock consume orders                                  all there is, and end
  penstock consume orders --follow                         and what comes, until Ctrl-C
  penstock consume orders --from latest --follow           only what comes
  penstock consume orders --group new --from latest        a group that is new begins there
  penstock consume orders --from-time 2026-01-31T12:00:00Z
  penstock consume orders --from-time 15m --json           of the last quarter of an hour
  penstock consume orders --partition 2 --from 1000 --count 10
  penstock consume orders --values > values.txt            nothing but the values, one a line
  penstock consume orders --last 10                        the ten newest, and end
  penstock consume orders --format '%p/%o %k: %s\\n'       as you like it
  penstock consume orders --group billing --count 10       take ten as a member of a group, and finish them

\b
Without --group nothing is finished and no consumer notices. With --group messages are finished when they have been
printed, not before. What is written into a pipe counts as printed, also if its reader leaves early: for some of
them say --count, not `| head`.

\b
In --format: %t topic, %p partition, %o offset, %k key, %s value, %K and %S their lengths (-1: null),
%T timestamp in ms, %h headers, %% a %; \\n, \\t, \\r, \\0, \\xNN. No line ends that it does not say.
"""

R = TypeVar("R")
POLL_MESSAGES = 500
LAST_MAX = 10_000  # They are in memory at once.
WAIT_S = 20
# For so long --follow waits for a broker that is away, as a consumer does.
PATIENCE_S = 300.0
PAUSE_S = 1.0


@click.command(epilog=EPILOG)
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--group",
    shell_complete=complete_group,
    help="Take them as a member of this group, and finish them.",
)
@click.option(
    "--from", "start", help="earliest (default), latest, or an offset; for a new group, too."
)
@click.option("--from-time", help="Only what came from this time on; 15m is 15 minutes ago.")
@click.option("--partition", type=int, help="Only this one.")
@click.option("--follow", "-f", "is_followed", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option("--count", "-n", type=click.IntRange(min=1), help="Stop after so many.")
@click.option("--last", type=click.IntRange(1, LAST_MAX), help="Only so many, the newest.")
@click.option("--values", "is_bare", is_flag=True, help="Only the values, as they are, one a line.")
@click.option(
    "--format", "-F", "layout", help="A line of your own, with %s for the value; see below."
)
@remote_options
@output_options
def consume(
    topic: str,
    *,
    group: str | None,
    is_followed: bool,
    count: int | None,
    last: int | None,
    is_bare: bool,
    layout: str | None,
    broker: BrokerOptions,
    output: Output,
    **where: Any,
) -> None:
    """Print the messages of TOPIC."""
    if last is not None and (group or is_followed or where["start"] or where["from_time"]):
        raise click.UsageError("--last is without --group, --follow, --from and --from-time")
    start = start_of(group, **where)
    parts = parts_of(topic, is_bare, layout, output)
    printer = MessagePrinter(topic, output, parts, count, is_followed=is_followed and group is None)
    with connected(broker) as client:
        if group is not None:
            take(client, topic, group, printer, start=start, is_followed=is_followed)
            return
        place = where["partition"]
        if last is not None:
            found = last_messages(client, topic, place, last)
        else:
            found = client.read(topic, start=start, partition=place, follow=is_followed)
        for partition, message in islice(found, printer.left):
            printer.show(partition, message)


def start_of(
    group: str | None, start: str | None, from_time: str | None, partition: int | None
) -> str | int:
    if group is not None and partition is not None:
        raise click.UsageError(
            "--partition is for reading without --group: a group reads all of them"
        )
    if start is not None and from_time is not None:
        raise click.UsageError("--from and --from-time: give one of them")
    if from_time is not None:
        return time_argument("--from-time", from_time)
    if start is None or start in {"earliest", "latest"}:
        return start or "earliest"
    if start.isascii() and start.isdecimal():
        return int(start)
    raise click.UsageError(f"--from: {start!r} is not earliest, latest or an offset")


def parts_of(topic: str, is_bare: bool, written: str | None, output: Output) -> list[Part] | None:
    """Returns the parts of --format or --values; None: as --output says."""
    if is_bare and written is not None:
        raise click.UsageError("--values and --format: give one of them")
    if not is_bare and written is None:
        return None
    if not output.is_table:
        own = "--values" if is_bare else "--format"
        raise click.UsageError(f"{own} and --output {output.form.value}: give one of them")
    return format_parts("%s\\n" if written is None else written, topic)


def last_messages(
    client: "Client", topic: str, partition: int | None, count: int
) -> Iterator[tuple[int, "Message"]]:
    """Yields the newest messages, over all partitions by their timestamps, then PartitionFaulty if one is faulty."""
    described = client.topic(topic)
    if partition is not None and partition not in range(described.partitions):
        raise NotFound("partition", f"{topic}/{partition}")
    numbers = range(described.partitions) if partition is None else [partition]
    faulty = [one for one in numbers if str(one) in described.faulty]
    found: list[tuple[int, Message]] = []
    for number in sorted({*numbers} - {*faulty}):
        ends, back = described.ends(number), count
        while True:
            start = max(ends.earliest, ends.latest - back)
            newest = deque(client.read(topic, start=start, partition=number), maxlen=count)
            if len(newest) == count or start == ends.earliest:
                break
            back *= 8  # Compaction has left holes.
        found.extend(newest)
    found.sort(key=lambda one: one[1].timestamp)
    yield from found[-count:]
    for number in faulty:
        described.ends(number)  # Raises.


class MessagePrinter:
    """Prints messages, and counts those that are left to print."""

    def __init__(
        self,
        topic: str,
        output: Output,
        parts: list[Part] | None,
        count: int | None,
        *,
        is_followed: bool = False,
    ) -> None:
        self.output, self.parts, self.is_followed = output, parts, is_followed
        self.left = sys.maxsize if count is None else min(count, sys.maxsize)
        self._shape_of = message_shapes(topic)

    def show(self, partition: int, message: "Message | Received") -> None:
        self.left -= 1
        if self.parts is not None:
            sys.stdout.buffer.write(b"".join([part(partition, message) for part in self.parts]))
        elif self.output.is_table:
            # Not click.echo: that is one system call a line.
            sys.stdout.write(f"{partition}/{message.offset}\t{one_line_of(message.value)}\n")
        else:
            self.output.item(self._shape_of(partition, message))
        if self.is_followed:
            sys.stdout.flush()


def message_shapes(topic: str) -> "Callable[[int, Message | Received], MessageOut | ReceivedOut]":
    """Returns what makes the shape of a message of a topic; an import of its own would cost each more than the rest."""
    from ..api.json.messages import message_out, received_out
    from ..model import Message

    def shape_of(partition: int, message: "Message | Received") -> "MessageOut | ReceivedOut":
        if isinstance(message, Message):
            return message_out(topic, partition, message)
        return received_out(message, message.last_error)

    return shape_of


def take(
    client: "Client",
    topic: str,
    group: str,
    printer: MessagePrinter,
    *,
    start: str | int,
    is_followed: bool,
) -> None:
    """Poll as a member of the group until there are no more messages, and ack those that are printed.

    A group that is new begins at `start`; one that is there goes on where it was.
    """
    while printer.left:
        limit = min(printer.left, POLL_MESSAGES)
        timeout, patience_s = (WAIT_S, PATIENCE_S) if is_followed else (0, 0.0)
        poll = partial(client.poll, topic, group, limit=limit, timeout=timeout, start=start)
        found = patiently(poll, patience_s)
        for one in found:
            printer.show(one.partition, one)
        sys.stdout.flush()  # Before they are finished: a closed pipe must not cost a message.
        patiently(partial(client.ack, found), patience_s)
        if not found and not is_followed:
            return


def patiently(call: Callable[[], R], patience_s: float) -> R:
    """What a call returns. For so long it is made again while the broker is away."""
    until_s = time.monotonic() + patience_s
    while True:
        try:
            return call()
        except PartitionFaulty:
            raise
        except Unavailable:
            if time.monotonic() >= until_s:
                raise
        time.sleep(PAUSE_S)
