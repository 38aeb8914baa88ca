"""`penstock pipeline init`: a project for Spark's Declarative Pipelines."""

from pathlib import Path

import click

from ..errors import Refused
from .output import Output, output_options
from .pipeline_runner import require_spark
from .remote import BrokerOptions, complete_topic, remote_options

EPILOG = """\b
Examples:
  penstock pipeline init orders                     from the topic orders, into orders.out
  penstock pipeline init shop --topic orders --to orders-shouted
  penstock pipeline init shop --topic orders --server penstocks://penstock.example.com --key-file ~/.penstock-live

\b
Then, with both topics there:
  . orders/env.sh                                   Java, and the catalogue of the project
  cd orders && spark-pipelines run                  what is new since the last run
  spark-pipelines run --full-refresh orders         this table from the beginning
  spark-pipelines run --remote sc://10.0.0.5:15002  on a Connect server

docs/declarative.md says when to use it, and what a full refresh publishes.
"""


@click.command(epilog=EPILOG)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--topic",
    shell_complete=complete_topic,
    help="The topic to read; if not said, the one with the name of DIR.",
)
@click.option(
    "--to",
    "target",
    metavar="TOPIC",
    shell_complete=complete_topic,
    help="The topic that the sink writes; TOPIC.out, if not said.",
)
@remote_options
@output_options
def init(
    directory: Path,
    *,
    topic: str | None,
    target: str | None,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Make DIR a project for `spark-pipelines`, Spark's Declarative Pipelines.

    It has the topic as a streaming table, a materialised view with the latest row of each key, and a sink that
    publishes every message in another topic, exactly once. A directory that is there is refused and not changed.
    """
    require_spark()
    from ..spark.project import Project, make_project

    name = directory.absolute().name
    found = Project(
        name=name,
        topic=topic or name,
        target=target or f"{topic or name}.out",
        broker=source_options(broker),
    )
    try:
        make_project(directory, found)
    except OSError as error:
        raise Refused(f"{directory}: {error.strerror or error}") from error
    output.outcome(
        f"{directory}: reads {found.topic}, writes {found.target}; now `. {directory}/env.sh`, "
        f"then `cd {directory} && spark-pipelines run`",
        {
            "directory": str(directory.absolute()),
            "topic": found.topic,
            "target": found.target,
            "tables": [found.table, f"{found.table}_latest"],
        },
    )


def source_options(broker: BrokerOptions) -> dict[str, str]:
    """Returns the server as options of source and sink. Refused: its key is not in a file, where tasks find it."""
    context, key = broker.found()
    key_file = context.key_file if broker.key_file is None else str(broker.key_file.absolute())
    if key is not None and key_file is None:
        raise Refused("tasks of Spark read the key from a file: give --key-file")
    named = {"url": context.server, "apiKeyFile": key_file, "caFile": context.ca_file}
    return {option: value for option, value in named.items() if value is not None}
