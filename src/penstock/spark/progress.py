"""How far a stream is: read from Spark's reports of its micro-batches, and told to the broker when one is done.

Spark tells a source of the end of a batch when it plans the next one, so that the group of a source is a batch behind,
and after the last batch of `availableNow` for ever. The driver hears of each batch at its end.
"""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ..api.json.pipelines import PipelineIn, State
from ..client.pipelines import report_pipeline
from ..errors import PenstockError, Refused
from .offsets import StreamOffset

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress

    from ..client import Client
    from .pipelines.remote import Remote

_LOG = logging.getLogger("penstock.spark")
_EXPECT_WITHIN = "10m"


class BatchProgress(NamedTuple):
    """One micro-batch: `next` is the offset after it of each partition, by key; `lag` is what waited behind it."""

    batch: int
    rows: int
    rate: float
    batch_ms: int
    lag: int
    next: Mapping[str, int]

    def by_topic(self) -> dict[str, dict[int, int]]:
        return offsets_by_topic(self.next)


def offsets_by_topic(offsets: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """Offsets by topic and partition, from those by key."""
    found: dict[str, dict[int, int]] = {}
    for key, offset in offsets.items():
        topic, _, partition = key.rpartition("/")
        found.setdefault(topic, {})[int(partition)] = offset
    return found


def progress_of(told: "StreamingQueryProgress") -> BatchProgress:
    """Returns what Spark tells of a micro-batch. Sources that are not ours count only as rows."""
    done: dict[str, int] = {}
    latest: dict[str, int] = {}
    for source in told.sources:
        with suppress(Refused, ValueError):
            ends = StreamOffset.from_json(json.loads(source.endOffset)).next
            done |= ends
            latest |= ends
            latest |= StreamOffset.from_json(json.loads(source.latestOffset)).next
    lag = sum(max(0, latest[key] - offset) for key, offset in done.items())
    # Of a batch without rows Spark says that the rate is not a number.
    rate = told.processedRowsPerSecond if told.numInputRows else 0.0
    return BatchProgress(
        told.batchId, told.numInputRows, round(rate, 1), told.batchDuration, lag, done
    )


class StreamReport:
    """Tells the broker of each micro-batch of a query. What cannot be told now is told with the next one."""

    def __init__(self, name: str, remote: "Remote", group: str | None) -> None:
        self._name, self._remote, self._group = name, remote, group
        self._messages = self._batches = 0
        self._topics: list[str] = []

    def batch_done(self, done: BatchProgress) -> None:
        if done.rows:
            self._messages += done.rows
            self._batches += 1
        self._topics = sorted(done.by_topic())
        self._send(done, "running", "")

    def ended(self, error: str | None) -> None:
        self._send(None, "failed" if error else "stopped", error or "")

    def _send(self, done: BatchProgress | None, state: State, error: str) -> None:
        try:
            with self._remote.connect() as client:
                if done is not None and self._group is not None and done.next:
                    commit_group(client, self._group, done)
                report_pipeline(client, self._name, self._report(done, state, error))
        except PenstockError as failure:
            _LOG.warning("progress of %s was not told to the broker: %s", self._name, failure)

    def _report(self, done: BatchProgress | None, state: State, error: str) -> PipelineIn:
        return PipelineIn(
            kind="stream",
            state=state,
            topics=self._topics,
            messages=self._messages,
            commits=self._batches,
            lag=0 if done is None else done.lag,
            rate=0.0 if done is None else done.rate,
            batch_ms=0 if done is None else done.batch_ms,
            error=error[:1000],
            expect_within=_EXPECT_WITHIN,
        )


def commit_group(client: "Client", group: str, done: BatchProgress) -> None:
    client.commit(group, done.by_topic())


def progress_listener(
    name: str,
    *,
    group: str | None = None,
    url: str | None = None,
    key_file: str | None = None,
    ca_file: str | None = None,
) -> "StreamingQueryListener":
    """A listener for `spark.streams.addListener`, which tells the broker of the query that has this `queryName`.

    When a micro-batch is done, the last one of `availableNow` too, it moves the group and reports lag, rate and
    duration to `GET /pipelines`.
    """
    from .pipelines.remote import Remote
    from .progress_listener import ProgressListener

    return ProgressListener(name, StreamReport(name, Remote.named(url, key_file, ca_file), group))
