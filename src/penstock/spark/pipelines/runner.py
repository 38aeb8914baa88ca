"""Runs a pipeline of any kind."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import PenstockError, Refused
from .archive import (
    Archive,
    ArchiveOptions,
    ArchivePreview,
    Stop,
    preview,
    query_topics,
)
from .followed_schema import new_columns
from .lake import Lake, LakeColumns, LakeReader, TableFormat, exists
from .load import Load, LoadOptions
from .manifest import Manifest
from .model import (
    FilesSource,
    LakeSink,
    OnDamage,
    Pipeline,
    PipelineKind,
    PlotSink,
    TableSink,
    TopicSink,
    TopicSource,
    TopicStart,
)
from .rejects import Rejects
from .remote import Remote
from .report import OnProgress, PipelineIdentity, Reporter
from .spark_errors import spark_errors
from .state import LakeState
from .store import lake_address
from .stream import Stream
from .table import draw, write_table
from .task_runner import LocalTaskRunner, SparkTaskRunner, TaskRunner
from .views import register

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# Up to 4 attempts for each task, also in one process.
LOCAL_MASTER = "local[*,4]"

Publish = Callable[[Lake, Manifest], None]
Show = Callable[["pa.Table"], None]


def remote_of(pipeline: Pipeline) -> Remote:
    return Remote(pipeline.server, pipeline.key_file, pipeline.ca_file)


def open_session(pipeline: Pipeline, master: str) -> "SparkSession":
    """Returns a session with the settings of Spark in the pipeline. Refused or Unavailable: it cannot start."""
    if master.startswith("sc://") and pipeline.kind is PipelineKind.STREAM:
        raise Refused(
            f"{pipeline.name} has transforms: this process commits its micro-batches, and a Connect server would run "
            "that in its own. Use --master, or a declarative pipeline with a sink of format penstock"
        )
    return session_at(master, f"penstock {pipeline.name}", pipeline.spark)


def session_at(master: str, name: str, config: Mapping[str, str]) -> "SparkSession":
    """Returns a session for commands. Refused or Unavailable: it cannot start."""
    from ..session import session

    # This logger prints every error as JSON that is also raised.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    with spark_errors(f"session at {master}"):
        return session(name, master=master, config=config)


def needs_spark(pipeline: Pipeline, master: str) -> bool:
    """Whether a pipeline runs on Spark: an archive that names no cluster runs in this process, without a JVM."""
    return pipeline.kind is not PipelineKind.ARCHIVE or bool(master)


def run(
    spark: "SparkSession | None",
    pipeline: Pipeline,
    stop: Stop,
    *,
    is_once: bool,
    tell: OnProgress = lambda _: None,
    show: Show = lambda _: None,
) -> None:
    """Run a pipeline to its end, or until `stop`."""
    remote = remote_of(pipeline)
    identity = PipelineIdentity(
        pipeline.name, pipeline.kind.value, pipeline.topics, pipeline.target
    )
    with Reporter(identity, remote, tell) as reporter:
        if pipeline.kind is PipelineKind.ARCHIVE:
            runner = LocalTaskRunner() if spark is None else SparkTaskRunner(spark)
            run_archive(runner, pipeline, stop, reporter, is_once=is_once)
            return
        assert spark is not None, "`needs_spark` said so"
        if pipeline.kind is PipelineKind.STREAM:
            with open_lake(lake_sink(pipeline)) as lake:
                Stream(spark, pipeline, lake, reporter).run(stop, is_once=is_once)
        elif pipeline.kind is PipelineKind.LOAD:
            load = load_of(pipeline, remote, spark, reporter)
            load.run_once(stop) if is_once else load.run(stop)
        else:
            run_sql(spark, pipeline, show, reporter)


def lake_sink(pipeline: Pipeline) -> LakeSink:
    sink = pipeline.sinks[0]
    assert isinstance(sink, LakeSink), "the kind of a pipeline is told by its sink"
    return sink


def publish_table(lake: Lake, manifest: Manifest) -> None:
    """Add a commit to the table of a lake, if that has a log of its own."""
    if lake.identity.table is TableFormat.DELTA:
        from .delta import publish

        publish(lake, manifest)


def _publisher(sink: LakeSink, remote: Remote | None) -> Publish:
    """Returns what publishes a commit: to the table of the lake, and what could not be read to where it goes."""
    if remote is None or not (sink.rejects_topic or sink.rejects_files):
        return publish_table
    rejects = Rejects(remote, sink.rejects_topic, sink.rejects_files)

    def publish(lake: Lake, manifest: Manifest) -> None:
        publish_table(lake, manifest)
        rejects.publish(lake, manifest)

    return publish


def open_lake(sink: LakeSink, remote: Remote | None = None) -> Lake:
    """Returns the lake of a sink with its lock. A lake that exists has its own table format.

    An archive says by `remote` which broker has the schema of a new lake. NotFound: it has no such subject.
    """
    columns, publish = None, _publisher(sink, remote)
    if sink.subject and remote is not None:
        with remote.connect() as client:
            if sink.rejects_topic:
                client.topic(sink.rejects_topic)
            # Of a lake that is there they are only compared: it goes on, whatever the latest version has.
            columns = (
                LakeColumns(sink.subject, 0, sink.partition_by)
                if exists(sink.lake)
                else new_columns(client, sink.subject, sink.partition_by)
            )
    return Lake(
        lake_address(sink.lake),
        table=sink.table,
        split=sink.split,
        columns=columns,
        publish=publish,
    )


def preview_archive(
    pipeline: Pipeline,
) -> tuple[list[ArchivePreview], dict[str, PenstockError]]:
    """Returns what an archive would do now, and the topics that it could not read. Nothing is made or changed."""
    sink = lake_sink(pipeline)
    state = LakeReader(sink.lake).state() if exists(sink.lake) else LakeState()
    return preview(state, remote_of(pipeline), pipeline.topics)


def run_archive(
    run_tasks: TaskRunner, pipeline: Pipeline, stop: Stop, tell: OnProgress, *, is_once: bool
) -> None:
    sink = lake_sink(pipeline)
    sources = [pipeline.sources[name] for name in sink.inputs]
    topics = [one for one in sources if isinstance(one, TopicSource)]
    starts = {one.start for one in topics}
    if len(starts) > 1:
        raise Refused("topics that share a lake start at the same end: earliest or latest")
    options = ArchiveOptions(
        topics=tuple(dict.fromkeys(one.topic for one in topics)),
        starts_latest=starts == {TopicStart.LATEST},
        group=sink.group or (pipeline.name if sink.hold_retention else ""),
        holds_retention=sink.hold_retention,
        skips_damage=sink.on_damage is OnDamage.SKIP,
        compression=sink.compression.value,
        commit_messages_max=sink.max_messages_per_commit,
        task_messages_max=sink.max_messages_per_file,
        interval_s=pipeline.interval_ms / 1000,
    )
    remote = remote_of(pipeline)
    if not exists(sink.lake):
        # A run that is refused makes no lake.
        found, problems = query_topics(LakeState(), remote, options.topics)
        if problems and not found:
            raise next(iter(problems.values()))
    with open_lake(sink, remote) as lake:
        archive = Archive(lake, remote, run_tasks, options, tell)
        archive.run_once(stop) if is_once else archive.run(stop)


def load_of(pipeline: Pipeline, remote: Remote, spark: "SparkSession", tell: OnProgress) -> Load:
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
    return Load(Path(pipeline.checkpoint), remote, SparkTaskRunner(spark), options, tell)


def run_sql(spark: "SparkSession", pipeline: Pipeline, show: Show, reporter: Reporter) -> None:
    """Run a query over everything that is there now, and print, draw or write its rows."""
    register(spark, pipeline, is_stream=False)
    reporter.begin()
    for sink in pipeline.sinks:
        assert isinstance(sink, TableSink | PlotSink), "all sinks of such a pipeline show something"
        with spark_errors(sink.inputs[0]):
            table = spark.table(sink.inputs[0]).limit(sink.limit).toArrow()
        if isinstance(sink, PlotSink):
            draw(table, sink)
        elif sink.table == "-":
            show(table)
        else:
            write_table(table, Path(sink.table))
