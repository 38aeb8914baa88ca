"""Pipelines: the reports that they send, and those that the broker has. A broker serves these over HTTP alone."""

from typing import TYPE_CHECKING

import msgspec

from .http_page import client_call, http_path

if TYPE_CHECKING:
    from .synchronous.client import Client


class PipelineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a pipeline. Counts are since it started; `lag` is how many messages it has still to read.

    `rate`, in messages a second, and `batch_ms` are of its last commit. `files` and `bytes` are what it wrote into a
    lake, merged there or removed from it.
    """

    kind: str
    state: str
    topics: list[str] = []
    target: str = ""
    messages: int = 0
    commits: int = 0
    lag: int = 0
    rate: float = 0.0
    batch_ms: int = 0
    files: int = 0
    bytes: int = 0
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
    rate: float
    batch_ms: int
    error: str
    reported_at: str
    seconds_ago: float
    committed_at: str | None = None
    files: int = 0
    bytes: int = 0


def report_pipeline(client: "Client", name: str, said: PipelineReport) -> Pipeline:
    path, body = http_path("pipelines", name), msgspec.to_builtins(said)
    return msgspec.convert(client_call(client, path, "PUT", body), Pipeline)


def list_pipelines(client: "Client") -> list[Pipeline]:
    """All that reported since the broker started, and that this client's key may see."""
    found: list[Pipeline] = []
    cursor = None
    while True:
        page = client_call(client, http_path("pipelines", cursor=cursor))
        found += msgspec.convert(page["pipelines"], list[Pipeline])
        cursor = page.get("cursor")
        if cursor is None:
            return found


def describe_pipeline(client: "Client", name: str) -> Pipeline:
    """The last report of a pipeline. NotFound."""
    return msgspec.convert(client_call(client, http_path("pipelines", name)), Pipeline)
