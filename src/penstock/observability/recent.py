"""Figures of the last hour, for curves: one row every ten seconds, in memory, lost at a restart.

A row has the rates of the process and how far groups are behind, of at most `GROUPS_MAX` groups by name, so an hour
never takes more than some hundred kilobytes.
"""

from collections import Counter, deque
from collections.abc import Mapping
from heapq import nlargest

import msgspec

from ..api.health import LagFigures, Stored
from ..ports import Clock
from .activity import Activity

STEP_S = 10
ROWS_MAX = 360
GROUPS_MAX = 20
_S = 1_000_000_000


class RecentRow(msgspec.Struct, frozen=True):
    """One step. Rates are per second, since the row before."""

    at_ns: int
    rates: dict[str, float]
    lag: int
    lag_seconds: float
    in_flight: int
    stored: Stored
    disk_free_bytes: int
    group_lags: dict[str, int]


class Recent:
    """The last rows, oldest first."""

    def __init__(self) -> None:
        self.rows: deque[RecentRow] = deque(maxlen=ROWS_MAX)
        # What an answer with all rows was encoded to, for each kind of caller, until the next row comes.
        self.encoded: dict[bool, bytes] = {}
        self._counts: dict[str, int] = {}
        self._counted_ns = 0
        self._lags: Mapping[str, LagFigures] = {}
        self._lags_ns: int | None = None

    def add(
        self,
        clock: Clock,
        activity: Activity,
        lags: Mapping[str, LagFigures],
        stored: Stored,
        disk_free_bytes: int,
    ) -> None:
        """Take a row. Its time is for people; rates are counted by the clock that is never set."""
        counts, monotonic_ns = _counts_of(activity), clock.monotonic_ns()
        seconds = (monotonic_ns - self._counted_ns) / _S
        rates = {
            name: round((count - self._counts[name]) / seconds, 3) if self._counts else 0.0
            for name, count in counts.items()
        }
        self._counts, self._counted_ns = counts, monotonic_ns
        self.keep_lags(lags, clock)
        self.encoded.clear()
        largest = nlargest(GROUPS_MAX, lags, key=lambda name: lags[name].lag)
        self.rows.append(
            RecentRow(
                clock.now_ns(),
                rates,
                sum(one.lag for one in lags.values()),
                max((one.lag_seconds for one in lags.values()), default=0.0),
                sum(one.in_flight for one in lags.values()),
                stored,
                disk_free_bytes,
                {name: lags[name].lag for name in largest},
            )
        )

    def keep_lags(self, lags: Mapping[str, LagFigures], clock: Clock) -> None:
        """Keep how far all groups are behind, for callers that do not need it newer."""
        self._lags, self._lags_ns = lags, clock.monotonic_ns()

    def lags(self, clock: Clock, age_ns: int) -> Mapping[str, LagFigures] | None:
        """How far all groups were behind when that was last found out; None if it is as long ago as `age_ns`."""
        is_new = self._lags_ns is not None and clock.monotonic_ns() - self._lags_ns < age_ns
        return self._lags if is_new else None

    def groups(self) -> list[str]:
        """The groups that were furthest behind in this hour, at most `GROUPS_MAX`."""
        peaks: Counter[str] = Counter()
        for row in self.rows:
            for name, lag in row.group_lags.items():
                peaks[name] = max(peaks[name], lag)
        return [name for name, _ in peaks.most_common(GROUPS_MAX)]


def _counts_of(activity: Activity) -> dict[str, int]:
    answers = activity.answers
    return {
        "published": activity.published,
        "delivered": activity.delivered,
        "acked": answers["ack"],
        "failed": answers["nack"] + answers["reject"],
        "refused": sum(activity.publish_errors.values()),
    }
