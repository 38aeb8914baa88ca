"""The calls about pipelines: the reports that they send, and those that the broker has."""

import msgspec

from .calls import Call, get, nothing, path_of, send, with_query


class PipelineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a pipeline. Counts are since it started; `lag` is how many messages it has still to read."""

    kind: str
    state: str
    topics: list[str] = []
    target: str = ""
    messages: int = 0
    commits: int = 0
    lag: int = 0
    error: str = ""
    expect_within: str = "30s"


class Pipeline(msgspec.Struct, frozen=True):
    """The last report of a pipeline. Its `state` is `lost` if the next report is overdue."""

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


class PipelineList(msgspec.Struct, frozen=True):
    pipelines: list[Pipeline]
    cursor: str | None = None


def report(name: str, body: PipelineReport) -> Call[Pipeline]:
    return send("PUT", path_of("pipelines", name), body, Pipeline)


def listed(cursor: str | None) -> Call[PipelineList]:
    return get(with_query("/pipelines", {"cursor": cursor}), PipelineList)


def describe(name: str) -> Call[Pipeline]:
    return get(path_of("pipelines", name), Pipeline)


def forget(name: str) -> Call[None]:
    return Call("DELETE", path_of("pipelines", name), nothing, is_repeatable=False)
