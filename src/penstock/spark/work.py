"""Works off a queue in rounds: the driver leases messages, Spark runs one job over them, one commit ends the round.

What the job made is published and the messages are acked by the same named commit, so that every message is in the
output exactly once, whatever is killed and whenever. See docs/decisions/0052-one-round-one-job-one-commit.md.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from ..api.answers import ReleaseMember
from ..api.arguments import text, whole_number
from ..api.commits import DescribeCommitName
from ..api.consume import CountHeld
from ..client.leased_messages import Polled
from ..client.stagings import CommitKey, StagingHandle
from ..errors import (
    AlreadyExists,
    NotFound,
    PenstockError,
    Refused,
    SchemaViolation,
    StaleReceipt,
    TooLarge,
    Unavailable,
)
from ..model import check_name
from .driver_lock import DriverLock
from .pipelines.remote import Remote
from .pipelines.spark_errors import (
    error_kind,
    is_session_gone,
    is_spark_error,
    penstock_error_in,
    reason_of,
    rebuild_error,
    translate,
)
from .sink_options import SinkOptions
from .work_parts import RowsFailed, run_in_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..client import Client, Consumer
    from ..client.leased_messages import Delivered
    from .work_ahead import Round, RoundsAhead

_LOG = logging.getLogger("penstock.spark")
ROUND_MESSAGES = 50_000
# Of all rounds: a name belongs to the driver that has it now, whichever process that is.
WRITER = "penstock-work"
# With more failing rows in one round it is the transform that is wrong, not the rows.
POISON_MAX = 10
# While the driver lives it extends its leases; a job that takes longer loses its round to another one.
_EXTEND_FOR = "24h"
# Leases are long: it is the end of the session that says that a driver died.
_LEASE_S = 300
# A driver that is not heard of for so long is dead, and the next one of its name begins.
_SESSION_S = 10.0
# A part of a round is read by so many tasks, so that the number of the one that fails says where its poison is.
_SHARES = 16
_LOCAL_BYTES = "spark.sql.execution.arrow.localRelationThreshold"
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_WAIT_S = 1.0
_PAUSE_S_MIN, _PAUSE_S_MAX = 1.0, 30.0

Transform = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True, slots=True)
class WorkProgress:
    """What was done since the start, and how the last round was.

    `messages` were acked, `outputs` published, `nacked` failed by themselves. `limited_by`: the setting of the topic
    that made the last round smaller than it could be, such as "max_in_flight_per_consumer=1000".
    """

    rounds: int = 0
    messages: int = 0
    outputs: int = 0
    nacked: int = 0
    lag: int = 0
    round_ms: int = 0
    rate: float = 0.0
    limited_by: str = ""
    error: str = ""


OnWork = Callable[[WorkProgress], None]


def work(
    spark: "SparkSession",
    topic: str,
    group: str,
    transform: Transform,
    *,
    to: str | None = None,
    url: str | None = None,
    key_file: str | None = None,
    ca_file: str | None = None,
    round_messages: int = ROUND_MESSAGES,
    include_headers: bool = False,
    once: bool = False,
    name: str = "",
    stop: Event | None = None,
    on_progress: OnWork = lambda _: None,
) -> WorkProgress:
    """Work off the messages of a group until `stop` is set, or with `once` until none is ready; what was done.

    `transform` gets a round of messages as a DataFrame and returns one with the columns of the sink, for the topic `to`
    or, without it, for those of its column `topic`. A message that alone makes the job fail is nacked.

    `name` is that of this driver, by default one made of group and topic. A driver that starts under the same name
    waits until the one before is gone, and has its messages again, without an attempt counted; drivers that work side
    by side have names of their own.

    NotFound: a topic is not there. Refused: a column is wrong, or more than ten messages of a round fail, or with
    `once` another driver of the name lives; messages of the round that have no answer are given back. Unavailable:
    Spark is gone, or with `once` the broker.
    """
    settings = WorkSettings(
        check_name(text("the name of a topic", topic), "topic"),
        check_name(text("the name of a group", group), "group"),
        None if to is None else check_name(text("to", to), "topic"),
        whole_number("round_messages", round_messages, 1),
        include_headers,
        check_name(text("name", name) or f"work.{group}.{topic}", "name"),
    )
    job = WorkJob(spark, settings, transform, Remote.named(url, key_file, ca_file))
    worker = SparkWorker(job, on_progress)
    worker.run(stop or Event(), is_once=once)
    return worker.progress


@dataclass(frozen=True, slots=True)
class WorkSettings:
    """What is worked off, and where to. `name` is that of the driver."""

    topic: str
    group: str
    to: str | None
    round_messages: int
    has_headers: bool
    name: str


@dataclass(frozen=True, slots=True)
class WorkJob:
    """What every round runs."""

    spark: "SparkSession"
    settings: WorkSettings
    transform: Transform
    remote: Remote

    def sink(self) -> SinkOptions:
        """How tasks reach the broker."""
        return SinkOptions(
            topic=self.settings.to,
            url=self.remote.url,
            api_key_file=self.remote.key_file,
            key_variable=self.remote.key_variable,
            ca_file=self.remote.ca_file,
        )


class SparkWorker:
    """The driver of the rounds."""

    def __init__(self, job: WorkJob, on_progress: OnWork) -> None:
        self._job, self._settings, self._on_progress = job, job.settings, on_progress
        self.progress = WorkProgress()

    def run(self, stop: Event, *, is_once: bool) -> None:
        """Work until `stop`, or with `is_once` until nothing is ready. A broker that is away is waited for."""
        settings = self._settings
        with DriverLock(self._job.remote.url, settings.group, settings.name) as lock:
            self._run_patiently(lock, stop, is_once=is_once)

    def _run_patiently(self, lock: DriverLock, stop: Event, *, is_once: bool) -> None:
        pause_s = _PAUSE_S_MIN
        while True:
            try:
                self._run_connected(lock, stop, is_once=is_once)
                return
            except Unavailable as error:
                if is_once or isinstance(error, SparkGone):
                    raise
                if not self.progress.error:
                    _LOG.warning("work on %s waits: %s", self._settings.topic, error)
                self._tell(replace(self.progress, error=str(error)))
            if stop.wait(pause_s):
                return
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)

    def _run_connected(self, lock: DriverLock, stop: Event, *, is_once: bool) -> None:
        settings = self._settings
        self._job.remote.require_broker()
        with self._job.remote.connect() as client:
            limits = client.topic(settings.topic).config
            if settings.to is not None:
                client.topic(settings.to)
            consumer = client.consumer(
                *(settings.topic, settings.group),
                member=settings.name,
                in_rounds=True,
                session_timeout=_SESSION_S,
                visibility_timeout=max(_LEASE_S, limits["visibility_timeout_ms"] / 1000),
                extend_for=_EXTEND_FOR,
            )
            lock.end_former(client)
            if not self._joined(consumer, stop, is_once=is_once):
                return
            with consumer:
                lock.note(client)
                rounds = _Rounds(self._job, client, consumer)
                with self._leasing(consumer) as ahead:
                    while not stop.is_set() and self._round(rounds, ahead, limits, is_once=is_once):
                        pass

    def _leasing(self, consumer: "Consumer") -> "RoundsAhead":
        from .work_ahead import RoundsAhead

        settings = self._settings
        return RoundsAhead(
            self._job.spark, consumer, settings.round_messages, has_headers=settings.has_headers
        )

    def _joined(self, consumer: "Consumer", stop: Event, *, is_once: bool) -> bool:
        """Become the driver of the name, once no other one lives; False if `stop` comes before that.

        Refused: with `is_once`, the other one goes on to live.
        """
        name, waited_s = self._settings.name, 0.0
        while True:
            try:
                consumer.start()
                return True
            except AlreadyExists as error:
                lives = f"a driver called {name} lives, or died less than {_SESSION_S} s ago"
                if is_once and waited_s > 2 * _SESSION_S:
                    raise Refused(f"{lives}: give this one another name") from error
                if not waited_s:
                    _LOG.warning("%s; waiting for it to be gone", lives)
                self._tell(replace(self.progress, error=lives))
            if stop.wait(_WAIT_S):
                return False
            waited_s += _WAIT_S

    def _round(
        self, rounds: "_Rounds", ahead: "RoundsAhead", limits: dict[str, Any], *, is_once: bool
    ) -> bool:
        """Do a round. False if it is the last one, because nothing is ready and nothing more is waited for."""
        from .work_round import limit_reached

        start_s = time.monotonic()
        try:
            leased = ahead.take(0 if is_once else _WAIT_S)
        except Exception as error:
            if is_spark_error(error):
                raise _translated(error) from error
            raise
        if leased is None:
            # What a driver of this name had acked and did not commit comes back a moment after it was given up.
            return rounds.free_held() or not is_once
        held, messages_max = leased.held, self._settings.round_messages
        start_s = start_s if is_once else time.monotonic()
        ahead.begin()
        try:
            done = rounds.finish(leased, ahead)
        except RoundLost as error:
            _LOG.warning("a round of %s is repeated: %s", self._settings.topic, error)
            return True
        took_s = time.monotonic() - start_s
        before = self.progress
        lag = rounds.lag()
        is_bounded = lag > done.nacked and len(held) < messages_max
        limit = limit_reached(held, limits) if is_bounded else ""
        if limit and limit != before.limited_by:
            _LOG.warning(
                "a round of %s has %d messages, and not up to %d: %s",
                self._settings.topic,
                len(held),
                messages_max,
                limit,
            )
        self._tell(
            WorkProgress(
                before.rounds + 1,
                before.messages + len(held) - done.nacked,
                before.outputs + done.outputs,
                before.nacked + done.nacked,
                lag,
                round(took_s * 1000),
                round(len(held) / took_s, 1),
                limit,
            )
        )
        return True

    def _tell(self, progress: WorkProgress) -> None:
        self.progress = progress
        self._on_progress(progress)


class SparkGone(Unavailable):
    """The session of Spark is over: there is nothing to run a round with."""


class RoundLost(Refused):
    """Nothing of a round was done: leases ended while the driver stood still, or another one committed its sequence."""


@dataclass(slots=True)
class _RoundResult:
    outputs: int = 0
    nacked: int = 0


class _Rounds:
    """Ends rounds of one connection to the broker."""

    def __init__(self, job: "WorkJob", client: "Client", consumer: "Consumer") -> None:
        self._spark, self._settings, self._transform = job.spark, job.settings, job.transform
        self.client, self.consumer, self._sink = client, consumer, job.sink()
        self._sequence = self._take_over()
        self._jobs = 0

    def _take_over(self) -> int:
        """Give up what a driver of this name left open, and refuse what it may still send; the next sequence."""
        name, last = self._settings.name, None
        with suppress(NotFound):
            last = self.client.execute(DescribeCommitName(name)).sequence
        # A commit drops all other stagings up to its sequence, and the messages that they acked are leased as before.
        sequence = 0 if last is None else last + 1
        following = self.client.commit_stagings(name, sequence, WRITER, []).last_sequence + 1
        self.free_held()
        return following

    def free_held(self) -> bool:
        """Give back what a former driver of this name holds, and count no attempt; whether there was something.

        For when this driver holds nothing. No other one of its name lives: the broker has seen to that.
        """
        settings = self._settings
        words = (settings.topic, settings.group, settings.name)
        if not self.client.execute(CountHeld(*words)):
            return False
        self.client.execute(ReleaseMember(*words, is_unseen=True))
        return True

    def lag(self) -> int:
        """How many messages of the topic the group has not done; it may have other topics."""
        found = self.client.lag(self._settings.group).partitions
        return sum(one.lag for one in found if one.topic == self._settings.topic)

    def finish(self, leased: "Round", ahead: "RoundsAhead") -> _RoundResult:
        """Run the job and commit. If that raises, what has no answer is given back, and no attempt counts for it."""
        from .work_round import delivered_before

        held, rows, result = leased.held, leased.rows, _RoundResult()

        def run(places: Sequence[int]) -> None:
            if len(places) == len(held):
                result.outputs += self._commit(held, lambda: leased.frame, 0)
                return
            part = [held[place] for place in places]
            part_rows = rows.take([*places])
            # Settings of the session are those of this part, meanwhile.
            ahead.settle()
            with self._shares(part_rows.num_rows) as shares:
                made = partial(self._spark.createDataFrame, part_rows)
                result.outputs += self._commit(part, made, shares)

        def nack(place: int, failure: RowsFailed) -> None:
            self.consumer.nack([held[place]], str(failure))
            self.consumer.flush()
            result.nacked += 1
            if result.nacked > POISON_MAX:
                raise Refused(
                    f"more than {POISON_MAX} messages of a round failed; the last one: {failure}"
                )

        try:
            # Those that were tried before are most likely the ones that fail again: they hold up no others.
            again = delivered_before(rows)
            first = sorted({*range(len(held))} - {*again}) if again else range(len(held))
            for places in (first, again):
                run_in_parts(places, run, nack)
        except BaseException:
            # If the broker is away, the leases end by themselves.
            with suppress(PenstockError):
                self.consumer.give_back(held)
                self.consumer.flush()
            raise
        return result

    def _commit(
        self,
        held: "Polled[Delivered] | Sequence[Delivered]",
        rows: "Callable[[], DataFrame]",
        shares: int,
    ) -> int:
        """Publish what the job makes of the rows, and ack the messages, together; how many were published."""
        from .work_round import in_requests

        key = CommitKey(self._settings.name, self._sequence, WRITER)
        staged = self._run_job(rows, key, shares)
        with self.client.staging(*key, attempt="answers") as answers:
            try:
                for one in in_requests(held) if isinstance(held, Polled) else [held]:
                    answers.ack(one)
            except Refused as error:
                # The consumer refuses, too, if it could not extend a lease while the broker was away.
                if isinstance(error, StaleReceipt) or type(error) is Refused:
                    raise RoundLost(f"a lease has ended: {error}") from error
                raise
        found = self.client.commit_stagings(*key, [answers.handle, *staged])
        self._sequence = found.last_sequence + 1
        if found.is_repeat:
            raise RoundLost(
                f"sequence {key.sequence} of {key.name} was committed before: the answer was lost, or another driver "
                "has this name; messages that are not done come again"
            )
        return sum(one.messages for one in staged)

    @contextmanager
    def _shares(self, rows: int) -> Iterator[int]:
        """How many tasks read equal shares of a part of a round, inside."""
        conf = self._spark.conf
        # A table that is not local has a task for each record batch; a local one may be worked on without any task.
        wanted = {_LOCAL_BYTES: "0", _BATCH_ROWS: str(-(-rows // _SHARES))}
        before = {name: conf.get(name) for name in wanted}
        try:
            for name, value in wanted.items():
                conf.set(name, value)
            yield _SHARES
        finally:
            for name, known in before.items():
                conf.set(name, str(known))

    def _run_job(
        self, rows: "Callable[[], DataFrame]", key: CommitKey, shares: int
    ) -> list[StagingHandle]:
        """Stage what the transform makes of rows, by one job, whose `shares` tasks read them; 0: not known.

        RowsFailed, SparkGone, Unavailable; Refused: a column is wrong.
        """
        from .sink_columns import check_sink_columns
        from .work_round import StageRows, staged_by

        try:
            made = self._transform(rows())
            if not hasattr(made, "mapInArrow"):
                raise Refused("the transform returned no DataFrame")
            check_sink_columns(made.schema, has_topic=self._settings.to is not None)
            self._jobs += 1
            stage = StageRows(self._sink, key, f"job {self._jobs}")
            job = made.mapInArrow(stage, "staged binary")
        except Exception as error:
            if is_spark_error(error):
                raise _translated(error) from error
            raise
        try:
            return staged_by(job)
        except Exception as error:
            if is_spark_error(error):
                raise self._failure(error, shares) from error
            raise

    def _unfinished(self, shares: int) -> int | None:
        """Returns the first task of the last job that staged nothing, if its tasks read shares of the rows."""
        finished: set[int] = set()
        with suppress(PenstockError):
            for staging in (
                self.client.execute(DescribeCommitName(self._settings.name)).stagings or ()
            ):
                job, _, task = staging.attempt.partition(", task ")
                if job == f"job {self._jobs}":
                    finished.add(int(task.partition(",")[0]))
        return min({*range(shares)} - finished, default=None)

    def _failure(self, error: Exception, shares: int) -> Exception:
        """What a failed job means: rows are wrong; or Spark is gone, or the broker refused or was away."""
        if is_session_gone(error, self._spark):
            return _translated(error)
        lines = [line.strip() for line in str(error).splitlines()]
        line = penstock_error_in(lines)
        if line is None:
            return RowsFailed(reason_of(error), self._unfinished(shares), shares)
        kind = error_kind(line)
        is_of_rows = kind is Refused or issubclass(kind, TooLarge | SchemaViolation)
        if is_of_rows or (kind is NotFound and self._settings.to is None):
            return RowsFailed(reason_of(error), self._unfinished(shares), shares)
        return rebuild_error("round", line)


def _translated(error: Exception) -> PenstockError:
    found = translate("transform", error)
    return found if isinstance(found, Refused) else SparkGone(str(found))
