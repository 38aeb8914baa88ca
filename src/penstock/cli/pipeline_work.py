"""`penstock pipeline work`: messages of a queue through Spark, each of them once."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from .exits import Exit
from .output import Output, output_options
from .pipeline_runner import require_spark, server_of, spark_options, stop_on_signals
from .progress import Bar
from .remote import BrokerOptions, remote_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..api.json.pipelines import State
    from ..spark.pipelines.remote import Remote
    from ..spark.pipelines.report import PipelineIdentity
    from ..spark.work import OnWork, Transform, WorkProgress

VIEW = "messages"
EPILOG = """\b
Examples:
  penstock pipeline work orders --group billing --sql "SELECT key, value FROM messages" --to invoices
  penstock pipeline work orders --group billing --python shop:invoices --to invoices --once --json
"""


@click.command(epilog=EPILOG)
@click.argument("topic")
@click.option("--group", required=True, help="The group whose messages are worked off.")
@click.option("--to", metavar="TOPIC", help="Topic of the results; without it they name theirs.")
@click.option("--sql", help=f"A query over the view `{VIEW}`, which is a round of messages.")
@click.option(
    "--python", metavar="MODULE:FUNCTION", help="Gets a round as a DataFrame, and returns one."
)
@click.option("--once", "is_once", is_flag=True, help="Until no message is ready, then stop.")
@click.option(
    "--round",
    "round_messages",
    type=click.IntRange(1, 1_000_000),
    help="At most so many messages in a round; 50000 if not said.",
)
@click.option("--headers", "has_headers", is_flag=True, help="Add the column headers.")
@click.option("--name", default="", help="Of this driver; the next one of this name replaces it.")
@spark_options
@remote_options
@output_options
def work(
    topic: str,
    *,
    group: str,
    to: str | None,
    sql: str | None,
    python: str | None,
    is_once: bool,
    round_messages: int | None,
    has_headers: bool,
    name: str,
    master: str,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Work off the messages of TOPIC for a group: one job of Spark and one commit for each round of them.

    What a job makes is published, and its messages are acked, together: every message is in the results once, whatever
    is killed. The first Ctrl-C, or SIGTERM, ends it after the round under way; the second at once.
    """
    if (sql is None) == (python is None):
        raise click.UsageError("give --sql or --python, one of them")
    require_spark()
    from ..spark.pipelines.remote import Remote
    from ..spark.pipelines.report import PipelineIdentity
    from ..spark.pipelines.runner import LOCAL_MASTER, session_at
    from ..spark.work import ROUND_MESSAGES
    from ..spark.work import work as run_work

    title = f"work.{group}.{topic}"
    with server_of(broker) as server:
        remote = Remote(str(server["server"]), server["key_file"], server["ca_file"])
        # Before Spark starts, which takes seconds: nothing is half done if a topic is missing.
        remote.require_broker()
        with remote.connect() as client:
            for one in (topic,) if to is None else (topic, to):
                client.topic(one)
        transform = sql_transform(sql) if sql is not None else python_transform(python or "")
        with Bar(f"{title}: Spark starts", is_wanted=output.is_table):
            spark = session_at(master or LOCAL_MASTER, title, {})
        try:
            identity = PipelineIdentity(title, "work", [topic], to or "")
            with watched(identity, remote, output, is_once=is_once) as (stop, tell):
                done = run_work(
                    spark,
                    topic,
                    group,
                    transform,
                    to=to,
                    url=remote.url,
                    key_file=remote.key_file,
                    ca_file=remote.ca_file,
                    round_messages=round_messages or ROUND_MESSAGES,
                    include_headers=has_headers,
                    once=is_once,
                    name=name,
                    stop=stop,
                    on_progress=tell,
                )
        finally:
            spark.stop()
    if is_once or output.is_table:
        sentence = (
            f"{title}: {done.messages:,} messages in {done.rounds:,} rounds, "
            f"{done.outputs:,} published, {done.nacked:,} failed"
        )
        output.outcome(sentence, {"pipeline": title, **asdict(done)})
    if is_once and stop.is_set():
        click.get_current_context().exit(Exit.INTERRUPTED)


@contextmanager
def watched(
    identity: "PipelineIdentity", remote: "Remote", output: Output, *, is_once: bool
) -> Iterator[tuple[Event, "OnWork"]]:
    """Returns an event that signals set, and what to call with progress: shows it here and reports it to the broker."""
    from ..spark.pipelines.archive import PipelineProgress
    from ..spark.pipelines.report import Reporter

    with (
        stop_on_signals() as stop,
        Bar(identity.name, is_wanted=output.is_table) as bar,
        Reporter(identity, remote) as reporter,
    ):

        def tell(done: "WorkProgress") -> None:
            bar.at(done.messages, note_of(done))
            state: State = "waiting" if done.error else "running"
            figures = done.rate, done.round_ms
            reporter(
                PipelineProgress(state, done.messages, done.rounds, done.lag, done.error, *figures)
            )
            if not output.is_table and not is_once:
                output.item({"pipeline": identity.name, **asdict(done)})
                sys.stdout.flush()

        reporter.begin()
        yield stop, tell


def sql_transform(sql: str) -> "Transform":
    def run(rows: "DataFrame") -> "DataFrame":
        rows.createOrReplaceTempView(VIEW)
        return rows.sparkSession.sql(sql)

    return run


def python_transform(named: str) -> "Transform":
    """Refused: there is no such function; its module may stand in the current directory."""
    from ..spark.pipelines.model import PythonTransform
    from ..spark.pipelines.views import add_import_folder, import_transform

    add_import_folder(Path.cwd())
    found: Any = import_transform(PythonTransform(name="work", python=named, inputs=(VIEW,)))
    transform: Transform = found
    return transform


def note_of(done: "WorkProgress") -> str:
    if done.error:
        return f"waiting: {done.error[:80]}"
    limit = f", a round is bounded by {done.limited_by}" if done.limited_by else ""
    return f"{done.messages:,} messages, {done.rounds:,} rounds, {done.rate:,.0f} a second{limit}"
