"""Streams topics through transforms into a lake, micro-batch by micro-batch.

Spark's checkpoint fixes the offsets of a micro-batch, so that a repeated batch has the same messages. The lake records
the checkpoint's identity and the number of each batch, and a batch that it has is not written again. So no batch is in
the lake twice, and none is missing.
"""

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ...api.json.pipelines import State
from ...errors import PenstockError, Refused, Unavailable
from ..fingerprint import Fingerprint, Then
from ..progress import BatchProgress, commit_group, progress_of
from .archive import PipelineProgress, Stop
from .lake import Lake
from .manifest import LakeFile, StreamBatch
from .model import LakeSink, Pipeline
from .partitions import keep_unread, query_partitions
from .remote import Remote
from .report import OnProgress
from .schema import Column, columns_of
from .spark_errors import is_session_gone, spark_errors
from .store import store_of
from .task_files import ParquetSink
from .task_runner import binary_column
from .views import register

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_MARK = "pipeline.json"
_LOOK_S = 0.5
# A batch that takes longer is aborted, and the next run repeats it.
_LAST_BATCH_S = 60.0
_PAUSE_S_MIN, _PAUSE_S_MAX = 1.0, 30.0
# A stream that fails so often without a batch in between does not fail for a passing reason; 10 take 3 minutes.
_RESTARTS_MAX = 10
_WHEN_OLDER = (
    "its checkpoint is older than the lake, or lost a file, and nothing was written. Bring the newer checkpoint back, "
    "or begin with another lake"
)
_LOG = logging.getLogger("penstock.spark")


class _CheckpointOwner(msgspec.Struct, frozen=True):
    name: str
    topics: list[str]


def claim_checkpoint(checkpoint: Path, pipeline: Pipeline) -> None:
    """Record the topics in a new checkpoint. Refused: the checkpoint is of other topics."""
    path = checkpoint / _MARK
    wanted = _CheckpointOwner(pipeline.name, sorted(pipeline.topics))
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_CheckpointOwner)
    except FileNotFoundError:
        checkpoint.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(wanted))
        return
    except msgspec.MsgspecError:
        raise Refused(f"{path} is not what a pipeline writes there") from None
    if found.topics != wanted.topics:
        raise Refused(
            f"{checkpoint} is the checkpoint of another topic: it was made for {', '.join(found.topics)}, "
            f"not for {', '.join(wanted.topics)}"
        )


def query_of(checkpoint: Path) -> str:
    """Returns the identity that Spark gave to a checkpoint."""
    found = json.loads((checkpoint / "metadata").read_text())
    return str(found["id"])


class PartitionDone(msgspec.Struct, frozen=True):
    """What a task has done with the rows of a partition. There is no file if they were only counted."""

    rows: int
    total: int
    file: LakeFile | None = None


@dataclass(frozen=True, slots=True)
class RowCount:
    """Sums up the rows of a partition. Runs on the executors."""

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from ..row_hashes import fingerprint_of

        held = reduce(add, map(fingerprint_of, batches), Fingerprint())
        yield _told(PartitionDone(held.rows, held.total))


def _told(done: PartitionDone) -> "pa.RecordBatch":
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([binary_column(msgspec.json.encode(done))], names=["done"])


def _run(rows: "DataFrame", task: "FileWrite | RowCount") -> tuple[list[LakeFile], Fingerprint]:
    """Returns the files that tasks have written, and what the rows are."""
    found = rows.mapInArrow(task, "done binary").collect()
    done = [msgspec.json.decode(bytes(row["done"]), type=PartitionDone) for row in found]
    held = reduce(add, (Fingerprint(part.rows, part.total) for part in done), Fingerprint())
    return [part.file for part in done if part.file is not None], held


@dataclass(frozen=True, slots=True)
class FileWrite:
    """Writes the rows of a partition into one file in staging. Runs on the executors."""

    root: str
    commit: int
    attempt: str
    compression: str

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from ..row_hashes import fingerprint_of

        own, store, sink, held = token_hex(8), store_of(self.root), None, Fingerprint()
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if sink is None:
                path = f"rows-{self.commit:08d}-{own}.parquet"
                aside = f"{self.commit:020d}/{self.attempt}-{own}/rows.parquet"
                staged = aside if store.stages else ""
                sink = ParquetSink(store, path, staged, batch.schema, self.compression)
            sink.writer.write_batch(batch)
            held += fingerprint_of(batch)
        if sink is None:
            return
        yield _told(PartitionDone(held.rows, held.total, sink.close()))


