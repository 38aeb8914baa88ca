"""The last reports of pipelines that run somewhere else.

Soft state: a pipeline reports every few seconds, and after a restart of the broker it does so again. What must survive
is elsewhere: what a pipeline has finished is the floor of its group, in the broker's ordinary records, and what it
wrote is in the manifests of its lake.
"""

import time
from collections.abc import Callable, Iterator

import msgspec

from ..api.health import Sample
from ..api.json.pipelines import PipelineIn, PipelineOut
from ..api.principals import LOCAL, Principal
from ..api.units import time_text
from ..broker.shares import PIPELINES
from ..config import LimitsConfig
from ..errors import ShareFull
from ..kernel import OwnerCounts

_LIMITS = LimitsConfig()
_ALIVE = frozenset({"starting", "running", "waiting"})


class Reported(msgspec.Struct):
    """One report, and when it came: by the wall clock for people, by the other one for waiting.

    The owner is the id of the key that reported it.
    """

    name: str
    said: PipelineIn
    wall_ns: int
    at_s: float
    expect_s: float
    owner: str
    # When the first report came that had as many commits.
    committed_ns: int | None = None

    def is_of(self, principal: Principal) -> bool:
        """Whether a principal may report for it and forget it: by its topics, and without any by its owner."""
        topics = self.said.topics
        return all(map(principal.reaches, topics)) if topics else principal.owns(self.owner)

    def is_seen_by(self, principal: Principal) -> bool:
        """Whether a principal may see it; one that reaches all topics sees those without any, too."""
        return self.is_of(principal) or not (self.said.topics or principal.prefixes)

    def is_over(self, now_s: float) -> bool:
        return self.said.state not in _ALIVE or self.is_lost(now_s)

    def is_lost(self, now_s: float) -> bool:
        return self.said.state in _ALIVE and now_s - self.at_s > self.expect_s

    def out(self, now_s: float) -> PipelineOut:
        said = self.said
        return PipelineOut(
            name=self.name,
            kind=said.kind,
            state="lost" if self.is_lost(now_s) else said.state,
            topics=said.topics,
            target=said.target,
            messages=said.messages,
            commits=said.commits,
            lag=said.lag,
            rate=said.rate,
            batch_ms=said.batch_ms,
            skipped=said.skipped,
            files=said.files,
            bytes=said.bytes,
            error=said.error,
            reported_at=time_text(self.wall_ns),
            seconds_ago=round(now_s - self.at_s, 3),
            committed_at=None if self.committed_ns is None else time_text(self.committed_ns),
        )


class Pipelines:
    """The last report of each. Bounded, in all and for each key: one that is over makes room for another of its key."""

    def __init__(
        self, limits: LimitsConfig = _LIMITS, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.now, self._limits = now, limits
        # In the order of their last reports.
        self._by_name: dict[str, Reported] = {}
        self._counts = OwnerCounts()

    def report(
        self, name: str, said: PipelineIn, wall_ns: int, expect_s: float, by: Principal = LOCAL
    ) -> Reported:
        """Take a report. ShareFull: the key has as many pipelines that are not over as it may, or all keys have."""
        before = self._by_name.get(name)
        if before is None or before.owner != by.key_id:
            self._make_room(by, in_all=0 if before is not None else 1)
        committed_ns = wall_ns if said.commits else None
        if before is not None:
            self.forget(name)
            if before.said.commits == said.commits:
                committed_ns = before.committed_ns
        found = self._by_name[name] = Reported(
            name, said, wall_ns, self.now(), expect_s, by.key_id, committed_ns
        )
        self._counts.add(by.key_id)
        return found

    def _make_room(self, by: Principal, *, in_all: int) -> None:
        """Forget the pipeline of the key that is over and was silent longest, if there is no room otherwise."""
        try:
            PIPELINES.require_room(self._limits, by, (self._counts,), in_all=in_all)
        except ShareFull:
            now_s, owner = self.now(), by.key_id
            own = (one for one in self._by_name.values() if one.owner == owner)
            over = next((one.name for one in own if one.is_over(now_s)), None)
            if over is None:
                raise
            self.forget(over)

    def find(self, name: str) -> Reported | None:
        return self._by_name.get(name)

    def forget(self, name: str) -> None:
        self._counts.remove(self._by_name.pop(name).owner)

    def all(self) -> list[Reported]:
        return [*self._by_name.values()]

    def samples(self) -> Iterator[Sample]:
        now_s = self.now()
        for one in self.all():
            labels, said = {"pipeline": one.name}, one.said
            is_up = said.state in _ALIVE and not one.is_lost(now_s)
            yield Sample("penstock_pipeline_up", labels, int(is_up))
            yield Sample("penstock_pipeline_messages_total", labels, said.messages)
            yield Sample("penstock_pipeline_skipped_total", labels, said.skipped)
            yield Sample("penstock_pipeline_commits_total", labels, said.commits)
            yield Sample("penstock_pipeline_lag_messages", labels, said.lag)
            yield Sample("penstock_pipeline_messages_per_second", labels, said.rate)
            yield Sample("penstock_pipeline_batch_seconds", labels, said.batch_ms / 1000)
            yield Sample("penstock_pipeline_report_age_seconds", labels, now_s - one.at_s)
