"""`penstock sql`: a query over topics and lakes, as a table or a plot."""

from typing import Any

import click

from .output import Output, output_options
from .pipeline_runner import require_spark, run_pipeline, server_of, spark_options
from .remote import BrokerOptions, remote_options

EPILOG = """\b
Examples:
  penstock sql "SELECT count(*) FROM orders" --topic orders
  penstock sql "SELECT date, count(*) AS n FROM lake GROUP BY date" --lake lake --plot days.png
  penstock sql "SELECT CAST(value AS STRING) FROM o LIMIT 5" --topic o=shop.orders --json
  penstock sql "SELECT * FROM lake" --lake lake --to all.parquet --limit 1000000
  penstock sql "SELECT count(*) FROM lake" --lake lake --as-of 2026-01-31T12:00:00Z

A topic is a view with the columns key, value, topic, partition, offset, timestamp and more; a lake has the same.
For a long history ask the lake: it is read by column, the broker is not.
"""


@click.command(epilog=EPILOG)
@click.argument("query")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="[VIEW=]TOPIC",
    help="A topic as a view; repeatable.",
)
@click.option(
    "--lake", "lakes", multiple=True, metavar="[VIEW=]DIR", help="A lake as a view; repeatable."
)
@click.option(
    "--as-of",
    default="",
    metavar="COMMIT|TIME",
    help="Lakes as they were after a commit, or at a time such as 2026-01-31T12:00:00Z.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    show_default=True,
    help="Rows at most.",
)
@click.option(
    "--to", "table", default="-", metavar="FILE", help="Into a .csv, .json or .parquet file."
)
@click.option("--plot", default="", metavar="FILE", help="Also draw it (.png, .svg, .pdf).")
@click.option("--x", default="", metavar="COLUMN", help="Of the plot; the first, if not said.")
@click.option("--y", default="", metavar="COLUMN", help="Of the plot; the second, if not said.")
@click.option(
    "--plot-kind", "kind", type=click.Choice(["bar", "line"]), default="bar", show_default=True
)
@spark_options
@remote_options
@output_options
def sql(
    query: str,
    *,
    topics: tuple[str, ...],
    lakes: tuple[str, ...],
    as_of: str,
    master: str,
    broker: BrokerOptions,
    output: Output,
    **options: Any,
) -> None:
    """Run QUERY over topics and lakes."""
    require_spark()
    from ..spark.pipelines.ad_hoc import named_source, sql_pipeline

    named = [named_source(one, "topic") for one in topics]
    named += [named_source(one, "lake", as_of) for one in lakes]
    if not named:
        raise click.UsageError("name what the query is about with --topic or --lake")
    if len({view for view, _ in named}) < len(named):
        raise click.UsageError("two views have the same name; say VIEW=NAME for one of them")
    with server_of(broker) as server:
        found = sql_pipeline(query, dict(named), server=server, **options)
        run_pipeline(found, None, master=master, is_once=True, output=output)
