"""Messages of a topic into another one, each once, whatever is killed: `penstock replay`, `copy` and `import`.

Each partition that is read has a commit name in the broker, and the sequence of its last commit is the offset that
comes next. So the broker itself knows how far a job is, and a job that was killed goes on there.
"""

import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from typing import Any, NamedTuple

from ..api.commits import DescribeCommitName, DropStagings
from ..api.json.pipelines import Kind, PipelineIn, State
from ..client import Client
from ..client.fetch import LIMIT_MAX_BATCHES
from ..client.pipelines import report_pipeline
from ..client.producer_batch import partition_of
from ..client.replies import REPLY_BYTES_MAX
from ..client.synchronous.stagings import Staging
from ..codec import Columns, Head, decode_columns
from ..errors import NotFound, PenstockError, Refused, SequenceCommitted, UnknownStaging
from ..model import MessageColumns

DEAD_LETTER_SUFFIX = ".dlq"
FETCH_BYTES = 4 << 20
_REPORT_EVERY_S = 5.0
# So long a job that follows waits at the end of a partition, before it looks at the next one.
_WAIT = "250ms"


class Range(NamedTuple):
    """Offsets of a partition. `done` is where the job goes on; `seed` tells the log from that of a topic made again."""

    partition: int
    start: int
    end: int
    done: int
    seed: int

    @property
    def left(self) -> int:
        return max(0, self.end - self.done)


class Selection(NamedTuple):
    """What to read: from and until an offset, a time, or an end; of one partition, or of all."""

    start: int | str = "earliest"
    until: int | str | None = None
    partition: int | None = None


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """A job. `priority` is the lane of all messages; None: each has its own, and its time to live."""

    kind: Kind
    name: str
    source: str
    target: str
    selection: Selection
    priority: int | None = None
    rate: int | None = None
    # The two topics have the same partitions, and each message stays in its own.
    is_by_partition: bool = False

    def commit_name(self, partition: int) -> str:
        return f"{self.name}.{partition}"

    def check(self, client: Client) -> int:
        """Returns how many partitions the target has. NotFound, Refused: it cannot go from there to there."""
        check_source(self)
        client.topic(self.source)
        return client.topic(self.target).partitions

    def ranges(self, client: Client) -> list[Range]:
        """Returns what is selected, and how far the job is. NotFound: there is no such partition."""
        topic, asked = client.topic(self.source), self.selection
        if asked.partition is not None and not 0 <= asked.partition < topic.partitions:
            raise NotFound("partition", f"{self.source}/{asked.partition}")
        numbers = range(topic.partitions) if asked.partition is None else [asked.partition]
        return [self._range(client, number) for number in numbers]

    @property
    def lake_root(self) -> str:
        """Where the lake of the job is; a topic has none."""
        return ""

    def seams(self, client: Client) -> dict[int, int]:
        """Returns up to which offset partitions are read from a lake. A topic has none."""
        return {}

    def check_files(self, client: Client, ranges: list[Range]) -> None:
        """Looks at files that the job reads, before anything is published. A topic has none."""

    def reader(self, client: Client) -> "Read":
        """Returns what reads the messages of the job."""
        return TopicReader(client, self.source).read

    def _range(self, client: Client, partition: int) -> Range:
        first = client.fetch(self.source, partition, limit=1, max_bytes=1)

        def offset_of(place: int | str) -> int:
            if isinstance(place, int):
                return min(max(place, first.earliest), first.latest)
            if place in {"earliest", "latest"}:
                return first.earliest if place == "earliest" else first.latest
            found = client.fetch(self.source, partition, from_time=place, limit=1, max_bytes=1)
            return min(found.offset, first.latest)

        start, until = self.selection.start, self.selection.until
        begin, end = offset_of(start), offset_of("latest" if until is None else until)
        position = self.position(client, partition, first.seed)
        wanted = max(position, start if isinstance(start, int) else 0)
        if 0 < wanted < first.earliest:
            raise gone(f"{self.source}/{partition}", wanted, first.earliest)
        return Range(partition, begin, max(begin, end), max(begin, position), first.seed)

    def position(self, client: Client, partition: int, seed: int) -> int:
        """Returns the offset that comes next, 0 if the job is new. Refused: it was a job of another log."""
        name = self.commit_name(partition)
        try:
            found = client.execute(DescribeCommitName(name))
        except NotFound:
            return 0
        if found.writer is not None and found.writer != writer_of(seed):
            raise Refused(
                f"{name} was for a topic {self.source} that is gone: begin another job with --name, or "
                f"`penstock commits reset {name}`"
            )
        return found.sequence or 0


