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
from ..api.units import time_text

PIPELINES_MAX = 1000
_ALIVE = frozenset({"starting", "running", "waiting"})


class Reported(msgspec.Struct):
    """One report, and when it came: by the wall clock for people, by the other one for waiting."""

    name: str
    said: PipelineIn
    wall_ns: int
    at_s: float
    expect_s: float
    # When the first report came that had as many commits.
    committed_ns: int | None = None

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
            files=said.files,
            bytes=said.bytes,
            error=said.error,
            reported_at=time_text(self.wall_ns),
            seconds_ago=round(now_s - self.at_s, 3),
            committed_at=None if self.committed_ns is None else time_text(self.committed_ns),
        )


class Pipelines:
    """The last report of each. Bounded: the one that was silent longest makes room."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._by_name: dict[str, Reported] = {}

    def report(self, name: str, said: PipelineIn, wall_ns: int, expect_s: float) -> Reported:
        before = self._by_name.pop(name, None)
        committed_ns = wall_ns if said.commits else None
        if before is not None and before.said.commits == said.commits:
            committed_ns = before.committed_ns
        if len(self._by_name) >= PIPELINES_MAX:
            del self._by_name[next(iter(self._by_name))]
        found = self._by_name[name] = Reported(
            name, said, wall_ns, self.now(), expect_s, committed_ns
        )
        return found

    def find(self, name: str) -> Reported | None:
        return self._by_name.get(name)

    def forget(self, name: str) -> None:
        del self._by_name[name]

    def all(self) -> list[Reported]:
        return [*self._by_name.values()]

    def samples(self) -> Iterator[Sample]:
        now_s = self.now()
        for one in self.all():
            labels, said = {"pipeline": one.name}, one.said
            is_up = said.state in _ALIVE and not one.is_lost(now_s)
            yield Sample("penstock_pipeline_up", labels, int(is_up))
            yield Sample("penstock_pipeline_messages_total", labels, said.messages)
            yield Sample("penstock_pipeline_commits_total", labels, said.commits)
            yield Sample("penstock_pipeline_lag_messages", labels, said.lag)
            yield Sample("penstock_pipeline_messages_per_second", labels, said.rate)
            yield Sample("penstock_pipeline_batch_seconds", labels, said.batch_ms / 1000)
            yield Sample("penstock_pipeline_report_age_seconds", labels, now_s - one.at_s)
