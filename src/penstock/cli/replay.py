"""`penstock replay` and `penstock copy`: messages of a topic into another one, each once."""

import hashlib
import sys
from typing import TYPE_CHECKING, Any

import click

from ..errors import PenstockError, Refused
from .arguments import time_argument
from .output import Output, output_options
from .progress import Bar
from .remote import BrokerOptions, complete_group, complete_topic, connected, remote_options

if TYPE_CHECKING:
    from ..client import Client
    from .transfer import Range, Run, Selection, Transfer

LANES = ["critical", "high", "normal", "low", "background"]
PLAN = ["partition", "start", "end", "done", "left"]
REPLAY_EPILOG = """\b
Examples:
  penstock replay orders --to orders-again --from-time 2026-01-31T12:00:00Z --until-time 2026-01-31T13:00:00Z
  penstock replay orders --to orders-again --from-time 2h --dry-run    what it would do
  penstock replay orders --to orders-again --partition 0 --from 1000 --until 2000
  penstock replay orders --to orders --until-time 1h --rate 500        into the same topic, behind all other work
  penstock replay orders --to orders-again --from-time 2h --name again-2    once more
  penstock replay orders --to orders-again --lake lake --from-time 2026-01-31T12:00:00Z    what the log has lost, too
  penstock replay orders --to paid --sql "SELECT key, value FROM messages WHERE CAST(value AS STRING) LIKE '%paid%'"
  penstock replay orders --group billing --from-time 2h                one group alone goes back, nothing is published

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
    default="",
    metavar="TOPIC",
    shell_complete=complete_topic,
    help="Where the messages go; it has to be there.",
)
@click.option(
    "--group",
    default="",
    shell_complete=complete_group,
    help="To this group alone: it goes back in the log, and reads on from there.",
)
@click.option(
    "--lake",
    default="",
    metavar="DIR",
    help="A lake that TOPIC is archived in, for what the log has lost; a directory or s3://bucket/path.",
)
@click.option(
    "--sql",
    "query",
    default="",
    metavar="QUERY",
    help="What goes, and how, from the view messages; columns as the Spark sink takes them. Needs Spark.",
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
    group: str,
    lake: str,
    query: str,
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

    Key, value, headers and time are those of the message; its time to live begins anew. With --lake the lake has what
    lies before the log, and each offset comes once. With --sql the rows of the query come in one commit.
    """
    from ..model import Priority
    from .transfer import Selection

    first = place("--from", start, from_time, partition) or "earliest"
    last = place("--until", until, until_time, partition)
    selection = Selection(first, last, partition)
    if group:
        refuse_with_group(
            {
                "--to": target,
                "--lake": lake,
                "--sql": query,
                "--until": last,
                "--rate": rate,
                "--name": name,
            }
        )
        replay_to_group(source, group, selection, broker, output, is_dry_run=is_dry_run)
        return
    if not target:
        raise click.UsageError("say where to: --to TOPIC, or --group NAME")
    words = f"{start} {from_time} {partition}"
    if query:
        if rate is not None:
            raise click.UsageError("--rate: with --sql all rows come in one commit")
        words += f" {until} {until_time} {query}"
    facts: dict[str, Any] = {
        "kind": "replay",
        "name": name or job_name("replay", source, target, words),
        "source": source,
        "target": target,
        "selection": selection,
        "priority": Priority[priority.upper()],
        "rate": rate,
    }
    job = replay_of(lake, facts)
    if query:
        from .replay_sql import run_sql_replay

        run_sql_replay(job, query, broker, output, is_dry_run=is_dry_run)
        return
    run_job(job, broker, output, is_dry_run=is_dry_run, is_followed=False)


def refuse_with_group(given: dict[str, Any]) -> None:
    """UsageError: a group goes back to a place and reads on from there, which those options do not fit."""
    for option, value in given.items():
        if value:
            raise click.UsageError(
                f"--group and {option}: a group goes back in the log and reads on to its end; for a part, or another "
                "one, replay --to a topic that this group alone reads"
            )


def replay_to_group(
    source: str,
    group: str,
    selection: "Selection",
    broker: BrokerOptions,
    output: Output,
    *,
    is_dry_run: bool,
) -> None:
    from .replay_group import MOVES, go_back

    with connected(broker) as client:
        moves = go_back(client, source, group, selection, is_dry_run=is_dry_run)
    output.rows([{"group": group, **one, "dry_run": is_dry_run} for one in moves], MOVES)
    if output.is_table:
        click.echo(f"{group} would go back: dry run" if is_dry_run else f"{group} went back")


def replay_of(lake: str, facts: dict[str, Any]) -> "Transfer":
    """Returns the job, from the log or from a lake and the log. FileMissing, NotFound: the lake has no such topic."""
    if not lake:
        from .transfer import Transfer

        return Transfer(**facts)
    from .pipeline_runner import require_arrow

    require_arrow()
    from ..spark.pipelines.lake_messages import LakeMessages
    from ..spark.pipelines.store import lake_address
    from .replay_lake import LakeReplay

    return LakeReplay(**facts, lake=LakeMessages(lake_address(lake), facts["source"]))


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
        raise Refused(f"topic {source} is not copied into itself: name another one with --to")
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
    with connected(broker) as client:
        job.check_files(client, ranges)
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
        except (PenstockError, OSError) as error:
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
        click.echo(f"{left:,} offsets of {job.source} would go to {job.target}: dry run")


def finish(job: "Transfer", run: "Run", ranges: "list[Range]", output: Output) -> None:
    before = sum(max(0, min(one.done, one.end) - one.start) for one in ranges) + run.done_meanwhile
    earlier = f"; {before:,} offsets were done before" if before else ""
    sentence = f"{run.messages:,} messages of {job.source} are in {job.target}, {run.commits:,} commits{earlier}"
    facts = {"job": job.name, "source": job.source, "target": job.target, **run.facts()}
    output.outcome(sentence, {**facts, "done_before": before, "dry_run": False})
