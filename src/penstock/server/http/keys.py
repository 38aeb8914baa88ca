"""API keys over HTTP. What a key's holder needs is shown once, when it is made."""

import msgspec

from ...api.principals import Action, Role
from ...api.units import time_text
from ...errors import AlreadyExists, BadRequest, NotFound
from ..keys import StoredKey
from .paging import PageQuery, page_of
from .requests import Request
from .responses import Answer, json_response, nothing
from .routing import Route
from .shapes import Strict
from .times import Span, span_ms, time_text_or_none

_GRACE = "24h"
_SECOND_MS = 1000


class KeyIn(Strict):
    """Whom it is for, what it may do, on which topics (all, if none is named), and for how long (for ever)."""

    name: str
    role: Role
    prefixes: list[str] = msgspec.field(default_factory=list)
    expires_in: Span | None = None


class RotateIn(Strict):
    """How long the secret before works beside the new one."""

    grace: Span = _GRACE


class KeyOut(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A key. `secret` only in the answer that made it."""

    key_id: str
    name: str
    role: Role
    prefixes: list[str]
    created_at: str
    expires_at: str | None
    secrets: int
    last_used: str | None
    key: str | None = None


class KeysOut(msgspec.Struct):
    keys: list[KeyOut]
    cursor: str | None


_KEY = msgspec.json.Decoder(KeyIn)
_ROTATE = msgspec.json.Decoder(RotateIn)


def _key_out(request: Request, stored: StoredKey, text: str | None = None) -> KeyOut:
    newest = stored.secrets[-1]
    return KeyOut(
        key_id=stored.key_id,
        name=stored.name,
        role=stored.role,
        prefixes=list(stored.prefixes),
        created_at=time_text(stored.created_at),
        expires_at=time_text(newest.expires_at) if newest.expires_at else None,
        secrets=len(stored.secrets),
        last_used=time_text_or_none(request.door.gate.keys.last_used(stored.key_id)),
        key=text,
    )


async def create(request: Request) -> Answer:
    sent = await request.json(_KEY)
    ttl_s = _seconds("expires_in", sent.expires_in) if sent.expires_in is not None else 0
    ring, prefixes = request.door.gate.keys, tuple(sent.prefixes)
    request.allow_prefixes(prefixes)
    stored, text = ring.create(
        sent.name, sent.role, prefixes=prefixes, ttl_s=ttl_s, noting=request.noting
    )
    return json_response(_key_out(request, stored, text), status=201)


def _seconds(name: str, written: Span) -> int:
    """A second or more. What is less was mostly meant to be seconds, and would end a key at once."""
    span = span_ms(name, written)
    if span < _SECOND_MS:
        hint = 'a bare number is milliseconds; write "30s"'
        raise BadRequest(f"{name} must be at least 1 s, got {span} ms ({hint})", field=name)
    return span // _SECOND_MS


async def list_keys(request: Request) -> Answer:
    asked = request.query(PageQuery)
    theirs = [one for one in request.door.gate.keys.all() if request.principal.covers(one.prefixes)]
    seen, cursor = page_of(theirs, asked, lambda one: one.key_id)
    return json_response(KeysOut([_key_out(request, one) for one in seen], cursor))


async def rotate(request: Request) -> Answer:
    sent = await request.json(_ROTATE)
    grace_s = _seconds("grace", sent.grace) if span_ms("grace", sent.grace) else 0
    ring, key_id = request.door.gate.keys, _own_key(request)
    stored, text = ring.rotate(key_id, grace_s=grace_s, noting=request.noting)
    return json_response(_key_out(request, stored, text))


async def revoke(request: Request) -> Answer:
    request.door.gate.keys.revoke(_own_key(request), noting=request.noting)
    return nothing()


def _own_key(request: Request) -> str:
    """The id in the path. NotFound, as for no key, for one that reaches more than the caller's."""
    key_id = request.params["key_id"]
    if not request.principal.covers(request.door.gate.keys.get(key_id).prefixes):
        raise NotFound("key", key_id)
    return key_id


ROUTES = (
    Route(
        method="POST",
        path="/admin/keys",
        call=create,
        action=Action.CHANGE_KEYS,
        summary="Make a key; the answer shows it, and nothing ever does again",
        tag="keys",
        body=KeyIn,
        answer=KeyOut,
        status=201,
        errors=(AlreadyExists,),
    ),
    Route(
        method="GET",
        path="/admin/keys",
        call=list_keys,
        action=Action.SEE_KEYS,
        summary="List keys",
        tag="keys",
        query=PageQuery,
        answer=KeysOut,
    ),
    Route(
        method="POST",
        path="/admin/keys/{key_id}/rotate",
        call=rotate,
        action=Action.CHANGE_KEYS,
        summary="Make a second secret for a key; the one before goes after a while",
        tag="keys",
        body=RotateIn,
        answer=KeyOut,
        errors=(NotFound,),
    ),
    Route(
        method="DELETE",
        path="/admin/keys/{key_id}",
        call=revoke,
        action=Action.CHANGE_KEYS,
        summary="Revoke a key, at once",
        tag="keys",
        status=204,
        errors=(NotFound,),
    ),
)
