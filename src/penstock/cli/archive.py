"""`penstock archive`: archives topics into a lake, and verifies that it is complete."""

from typing import TYPE_CHECKING, Any

import click

from .exits import Exit
from .lake_files import DRY_RUN, LAKE, compact, delta_rebuild, delta_release, vacuum
from .output import Output, output_options
from .pipeline_runner import require_arrow, run_pipeline, server_of, spark_options
from .progress import Bar
from .remote import BrokerOptions, connected, remote_options
from .restore import restore

if TYPE_CHECKING:
    from ..spark.pipelines.model import Pipeline
    from ..spark.pipelines.verify import LakeReport

EPILOG = """\b
Examples:
  penstock archive run orders --to lake --once       what is there now, as Parquet
  penstock archive run orders --to lake --dry-run    how many messages, from where
  penstock archive run orders jobs --to lake         two topics, until Ctrl-C
  penstock archive run orders --to lake --table delta --group lake --hold-retention
  penstock archive run orders --to lake --subject orders-value   values as typed columns, too
  penstock archive run orders --to lake --subject orders-value --partition-by country
  penstock archive verify lake                       every file, every offset, against the broker
  penstock archive verify lake --offline             without the broker
  penstock archive verify lake --content             every message against the broker, while it has them
  penstock archive run 'orders-*' --to s3://bucket/lake   all topics of a name, into a bucket
  penstock archive show lake                         what is in it
  penstock archive compact lake --dry-run            which small files would be merged
  penstock archive vacuum lake --keep 7d             remove what was merged a week ago
  penstock archive restore lake orders               back into a broker, which may be a new one
"""


@click.group(epilog=EPILOG)
def archive() -> None:
    """Keep topics as Parquet or Delta, exactly once, and prove it."""


archive.add_command(compact)
archive.add_command(vacuum)
archive.add_command(delta_rebuild)
archive.add_command(delta_release)
archive.add_command(restore)


@archive.command("run", epilog="Example: penstock archive run orders --to lake --once")
@click.argument("topics", nargs=-1, required=True)
@click.option(
    "--to",
    "lake",
    required=True,
    metavar="DIR",
    help="The lake, a directory or s3://bucket/path; made if it is not there.",
)
@click.option(
    "--table", type=click.Choice(["parquet", "delta"]), help="For a new lake: parquet if not said."
)
@click.option(
    "--split",
    type=click.Choice(["day", "hour", "none"]),
    help="Folders of a new lake: day if not said.",
)
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where a new lake begins; topics that come later begin at their first message.",
)
@click.option(
    "--name",
    default="",
    metavar="NAME",
    help="Of the pipeline, in the broker; made from the lake's path if not said.",
)
@click.option("--group", default="", metavar="NAME", help="Publish the progress as this group.")
@click.option(
    "--hold-retention", is_flag=True, help="Have the topics keep what is not archived yet."
)
@click.option("--skip-damage", is_flag=True, help="Go on behind damaged batches, and list them.")
@click.option(
    "--subject",
    default="",
    metavar="NAME",
    help="For a new lake of one topic: values as typed columns, too, by the latest schema of this subject.",
)
@click.option(
    "--partition-by",
    default="",
    metavar="FIELD",
    help="For a new lake with --subject: a folder for each value of this field, too.",
)
@click.option("--once", "is_once", is_flag=True, help="Do what is there now, then stop.")
@DRY_RUN
@spark_options
@remote_options
@output_options
def run_archive(
    topics: tuple[str, ...],
    *,
    lake: str,
    start: str,
    is_once: bool,
    dry_run: bool,
    master: str,
    broker: BrokerOptions,
    output: Output,
    **options: Any,
) -> None:
    """Archive TOPICS, until Ctrl-C or, with --once, until what is there now is archived.

    A topic may be a pattern with * and ?, in quotes. Exit code 1 if some topics could not be archived; the others
    were, and the output says which. Without --master or --remote it runs in this process and needs no Spark.
    """
    require_arrow()
    from ..spark.pipelines.ad_hoc import archive_pipeline

    with server_of(broker) as server:
        found = archive_pipeline(topics, lake, start=start, server=server, **options)
        if dry_run:
            show_preview(found, output)
            return
        run_pipeline(found, None, master=master, is_once=is_once, output=output)


