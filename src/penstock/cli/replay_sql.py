"""`penstock replay --sql`: rows of a query over a range into a topic, in one commit, through Spark."""

from typing import TYPE_CHECKING

from ..errors import PenstockError, Refused
from .output import Output
from .pipeline_runner import require_spark, server_of
from .progress import Bar
from .remote import BrokerOptions, connected
from .transfer import Run

if TYPE_CHECKING:
    from ..client import Client
    from ..spark.pipelines.remote import Remote
    from ..spark.pipelines.replay_sql import SeamPart
    from .transfer import Range, Transfer


def run_sql_replay(
    job: "Transfer", query: str, broker: BrokerOptions, output: Output, *, is_dry_run: bool
) -> None:
    """Publish the rows of a query over what a job selects. Refused: nothing is selected, or the query is wrong."""
    require_spark()
    from ..model import check_name
    from ..spark.pipelines.remote import Remote
    from ..spark.pipelines.replay_sql import committed_rows

    check_name(job.name, "job")
    with server_of(broker) as server, connected(broker) as client:
        remote = Remote(server["server"] or "", server["key_file"], server["ca_file"])
        partitions = job.check(client)
        ranges = job.ranges(client)
        if not any(one.start < one.end for one in ranges):
            raise Refused(f"no message of {job.source} is in that range")
        facts = {"job": job.name, "source": job.source, "target": job.target}
        if (before := committed_rows(client, job.name)) is not None:
            sentence = f"{before:,} rows of {job.source} were published before; for once more, give another --name"
            output.outcome(sentence, {**facts, "messages": 0, "done_before": before})
            return
        parts = parts_of(job, client, ranges)
        job.check_files(client, ranges)
        run = Run(client, job, partitions, lambda _: None)
        run.lag = sum(one.end - one.start for one in ranges)
        with Bar(f"{job.name}: Spark", is_wanted=output.is_table):
            count = run_query(job, query, remote, parts, None if is_dry_run else run)
    if is_dry_run:
        sentence = f"{count:,} rows of {run.lag:,} offsets of {job.source} would go to {job.target}: dry run"
    else:
        sentence = f"{count:,} messages of {job.source} are in {job.target}, 1 commit"
    output.outcome(sentence, {**facts, "messages": count, "dry_run": is_dry_run})


def parts_of(job: "Transfer", client: "Client", ranges: "list[Range]") -> "list[SeamPart]":
    """Returns where the lake ends and the log begins, for each partition that has messages."""
    from ..spark.pipelines.replay_sql import SeamPart

    seams = job.seams(client)
    return [
        SeamPart(
            one.partition,
            one.start,
            min(max(one.start, seams.get(one.partition, one.start)), one.end),
            one.end,
            one.seed,
        )
        for one in ranges
        if one.start < one.end
    ]


def run_query(
    job: "Transfer", query: str, remote: "Remote", parts: "list[SeamPart]", run: "Run | None"
) -> int:
    """Returns how many rows the query has, published by `run`, or only counted if that is None."""
    from ..spark.pipelines.replay_sql import SeamRange, committed_rows, publish_rows, selected
    from ..spark.pipelines.runner import LOCAL_MASTER, session_at
    from ..spark.pipelines.spark_errors import spark_errors

    spark = session_at(LOCAL_MASTER, f"penstock {job.name}", {})
    try:
        rows = selected(spark, remote, SeamRange(job.source, job.lake_root, parts), query)
        if run is None:
            with spark_errors("--sql"):
                return int(rows.count())
        run.report("starting")
        try:
            publish_rows(rows, remote, job.target, job.name, job.priority or 0)
        except PenstockError as error:
            run.report("failed", str(error))
            raise
        with remote.connect() as client:
            run.messages, run.commits = committed_rows(client, job.name) or 0, 1
        run.lag = 0
        run.report("stopped")
        return run.messages
    finally:
        spark.stop()