def check_source(job: Transfer) -> None:
    """Refused: messages of that topic do not go into the other one."""
    if job.source.endswith(DEAD_LETTER_SUFFIX):
        raise Refused(f"{job.source} has dead letters: penstock dlq redrive sends them back")
    if job.source == job.target and job.selection.until is None:
        raise Refused("into the same topic it would read what it writes: give an end")


def gone(name: str, start: int, end: int) -> Refused:
    """Returns the error for offsets of a partition that are not to be had any more."""
    return Refused(
        f"offsets {start} to {end - 1} of {name} are gone: begin another job behind them, with --from and --name"
    )


def writer_of(seed: int) -> str:
    return f"log-{seed:x}"


# Reads a range from an offset, up to another one at the most: where it ended, and the messages before that.
Read = Callable[[Range, int, int], tuple[int, list[MessageColumns]]]


class TopicReader:
    """Reads a topic of the broker."""

    def __init__(self, client: Client, source: str) -> None:
        self._client, self._source = client, source

    def read(self, one: Range, at: int, end: int) -> tuple[int, list[MessageColumns]]:
        """Returns where an answer of the broker ends, before `end`, and its messages.

        Refused: the topic was made again meanwhile. OffsetOutOfRange: retention took what begins at `at`.
        """
        fetched = self._client.fetch(
            self._source,
            one.partition,
            offset=at,
            limit=LIMIT_MAX_BATCHES,
            max_bytes=FETCH_BYTES,
        )
        if fetched.seed != one.seed:
            raise Refused(f"topic {self._source} was deleted and made again: begin another job")
        # Where there is nothing compaction took it, and it is passed over.
        following = min(end, fetched.next_offset) if fetched.next_offset > at else end
        return following, [*columns_between(fetched.batches, at, following)]


class Chunk(NamedTuple):
    """Messages from an offset up to another one, and the open staging that they go into."""

    start: int
    end: int
    columns: list[MessageColumns]
    staging: Staging