def show_preview(found: "Pipeline", output: Output) -> None:
    """Print what an archive would do; exit code 1 if some topics could not be archived."""
    from ..spark.pipelines.runner import preview_archive

    rows, problems = preview_archive(found)
    if problems and not rows:
        raise next(iter(problems.values()))
    shown = [{**one._asdict(), "messages": one.messages} for one in rows]
    columns = ["partition", "messages", "start", "end", "expired", "is_new_log"]
    output.rows(shown, columns, empty="nothing to archive")
    for name, problem in problems.items():
        click.echo(f"problem: {name}: {problem}", err=True)
    if problems:
        click.get_current_context().exit(Exit.FOUND_PROBLEMS)


@archive.command(epilog="Example: penstock archive verify lake --content --json")
@LAKE
@click.option(
    "--content",
    "is_content_read",
    is_flag=True,
    help="Also read every key and value, and compare what the broker still has with it.",
)
@click.option(
    "--head",
    default="",
    metavar="SHA256",
    help="The hash of a commit that was noted earlier: the lake must still have it.",
)
@click.option("--offline", is_flag=True, help="Do not ask the broker.")
@remote_options
@output_options
@click.pass_context
def verify(
    ctx: click.Context,
    lake: str,
    *,
    is_content_read: bool,
    head: str,
    offline: bool,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Prove that every visible offset is in LAKE once, and list what was gone before it was archived.

    Topics that were deleted since are checked without the broker. Exit code 1 if anything is missing, doubled, damaged
    or forged.
    """
    require_arrow()
    from contextlib import nullcontext

    from ..spark.pipelines.lake import LakeReader
    from ..spark.pipelines.verify import verify as check

    files = LakeReader(lake)
    with (
        nullcontext() if offline else connected(broker) as client,
        Bar("verify", is_wanted=output.is_table) as bar,
    ):
        report = check(
            files,
            client,
            is_content_read=is_content_read,
            head=head,
            on_file=lambda done, of: bar.at(done, f"{done:,} of {of:,} files"),
        )
    show_report(report, output)
    if not report.is_good:
        ctx.exit(Exit.FOUND_PROBLEMS)


def show_report(report: "LakeReport", output: Output) -> None:
    if not output.is_table:
        output.record(report.to_record())
        return
    rows: Any = report.to_record()["partitions"]
    output.rows(rows, ["partition", "broker", "archived_up_to", "rows", "missing", "behind"])
    for one in report.all_partitions():
        for gap in one.gaps:
            click.echo(f"{one.topic}/{one.partition}: {gap.start} to {gap.end - 1} {gap.reason}")
    for problem in report.problems:
        click.echo(f"problem: {problem}")
    how = "and agrees with the broker" if report.is_compared else "the broker was not asked"
    state = f"is whole, {how}" if report.is_good else f"has {len(report.problems)} problems"
    click.echo(
        f"{report.lake}: {report.rows:,} rows in {report.files:,} files, {report.commits:,} commits: {state}"
    )
    if report.compared:
        click.echo(f"compared with the broker, message by message: {report.compared:,}")
    click.echo(f"head: {report.head or '-'}")


@archive.command(epilog="Example: penstock archive show lake")
@LAKE
@click.option("--columns", "is_schema", is_flag=True, help="Its columns instead.")
@click.option(
    "--as-of", metavar="COMMIT|TIME", help="Up to a commit, or a time such as 2026-01-31T12:00:00Z."
)
@output_options
def show(lake: str, *, is_schema: bool, as_of: str | None, output: Output) -> None:
    """Show the commits of LAKE."""
    require_arrow()
    from msgspec import to_builtins

    from ..spark.pipelines.lake import LakeReader
    from ..spark.pipelines.schema import sql_type

    files = LakeReader(lake)
    if is_schema:
        found = [to_builtins(one) for one in files.state(as_of).columns]
        if output.is_table:
            found = [{**row, "type": sql_type(row["type"])} for row in found]
        output.rows(found, ["name", "type", "nullable"], empty="no commits yet")
        return
    history = files.history()
    if as_of is not None:
        history = history[: files.state(as_of).commits]
    rows = (
        {
            "commit": one.commit,
            "made_at": one.made_at,
            "sha256": own,
            "kind": "merge" if one.is_merge else "append",
            "replaced": len(one.replaced),
            "rows": one.rows,
            "files": len(one.files),
            "bytes": sum(file.size for file in one.files),
            "spans": [f"{span.name} {span.start}..{span.end}" for span in one.spans],
        }
        for one, own in history
    )
    columns = ["commit", "made_at", "kind", "rows", "files", "bytes", "spans"]
    output.rows(rows, columns, empty="no commits yet")
