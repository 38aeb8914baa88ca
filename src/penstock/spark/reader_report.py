"""How far a stream is, told by the process that plans it, so that nobody has to add a listener to a session."""

import logging
import time
from dataclasses import dataclass, replace

import msgspec

from ..api.json.pipelines import PipelineIn, State
from ..client import Client
from ..client.pipelines import report_pipeline
from ..errors import PenstockError, Unavailable
from .offsets import StreamOffset, TopicEndsByName, partitions_in, ranges_between
from .options import SourceOptions

_TOPICS_MAX = 100
_LOG = logging.getLogger("penstock.spark")
_EXPECT_WITHIN = "10m"
# An idle stream tells that it is there.
_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class _Batch:
    """A micro-batch that was planned."""

    end: StreamOffset
    rows: int
    skipped: int


class ReaderReport:
    """Tells the broker of each micro-batch of a query, once Spark asks for the one behind it."""

    def __init__(self, options: SourceOptions, name: str) -> None:
        self._options, self._name = options, name
        self._said = PipelineIn(kind="stream", state="running", expect_within=_EXPECT_WITHIN)
        self._planned: _Batch | None = None
        self._told_at_s = -_EVERY_S
        self._is_refused = False

    def planned(self, start: StreamOffset, end: StreamOffset) -> None:
        rows = sum(one.end - one.start for one in ranges_between(start, end))
        # A topic that was made again begins below the offset that the query was at.
        gaps = (first - start.next.get(key, first) for key, first in end.begin.items())
        skipped = 0 if start.is_first else sum(gap for gap in gaps if gap > 0)
        self._planned = _Batch(end, rows, skipped)

    def seen(
        self, client: Client, done: StreamOffset, ends: TopicEndsByName, *, is_last: bool
    ) -> None:
        """What is there, and that all up to `done` is done. `is_last`: of a run that ends with what there was."""
        batch, said = self._planned, self._said
        is_moved = batch is not None and batch.end == done
        state: State = "stopped" if is_last else "running"
        is_due = time.monotonic() - self._told_at_s >= _EVERY_S
        if not (is_moved or is_due or state != said.state):
            return
        waiting = partitions_in(ends, self._options.topics)
        self._said = msgspec.structs.replace(
            said,
            state=state,
            topics=sorted(ends)[:_TOPICS_MAX],
            lag=sum(max(0, one.latest - done.next.get(key, one.latest)) for key, one in waiting),
        )
        if batch is not None and is_moved:
            self._planned = None
            self._said = msgspec.structs.replace(
                self._said,
                messages=said.messages + batch.rows,
                commits=said.commits + 1,
                skipped=said.skipped + batch.skipped,
            )
        self._told_at_s = time.monotonic()
        self._tell(client)

    def stopped(self) -> None:
        """The query was stopped between two batches. Of one that ended within a batch Spark does not say why."""
        if self._planned is None and self._said.state == "running":
            self._said = msgspec.structs.replace(self._said, state="stopped")
            with replace(self._options, retries=0).client() as client:
                self._tell(client)

    def _tell(self, client: Client) -> None:
        if self._is_refused:
            return
        try:
            report_pipeline(client, self._name, self._said)
        except PenstockError as error:
            # A key that may not report may not do so later, and the query does not need it.
            self._is_refused = not isinstance(error, Unavailable)
            _LOG.warning("progress of %s was not told to the broker: %s", self._name, error)
