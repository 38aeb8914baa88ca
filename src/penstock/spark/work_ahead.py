"""The next round, leased and made into a table while Spark runs a job over the one before."""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ..client.leased_messages import Delivered, Polled
from .work_round import lease_round, table_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ..client import Consumer


@dataclass(frozen=True, slots=True)
class Round:
    """Messages that are leased, and the same as rows of Spark."""

    held: Polled[Delivered]
    rows: "pa.Table"
    frame: "DataFrame"


class RoundsAhead:
    """Leases rounds; at most one ahead of that which is worked on.

    At the end, or if something raises, the consumer is to be closed: it gives back all that it holds, and counts no
    attempt.
    """

    def __init__(
        self, spark: "SparkSession", consumer: "Consumer", messages_max: int, *, has_headers: bool
    ) -> None:
        self._spark, self._consumer = spark, consumer
        self._messages_max, self._has_headers = messages_max, has_headers
        self._thread = ThreadPoolExecutor(1, "penstock-lease-ahead")
        self._next: Future[Round | None] | None = None

    def begin(self) -> None:
        """Lease what is ready, if the limits of the topic leave room beside the round that is worked on."""
        self._next = self._thread.submit(self._leased, Polled([], Delivered), 0)

    def take(self, wait_s: float) -> Round | None:
        """The next round; waits for its first message. What came since it was leased is added, up to its size."""
        ahead, self._next = self._next, None
        before = None if ahead is None else ahead.result()
        if before is None:
            return self._leased(Polled([], Delivered), wait_s)
        more = lease_round(self._consumer, self._messages_max, 0, before.held)
        return before if len(more) == len(before.held) else self._round(more)

    def settle(self) -> None:
        """Return when nothing is being made of messages any more, so that settings of the session may change."""
        if self._next is not None:
            wait([self._next])

    def _leased(self, held: Polled[Delivered], wait_s: float) -> Round | None:
        held = lease_round(self._consumer, self._messages_max, wait_s, held)
        return self._round(held) if held else None

    def _round(self, held: Polled[Delivered]) -> Round:
        rows = table_of(held, has_headers=self._has_headers)
        return Round(held, rows, self._spark.createDataFrame(rows))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._thread.shutdown()
