"""`penstock spark`: what moving a stream of Spark to this broker asks for."""

from pathlib import Path

import click

from .output import Output, output_options

EPILOG = """\b
Examples:
  penstock spark offsets orders-checkpoint               JSON for the option startingOffsets
  penstock spark offsets joined-checkpoint --source 1    of a query over several topics
"""


@click.group(epilog=EPILOG)
def spark() -> None:
    """Where a stream that read from Kafka is, for the stream that goes on here."""


@spark.command(epilog=EPILOG)
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option(
    "--source",
    metavar="N",
    help="Which source of the query, by its number from 0, or its name; if several are Kafka's.",
)
@output_options
def offsets(checkpoint: Path, *, source: str | None, output: Output) -> None:
    """Print where the Kafka source of CHECKPOINT goes on, as JSON for the option startingOffsets.

    That is behind the last micro-batch that is committed. CHECKPOINT is a directory, the checkpointLocation of a
    query that is stopped; of one in a bucket copy its directories offsets and commits. Nothing is changed.
    """
    import json

    from .kafka_checkpoint import kafka_offsets

    place = kafka_offsets(checkpoint, source)
    output.outcome(json.dumps(place.starting_offsets), place._asdict())
