"""`write.format("penstock")` and `writeStream.format("penstock")`: executors stage, one named commit publishes.

Nothing is seen before the commit, and the broker publishes each sequence of a name once: docs/transactions.md.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ..client.stagings import CommitKey, StagingHandle
from ..errors import (
    CommitNameTaken,
    PenstockError,
    Refused,
    RepeatDiffers,
    SequenceCommitted,
)
from .batch import freeze_loaded_modules
from .fingerprint import Fingerprint, Then
from .sink_options import SinkOptions
from .worker_errors import brief_errors

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger("penstock.spark")
# Spark sets them for the tasks of a micro-batch; a sink is told of neither in another way.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class LastCommit(NamedTuple):
    """The last commit of a name, and what it holds; empty if that is not known."""

    sequence: int
    fingerprint: str


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """What a task tells the driver. It has no handle if it had no rows, or if their sequence was over: `last` is then
    what the broker has."""

    key: CommitKey
    held: Fingerprint
    handle: StagingHandle | None = None
    last: LastCommit | None = None


@dataclass(frozen=True)
class TaskFailed(WriterCommitMessage):
    """Why the broker refused the rows of a task of a stream, all of which stay unpublished."""

    reason: str


_OF_A_STREAM = "bring the newer one back, or begin with a new checkpoint and startingOffsets"
_WHEN_OLDER = (
    "A run that is made good later needs a sinkId of its own (such as one for each day), or a larger sequence. Of a "
    f"stream the checkpoint is older than the topic: {_OF_A_STREAM}. With ifOlder=skip such rows are left out"
)
_WHEN_OTHER = (
    "Of a stream the checkpoint is older than the topic, or lost a file, and Spark planned this batch with other "
    f"offsets: {_OF_A_STREAM}. Other rows need another sequence. If the same input does not give the same rows each "
    "time (random numbers, times), onRepeat=skip keeps what was committed first"
)

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
        # Of an error that a task raises, a stream's user is told that a job failed. What `commit` raises is shown. One
        # that may pass is raised all the same, so that Spark has the task run again, perhaps elsewhere.
        except Refused as error:
            return TaskFailed(str(error))

    @brief_errors()
    def commit(self, messages: Messages, batch_id: int) -> None:
        for failed in (one for one in messages if isinstance(one, TaskFailed)):
            raise Refused(failed.reason)
        # Only the tasks were told the query. A batch without tasks has no rows, and nothing to be known by.
        for done in _done(messages)[:1]:
            commit_tasks(self.asked, done.key, messages, is_one_off=False)

    def abort(self, messages: Messages, batch_id: int) -> None:
        drop_tasks(self.asked, messages)


def stage_task(
    options: SinkOptions, key: CommitKey, batches: "Iterator[pa.RecordBatch]", job: str = "job"
) -> TaskDone:
    """Stage the rows of a task, as an attempt of a `job`.

    Refused, TooLarge, NotFound: a row or its topic is wrong, and nothing stays."""
    from .row_hashes import fingerprint_of
    from .sink_batches import Placement

    freeze_loaded_modules()
    first = next((one for one in batches if one.num_rows), None)
    if first is None:
        return TaskDone(key, Fingerprint())
    context = TaskContext.get()
    number, attempt = (context.partitionId(), context.attemptNumber()) if context else (0, 0)
    every, held = chain([first], batches), Fingerprint()
    try:
        with (
            options.connect() as client,
            client.staging(*key, attempt=f"{job}, task {number}, attempt {attempt}") as staging,
        ):
            placement = Placement(options.topic, staging.partition_count, number)
            for batch in every:
                size, now_ns = staging.batch_bytes, time.time_ns()
                for topic, partition, columns in placement.placed(batch, now_ns, size):
                    staging.stage_columns(topic, partition, columns)
                held += fingerprint_of(batch)
    except SequenceCommitted as error:
        # Spark repeats a batch whose end it did not write down. The driver sees whether it is the same batch.
        held = reduce(add, map(fingerprint_of, every), held)
        last = _last_of(error)
        return TaskDone(key, held, last=last)
    except CommitNameTaken as error:
        raise _taken(key) from error
    return TaskDone(key, held, staging.handle)


def commit_tasks(
    options: SinkOptions, key: CommitKey, messages: Messages, *, is_one_off: bool
) -> None:
    """Publish what the tasks staged, all of it, once. A repeat publishes nothing and is logged as a warning.

    Refused: the sequence is over, and held other rows, or is below the last one.
    """
    done = _done(messages)
    handles = _handles(done)
    held = reduce(add, (task.held for task in done), Fingerprint())
    if lasts := [task.last for task in done if task.last is not None]:
        # Handles are from before an older driver's commit. Were its name reset, they would be a part of the rows.
        drop_tasks(options, messages)
        _pass_over(options, key, held, max(lasts))
        return
    if is_one_off and not handles:
        return
    try:
        with options.connect() as client:
            found = client.commit_stagings(*key, handles, one_off=is_one_off, fingerprint=str(held))
    except CommitNameTaken as error:
        raise _taken(key) from error
    except RepeatDiffers as error:
        _pass_over(options, key, held, _last_of(error))
        return
    # Of a name that is used once, a repeat is this very commit, whose first answer was lost.
    if found.is_repeat and not is_one_off:
        _pass_over(options, key, held, LastCommit(found.last_sequence, ""))


def _last_of(error: SequenceCommitted | RepeatDiffers) -> LastCommit:
    """Returns what the broker has, of the refusal of a sequence that is over."""
    said = error.fields
    held = said.get("held", said.get("fingerprint", ""))
    return LastCommit(int(str(said.get("last_sequence", said["sequence"]))), str(held))


def _pass_over(options: SinkOptions, key: CommitKey, held: Fingerprint, last: LastCommit) -> None:
    """Publish nothing of a sequence that is over, and warn with the number of rows.

    Refused: other rows than these were committed, or a later sequence, unless the options ask to skip them.
    """
    this = f"sequence {key.sequence} of {key.name}"
    if last.sequence > key.sequence:
        why = f"is older than the last one, {last.sequence}"
        if options.if_older is Then.REFUSE:
            raise Refused(
                f"{this} {why}: its {held.rows} rows may not be in the topic, and nothing was published. {_WHEN_OLDER}"
            )
    elif last.fingerprint not in {"", str(held)}:
        why = f"was committed with {last.fingerprint}, and not with {held}"
        if options.on_repeat is Then.REFUSE:
            raise Refused(f"{this} {why}: nothing was published. {_WHEN_OTHER}")
    else:
        why = "is committed already"
    _LOG.warning("%s %s: its %d rows are not published again", this, why, held.rows)


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


def _taken(key: CommitKey) -> Refused:
    return Refused(
        f"sinkId {key.name} is that of another query, or of this one with an earlier checkpoint: what it sends may be "
        "in the topic already. To publish it all the same, give another sinkId, or "
        f"`penstock commits reset {key.name}`",
        name=key.name,
    )
