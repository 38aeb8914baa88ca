"""Pipelines that run somewhere else say how they are; and others ask."""

import msgspec

from ...api.json.paging import PageQuery, page_of
from ...api.json.pipelines import PipelineIn, PipelineOut, PipelinesOut, checked_expectation_ms
from ...api.principals import Action
from ...errors import Forbidden, NotFound, ShareFull
from ...model import check_name
from ..pipelines import Reported
from .requests import Request
from .responses import Answer, json_response, nothing
from .routing import Route, TopicIn

_REPORT = msgspec.json.Decoder(PipelineIn)
# The beginning and the end of a pipeline are lines of the audit log.
_NOTED = frozenset({"starting", "stopped", "failed"})


async def report(request: Request) -> Answer:
    """Take a report, if its topics are within reach, and the pipeline of the report before is the principal's."""
    said = request.json(_REPORT)
    expect_ms = checked_expectation_ms(said)
    name = request.params["pipeline"]
    before = request.app.pipelines.find(name)
    for topic in said.topics:
        request.allow(check_name(topic, "topic"))
    by, pipelines = request.principal, request.app.pipelines
    if before is not None and not before.is_of(by):
        with request.noting_refusal():
            raise Forbidden(f"pipeline {name} is not of {by.name}", principal=by.name, name=name)
    is_noted = said.state in _NOTED and (before is None or before.said.state != said.state)
    if is_noted:
        request.admit_line()
    found = pipelines.report(name, said, request.now_ns(), expect_ms / 1000, by)
    if is_noted:
        topics = ", ".join(said.topics) or "no topic"
        done = "" if said.state == "starting" else _done(said)
        await request.audit(
            f"{said.kind} {name} of {topics} into {said.target}: {said.state}{done}"
        )
    return json_response(found.out(pipelines.now()))


def _done(said: PipelineIn) -> str:
    """Returns what a pipeline did: messages, but for one that has to do with files alone, and files."""
    messages = "" if said.kind == "vacuum" else f", {said.messages} messages"
    files = f", {said.files} files, {said.bytes} bytes"
    return messages + (files if said.files or not messages else "")


async def list_pipelines(request: Request) -> Answer:
    asked = request.query(PageQuery)
    pipelines = request.app.pipelines
    seen = [pipeline for pipeline in pipelines.all() if pipeline.is_seen_by(request.principal)]
    page, cursor = page_of(seen, asked, lambda one: one.name)
    return json_response(PipelinesOut([one.out(pipelines.now()) for one in page], cursor))


def _found(request: Request) -> Reported:
    one = request.app.pipelines.find(request.params["pipeline"])
    if one is None or not one.is_of(request.principal):
        raise NotFound("pipeline", request.params["pipeline"])
    return one


async def describe(request: Request) -> Answer:
    pipeline = request.app.pipelines.find(request.params["pipeline"])
    if pipeline is None or not pipeline.is_seen_by(request.principal):
        raise NotFound("pipeline", request.params["pipeline"])
    return json_response(pipeline.out(request.app.pipelines.now()))


async def forget(request: Request) -> Answer:
    request.app.pipelines.forget(_found(request).name)
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
        errors=(ShareFull,),
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
