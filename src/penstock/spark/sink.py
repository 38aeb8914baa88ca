"""`write.format("penstock")` and `writeStream.format("penstock")`: executors stage, one named commit publishes.

Nothing is seen before the commit, and the broker publishes each sequence of a name once: docs/transactions.md.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ..client.stagings import CommitKey, StagingHandle
from ..errors import CommitNameTaken, PenstockError, Refused, SequenceCommitted, Unavailable
from .batch import freeze_loaded_modules
from .sink_options import SinkOptions
from .worker_errors import brief_errors, text_with_advice

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger("penstock.spark")
# Spark sets them for the tasks of a micro-batch; a sink is told of neither in another way.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """What a task tells the driver. It has no handle if it had no rows, or if the sequence `is_repeat`ed."""

    key: CommitKey
    rows: int
    handle: StagingHandle | None = None
    is_repeat: bool = False


@dataclass(frozen=True)
class TaskFailed(WriterCommitMessage):
    """Why a task of a stream staged nothing."""

    family: type[Refused | Unavailable]
    reason: str


Messages = Sequence[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    """Made on the driver, which commits; `write` runs on the executors, in copies of this object."""

    def __init__(self, options: SinkOptions) -> None:
        self.asked = options
        self.key = options.batch_key()

    @brief_errors()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return stage_task(self.asked, self.key, iterator)

    @brief_errors()
    def commit(self, messages: Messages) -> None:
        commit_tasks(self.asked, self.key, messages, is_one_off=self.asked.sink_id is None)

    def abort(self, messages: Messages) -> None:
        drop_tasks(self.asked, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Made anew for every micro-batch, where it is planned and where it is committed; `write` runs on the executors."""

    def __init__(self, options: SinkOptions) -> None:
        self.asked = options

    @brief_errors()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        context = TaskContext.get()
        query = context and context.getLocalProperty(_QUERY_ID)
        batch = context and context.getLocalProperty(_BATCH_ID)
        if not query or not batch:
            raise Refused(
                "Spark does not say which batch of which query this is: it cannot be known again"
            )
        try:
            return stage_task(self.asked, self.asked.stream_key(query, int(batch)), iterator)
        # Of an error that a task raises, a stream's user is told that a job failed. What `commit` raises is shown.
        except Refused as error:
            return TaskFailed(Refused, str(error))
        except Unavailable as error:
            return TaskFailed(Unavailable, text_with_advice(error))

    @brief_errors()
    def commit(self, messages: Messages, batch_id: int) -> None:
        for failed in (one for one in messages if isinstance(one, TaskFailed)):
            raise failed.family(failed.reason)
        # Only the tasks were told the query. A batch without tasks has no rows, and nothing to be known by.
        for done in _done(messages)[:1]:
            commit_tasks(self.asked, done.key, messages, is_one_off=False)

    def abort(self, messages: Messages, batch_id: int) -> None:
        drop_tasks(self.asked, messages)


def stage_task(
    options: SinkOptions, key: CommitKey, batches: "Iterator[pa.RecordBatch]"
) -> TaskDone:
    """Stage the rows of a task. Refused, TooLarge, NotFound: a row or its topic is wrong, and nothing stays."""
    from .sink_batches import Placement

    freeze_loaded_modules()
    first = next((one for one in batches if one.num_rows), None)
    if first is None:
        return TaskDone(key, 0)
    context = TaskContext.get()
    number, attempt = (context.partitionId(), context.attemptNumber()) if context else (0, 0)
    every, rows = chain([first], batches), 0
    try:
        with (
            options.connect() as client,
            client.staging(*key, attempt=f"task {number}, attempt {attempt}") as staging,
        ):
            placement = Placement(options.topic, staging.partition_count, number)
            for batch in every:
                for topic, partition, columns in placement.placed(batch, time.time_ns()):
                    staging.stage_columns(topic, partition, columns)
                rows += batch.num_rows
    except SequenceCommitted:
        # Spark repeats a batch whose end it did not write down. The driver says so, with the number of rows.
        return TaskDone(key, sum(one.num_rows for one in every), is_repeat=True)
    except CommitNameTaken as error:
        raise _taken(key) from error
    return TaskDone(key, rows, staging.handle)


def commit_tasks(
    options: SinkOptions, key: CommitKey, messages: Messages, *, is_one_off: bool
) -> None:
    """Publish what the tasks staged, all of it, once. A repeat publishes nothing and is logged as a warning."""
    done = _done(messages)
    handles, rows = _handles(done), sum(one.rows for one in done)
    if any(one.is_repeat for one in done):
        # Handles are from before an older driver's commit. Were its name reset, they would be a part of the rows.
        drop_tasks(options, messages)
        _warn_of_repeat(key, rows)
        return
    if is_one_off and not handles:
        return
    try:
        with options.connect() as client:
            found = client.commit_stagings(*key, handles, one_off=is_one_off)
    except CommitNameTaken as error:
        raise _taken(key) from error
    # Of a name that is used once, a repeat is this very commit, whose first answer was lost.
    if found.is_repeat and not is_one_off:
        _warn_of_repeat(key, rows)


def drop_tasks(options: SinkOptions, messages: Messages) -> None:
    """Give up what tasks staged. A commit that was decided stands; what cannot be dropped now goes after a day."""
    handles = _handles(_done(messages))
    if handles:
        with suppress(PenstockError), options.connect() as client:
            client.drop_stagings(handles)


def _done(messages: Messages) -> list[TaskDone]:
    return [one for one in messages if isinstance(one, TaskDone)]


def _handles(done: Sequence[TaskDone]) -> list[StagingHandle]:
    return [one.handle for one in done if one.handle is not None]


def _warn_of_repeat(key: CommitKey, rows: int) -> None:
    _LOG.warning(
        "sequence %d of %s is committed already: its %d rows are not published again",
        key.sequence,
        key.name,
        rows,
    )


def _taken(key: CommitKey) -> Refused:
    return Refused(
        f"sinkId {key.name} is that of another query, or of this one with an earlier checkpoint: what it sends may be "
        "in the topic already. To publish it all the same, give another sinkId, or "
        f"`penstock commits reset {key.name}`",
        name=key.name,
    )
