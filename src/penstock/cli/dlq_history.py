"""`penstock dlq history`: dead letters of a lake and of the broker, counted by what went wrong."""

import click

from .output import Output, output_options
from .remote import BrokerOptions, complete_topic, connected, remote_options


@click.command(epilog="Example: penstock dlq history orders --lake lake --json")
@click.argument("topic", shell_complete=complete_topic)
@click.option(
    "--lake",
    default="",
    metavar="DIR",
    help="A lake that TOPIC.dlq is archived in, a directory or s3://bucket/path.",
)
@click.option("--offline", is_flag=True, help="Do not ask the broker: only the lake.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@remote_options
@output_options
def history(
    topic: str, *, lake: str, offline: bool, limit: int, broker: BrokerOptions, output: Output
) -> None:
    """Count the dead letters of TOPIC by fingerprint, over the lake and those that the broker has.

    A fingerprint is reason, group and error without numbers, identifiers and quoted texts. Archive the dead letters
    with `penstock archive run orders.dlq --to lake`, or with a pattern such as 'orders*'.
    """
    if offline and not lake:
        raise click.UsageError("--offline: name the lake with --lake")
    from contextlib import nullcontext

    from .pipeline_runner import require_arrow

    require_arrow()
    from ..spark.pipelines.lake import LakeReader
    from ..spark.pipelines.letter_history import letter_history

    files = LakeReader(lake) if lake else None
    with nullcontext() if offline else connected(broker) as client:
        found = letter_history(topic, files, client)
    rows = [one.to_record() for one in found[:limit]]
    shown = ["fingerprint", "count", "in_lake", "live_only", "first", "last", "reason", "error"]
    output.rows(rows, shown, empty="no dead letters")
