"""`penstock pipeline`: pipelines that a YAML file describes, run by Spark."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InvalidSettings, NotFound
from .exits import Exit
from .output import Output, one_line, output_options
from .pipeline_init import init
from .pipeline_runner import require_spark, run_pipeline, server_of, spark_options
from .pipeline_work import work
from .remote import BrokerOptions, connected, remote_options

if TYPE_CHECKING:
    from ..spark.pipelines.model import Pipeline

EPILOG = """\b
Examples:
  penstock pipeline validate lake.yaml           everything that is wrong with it, at once
  penstock pipeline run lake.yaml                until Ctrl-C
  penstock pipeline run lake.yaml --once         what is there now, then stop
  penstock pipeline run lake.yaml --master spark://10.0.0.5:7077
  penstock pipeline work jobs --group g --sql "SELECT key, value FROM messages" --to done
  penstock pipeline status lake.yaml             how far it is, and what the broker heard of it
  penstock pipeline list                         all that report to the broker
  penstock pipeline init orders                  a project for spark-pipelines, in the directory orders
"""
FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group(epilog=EPILOG)
def pipeline() -> None:
    """Topics into a lake, files into a topic, SQL over both: described in YAML, run by Spark."""


pipeline.add_command(init)
pipeline.add_command(work)


def read_pipeline_file(file: Path) -> "Pipeline":
    """Returns the pipeline of a file. InvalidSettings lists everything that is wrong."""
    require_spark()
    from ..spark.pipelines.parser import read_pipeline

    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidSettings([f"{file.name}: it is not text"]) from None
    return read_pipeline(text, path=file)


@contextmanager
def at_server(found: "Pipeline", broker: BrokerOptions) -> Iterator["Pipeline"]:
    """Returns the pipeline with the server and the key that the command line or the environment names, if they do."""
    with server_of(broker) as server:
        named: dict[str, Any] = {name: one for name, one in server.items() if one is not None}
        if not broker.is_named:
            del named["server"]
        yield replace(found, **named)


@pipeline.command(epilog="Example: penstock pipeline run lake.yaml --once --json")
@FILE
@click.option("--once", "is_once", is_flag=True, help="Do what is there now, then stop.")
@spark_options
@remote_options
@output_options
def run(file: Path, *, is_once: bool, master: str, broker: BrokerOptions, output: Output) -> None:
    """Run the pipeline that FILE describes, until Ctrl-C or, with --once, until it has done what is there.

    The first Ctrl-C, or SIGTERM, ends it after the commit under way; the second at once. Nothing is lost or doubled
    either way.
    """
    with at_server(read_pipeline_file(file), broker) as found:
        run_pipeline(found, file, master=master, is_once=is_once, output=output)


@pipeline.command(epilog="Example: penstock pipeline validate lake.yaml")
@FILE
@click.option(
    "--sql", "is_sql_read", is_flag=True, help="Also have Spark read the SQL; takes seconds."
)
@output_options
@click.pass_context
def validate(ctx: click.Context, file: Path, *, is_sql_read: bool, output: Output) -> None:
    """Say everything that is wrong with FILE, without running it."""
    from ..spark.pipelines.parser import summary_of

    found, problems = None, list[str]()
    try:
        found = read_pipeline_file(file)
        if is_sql_read:
            from ..spark.pipelines.inspection import transform_problems

            problems = transform_problems(found, file.absolute().parent)
    except InvalidSettings as error:
        problems = list(error.problems)
    if found is None or problems:
        for one in problems:
            # Whole, not as a cell of a table: the end says what is meant.
            click.echo(one_line(one)) if output.is_table else output.item({"problem": one})
        ctx.exit(Exit.FOUND_PROBLEMS)
    record = summary_of(found)
    output.outcome(f"{file}: {record['kind']} {record['name']}, nothing is wrong with it", record)


@pipeline.command("list", epilog="Example: penstock pipeline list pipelines/*.yaml")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@remote_options
@output_options
def list_pipelines(files: tuple[Path, ...], *, broker: BrokerOptions, output: Output) -> None:
    """Show pipelines that report to the broker, or those that FILES describe."""
    rows = [file_row(file) for file in files] if files else reported_rows(broker)
    columns = (
        ["file", "name", "kind", "topics", "target", "problems"]
        if files
        else ["name", "kind", "state", "topics", "target", "messages", "lag", "seconds_ago"]
    )
    output.rows(rows, columns, empty="no pipeline has reported since the broker started")


def file_row(file: Path) -> dict[str, Any]:
    from ..spark.pipelines.parser import summary_of

    try:
        return {"file": str(file), **summary_of(read_pipeline_file(file)), "problems": 0}
    except InvalidSettings as error:
        return {"file": str(file), "problems": len(error.problems)}


def reported_rows(broker: BrokerOptions) -> list[dict[str, Any]]:
    from msgspec import to_builtins

    from ..client import pipelines

    with connected(broker) as client:
        return [to_builtins(one) for one in pipelines.list_pipelines(client)]


@pipeline.command(epilog="Example: penstock pipeline status lake.yaml --json")
@FILE
@remote_options
@output_options
def status(file: Path, *, broker: BrokerOptions, output: Output) -> None:
    """Show how far the pipeline of FILE is, and what the broker has heard of it."""
    require_spark()
    from msgspec import to_builtins

    from ..client.pipelines import describe_pipeline
    from ..spark.pipelines.inspection import progress_of
    from ..spark.pipelines.runner import remote_of

    with at_server(read_pipeline_file(file), broker) as found, remote_of(found).connect() as client:
        record: dict[str, Any] = {
            "name": found.name,
            "kind": found.kind.value,
            "target": found.target,
            **progress_of(found),
        }
        try:
            record |= to_builtins(describe_pipeline(client, found.name))
        except NotFound:
            record["state"] = "the broker has not heard of it"
    output.record(record)
