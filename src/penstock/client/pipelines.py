"""Calls about pipelines: what one says of itself, and what the broker has heard."""

import msgspec

from .calls import Call, get, nothing, path_of, send, with_query


class PipelineReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a pipeline says of itself. Counts are since it started; `lag` is what it has still to do."""

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
    """The last report that the broker had of a pipeline; `lost` if the next one should have been there."""

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


def report(name: str, said: PipelineReport) -> Call[Pipeline]:
    return send("PUT", path_of("pipelines", name), said, Pipeline)


def listed(cursor: str | None) -> Call[PipelineList]:
    return get(with_query("/pipelines", {"cursor": cursor}), PipelineList)


def describe(name: str) -> Call[Pipeline]:
    return get(path_of("pipelines", name), Pipeline)


def forget(name: str) -> Call[None]:
    return Call("DELETE", path_of("pipelines", name), nothing, is_repeatable=False)
