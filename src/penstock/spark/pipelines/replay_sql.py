"""`penstock replay --sql`: a range of a lake and of a topic as the view `messages`, and a query's rows into a topic.

All rows are one named commit of the sink: all of them or none, and once.
"""

import json
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from ...api.commits import DescribeCommitName
from ...errors import NotFound, Refused
from ..sink_columns import check_sink_columns
from .spark_errors import spark_errors
from .views import FORMAT, lake_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ...client import Client
    from .remote import Remote

VIEW = "messages"
_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "key",
    "value",
    "headers",
    "priority",
    "expires_at",
    "schema_id",
)
# A job with a query has one commit. Its name is that of the job.
_SEQUENCE = 1


class SeamPart(NamedTuple):
    """Offsets of a partition: from `start` up to `seam` in the lake, from there up to `end` in the log."""

    partition: int
    start: int
    seam: int
    end: int
    log: int


class SeamRange(NamedTuple):
    """What a query reads: parts of a topic, in a lake (empty: there is none) and in the log."""

    topic: str
    lake: str
    parts: Sequence[SeamPart]


def committed_rows(client: "Client", name: str) -> int | None:
    """Returns how many messages the commit of a job has published, None if there was none."""
    try:
        found = client.execute(DescribeCommitName(name))
    except NotFound:
        return None
    return None if found.sequence is None else sum(one.message_count for one in found.places)


def selected(spark: "SparkSession", remote: "Remote", asked: SeamRange, query: str) -> "DataFrame":
    """Returns the rows of a query over the parts. Refused: it is wrong, or has columns that the sink does not take."""
    with spark_errors("--sql"):
        frames = []
        if old := [one for one in asked.parts if one.start < one.seam]:
            frames.append(_of_lake(spark, asked.lake, asked.topic, old))
        if new := [one for one in asked.parts if one.seam < one.end]:
            frames.append(_of_topic(spark, remote, asked.topic, new))
        rows = reduce(lambda some, more: some.unionByName(more), frames)
        rows.createOrReplaceTempView(VIEW)
        found = spark.sql(query)
        check_sink_columns(found.schema, has_topic=True)
    return found


def _of_lake(
    spark: "SparkSession", lake: str, source: str, parts: Sequence[SeamPart]
) -> "DataFrame":
    ranges = [
        f"(partition = {one.partition} AND log = {one.log} AND offset >= {one.start} AND offset < {one.seam})"
        for one in parts
    ]
    rows = lake_rows(spark, lake).where(f"topic = '{source}'").where(" OR ".join(ranges))
    return rows.select(*_COLUMNS)


def _of_topic(
    spark: "SparkSession", remote: "Remote", source: str, parts: Sequence[SeamPart]
) -> "DataFrame":
    def places(ends: dict[str, int]) -> str:
        return json.dumps({source: ends})

    options = {
        **broker_options(remote),
        "assign": json.dumps({source: [one.partition for one in parts]}),
        "startingOffsets": places({str(one.partition): one.seam for one in parts}),
        "endingOffsets": places({str(one.partition): one.end for one in parts}),
        "includeHeaders": "true",
    }
    return spark.read.format(FORMAT).options(**options).load().select(*_COLUMNS)


def broker_options(remote: "Remote") -> dict[str, str]:
    """Returns how Spark reaches the broker."""
    given = {"url": remote.url, "apiKeyFile": remote.key_file, "caFile": remote.ca_file}
    return {name: value for name, value in given.items() if value is not None}


def publish_rows(
    rows: "DataFrame", remote: "Remote", target: str, name: str, priority: int
) -> None:
    """Publish rows in one commit, in a lane unless they name their own. Refused: there are none."""
    from pyspark.sql.functions import lit

    with spark_errors("--sql"):
        if not rows.take(1):
            raise Refused("the query selects no row of that range: nothing was published")
        if "priority" not in rows.columns:
            rows = rows.withColumn("priority", lit(priority))
        options = {"topic": target, "sinkId": name, "sequence": str(_SEQUENCE)}
        writer = rows.write.format(FORMAT).mode("append")
        writer.options(**broker_options(remote), **options).save()
