"""The end of the demo: orders from the broker into a lake, and what a query finds there."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from penstock.client import Client
from penstock.spark.pipelines.ad_hoc import archive_pipeline, sql_pipeline
from penstock.spark.pipelines.lake import LakeReader
from penstock.spark.pipelines.model import LakeSource
from penstock.spark.pipelines.runner import LOCAL_MASTER, open_session, run
from penstock.spark.pipelines.table import plain
from penstock.spark.pipelines.verify import verify

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

TOPIC = "orders"
# What is no JSON has no item: the shop's customers cut some orders off in the middle.
SALES = """
SELECT coalesce(get_json_object(text, '$.item'), '(not an order)') AS item,
       count(*) AS orders,
       round(sum(CAST(get_json_object(text, '$.cents') AS DOUBLE)) / 100, 2) AS sales
FROM (SELECT CAST(value AS STRING) AS text FROM lake WHERE topic = '{topic}')
GROUP BY 1 ORDER BY sales DESC NULLS LAST
"""


@dataclass(frozen=True, slots=True)
class LakeResult:
    """The result of the query over orders. `table` is text to print; `plot` is empty without matplotlib."""

    lake: str
    messages: int
    published: int
    commits: int
    files: int
    problems: tuple[str, ...]
    session_s: float
    archive_s: float
    query_s: float
    table: str
    plot: str

    @property
    def is_good(self) -> bool:
        return not self.problems and self.messages == self.published


def lake(url: str, directory: Path, topic: str = TOPIC) -> LakeResult:
    """Archive a topic of the broker at `url` below `directory`, verify the lake, and query it."""
    started = time.perf_counter()
    spark = open_session(
        archive_pipeline([topic], str(directory), server={"server": url}), LOCAL_MASTER
    )
    try:
        session_s = round(time.perf_counter() - started, 1)
        return replace(lake_with(spark, url, directory, topic), session_s=session_s)
    finally:
        spark.stop()


def lake_with(spark: "SparkSession", url: str, directory: Path, topic: str) -> LakeResult:
    """Archive, verify and query with an existing session."""
    root, never = directory / "lake", Event()
    server: dict[str, str | None] = {"server": url}
    started = time.perf_counter()
    run(spark, archive_pipeline([topic], str(root), server=server), never, is_once=True)
    with Client(url) as client:
        report = verify(LakeReader(root), client, is_content_read=True)
        published = client.topic(topic).total_messages
    archived = time.perf_counter()
    tables: list[pa.Table] = []
    plot = str(directory / "sales.png") if _can_draw() else ""
    source = {"lake": LakeSource(lake=str(root))}
    query = sql_pipeline(SALES.format(topic=topic), source, server=server, plot=plot, y="sales")
    run(spark, query, never, is_once=True, show=tables.append)
    return LakeResult(
        lake=str(root),
        messages=report.rows,
        published=published,
        commits=report.commits,
        files=report.files,
        problems=tuple(report.problems),
        session_s=0.0,
        archive_s=round(archived - started, 1),
        query_s=round(time.perf_counter() - archived, 1),
        table=plain(tables[0]),
        plot=plot,
    )


def _can_draw() -> bool:
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None
