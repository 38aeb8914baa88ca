"""`penstock load`: files into a topic, each row once."""

import click

from .output import Output, output_options
from .pipeline_runner import require_spark, run_pipeline, server_of, spark_options
from .remote import BrokerOptions, remote_options

EPILOG = """\b
Examples:
  penstock load orders.parquet --topic orders --key id        rows as JSON objects
  penstock load 'in/*.csv' --topic orders --key id --follow    and new files as they come
  penstock load days.json --topic days --value text            one field as the value

A file that is loaded is not loaded again, and one whose load was cut off goes on behind its last row.
"""


@click.command(epilog=EPILOG)
@click.argument("files")
@click.option("--topic", required=True, help="Where the rows go; it has to be there.")
@click.option(
    "--format",
    "kind",
    default="",
    metavar="FORMAT",
    help="parquet, csv or json; by the ending, if not said.",
)
@click.option(
    "--key", default="", metavar="COLUMN", help="The key of a message; none, if not said."
)
@click.option(
    "--value", default="", metavar="COLUMN", help="Its value; the whole row as JSON, if not said."
)
@click.option(
    "--checkpoint",
    default="",
    metavar="DIR",
    help="What was loaded; .penstock/load.TOPIC if not said.",
)
@click.option("--follow", is_flag=True, help="Look for new files until Ctrl-C.")
@spark_options
@remote_options
@output_options
def load(
    files: str,
    *,
    topic: str,
    kind: str,
    key: str,
    value: str,
    checkpoint: str,
    follow: bool,
    master: str,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Load FILES (Parquet, CSV or JSON lines; * and ? allowed, in quotes) into a topic."""
    require_spark()
    from ..spark.pipelines.ad_hoc import load_pipeline

    with server_of(broker) as server:
        found = load_pipeline(
            files, topic, server=server, checkpoint=checkpoint, kind=kind, key=key, value=value
        )
        run_pipeline(found, None, master=master, is_once=not follow, output=output)
