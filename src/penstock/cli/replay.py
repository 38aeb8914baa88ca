"""`penstock replay` and `penstock copy`: messages of a topic into another one, each once."""

import hashlib
import sys
from typing import TYPE_CHECKING, Any

import click

from ..errors import PenstockError, Refused
from .arguments import time_argument
from .output import Output, output_options
from .progress import Bar
from .remote import BrokerOptions, complete_topic, connected, remote_options

if TYPE_CHECKING:
    from ..client import Client
    from .transfer import Range, Run, Transfer

LANES = ["critical", "high", "normal", "low", "background"]
PLAN = ["partition", "start", "end", "done", "left"]
REPLAY_EPILOG = """\b
Examples:
  penstock replay orders --to orders-again --from-time 2026-01-31T12:00:00Z --until-time 2026-01-31T13:00:00Z
  penstock replay orders --to orders-again --from-time 2h --dry-run    what it would do
  penstock replay orders --to orders-again --partition 0 --from 1000 --until 2000
  penstock replay orders --to orders --until-time 1h --rate 500        into the same topic, behind all other work
  penstock replay orders --to orders-again --from-time 2h --name again-2    once more

\b
The same command again goes on where the last one ended, and publishes nothing twice: a job is known by its topics,
its beginning and its --name. `penstock commits list` shows how far each is.
"""
COPY_EPILOG = """\b
Examples:
  penstock copy orders --to orders-12                 what is there now
  penstock copy orders --to orders-12 --dry-run       how much that is
  penstock copy orders --to orders-12 --follow        and what comes, until Ctrl-C; shows how far it is behind

\b
Messages of a key stay in their order, whatever number of partitions the other topic has. When it is no longer behind,
stop producers, wait for 0, stop the copy, and point producers and groups to the other topic.
"""


