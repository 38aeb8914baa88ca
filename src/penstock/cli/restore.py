"""`penstock archive restore`: a topic of a lake back into a broker."""

from typing import TYPE_CHECKING

import click

from .exits import Exit
from .lake_files import DRY_RUN, LAKE
from .output import Output, output_options
from .pipeline_runner import reported, require_arrow, stop_on_signals
from .progress import Bar
from .remote import BrokerOptions, connected, remote_options

if TYPE_CHECKING:
    from ..spark.pipelines.restore import RestorePlan


@click.command(epilog="Example: penstock archive restore lake orders --as orders --dry-run")
@LAKE
@click.argument("topic")
@click.option(
    "--as", "target", default="", metavar="NAME", help="The topic to make; TOPIC if not said."
)
@click.option(
    "--as-of",
    metavar="COMMIT|TIME",
    help="The lake after a commit, or at a time such as 2026-01-31T12:00:00Z.",
)
@click.option(
    "--rate", type=click.IntRange(min=1), metavar="N", help="At most so many messages a second."
)
@DRY_RUN
@remote_options
@output_options
def restore(
    lake: str,
    topic: str,
    *,
    target: str,
    as_of: str | None,
    rate: int | None,
    dry_run: bool,
    broker: BrokerOptions,
    output: Output,
) -> None:
    """Publish all messages of TOPIC in LAKE into a broker, each once, with key, headers, time and priority.

    The topic is made with the partitions that it had, if it is not there; make it before if it needs settings. A run
    that was cut off goes on when it is repeated. Messages keep their partition and their order; offsets begin at 0.
    """
    require_arrow()
    from ..spark.pipelines.ad_hoc import lake_name
    from ..spark.pipelines.archive import PipelineProgress
    from ..spark.pipelines.lake import LakeReader
    from ..spark.pipelines.report import PipelineIdentity
    from ..spark.pipelines.restore import plan_restore
    from ..spark.pipelines.restore import restore as publish

    files = LakeReader(lake)
    with connected(broker) as client:
        planned = plan_restore(client, files, topic, target or topic, as_of)
        done = 0
        if not dry_run:
            into = planned.target
            job = f"restore.{into[:200]}.{lake_name(lake).rpartition('.')[2]}"
            with (
                stop_on_signals() as stop,
                Bar("restore", planned.rows, is_wanted=output.is_table) as bar,
                reported(broker, PipelineIdentity(job, "restore", [into], into)) as tell,
            ):

                def on_progress(count: int) -> None:
                    bar.at(count, count)
                    tell(PipelineProgress("running", count, 0, planned.rows - count))

                done = publish(
                    client, files, planned, rate=rate, stop=stop, on_progress=on_progress
                )
    show_outcome(planned, lake, topic, done, output, is_dry_run=dry_run)


def show_outcome(
    planned: "RestorePlan", lake: str, topic: str, done: int, output: Output, *, is_dry_run: bool
) -> None:
    """Print what was done; exit code 130 if that is not all."""
    record = {
        "lake": lake,
        "topic": topic,
        "target": planned.target,
        "is_new": planned.is_new,
        "messages": planned.rows,
        "done": done,
        "is_dry_run": is_dry_run,
        "partitions": [
            {
                "partition": one.name.number,
                "messages": one.rows,
                "first_offset_in_lake": min((file.first for file in one.files), default=None),
            }
            for one in planned.partitions
        ],
    }
    if is_dry_run:
        text = f"{planned.rows:,} messages would go into {planned.target}"
    elif done < planned.rows:
        text = (
            f"{done:,} of {planned.rows:,} messages are in {planned.target}: run it again to go on"
        )
    else:
        text = f"{done:,} messages are in {planned.target}"
    output.outcome(text, record)
    if not is_dry_run and done < planned.rows:
        click.get_current_context().exit(Exit.INTERRUPTED)
