"""`penstock archive compact` and `vacuum`: merge small files of a lake, and remove what was merged."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ..api.json.pipelines import Kind
from .arguments import seconds_in, span
from .output import Output, output_options
from .pipeline_runner import reported, require_arrow
from .progress import Bar
from .remote import BrokerOptions, remote_options

if TYPE_CHECKING:
    from ..spark.pipelines.lake import Lake, LakeReader
    from ..spark.pipelines.report import Reporter

LAKE = click.argument("lake", metavar="LAKE")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Only say what would be done.")
_MIB = 1 << 20
# A report takes no more.
_TOPICS_REPORTED_MAX = 100


@contextmanager
def open_existing(lake: str, *, is_dry_run: bool) -> Iterator["LakeReader"]:
    """Returns a lake that is there: for a dry run only to read, beside its archive; else a `Lake`, with its lock.

    FileMissing: there is none; nothing is made.
    """
    require_arrow()
    from ..spark.pipelines.lake import Lake, LakeReader
    from ..spark.pipelines.runner import publish_table
    from ..spark.pipelines.store import lake_address

    address = lake_address(lake)
    found = LakeReader(address)
    if is_dry_run:
        yield found
        return
    with Lake(address, publish=publish_table) as opened:
        yield opened


@contextmanager
def reported_job(broker: BrokerOptions, opened: "Lake", kind: Kind) -> Iterator["Reporter"]:
    """Has the broker, if it answers, note in its audit log that a job on a lake begins and ends."""
    from ..spark.pipelines.ad_hoc import lake_name
    from ..spark.pipelines.report import PipelineIdentity

    root = str(opened.root)
    topics = sorted({name.topic for name in opened.ends})[:_TOPICS_REPORTED_MAX]
    with reported(broker, PipelineIdentity(lake_name(root, kind), kind, topics, root)) as tell:
        yield tell


@click.command(epilog="Example: penstock archive compact lake --target-size 256 --dry-run")
@LAKE
@click.option(
    "--target-size",
    "target_mib",
    type=click.IntRange(1, 4096),
    default=128,
    show_default=True,
    metavar="MIB",
    help="Files grow up to this size; one of half of it stays as it is.",
)
@DRY_RUN
@remote_options
@output_options
def compact(
    lake: str, *, target_mib: int, dry_run: bool, broker: BrokerOptions, output: Output
) -> None:
    """Merge small files of LAKE into larger ones with the same rows.

    The small files stay for readers that are at it, until `penstock archive vacuum` removes them. A lake in a directory
    has one writer: stop its archive first; it goes on where it was. The broker, if it
    answers, notes it in its audit log.
    """
    require_arrow()
    from ..spark.pipelines.archive import PipelineProgress
    from ..spark.pipelines.lake import Lake
    from ..spark.pipelines.merge import compact as merge_files
    from ..spark.pipelines.merge import plan_merges

    with open_existing(lake, is_dry_run=dry_run) as opened:
        state = opened.state()
        merges = plan_merges(state, target_mib * _MIB)
        record: dict[str, object] = {
            "lake": lake,
            "files_before": len(state.files),
            "files_after": len(state.files) - sum(len(one.files) - 1 for one in merges),
            "rows": sum(one.rows for one in merges),
            "bytes": sum(one.size for one in merges),
            "merges": len(merges),
            "is_dry_run": dry_run,
        }
        if isinstance(opened, Lake):
            progress = PipelineProgress("running", 0, 0, sum(one.rows for one in merges))
            with (
                Bar("compact", len(merges), is_wanted=output.is_table) as bar,
                reported_job(broker, opened, "compact") as tell,
            ):

                def on_merge(done: int, of: int) -> None:
                    bar.at(done, f"{done:,} of {of:,} files")
                    nonlocal progress
                    one = merges[done - 1]
                    progress = replace(
                        progress,
                        messages=progress.messages + one.rows,
                        lag=progress.lag - one.rows,
                        files=progress.files + len(one.files),
                        bytes=progress.bytes + one.size,
                    )
                    tell(progress)

                made = merge_files(opened, target_mib * _MIB, on_merge=on_merge)
                if made:
                    tell(replace(progress, commits=len(made)))
            record["commits"] = [one.commit for one in made]
    will = "would become" if dry_run else "became"
    text = f"{lake}: {record['files_before']:,} files {will} {record['files_after']:,}"
    output.outcome(text if merges else f"{lake}: there is nothing to merge", record)


@click.command("delta-rebuild", epilog="Example: penstock archive delta-rebuild lake")
@LAKE
@output_options
def delta_rebuild(lake: str, *, output: Output) -> None:
    """Make the Delta table of LAKE what its manifests say, whatever another program made of it.

    Files that no commit has leave the table and stay where they are. A table that was released is taken back.
    """
    with delta_lake(lake) as opened:
        from ..spark.pipelines.delta import rebuild

        changed = rebuild(opened)
    record = {"lake": lake, "files_changed": changed}
    output.outcome(f"{lake}: the Delta table is the lake again, {changed:,} files changed", record)


@click.command("delta-release", epilog="Example: penstock archive delta-release lake")
@LAKE
@output_options
def delta_release(lake: str, *, output: Output) -> None:
    """Give the Delta table of LAKE to other programs, which may change it from then on; archives write to it no more.

    The manifests and their files stay as they are, and are verified without the table.
    """
    with delta_lake(lake) as opened:
        from ..spark.pipelines.delta import release

        release(opened)
    output.outcome(f"{lake}: the Delta table is released", {"lake": lake, "is_released": True})


@contextmanager
def delta_lake(lake: str) -> Iterator["Lake"]:
    """Returns a lake with its lock, which does not look at its Delta table. Refused: it has none."""
    require_arrow()
    from ..errors import Refused
    from ..spark.pipelines.lake import Lake, LakeReader, TableFormat
    from ..spark.pipelines.store import lake_address

    address = lake_address(lake)
    if LakeReader(address).identity.table is not TableFormat.DELTA:
        raise Refused(f"{lake} has no Delta table: --table delta is for a new lake")
    with Lake(address) as opened:
        yield opened


@click.command(epilog="Example: penstock archive vacuum lake --keep 7d --dry-run")
@LAKE
@click.option(
    "--keep",
    default="7d",
    show_default=True,
    callback=lambda _ctx, _parameter, value: span(value),
    metavar="SPAN",
    help="Keep what was merged since then; --as-of needs it.",
)
@DRY_RUN
@remote_options
@output_options
def vacuum(lake: str, *, keep: str, dry_run: bool, broker: BrokerOptions, output: Output) -> None:
    """Remove files of LAKE that were merged into others, and in a bucket those of attempts that were cut off.

    The broker, if it answers, notes it in its audit log.
    """
    require_arrow()
    from datetime import timedelta

    from ..spark.pipelines.archive import PipelineProgress
    from ..spark.pipelines.lake import Lake
    from ..spark.pipelines.vacuum import plan_vacuum
    from ..spark.pipelines.vacuum import vacuum as remove_files

    with open_existing(lake, is_dry_run=dry_run) as opened:
        found = plan_vacuum(opened, timedelta(seconds=seconds_in(keep)))
        size = sum(one.size for one in found)
        if isinstance(opened, Lake):
            with reported_job(broker, opened, "vacuum") as tell:
                tell.begin()
                remove_files(opened, found)
                tell(PipelineProgress("running", 0, 0, 0, files=len(found), bytes=size))
    record = {
        "lake": lake,
        "files": len(found),
        "bytes": size,
        "is_dry_run": dry_run,
        "paths": [one.path for one in found],
    }
    will = "would be removed" if dry_run else "removed"
    output.outcome(f"{lake}: {len(found):,} files, {size:,} bytes {will}", record)
