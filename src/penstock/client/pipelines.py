"""Pipelines: the reports that they send, and those that the broker has. A broker serves these over HTTP alone."""

from typing import TYPE_CHECKING

import msgspec

from ..api.json.pipelines import PipelineIn, PipelineOut, PipelinesOut
from .http_page import client_call, http_path

if TYPE_CHECKING:
    from .synchronous.client import Client


def report_pipeline(client: "Client", name: str, said: PipelineIn) -> PipelineOut:
    path, body = http_path("pipelines", name), msgspec.to_builtins(said)
    return msgspec.convert(client_call(client, path, "PUT", body), PipelineOut)


def list_pipelines(client: "Client") -> list[PipelineOut]:
    """All that reported since the broker started, and that this client's key may see."""
    found: list[PipelineOut] = []
    cursor = None
    while True:
        answer = client_call(client, http_path("pipelines", cursor=cursor))
        page = msgspec.convert(answer, PipelinesOut)
        found += page.pipelines
        cursor = page.cursor
        if cursor is None:
            return found


def describe_pipeline(client: "Client", name: str) -> PipelineOut:
    """The last report of a pipeline. NotFound."""
    return msgspec.convert(client_call(client, http_path("pipelines", name)), PipelineOut)
