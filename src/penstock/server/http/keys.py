"""API keys over HTTP. What a key's holder needs is shown once, when it is made."""

from secrets import token_hex

import msgspec

from ...api.keys import CreateKey, DescribeKey, KeyDescription, ListKeys, RevokeKey, RotateKey
from ...api.principals import Action, Role
from ...api.units import time_text
from ...errors import AlreadyExists, BadRequest, NotFound
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


def _key_out(request: Request, key: KeyDescription, text: str | None = None) -> KeyOut:
    return KeyOut(
        key_id=key.key_id,
        name=key.name,
        role=key.role,
        prefixes=list(key.prefixes),
        created_at=time_text(key.created_at_ns),
        expires_at=time_text(key.expires_at_ns) if key.expires_at_ns else None,
        secrets=key.secrets,
        last_used=time_text_or_none(request.door.gate.last_used_ns.get(key.key_id)),
        key=text,
    )


async def create(request: Request) -> Answer:
    sent = await request.json(_KEY)
    lifetime_ms = _ms("expires_in", sent.expires_in) if sent.expires_in is not None else 0
    prefixes = tuple(sent.prefixes)
    request.allow_prefixes(prefixes)
    key_id = f"pk-{token_hex(6)}"
    new = await request.execute_noted(
        CreateKey(sent.name, sent.role, prefixes, lifetime_ms, key_id),
        f"key {key_id} ({sent.name}, {sent.role.value}) created",
    )
    return json_response(_key_out(request, new.key, new.text), status=201)


def _ms(name: str, written: Span) -> int:
    """A second or more. What is less was mostly meant to be seconds, and would end a key at once."""
    span = span_ms(name, written)
    if span < _SECOND_MS:
        hint = 'a bare number is milliseconds; write "30s"'
        raise BadRequest(f"{name} must be at least 1 s, got {span} ms ({hint})", field=name)
    return span


async def list_keys(request: Request) -> Answer:
    asked = request.query(PageQuery)
    found = await request.execute(ListKeys(request.principal.prefixes))
    seen, cursor = page_of(found, asked, lambda one: one.key_id)
    return json_response(KeysOut([_key_out(request, one) for one in seen], cursor))


async def rotate(request: Request) -> Answer:
    sent = await request.json(_ROTATE)
    grace_ms = _ms("grace", sent.grace) if span_ms("grace", sent.grace) else 0
    key = await _named_key(request)
    new = await request.execute_noted(
        RotateKey(key.key_id, grace_ms, request.principal.prefixes),
        f"key {key.key_id} ({key.name}) rotated",
    )
    request.door.gate.ends.look()
    return json_response(_key_out(request, new.key, new.text))


async def revoke(request: Request) -> Answer:
    key = await _named_key(request)
    await request.execute_noted(
        RevokeKey(key.key_id, request.principal.prefixes), f"key {key.key_id} ({key.name}) revoked"
    )
    request.door.gate.ends.look()
    return nothing()


async def _named_key(request: Request) -> KeyDescription:
    return await request.execute(DescribeKey(request.params["key_id"], request.principal.prefixes))


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
