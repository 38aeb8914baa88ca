"""`penstock produce`: messages to a server, from words, lines, files and JSON lines."""

import sys
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any

import click

from ..errors import PenstockError
from .arguments import header_pairs, span
from .output import Output, output_options
from .remote import BrokerOptions, complete_topic, connected, remote_options

if TYPE_CHECKING:
    from ..api.json.publish import PublishedOut
    from ..client import Client, Outgoing, Published
    from ..client.synchronous.producer import Delivery

EPILOG = """\b
Examples:
  penstock produce orders lamp desk                    two messages
  penstock produce orders lamp -v                      and where it is: PARTITION/OFFSET
  penstock produce orders --file orders.txt            one message for each line
  tail -f app.log | penstock produce logs -            and of the standard input, as they come
  penstock produce photos --whole --file cat.jpg       the file as it is, in one message
  penstock produce orders renew --delay 2h --priority low
  penstock produce orders lamp --idempotency-key 17    sent again, it is not stored twice
  penstock produce orders --jsonl --file orders.jsonl  each line an object: value, key, headers, priority, ttl, delay,
                                                       deliver_at, delay_key, partition, idempotency_key
  penstock consume orders --json | penstock produce copy --jsonl
"""

# Far below the 10 MiB that the server takes in one request.
CHUNK_MESSAGES = 500
CHUNK_BYTES = 1 << 20
# A broker that is started again is back by then.
GIVE_UP_S = 30
SILENT_S = 3
PRIORITIES = ("critical", "high", "normal", "low", "background")


@click.command(epilog=EPILOG)
@click.argument("topic", shell_complete=complete_topic)
@click.argument("values", nargs=-1)
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A message for each line of this file; repeatable.",
)
@click.option("--jsonl", "is_json_lines", is_flag=True, help="Each line is a message as JSON.")
@click.option("--whole", "is_whole", is_flag=True, help="A file, or -, is one message as it is.")
@click.option("--key", help="Key of every message.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; repeatable."
)
@click.option("--partition", type=int, help="Where they go; otherwise the key decides.")
@click.option("--priority", type=click.Choice(PRIORITIES), help="How urgent they are.")
@click.option("--ttl", type=span, help='Not handed out after this long: "30s", "2h".')
@click.option("--delay", type=span, help='Not handed out before this long: "30s", "2h".')
@click.option("--deliver-at", help="Not handed out before this time: 2026-01-31T12:00:00Z.")
@click.option(
    "--delay-key", help="Takes the place of what waits under this key; see penstock delay."
)
@click.option("--idempotency-key", help="Stored once, however often it is sent with this key.")
@click.option(
    "--verbose",
    "-v",
    is_flag=True,
    help="PARTITION/OFFSET of each; words on a terminal have it anyway.",
)
@click.option(
    "--acks", type=click.Choice(["none", "leader", "all"]), default="leader", show_default=True
)
@remote_options
@output_options
def produce(
    topic: str,
    values: tuple[str, ...],
    *,
    files: tuple[Path, ...],
    is_json_lines: bool,
    is_whole: bool,
    verbose: bool,
    acks: str,
    broker: BrokerOptions,
    output: Output,
    **given: Any,
) -> None:
    """Publish VALUES to TOPIC; `-` stands for the lines of the standard input."""
    from .message_source import MessageSource
    from .progress import Bar

    if is_json_lines and is_whole:
        raise click.UsageError("--jsonl and --whole: give one of them")
    source = MessageSource.of(values, files, is_whole=is_whole)
    given["headers"] = header_pairs(given["headers"])
    options = {name: one for name, one in given.items() if one not in (None, [])}
    with connected(broker) as client:
        are_words = not files and "-" not in source.values
        is_placed = verbose or (are_words and sys.stdout.isatty())
        sink = MessageSink(client, topic, acks, PlacePrinter(output) if is_placed else None)
        # The bar ends before the sink does: what that prints must not run into it.
        with sink, Bar(topic, source.total_bytes, is_wanted=not is_placed) as bar:
            if is_json_lines:
                for message in source.messages(options):
                    sink.send(message)
                    bar.at(source.read_bytes, sink.taken)
            else:
                send_line = sink.sender(options)
                for line in source.lines():
                    send_line(line)
                    bar.at(source.read_bytes, sink.taken)
    if output.is_table or not is_placed:
        output.outcome(f"stored {sink.stored}", {"topic": topic, "stored": sink.stored})