@click.command(epilog=REPLAY_EPILOG)
@click.argument("source", metavar="TOPIC", shell_complete=complete_topic)
@click.option(
    "--to",
    "target",
    required=True,
    metavar="TOPIC",
    shell_complete=complete_topic,
    help="Where the messages go; it has to be there.",
)
@click.option("--from", "start", help="earliest (default), or an offset of --partition.")
@click.option("--from-time", help="What was stored from this time on; 15m is 15 minutes ago.")
@click.option("--until", help="End before this offset of --partition.")
@click.option("--until-time", help="End before what was stored from this time on.")
@click.option("--partition", type=click.IntRange(min=0), help="Only this one.")
@click.option(
    "--priority",
    type=click.Choice(LANES),
    default="background",
    show_default=True,
    help="The lane of all messages there.",
)
@click.option("--rate", type=click.IntRange(min=1), help="At most so many messages each second.")
@click.option("--name", help="The name of the job; made from its topics and its beginning.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only say what would happen.")
@remote_options
@output_options
def replay(
    source: str,
    *,
    target: str,
    start: str | None,
    from_time: str | None,
    until: str | None,
    until_time: str | None,
    partition: int | None,
    priority: str,
    rate: int | None,
    name: str | None,
    is_dry_run: bool,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Publish a part of TOPIC once more in a topic, each message once, in a low lane.

    Key, value, headers and time are those of the message; its time to live begins anew. For one group alone,
    `penstock group reset` goes back.
    """
    from ..model import Priority
    from .transfer import Selection, Transfer

    first = place("--from", start, from_time, partition) or "earliest"
    last = place("--until", until, until_time, partition)
    words = f"{start} {from_time} {partition}"
    job = Transfer(
        kind="replay",
        name=name or job_name("replay", source, target, words),
        source=source,
        target=target,
        selection=Selection(first, last, partition),
        priority=Priority[priority.upper()],
        rate=rate,
    )
    run_job(job, broker, output, is_dry_run=is_dry_run, is_followed=False)


@click.command(epilog=COPY_EPILOG)
@click.argument("source", metavar="TOPIC", shell_complete=complete_topic)
@click.option(
    "--to",
    "target",
    required=True,
    metavar="TOPIC",
    shell_complete=complete_topic,
    help="Where the messages go; it has to be there.",
)
@click.option("--follow", "-f", "is_followed", is_flag=True, help="And what comes, until Ctrl-C.")
@click.option("--rate", type=click.IntRange(min=1), help="At most so many messages each second.")
@click.option("--name", help="The name of the job; made from its topics.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only say what would happen.")
@remote_options
@output_options
def copy(
    source: str,
    *,
    target: str,
    is_followed: bool,
    rate: int | None,
    name: str | None,
    is_dry_run: bool,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Copy TOPIC into another topic, which may have another number of partitions, each message once.

    Key, value, headers, time, priority and time to live are kept. Messages that are still delayed come when they are
    due. The same command again goes on where the last one ended.
    """
    from .transfer import Selection, Transfer

    if source == target:
        raise click.UsageError("a topic is not copied into itself")
    job = Transfer(
        kind="copy",
        name=name or job_name("copy", source, target, ""),
        source=source,
        target=target,
        selection=Selection(),
        rate=rate,
    )
    run_job(job, broker, output, is_dry_run=is_dry_run, is_followed=is_followed)


def place(
    option: str, offset: str | None, moment: str | None, partition: int | None
) -> int | str | None:
    """Returns an offset, `earliest`, or a time. UsageError: it is none of them, or both are given."""
    if offset is not None and moment is not None:
        raise click.UsageError(f"{option} and {option}-time: give one of them")
    if moment is not None:
        return time_argument(f"{option}-time", moment)
    if offset is None or (offset == "earliest" and option == "--from"):
        return offset
    if not offset.isascii() or not offset.isdecimal() or len(offset) > 18:
        raise click.UsageError(f"{option}: {offset[:60]!r} is not an offset")
    if partition is None:
        raise click.UsageError(f"{option}: an offset is that of one partition: give --partition")
    return int(offset)


def job_name(kind: str, source: str, target: str, words: str) -> str:
    """Returns the name of a job without --name: the same for the same command."""
    text = f"{kind}\0{source}\0{target}\0{words}".encode()
    return f"{kind}.{source[:100]}.{target[:100]}.{hashlib.sha256(text).hexdigest()[:8]}"


def patient(broker: BrokerOptions) -> "Client":
    """Returns a client that waits for a broker which is away, or asks to wait, for about a minute."""
    from ..client import Client, ClientSettings, RetryPolicy

    context, key = broker.found()
    policy = RetryPolicy(retries=9, backoff_ms=200, backoff_ms_max=30_000)
    settings = ClientSettings(retry=policy, ca_file=context.ca_file)
    return Client(context.server, key=key, settings=settings)


def run_job(
    job: "Transfer", broker: BrokerOptions, output: Output, *, is_dry_run: bool, is_followed: bool
) -> None:
    """Run a job to its end, and print what it did. Refused: nothing is selected."""
    from ..model import check_name
    from .transfer import Run

    check_name(job.name, "job")
    with connected(broker) as client:
        partitions = job.check(client)
        ranges = job.ranges(client)
    if not is_followed and not any(one.start < one.end for one in ranges):
        raise Refused(f"no message of {job.source} is in that range")
    if is_dry_run:
        show_plan(job, ranges, output)
        return
    total = None if is_followed else sum(one.left for one in ranges)
    with patient(broker) as client, Bar(job.name, total, is_wanted=output.is_table) as bar:

        def tell(run: "Run") -> None:
            bar.at(run.messages, f"{run.messages:,} messages, {run.lag:,} to go")
            if is_followed and not output.is_table:
                output.item({"job": job.name, **run.facts()})
                sys.stdout.flush()

        run = Run(client, job, partitions, tell)
        run.report("starting")
        try:
            run.follow(ranges) if is_followed else run.move(ranges)
        except KeyboardInterrupt:
            if not is_followed:
                run.report("stopped")
                raise
        except PenstockError as error:
            run.report("failed", str(error))
            raise
        run.report("stopped")
    finish(job, run, ranges, output)


def show_plan(job: "Transfer", ranges: "list[Range]", output: Output) -> None:
    rows: list[dict[str, Any]] = [
        {"job": job.name, "dry_run": True, **one._asdict(), "left": one.left} for one in ranges
    ]
    output.rows(rows, PLAN)
    if output.is_table:
        left = sum(one.left for one in ranges)
        click.echo(f"{left:,} offsets of {job.source} would go to {job.target}: dry run", err=True)


def finish(job: "Transfer", run: "Run", ranges: "list[Range]", output: Output) -> None:
    before = sum(max(0, min(one.done, one.end) - one.start) for one in ranges)
    earlier = f"; {before:,} offsets were done before" if before else ""
    sentence = f"{run.messages:,} messages of {job.source} are in {job.target}, {run.commits:,} commits{earlier}"
    facts = {"job": job.name, "source": job.source, "target": job.target, **run.facts()}
    output.outcome(sentence, {**facts, "done_before": before, "dry_run": False})