def frame_columns(rows: "DataFrame") -> list[Column]:
    """Returns the columns of a frame as a lake has them. All may be null: Spark does not promise the contrary."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return [replace(one, nullable=True) for one in columns_of(to_arrow_schema(rows.schema))]


class Stream:
    """One stream into one lake."""

    def __init__(
        self, spark: "SparkSession", pipeline: Pipeline, lake: Lake, on_progress: OnProgress
    ) -> None:
        sink = pipeline.sinks[0]
        assert isinstance(sink, LakeSink), "the kind of a pipeline is told by its sink"
        self.spark, self.pipeline, self.lake, self.sink = spark, pipeline, lake, sink
        self.on_progress = on_progress
        self.checkpoint = Path(pipeline.checkpoint)
        self.messages = self.commits = 0
        self._done = BatchProgress(-1, 0, 0.0, 0, 0, {})

    def run(self, stop: Stop, *, is_once: bool) -> None:
        claim_checkpoint(self.checkpoint, self.pipeline)
        group = self.sink.group or (self.pipeline.name if self.sink.hold_retention else "")
        if group:
            self._open_group(group)
        register(self.spark, self.pipeline, is_stream=True, group=group)
        pause_s, failures = _PAUSE_S_MIN, 0
        while True:
            commits = self.commits
            try:
                self._run_query(stop, group, is_once=is_once)
                break
            except Unavailable as error:
                failures = 1 if self.commits > commits else failures + 1
                pause_s = _PAUSE_S_MIN if self.commits > commits else pause_s
                if is_once or failures > _RESTARTS_MAX or is_session_gone(error, self.spark):
                    raise
                self._tell("waiting", str(error))
            if stop.wait(pause_s):
                break
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)
        self._tell("stopped")

    def _run_query(self, stop: Stop, group: str, *, is_once: bool) -> None:
        """Run the query until it ends, or until `stop` and the end of the batch under way, if it ends soon."""
        query = self._start(is_once=is_once)
        self._tell("starting")
        try:
            with spark_errors("stream"):
                while query.isActive and not stop.is_set():
                    query.awaitTermination(_LOOK_S)  # type: ignore[arg-type]  # Spark takes fractions.
                    self._note_progress(query, group)
                deadline_s = time.monotonic() + _LAST_BATCH_S
                while (
                    query.isActive
                    and query.status["isTriggerActive"]
                    and time.monotonic() < deadline_s
                ):
                    query.awaitTermination(_LOOK_S)  # type: ignore[arg-type]  # As above.
        finally:
            query.stop()
            # Also of the last batch, of which Spark tells no source.
            self._note_progress(query, group)

    def _note_progress(self, query: "StreamingQuery", group: str) -> None:
        """Report the last batch that is done, and move the group to its end, once for each batch."""
        told = query.lastProgress
        if told is None:
            return
        done = progress_of(told)
        if done.next == self._done.next and done.batch == self._done.batch:
            return
        self._done = done
        self._tell("running")
        if group and done.next:
            try:
                with self._remote().connect() as client:
                    commit_group(client, group, done)
            except PenstockError as error:
                _LOG.warning("progress of group %s not published: %s", group, error)

    def _tell(self, state: State, error: str = "") -> None:
        done = self._done
        self.on_progress(
            PipelineProgress(
                state, self.messages, self.commits, done.lag, error, done.rate, done.batch_ms
            )
        )

    def _remote(self) -> Remote:
        pipeline = self.pipeline
        return Remote(pipeline.server, pipeline.key_file, pipeline.ca_file)

    def _open_group(self, group: str) -> None:
        """Make the group before the first read: retention waits only for groups that exist."""
        pipeline = self.pipeline
        with self._remote().connect() as client:
            if self.sink.hold_retention:
                keep_unread(client, pipeline.topics)
            for one in query_partitions(client, pipeline.topics):
                client.commit(group, {one.name.topic: {one.name.number: one.earliest}})

    def _start(self, *, is_once: bool) -> "StreamingQuery":
        rows = self.spark.table(self.sink.inputs[0])
        if not rows.isStreaming:
            raise Refused(f"{self.sink.inputs[0]} does not come from a topic: nothing would stream")
        writer = rows.writeStream.queryName(self.pipeline.name).foreachBatch(self.commit)
        writer = writer.option("checkpointLocation", str(self.checkpoint / "spark"))
        interval = f"{self.pipeline.interval_ms} milliseconds"
        writer = (
            writer.trigger(availableNow=True)
            if is_once
            else writer.trigger(processingTime=interval)
        )
        with spark_errors("stream"):
            return writer.start()

    def commit(self, rows: "DataFrame", number: int) -> None:
        """Commit a micro-batch. Spark calls this for each one, and again for the last one after a restart."""
        stream = StreamBatch(query_of(self.checkpoint / "spark"), number)
        self._require_own(stream)
        self.lake.finish()
        last = self.lake.now.streams.get(stream.query)
        if last is not None and number <= last.batch:
            self._pass_over(rows, stream, last)
            return
        write = FileWrite(
            str(self.lake.root),
            self.lake.next_commit,
            token_hex(4),
            self.sink.compression.value,
        )
        files, held = _run(rows, write)
        stream = replace(stream, held=str(held))
        manifest = self.lake.commit([], files, stream, columns=frame_columns(rows))
        self.messages += manifest.rows
        self.commits += 1
        self._tell("running")

    def _pass_over(self, rows: "DataFrame", batch: StreamBatch, last: StreamBatch) -> None:
        """Write nothing of a micro-batch whose number the lake has. Refused: it may hold other rows than that one."""
        this = f"batch {batch.batch} of {self.pipeline.name}"
        if batch.batch < last.batch:
            if self.sink.if_older is Then.REFUSE:
                why = f"is older than the last one of {self.lake.root}, {last.batch}"
                raise Refused(f"{this} {why}: {_WHEN_OLDER}; if_older: skip leaves its rows out")
        elif last.held and (held := str(_run(rows, RowCount())[1])) != last.held:
            if self.sink.on_repeat is Then.REFUSE:
                why = (
                    f"is in {self.lake.root} with {last.held}, and Spark planned it now with {held}"
                )
                skip = "if transforms are not deterministic, on_repeat: skip keeps what came first"
                raise Refused(f"{this} {why}: {_WHEN_OLDER}; {skip}")
            _LOG.warning("%s is not written again: it has %s, and had %s", this, held, last.held)

    def _require_own(self, stream: StreamBatch) -> None:
        """Refused: another checkpoint filled the lake, so rows would be in it twice."""
        now = self.lake.now
        if now.streams.keys() - {stream.query} or now.ends:
            raise Refused(
                f"{self.lake.root} was filled by another checkpoint or by an archive; use another lake"
            )
