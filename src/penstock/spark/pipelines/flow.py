"""Stream: topics through transforms into a lake, micro-batch by micro-batch.

Spark's checkpoint says which offsets a micro-batch is made of, so that a batch that is done again is the same batch.
The lake says whether it is committed, by the checkpoint's identity and the number of the batch: one that is, is not
written again. So a batch that one of the two knows and the other does not is neither in the lake twice nor missing.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import msgspec

from ...errors import Refused
from .archive import Progress, Stop
from .failures import saying
from .files import new_writer, sync_and_sum
from .lake import STAGING, Lake
from .manifest import Stored, StreamBatch
from .model import LakeSink, Pipeline
from .partitions import keep_unread, look
from .remote import Remote
from .report import Tell
from .spread import one_answer
from .views import register

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_MARK = "pipeline.json"
_LOOK_S = 0.5
# A batch that takes longer is cut off, and done again by the next run.
_LAST_BATCH_S = 60.0


class _Mark(msgspec.Struct, frozen=True):
    name: str
    topics: list[str]


def claim(checkpoint: Path, pipeline: Pipeline) -> None:
    """Note in a new checkpoint what it is for. Refused if it is for something else."""
    path = checkpoint / _MARK
    wanted = _Mark(pipeline.name, sorted(pipeline.topics))
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Mark)
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
    """The identity that Spark gave to a checkpoint."""
    found = json.loads((checkpoint / "metadata").read_text())
    return str(found["id"])


@dataclass(frozen=True, slots=True)
class FileWrite:
    """Goes to the executors: rows of a partition into one file in staging."""

    root: str
    commit: int
    attempt: str
    compression: str

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        own = token_hex(8)
        folder = Path(self.root) / STAGING / f"{self.commit:020d}" / f"{self.attempt}-{own}"
        path, writer, rows = folder / "rows.parquet", None, 0
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if writer is None:
                folder.mkdir(parents=True, exist_ok=True)
                writer = new_writer(path, batch.schema, self.compression)
            writer.write_batch(batch)
            rows += batch.num_rows
        if writer is None:
            return
        writer.close()
        size, number = sync_and_sum(path)
        stored = Stored(
            path=f"rows-{self.commit:08d}-{own}.parquet",
            staged=f"{self.commit:020d}/{self.attempt}-{own}/rows.parquet",
            rows=rows,
            size=size,
            checksum=number,
        )
        answer = one_answer(msgspec.json.encode(stored))
        yield pa.RecordBatch.from_arrays([answer], names=["stored"])


def _wait(query: "StreamingQuery", stop: Stop) -> None:
    """Until the stream ends, or is asked to: then the batch under way may end by itself, if it does so soon."""
    while query.isActive and not stop.is_set():
        query.awaitTermination(_LOOK_S)  # type: ignore[arg-type]  # Spark takes fractions.
    deadline_s = time.monotonic() + _LAST_BATCH_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
        query.awaitTermination(_LOOK_S)  # type: ignore[arg-type]  # As above.


class Flow:
    """One stream into one lake."""

    def __init__(
        self, spark: "SparkSession", pipeline: Pipeline, lake: Lake, on_progress: Tell
    ) -> None:
        sink = pipeline.sinks[0]
        assert isinstance(sink, LakeSink), "the kind of a pipeline is told by its sink"
        self.spark, self.pipeline, self.lake, self.sink = spark, pipeline, lake, sink
        self.on_progress = on_progress
        self.checkpoint = Path(pipeline.checkpoint)
        self.messages = self.commits = 0

    def run(self, stop: Stop, *, is_once: bool) -> None:
        claim(self.checkpoint, self.pipeline)
        group = self.sink.group or (self.pipeline.name if self.sink.hold_retention else "")
        if group:
            self._open_group(group)
        register(self.spark, self.pipeline, is_stream=True, group=group)
        query = self._start(is_once=is_once)
        try:
            with saying("stream"):
                _wait(query, stop)
        finally:
            query.stop()
        self.on_progress(Progress("stopped", self.messages, self.commits, 0))

    def _open_group(self, group: str) -> None:
        """Before anything is read: retention waits only for groups that are there."""
        pipeline = self.pipeline
        remote = Remote(pipeline.server, pipeline.key_file, pipeline.ca_file)
        with remote.connect() as client:
            if self.sink.hold_retention:
                keep_unread(client, pipeline.topics)
            for one in look(client, pipeline.topics):
                client.commit(group, {one.place.topic: {one.place.partition: one.earliest}})

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
        with saying("stream"):
            return writer.start()

    def commit(self, rows: "DataFrame", number: int) -> None:
        """Called by Spark with each micro-batch, and again with one that it is not sure of."""
        stream = StreamBatch(query_of(self.checkpoint / "spark"), number)
        self._require_own(stream)
        if self.lake.has(stream):
            return
        write = FileWrite(
            str(self.lake.root),
            self.lake.next_commit,
            token_hex(4),
            self.sink.compression.value,
        )
        found = rows.mapInArrow(write, "stored binary").collect()
        files = [msgspec.json.decode(bytes(row["stored"]), type=Stored) for row in found]
        manifest = self.lake.commit([], files, stream)
        self.messages += manifest.rows
        self.commits += 1
        self.on_progress(Progress("running", self.messages, self.commits, 0))

    def _require_own(self, stream: StreamBatch) -> None:
        """A checkpoint that was made anew begins again: its rows would be in the lake twice."""
        others = {one.stream.query for one in self.lake.commits if one.stream is not None}
        if others - {stream.query} or any(one.spans for one in self.lake.commits):
            raise Refused(
                f"{self.lake.root} was filled by another checkpoint or by an archive; use another lake"
            )
