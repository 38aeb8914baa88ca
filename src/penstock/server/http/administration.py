"""Settings with what they mean, and the audit log, newest lines first."""

import re
from dataclasses import fields
from typing import Any

import msgspec

from ...api.json.messages import Int64, Strict
from ...api.json.paging import page_limit
from ...api.principals import Action
from ...api.units import time_text
from ...config import TopicConfig
from ...errors import BadRequest, Forbidden
from ..audit_files import Entry, Place, read_back
from ..settings_sources import SECTIONS, shown, topic_words
from .requests import Request
from .responses import Answer, json_response
from .routing import Route

# The first line of a file of the log, and a byte of it.
_CURSOR = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)


class SettingOut(msgspec.Struct):
    """`is_live`: SIGHUP is enough to change it."""

    name: str
    value: Any
    default: Any
    text: str
    is_live: bool


class SettingsOut(msgspec.Struct):
    """By section."""

    sections: dict[str, list[SettingOut]]


class TopicSettingOut(msgspec.Struct):
    name: str
    default: Any
    text: str


class TopicSettingsOut(msgspec.Struct):
    """`default` is what a new topic of this broker gets."""

    settings: list[TopicSettingOut]


class AuditQuery(Strict):
    limit: Int64 = 100
    cursor: str = ""


class AuditLineOut(msgspec.Struct):
    at: str
    who: str
    what: str
    where: str
    client: str
    is_allowed: bool


class AuditOut(msgspec.Struct):
    lines: list[AuditLineOut]
    cursor: str | None


async def settings(request: Request) -> Answer:
    _require_all_topics(request)
    found = shown(request.app.settings)
    sections = {
        name: [
            SettingOut(
                one.name,
                found[name][one.name],
                one.default if not one.metadata["is_secret"] else None,
                one.metadata["text"],
                one.metadata["is_live"] or name == "tls",
            )
            for one in fields(kind)
        ]
        for name, kind in SECTIONS.items()
    }
    return json_response(SettingsOut(sections))


async def topic_settings(request: Request) -> Answer:
    usual = request.app.settings.topic_defaults()
    words = topic_words()
    return json_response(
        TopicSettingsOut(
            [
                TopicSettingOut(one.name, usual.get(one.name, one.default), words[one.name])
                for one in fields(TopicConfig)
            ]
        )
    )


async def audit(request: Request) -> Answer:
    _require_all_topics(request)
    asked = request.query(AuditQuery)
    limit, written = page_limit(asked.limit), asked.cursor
    log = request.app.auth.audit
    newest = log.newest
    place = _place(written) if written else Place(newest)
    page = await request.app.driver.in_thread(lambda: read_back(log.disk, newest, place, limit))
    following = None
    if page.before is not None:
        first, position = page.before
        following = str(first) if position is None else f"{first}-{position}"
    return json_response(AuditOut([*map(_line_out, page.entries)], following))


def _place(cursor: str) -> Place:
    """BadRequest for what is no cursor of ours."""
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise BadRequest("cursor is not one of ours", field="cursor")
    return Place(int(match[1]), None if match[2] is None else int(match[2]))


def _line_out(entry: Entry) -> AuditLineOut:
    at = time_text(int(entry.at_ns))
    return AuditLineOut(at, entry.who, entry.what, entry.where, entry.client, entry.is_allowed)


def _require_all_topics(request: Request) -> None:
    """Forbidden for a key with prefixes: settings and the log are of the whole broker and name all its topics."""
    principal = request.principal
    if principal.prefixes:
        with request.noting_refusal():
            raise Forbidden(
                f"{principal.name} reaches only topics that begin with {' or '.join(principal.prefixes)}",
                principal=principal.name,
            )


ROUTES = (
    Route(
        method="GET",
        path="/topic-settings",
        call=topic_settings,
        action=Action.SEE_TOPICS,
        summary="What can be set for a topic, with what it means",
        tag="topics",
        answer=TopicSettingsOut,
    ),
    Route(
        method="GET",
        path="/admin/settings",
        call=settings,
        action=Action.SEE_SETTINGS,
        summary="Settings of the broker, with what they mean",
        tag="settings",
        answer=SettingsOut,
    ),
    Route(
        method="GET",
        path="/admin/audit",
        call=audit,
        action=Action.SEE_AUDIT,
        summary="What administrators did and what was refused, newest first",
        tag="audit",
        query=AuditQuery,
        answer=AuditOut,
    ),
)