class Run:
    """One run of a job: moves ranges, and counts. `tell` hears of every commit.

    Two runs of a job at once would both publish, because each sees how far the other was. So a run has a staging open
    all the time that it works on a partition, and one that begins there drops those of other runs: their next commit
    finds its staging gone, and they end.
    """

    def __init__(
        self,
        client: Client,
        job: Transfer,
        partitions: int,
        tell: Callable[["Run"], None],
        read: Read | None = None,
    ) -> None:
        """`read` is where messages come from; None: from where the job says."""
        self.job = job
        self._client, self._partitions, self._tell = client, partitions, tell
        self._read = read or job.reader(client)
        self.messages = self.commits = self.lag = 0
        # Offsets that another run has done since their range was looked at.
        self.done_meanwhile = 0
        self._id = uuid.uuid4().hex
        self._began_s = time.monotonic()
        self._reported_s = 0.0

    def move(self, ranges: list[Range]) -> None:
        """Moves the ranges, one after the other. What was committed stays, whatever happens."""
        self.lag = sum(one.left for one in ranges)
        for one in ranges:
            if one.left:
                self._move(one)

    def follow(self, ranges: list[Range]) -> None:
        """Moves what is there and what comes, until it is interrupted."""
        while True:
            self.move(ranges)
            self.report("running")
            for one in ranges:
                # The broker answers sooner if there is something.
                self._client.fetch(
                    self.job.source, one.partition, offset=one.end, limit=1, timeout=_WAIT
                )
            ranges = self.job.ranges(self._client)

    def _move(self, one: Range) -> None:
        at = max(one.start, self._take_over(one))
        done = max(0, min(at, one.end) - max(one.done, one.start))
        self.done_meanwhile += done
        self.lag = max(0, self.lag - done)
        opened: list[Chunk] = []
        try:
            while at < one.end or opened:
                if at < one.end:
                    opened.append(self._open(one, at))
                    at = opened[-1].end
                    if len(opened) == 1:
                        # The first of a partition: from here on a run that begins finds it.
                        self._check_alone(one)
                        self._stage(one, opened[0])
                        continue
                self._commit(one, opened[0])
                del opened[0]
                if opened:
                    self._stage(one, opened[0])
        except (UnknownStaging, SequenceCommitted) as error:
            raise Refused(f"another run of job {self.job.name} took the place of this one") from (
                error
            )
        finally:
            for chunk in opened:
                # As the end of a `with` block that fails: what is staged is given up.
                chunk.staging.__exit__(Refused, Refused("given up"), None)

    def _take_over(self, one: Range) -> int:
        """Drops what other runs have open. Returns the offset that comes next."""
        while open_ids := self._others(one):
            self._client.execute(DropStagings(open_ids))
        return self.job.position(self._client, one.partition, one.seed)

    def _check_alone(self, one: Range) -> None:
        if self._others(one):
            raise Refused(f"another run of job {self.job.name} has just begun: wait for its end")

    def _others(self, one: Range) -> list[str]:
        try:
            found = self._client.execute(
                DescribeCommitName(self.job.commit_name(one.partition))
            ).stagings
        except NotFound:
            return []
        return [staging.staging for staging in found or () if staging.attempt != self._id]

    def _open(self, one: Range, at: int) -> Chunk:
        """Reads the next messages, and opens the staging for them."""
        end = one.end if self.job.rate is None else min(one.end, at + self.job.rate)
        following, columns = self._read(one, at, end)
        name = self.job.commit_name(one.partition)
        staging = self._client.staging(name, following, writer_of(one.seed), attempt=self._id)
        return Chunk(at, following, columns, staging.__enter__())

    def _stage(self, one: Range, chunk: Chunk) -> None:
        for columns in chunk.columns:
            for place, part in self._placed(columns, one.partition):
                chunk.staging.stage_columns(self.job.target, place, self._changed(part))
        chunk.staging.__exit__(None, None, None)

    def _commit(self, one: Range, chunk: Chunk) -> None:
        handle = chunk.staging.handle
        self._client.commit_stagings(*handle[:3], [handle])
        self.commits += 1
        # Compaction may have left holes, which are done too.
        self.count(handle.messages, chunk.end - chunk.start)

    def count(self, messages: int, offsets: int) -> None:
        """Counts messages that are done, tells of them, and waits if that was faster than the rate."""
        self.messages += messages
        self.lag = max(0, self.lag - offsets)
        self.report("running")
        self._tell(self)
        if self.job.rate is not None:
            due_s = self._began_s + self.messages / self.job.rate
            time.sleep(max(0.0, due_s - time.monotonic()))

    def _placed(
        self, columns: MessageColumns, partition: int
    ) -> Iterator[tuple[int, MessageColumns]]:
        """Returns the messages by partition of the target: that of the key; without one, that of the source."""
        if self.job.is_by_partition:
            yield partition, columns
            return
        count, own = self._partitions, partition % self._partitions
        places = [own if key is None else partition_of(key, count) for key in columns.keys]
        for place in sorted(set(places)):
            chosen = [one == place for one in places]
            part: list[Any] = [list(compress(column, chosen)) for column in columns]
            yield place, MessageColumns(*part)

    def _changed(self, columns: MessageColumns) -> Columns:
        lane = self.job.priority
        return Columns(
            values=columns.values,
            keys=columns.keys,
            timestamps=columns.timestamps,
            headers=columns.headers,
            priorities=columns.priorities if lane is None else lane,
            # A message that is replayed begins a new life.
            expires_at=columns.expires_at if lane is None else None,
            schema_ids=columns.schema_ids,
        )

    def report(self, state: State, error: str = "") -> None:
        """Tells the broker how the job is: at its beginning and end, and every few seconds."""
        now_s = time.monotonic()
        if state == "running" and now_s - self._reported_s < _REPORT_EVERY_S:
            return
        self._reported_s = now_s
        said = PipelineIn(
            kind=self.job.kind,
            state=state,
            topics=sorted({self.job.source, self.job.target} - {""}),
            target=self.job.target,
            messages=self.messages,
            commits=self.commits,
            lag=self.lag,
            error=error[:1000],
        )
        # The job goes on without reports: they are for people.
        with suppress(PenstockError):
            report_pipeline(self._client, self.job.name, said)

    def facts(self) -> dict[str, Any]:
        return {"messages": self.messages, "commits": self.commits, "lag": self.lag}


def columns_between(
    batches: Iterable[tuple[Head, memoryview]], start: int, end: int
) -> Iterator[MessageColumns]:
    """Returns the messages of batches from `start` on and before `end`, a value for each batch."""
    for head, batch in batches:
        columns = decode_columns(batch, head, size_max=REPLY_BYTES_MAX)
        first, last = bisect_left(columns.offsets, start), bisect_left(columns.offsets, end)
        if first < last:
            yield columns.rows(first, last)