class MessageSink:
    """Sends messages in their order: plain ones in large batches that are stored once, others as JSON in chunks.

    A batch cannot hold a delay, a business key or an idempotency key.
    """

    def __init__(
        self, client: "Client", topic: str, acks: str, places: "PlacePrinter | None"
    ) -> None:
        self._client, self._topic, self._acks, self._places = client, topic, acks, places
        self._producer = client.producer(
            topic,
            acks=acks,
            delivery_timeout_s=GIVE_UP_S,
            on_delivery=None if places is None else places.show_settled,
        )
        self._waiting: list[Outgoing] = []
        self._waiting_bytes = 0
        self._published = 0
        self.taken = 0

    @property
    def stored(self) -> int:
        return self._published + self._producer.stored

    def sender(self, options: dict[str, Any]) -> Callable[[bytes], None]:
        """Returns a function that sends values with these options; it is faster than `send`."""
        from ..client import Outgoing

        sample = Outgoing(b"", **options)
        if self._places is not None or not is_plain(sample):
            return lambda value: self.send(Outgoing(value, **options))
        plain, send = plain_options(sample), self._producer.send

        def send_value(value: bytes) -> None:
            self.taken += 1
            send(value, **plain)

        return send_value

    def send(self, message: "Outgoing") -> None:
        self.taken += 1
        if is_plain(message):
            self._publish()
            delivery = self._producer.send(message.value, **plain_options(message))
            if self._places is not None:
                self._places.add(delivery, message)
            return
        if not self._waiting:
            self._producer.flush()
        self._waiting.append(message)
        self._waiting_bytes += len(message.value or b"")
        if len(self._waiting) >= CHUNK_MESSAGES or self._waiting_bytes >= CHUNK_BYTES:
            self._publish()

    def _publish(self) -> None:
        if self._waiting:
            chunk, self._waiting, self._waiting_bytes = self._waiting, [], 0
            stored = self._client.publish_many(self._topic, chunk, acks=self._acks)
            if self._places is not None:
                self._places.show(zip(stored, chunk, strict=True))
            self._published += len(chunk)

    def __enter__(self) -> "MessageSink":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        """Send what was read, also if a later line was wrong. Prints how many are stored if not all are."""
        patience = Timer(SILENT_S, self._tell_of_waiting)
        patience.daemon = True
        patience.start()
        try:
            self._publish()
            self._producer.close()
            if self._places is not None:
                self._places.show_settled()
        except (PenstockError, KeyboardInterrupt):
            self._tell()
            raise
        finally:
            patience.cancel()
        if kind is KeyboardInterrupt:
            click.echo(f"stored {self.stored}", err=True)
        elif kind is not None:
            self._tell()

    def _tell_of_waiting(self) -> None:
        """Print what the producer waits for: a full topic, a broker that restarts, a leader or its standby."""
        refusal = self._producer.refusal
        reason = "" if refusal is None else f": {refusal} ({refusal.code})"
        click.echo(
            f"{self.taken - self.stored} of {self.taken} are not stored yet; the server gets {GIVE_UP_S} s{reason}",
            err=True,
        )

    def _tell(self) -> None:
        if self.taken:
            click.echo(f"stored {self.stored} of {self.taken}, then it went wrong", err=True)


class PlacePrinter:
    """Prints where messages are stored, in the order in which they were sent."""

    def __init__(self, output: Output) -> None:
        self._output = output
        # The producer's thread prints what it has stored.
        self._guard = Lock()
        self._waiting: deque[tuple[Delivery, Outgoing]] = deque()

    def add(self, delivery: "Delivery", message: "Outgoing") -> None:
        with self._guard:
            self._waiting.append((delivery, message))

    def show_settled(self, _count: int = 0, _error: Exception | None = None) -> None:
        """Print the places of all messages that are stored and have none before them that is not."""
        with self._guard:
            settled = []
            while self._waiting and self._waiting[0][0].batch.settled.is_set():
                delivery, message = self._waiting.popleft()
                if delivery.batch.error is None:
                    settled.append((delivery.result(), message))
            self.show(settled)

    def show(self, stored: "Iterable[tuple[Published, Outgoing]]") -> None:
        for one, message in stored:
            if self._output.is_table:
                later = f" at {one.deliver_at}" if one.delayed else ""
                sys.stdout.write(f"{one.partition}/{one.offset}{later}\n")
            else:
                self._output.item(published_shape(one, message))
        sys.stdout.flush()


def published_shape(one: "Published", message: "Outgoing") -> "PublishedOut":
    from msgspec import UNSET

    from ..api.json.messages import PRIORITY_NAMES
    from ..api.json.publish import PublishedOut
    from ..api.units import priority_of

    return PublishedOut(
        partition=one.partition,
        offset=one.offset,
        priority=PRIORITY_NAMES[
            priority_of("normal" if message.priority is None else message.priority)
        ],
        delayed=one.delayed,
        deliver_at=one.deliver_at,
        deliver_at_too=one.deliver_at,
        duplicate=one.duplicate,
        guarantee=one.guarantee,
        copies=one.copies or UNSET,
    )


def is_plain(message: "Outgoing") -> bool:
    rare: Iterable[object] = (
        message.delay,
        message.deliver_at,
        message.delay_key,
        message.idempotency_key,
    )
    return all(one is None for one in rare)


def plain_options(message: "Outgoing") -> dict[str, Any]:
    """Returns the options of the producer besides the value, without those that are not set, which is faster."""
    from ..api.units import priority_of

    found = {
        "key": message.key,
        "headers": message.headers or None,
        "priority": None if message.priority is None else priority_of(message.priority),
        "ttl": message.ttl,
        "partition": message.partition,
    }
    return {name: one for name, one in found.items() if one is not None}
