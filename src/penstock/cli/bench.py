"""`penstock bench`: load on a running server, and what it did with it."""

from typing import TYPE_CHECKING, Any

import click

from .arguments import seconds_in, span
from .output import Output, output_options
from .remote import BrokerOptions, connected, remote_options

if TYPE_CHECKING:
    from .bench_load import Run

EPILOG = """\b
Examples:
  penstock bench publish                               100,000 messages of 100 bytes into a topic of their own
  penstock bench publish --publishers 4 --size 1000 --acks all --duration 30s
  penstock bench publish --single --rate 500           one request a message; how long each took
  penstock bench consume                               fill a topic, then take it all as a group
  penstock bench consume --topic orders --group bench  a topic that is there, from where the group is
  penstock bench latency --rate 1000 --duration 10s    from publish to delivery, as a consumer sees it
  penstock bench publish --json                        one JSON object for a script

Without --topic a topic is made for the run and deleted after it. Publishers and consumers are threads of one process:
for more than it can do, start several.
"""
MESSAGES_DEFAULT = 100_000
RATE_DEFAULT = 100.0
LATENCY_SPAN_DEFAULT = "5s"
VALUE_BYTES_MAX = 10 << 20


@click.group(epilog=EPILOG)
def bench() -> None:
    """Put load on a running server: publish, consume, latency."""


_TOPIC = click.option("--topic", help="Use this topic; otherwise one is made, and deleted after.")
_PARTITIONS = click.option(
    "--partitions", type=click.IntRange(1, 10_000), default=3, show_default=True,
    help="Of the topic that is made.",
)  # fmt: skip
_MESSAGES = click.option("--messages", type=click.IntRange(1), help="How many in all.")
_DURATION = click.option("--duration", type=span, help='End after this long: "10s", "5m".')
_SIZE = click.option(
    "--size", type=click.IntRange(0, VALUE_BYTES_MAX), default=100, show_default=True,
    help="Bytes of a value.",
)  # fmt: skip
_RATE = click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="At most so many a second, in all."
)
_ACKS = click.option(
    "--acks", type=click.Choice(["leader", "all"]), default="leader", show_default=True
)


@bench.command(epilog="Example: penstock bench publish --publishers 4 --size 1000 --duration 30s")
@_TOPIC
@_PARTITIONS
@_MESSAGES
@_DURATION
@_SIZE
@_RATE
@_ACKS
@click.option("--publishers", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option("--single", is_flag=True, help="Wait for the answer to each message.")
@remote_options
@output_options
def publish(
    *,
    topic: str | None,
    partitions: int,
    messages: int | None,
    duration: str | None,
    size: int,
    rate: float | None,
    acks: str,
    publishers: int,
    single: bool,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Publish as fast as the server takes it, or at a rate."""
    from .bench_load import Run, Workload, publish_batched, publish_single, topic_for
    from .progress import Bar

    if messages is None and duration is None:
        messages = MESSAGES_DEFAULT
    amount = Workload(messages, None if duration is None else seconds_in(duration), rate)
    publisher = publish_single if single else publish_batched
    run = Run()
    with (
        connected(broker) as client,
        topic_for(client, topic, partitions) as name,
        Bar("publish", messages) as bar,
    ):
        for number, share in enumerate(amount.shared(publishers)):
            work = publisher(client, name, share, run, size=size, acks=acks)
            run.start(work, name=f"publisher-{number}")
        run.wait(bar)
    report(run, output, case="publish", publishers=publishers, size=size, acks=acks)


@bench.command(epilog="Example: penstock bench consume --topic orders --consumers 4")
@_TOPIC
@_PARTITIONS
@_MESSAGES
@_DURATION
@_SIZE
@click.option("--group", help="Use this group; otherwise one is made, and deleted after.")
@click.option("--consumers", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option("--max-poll", type=click.IntRange(1), default=500, show_default=True)
@remote_options
@output_options
def consume(
    *,
    topic: str | None,
    partitions: int,
    messages: int | None,
    duration: str | None,
    size: int,
    group: str | None,
    consumers: int,
    max_poll: int,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Take messages as a group and ack them: all that are there, --messages of them, or for a --duration."""
    import time

    from . import bench_load
    from .progress import Bar

    run = bench_load.Run()
    with connected(broker) as client, bench_load.topic_for(client, topic, partitions) as name:
        if topic is None:
            filled = bench_load.Workload(messages or MESSAGES_DEFAULT, None)
            fill = bench_load.publish_batched(client, name, filled, run, size=size, acks="leader")
            fill(bench_load.ThreadCounts())
        wanted = messages if messages is not None else client.topic(name).total_messages
        until_s = None if duration is None else time.monotonic() + seconds_in(duration)

        def is_over(has_messages: bool) -> bool:
            if until_s is not None:
                return time.monotonic() >= until_s
            return run.messages >= wanted or (not has_messages and client.lag(own).total == 0)

        with bench_load.group_for(client, group) as own, Bar("consume", wanted) as bar:
            for number in range(consumers):
                work = bench_load.consume(
                    client, name, own, run, max_poll=max_poll, is_over=is_over
                )
                run.start(work, name=f"consumer-{number}")
            run.wait(bar)
    report(run, output, case="consume", consumers=consumers, max_poll=max_poll)


@bench.command(epilog="Example: penstock bench latency --rate 1000 --duration 30s")
@_TOPIC
@_PARTITIONS
@_DURATION
@_SIZE
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), default=RATE_DEFAULT, show_default=True,
    help="Messages a second.",
)  # fmt: skip
@_ACKS
@remote_options
@output_options
def latency(
    *,
    topic: str | None,
    partitions: int,
    duration: str | None,
    size: int,
    rate: float,
    acks: str,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """From publish to delivery: one publisher at a rate, one consumer that waits."""
    from .bench_load import Run, Workload, group_for, measure_latency, publish_single, topic_for
    from .progress import Bar

    seconds = seconds_in(duration or LATENCY_SPAN_DEFAULT)
    amount = Workload(max(1, int(seconds * rate)), None, rate)
    sending, hearing = Run(), Run()
    with (
        connected(broker) as client,
        topic_for(client, topic, partitions) as name,
        group_for(client, None) as group,
        Bar("latency", amount.messages) as bar,
    ):
        client.poll(name, group, limit=1)  # The group begins before the first message is sent.
        hearing.start(
            measure_latency(
                client, name, group, hearing, is_over=lambda heard: heard >= (amount.messages or 0)
            ),
            name="consumer",
        )
        sending.start(
            publish_single(client, name, amount, sending, size=size, acks=acks), name="publisher"
        )
        sending.wait(bar)
        if sending.error is not None:
            hearing.error = sending.error
            hearing.stop.set()
        hearing.wait(bar)
    report(hearing, output, case="latency", rate=rate, size=size, acks=acks)


def report(run: "Run", output: Output, **about: Any) -> None:
    """Print the figures, also if the run ended early, then raise the error that ended it."""
    if run.messages or run.error is None:
        output.record(about | run.figures())
    if run.error is not None:
        raise run.error
