"""Pipelines that run somewhere else and say how they are.

Soft state: a pipeline reports every few seconds, and after a restart of the broker it does so again. What must survive
is elsewhere: what a pipeline has finished is the floor of its group, in the broker's ordinary records, and what it
wrote is in the manifests of its lake.
"""

import time
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from ...api.principals import Action
from ...api.units import time_text
from ...errors import BadRequest, NotFound
from ...model import check_name
from ...observability.prometheus import Sample
from .paging import PageQuery, page_of
from .requests import Request
from .responses import Answer, json_response, nothing
from .routing import Route, TopicIn
from .shapes import Int64, Strict
from .times import Span, span_ms

PIPELINES_MAX = 1000
_TEXT_CHARACTERS_MAX = 1000
_TOPICS_MAX = 100
_EXPECTED_MS_MIN, _EXPECTED_MS_MAX = 1000, 3_600_000

State = Literal["starting", "running", "waiting", "stopped", "failed"]
_ALIVE = frozenset({"starting", "running", "waiting"})


class PipelineIn(Strict):
    """How a pipeline is. `expect_within`: if the next report takes longer, it counts as lost.

    Counts are since the pipeline started; `lag` is how many messages it has still to do.
    """

    kind: Literal["archive", "stream", "load", "sql"]
    state: State
    topics: list[str] = msgspec.field(default_factory=list)
    target: str = ""
    messages: Int64 = 0
    commits: Int64 = 0
    lag: Int64 = 0
    error: str = ""
    expect_within: Span = "30s"


class PipelineOut(msgspec.Struct, kw_only=True):
    """The last report. `state` is `lost` if the next one should have been here."""

    name: str
    kind: str
    state: str
    topics: list[str]
    target: str
    messages: int
    commits: int
    lag: int
    error: str
    reported_at: str
    seconds_ago: float


class PipelinesOut(msgspec.Struct):
    pipelines: list[PipelineOut]
    cursor: str | None


_REPORT = msgspec.json.Decoder(PipelineIn)


class Reported(msgspec.Struct):
    """One report, and when it came: by the wall clock for people, by the other one for waiting."""

    name: str
    said: PipelineIn
    wall_ns: int
    at_s: float
    expect_s: float

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
            error=said.error,
            reported_at=time_text(self.wall_ns),
            seconds_ago=round(now_s - self.at_s, 3),
        )


class Pipelines:
    """The last report of each. Bounded: the one that was silent longest makes room."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._by_name: dict[str, Reported] = {}

    def report(self, name: str, said: PipelineIn, wall_ns: int, expect_s: float) -> Reported:
        self._by_name.pop(name, None)
        if len(self._by_name) >= PIPELINES_MAX:
            del self._by_name[next(iter(self._by_name))]
        found = self._by_name[name] = Reported(name, said, wall_ns, self.now(), expect_s)
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
            yield Sample("penstock_pipeline_report_age_seconds", labels, now_s - one.at_s)


async def report(request: Request) -> Answer:
    """Take a report, if its topics, and those of the report before, are within reach."""
    said = await request.json(_REPORT)
    expect_ms = _checked(said)
    name = request.params["pipeline"]
    before = request.door.pipelines.find(name)
    for topic in [*said.topics, *(before.said.topics if before else ())]:
        request.allow(check_name(topic, "topic"))
    pipelines = request.door.pipelines
    wall_ns = request.door.driver.driver.clock.now_ns()
    found = pipelines.report(name, said, wall_ns, expect_ms / 1000)
    return json_response(found.out(pipelines.now()))


def _checked(said: PipelineIn) -> int:
    """How long until the next report, in milliseconds."""
    for name in ("target", "error"):
        if len(getattr(said, name)) > _TEXT_CHARACTERS_MAX:
            text = f"{name} has {len(getattr(said, name))} characters, the limit is {_TEXT_CHARACTERS_MAX}"
            raise BadRequest(text, field=name)
    if len(said.topics) > _TOPICS_MAX:
        raise BadRequest(f"{len(said.topics)} topics, the limit is {_TOPICS_MAX}", field="topics")
    for name in ("messages", "commits", "lag"):
        if getattr(said, name) < 0:
            raise BadRequest(f"{name} must be at least 0, got {getattr(said, name)}", field=name)
    expect_ms = span_ms("expect_within", said.expect_within)
    if not _EXPECTED_MS_MIN <= expect_ms <= _EXPECTED_MS_MAX:
        raise BadRequest(
            f"expect_within must be in 1s..1h, got {said.expect_within!r}", field="expect_within"
        )
    return expect_ms


def _is_seen(request: Request, one: Reported) -> bool:
    """A pipeline is seen by whoever reaches all of its topics."""
    return all(request.principal.reaches(topic) for topic in one.said.topics)


async def list_pipelines(request: Request) -> Answer:
    asked = request.query(PageQuery)
    pipelines = request.door.pipelines
    seen = [one for one in pipelines.all() if _is_seen(request, one)]
    page, cursor = page_of(seen, asked, lambda one: one.name)
    return json_response(PipelinesOut([one.out(pipelines.now()) for one in page], cursor))


def _found(request: Request) -> Reported:
    one = request.door.pipelines.find(request.params["pipeline"])
    if one is None or not _is_seen(request, one):
        raise NotFound("pipeline", request.params["pipeline"])
    return one


async def describe(request: Request) -> Answer:
    return json_response(_found(request).out(request.door.pipelines.now()))


async def forget(request: Request) -> Answer:
    request.door.pipelines.forget(_found(request).name)
    return nothing()


ROUTES = (
    Route(
        method="GET",
        path="/pipelines",
        call=list_pipelines,
        action=Action.SEE_PIPELINES,
        summary="List pipelines that reported since the broker started",
        tag="pipelines",
        query=PageQuery,
        answer=PipelinesOut,
    ),
    Route(
        method="GET",
        path="/pipelines/{pipeline}",
        call=describe,
        action=Action.SEE_PIPELINES,
        summary="The last report of a pipeline",
        tag="pipelines",
        answer=PipelineOut,
        errors=(NotFound,),
    ),
    Route(
        method="PUT",
        path="/pipelines/{pipeline}",
        call=report,
        action=Action.REPORT_PIPELINE,
        summary="Say how a pipeline is; it does so itself, every few seconds",
        tag="pipelines",
        body=PipelineIn,
        answer=PipelineOut,
        topic_in=TopicIn.REST,
    ),
    Route(
        method="DELETE",
        path="/pipelines/{pipeline}",
        call=forget,
        action=Action.REPORT_PIPELINE,
        summary="Forget the reports of a pipeline; its work is not touched",
        tag="pipelines",
        status=204,
        errors=(NotFound,),
    ),
)
