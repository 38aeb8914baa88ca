"""Recurring messages: schedules created, listed, changed, run and deleted."""

from typing import Any

import msgspec

from ...api.json.schedules import (
    ScheduleChangeIn,
    ScheduleIn,
    ScheduleOut,
    ScheduleRunOut,
    SchedulesOut,
    change_command,
    create_command,
    schedule_out,
)
from ...api.principals import Action
from ...api.schedules import DeleteSchedule, GetSchedule, ListSchedules, RunSchedule
from ...errors import (
    AlreadyExists,
    BacklogFull,
    InvalidName,
    NotFound,
    SchemaViolation,
    TooLarge,
)
from .requests import Request
from .responses import Answer, json_response, nothing
from .routing import Route, TopicIn

_CREATE = msgspec.json.Decoder(ScheduleIn)
_CHANGE = msgspec.json.Decoder(ScheduleChangeIn)


def _place(request: Request) -> tuple[str, str]:
    return request.params["topic"], request.params["schedule"]


async def create(request: Request) -> Answer:
    sent = request.json(_CREATE)
    command = create_command(request.params["topic"], sent, request.app.limits)
    return json_response(schedule_out(await request.execute_audited(command)), status=201)


async def list_schedules(request: Request) -> Answer:
    found = await request.execute(ListSchedules(request.params["topic"]))
    return json_response(SchedulesOut([*map(schedule_out, found)]))


async def get(request: Request) -> Answer:
    return json_response(schedule_out(await request.execute(GetSchedule(*_place(request)))))


async def change(request: Request) -> Answer:
    sent = request.json(_CHANGE)
    command = change_command(*_place(request), sent, request.app.limits)
    return json_response(schedule_out(await request.execute_audited(command)))


async def delete(request: Request) -> Answer:
    await request.execute_audited(DeleteSchedule(*_place(request)))
    return nothing()


async def run(request: Request) -> Answer:
    found = await request.execute_audited(RunSchedule(*_place(request)))
    return json_response(ScheduleRunOut(*_place(request), found.partition, found.offset))


_ALL, _ONE = "/topics/{topic}/schedules", "/topics/{topic}/schedules/{schedule}"


def _route(method: str, path: str, call: Any, summary: str, **more: Any) -> Route:
    return Route(
        method=method,
        path=path,
        call=call,
        action=Action.SEE_SCHEDULES if method == "GET" else Action.CHANGE_SCHEDULES,
        summary=summary,
        tag="schedules",
        topic_in=TopicIn.PATH,
        **{"answer": ScheduleOut, "errors": (NotFound,), **more},
    )


ROUTES = (
    _route(
        "POST",
        _ALL,
        create,
        "Publish a message again and again",
        body=ScheduleIn,
        status=201,
        errors=(NotFound, AlreadyExists, InvalidName, TooLarge, SchemaViolation),
    ),
    _route("GET", _ALL, list_schedules, "Schedules of a topic, by key", answer=SchedulesOut),
    _route("GET", _ONE, get, "A schedule, and when it is due next"),
    _route(
        "PATCH",
        _ONE,
        change,
        "Change a schedule, pause or resume it",
        body=ScheduleChangeIn,
        errors=(NotFound, TooLarge, SchemaViolation),
    ),
    _route("DELETE", _ONE, delete, "Delete a schedule", answer=None, status=204),
    _route(
        "POST",
        f"{_ONE}/run",
        run,
        "Publish the message of a schedule now",
        answer=ScheduleRunOut,
        errors=(NotFound, SchemaViolation, BacklogFull),
    ),
)
