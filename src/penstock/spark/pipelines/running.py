"""Runs a pipeline, whatever kind it is."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import Refused
from .archive import Archive, ArchiveOptions, Stop
from .failures import saying
from .flow import Flow
from .lake import Lake, Table
from .load import Load, LoadOptions
from .manifest import Manifest
from .model import (
    FilesSource,
    Kind,
    LakeSink,
    OnDamage,
    Pipeline,
    PlotSink,
    Start,
    TableSink,
    TopicSink,
    TopicSource,
)
from .remote import Remote
from .report import Reporter, Tell
from .spread import SparkSpread
from .table import draw, found_rows, write_table
from .views import register

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# In one process too a task that fails is worth a second try.
LOCAL_MASTER = "local[*,4]"

Show = Callable[["pa.Table"], None]


def remote_of(pipeline: Pipeline) -> Remote:
    return Remote(pipeline.server, pipeline.key_file, pipeline.ca_file)


def open_session(pipeline: Pipeline, master: str) -> "SparkSession":
    """The session for a pipeline, with what its YAML says about Spark."""
    from ..session import session

    # It prints, as JSON, every refusal that is also raised.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    with saying(f"session at {master}"):
        return session(f"penstock {pipeline.name}", master=master, config=pipeline.spark)


def run(
    spark: "SparkSession",
    pipeline: Pipeline,
    stop: Stop,
    *,
    is_once: bool,
    tell: Tell = lambda _: None,
    show: Show = lambda _: None,
) -> None:
    """Run a pipeline to its end, or until `stop`."""
    remote = remote_of(pipeline)
    with Reporter(pipeline, remote, tell) as reporter:
        if pipeline.kind is Kind.ARCHIVE:
            run_archive(spark, pipeline, stop, reporter, is_once=is_once)
        elif pipeline.kind is Kind.STREAM:
            with open_lake(lake_sink(pipeline)) as lake:
                Flow(spark, pipeline, lake, reporter).run(stop, is_once=is_once)
        elif pipeline.kind is Kind.LOAD:
            load = load_of(pipeline, remote, spark, reporter)
            load.run_once(stop) if is_once else load.run(stop)
        else:
            run_sql(spark, pipeline, show)


def lake_sink(pipeline: Pipeline) -> LakeSink:
    sink = pipeline.sinks[0]
    assert isinstance(sink, LakeSink), "the kind of a pipeline is told by its sink"
    return sink


def open_lake(sink: LakeSink) -> Lake:
    """The lake of a sink, with the right to write. What it is stands in the lake itself, once it exists."""

    def publish(lake: Lake, manifest: Manifest) -> None:
        if lake.identity.table is Table.DELTA:
            from .delta import publish as to_delta

            to_delta(lake, manifest)

    return Lake(Path(sink.lake), table=sink.table, split=sink.split, publish=publish)


def run_archive(
    spark: "SparkSession", pipeline: Pipeline, stop: Stop, tell: Tell, *, is_once: bool
) -> None:
    sink = lake_sink(pipeline)
    sources = [pipeline.sources[name] for name in sink.inputs]
    topics = [one for one in sources if isinstance(one, TopicSource)]
    starts = {one.start for one in topics}
    if len(starts) > 1:
        raise Refused("topics that share a lake start at the same end: earliest or latest")
    options = ArchiveOptions(
        topics=tuple(dict.fromkeys(one.topic for one in topics)),
        starts_latest=starts == {Start.LATEST},
        group=sink.group or (pipeline.name if sink.hold_retention else ""),
        holds_retention=sink.hold_retention,
        skips_damage=sink.on_damage is OnDamage.SKIP,
        compression=sink.compression.value,
        commit_messages_max=sink.max_messages_per_commit,
        task_messages_max=sink.max_messages_per_file,
        interval_s=pipeline.interval_ms / 1000,
    )
    with open_lake(sink) as lake:
        archive = Archive(lake, remote_of(pipeline), SparkSpread(spark), options, tell)
        archive.run_once(stop) if is_once else archive.run(stop)


def load_of(pipeline: Pipeline, remote: Remote, spark: "SparkSession", tell: Tell) -> Load:
    sink = pipeline.sinks[0]
    assert isinstance(sink, TopicSink), "the kind of a pipeline is told by its sink"
    sources = [pipeline.sources[name] for name in sink.inputs]
    options = LoadOptions(
        patterns=tuple((one.files, one.format) for one in sources if isinstance(one, FilesSource)),
        topic=sink.topic,
        key=sink.key,
        value=sink.value,
        interval_s=pipeline.interval_ms / 1000,
    )
    return Load(Path(pipeline.checkpoint), remote, SparkSpread(spark), options, tell)


def run_sql(spark: "SparkSession", pipeline: Pipeline, show: Show) -> None:
    """Read everything that is there now, and show what the query finds."""
    register(spark, pipeline, is_stream=False)
    for sink in pipeline.sinks:
        assert isinstance(sink, TableSink | PlotSink), "all sinks of such a pipeline show something"
        with saying(sink.inputs[0]):
            table = found_rows(spark.table(sink.inputs[0]), sink.limit)
        if isinstance(sink, PlotSink):
            draw(table, sink)
        elif sink.table == "-":
            show(table)
        else:
            write_table(table, Path(sink.table))
