"""Compatibility levels and modes of the schema registry over HTTP, for a subject or for all that have none."""

import msgspec

from ... import errors
from ...api.json.schemas import LevelOut
from ...api.principals import Action
from ...api.schemas import (
    DescribeCompatibility,
    DescribeMode,
    Level,
    Mode,
    SetCompatibility,
    SetMode,
)
from ...errors import NotFound
from .requests import Request
from .responses import Answer
from .schema_shapes import (
    ConfigIn,
    ConfigOut,
    DefaultQuery,
    ForceQuery,
    ModeIn,
    ModeOut,
    Unprocessable,
    answer,
    route,
    subject_of,
)

_INVALID_LEVEL, _INVALID_MODE, _NOT_PERMITTED = 42203, 42204, 42205
_LEVEL_NAMES = frozenset({"compatibility", "compatibilityLevel"})
_CONFIG = msgspec.json.Decoder(ConfigIn)
_MODE = msgspec.json.Decoder(ModeIn)


async def describe_config(request: Request) -> Answer:
    asked = request.query(DefaultQuery)
    command = DescribeCompatibility(subject_of(request), asked.default_to_global)
    return answer(request, LevelOut((await request.execute(command)).value))


async def set_config(request: Request) -> Answer:
    """Without a level nothing changes, as with Confluent's."""
    sent = request.json(_CONFIG)
    for name, value in msgspec.to_builtins(sent).items():
        if value and name not in _LEVEL_NAMES:
            raise Unprocessable(_NOT_PERMITTED, f"{name} is not supported")
    written = sent.compatibility or sent.compatibility_level
    if written is None:
        return answer(request, ConfigOut())
    try:
        level = Level(written.upper())
    except ValueError:
        raise Unprocessable(_INVALID_LEVEL, f"{written[:40]!r} is not a level") from None
    subject = subject_of(request)
    await request.execute_audited(SetCompatibility(subject, level))
    return answer(request, ConfigOut(level.value))


async def delete_config(request: Request) -> Answer:
    subject = subject_of(request)
    before = await request.execute(DescribeCompatibility(subject, or_global=True))
    await request.execute_audited(SetCompatibility(subject))
    return answer(request, LevelOut(before.value))


async def describe_mode(request: Request) -> Answer:
    asked = request.query(DefaultQuery)
    command = DescribeMode(subject_of(request), asked.default_to_global)
    return answer(request, ModeOut((await request.execute(command)).value))


async def set_mode(request: Request) -> Answer:
    asked, written = request.query(ForceQuery), request.json(_MODE).mode
    try:
        mode = Mode(written.upper())
    except ValueError:
        raise Unprocessable(_INVALID_MODE, f"{written[:40]!r} is not a mode") from None
    subject = subject_of(request)
    await request.execute_audited(SetMode(subject, mode, asked.force))
    return answer(request, ModeOut(mode.value))


async def delete_mode(request: Request) -> Answer:
    subject = subject_of(request)
    before = await request.execute(DescribeMode(subject, or_global=True))
    await request.execute_audited(SetMode(subject))
    return answer(request, ModeOut(before.value))


ROUTES = (
    route(
        "GET",
        "/config",
        describe_config,
        "The compatibility level of all subjects that have none",
        query=DefaultQuery,
        answer=LevelOut,
    ),
    route(
        "PUT",
        "/config",
        set_config,
        "Set the compatibility level of all subjects that have none",
        action=Action.CHANGE_SCHEMAS,
        body=ConfigIn,
        answer=ConfigOut,
        errors=(errors.InvalidSchema,),
    ),
    route(
        "DELETE",
        "/config",
        delete_config,
        "Have the usual compatibility level, BACKWARD",
        action=Action.CHANGE_SCHEMAS,
        answer=LevelOut,
    ),
    route(
        "GET",
        "/config/{subject}",
        describe_config,
        "The compatibility level of a subject",
        query=DefaultQuery,
        answer=LevelOut,
        errors=(NotFound,),
    ),
    route(
        "PUT",
        "/config/{subject}",
        set_config,
        "Set the compatibility level of a subject",
        action=Action.CHANGE_SCHEMAS,
        body=ConfigIn,
        answer=ConfigOut,
        errors=(errors.InvalidSchema,),
    ),
    route(
        "DELETE",
        "/config/{subject}",
        delete_config,
        "Have the compatibility level that all have",
        action=Action.CHANGE_SCHEMAS,
        answer=LevelOut,
        errors=(NotFound, errors.InvalidSchema),
    ),
    route(
        "GET",
        "/mode",
        describe_mode,
        "The mode of all subjects that have none",
        query=DefaultQuery,
        answer=ModeOut,
    ),
    route(
        "PUT",
        "/mode",
        set_mode,
        "Set the mode of all subjects that have none",
        action=Action.CHANGE_SCHEMAS,
        query=ForceQuery,
        body=ModeIn,
        answer=ModeOut,
        errors=(errors.InvalidSchema,),
    ),
    route(
        "DELETE",
        "/mode",
        delete_mode,
        "Have the usual mode, READWRITE",
        action=Action.CHANGE_SCHEMAS,
        answer=ModeOut,
    ),
    route(
        "GET",
        "/mode/{subject}",
        describe_mode,
        "The mode of a subject",
        query=DefaultQuery,
        answer=ModeOut,
        errors=(NotFound,),
    ),
    route(
        "PUT",
        "/mode/{subject}",
        set_mode,
        "Set the mode of a subject",
        action=Action.CHANGE_SCHEMAS,
        query=ForceQuery,
        body=ModeIn,
        answer=ModeOut,
        errors=(errors.InvalidSchema,),
    ),
    route(
        "DELETE",
        "/mode/{subject}",
        delete_mode,
        "Have the mode that all have",
        action=Action.CHANGE_SCHEMAS,
        answer=ModeOut,
        errors=(NotFound, errors.InvalidSchema),
    ),
)
