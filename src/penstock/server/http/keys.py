"""API keys over HTTP. What a key's holder needs is shown once, when it is made."""

import msgspec

from ...api.json.keys import KeyIn, KeyOut, KeysOut, RevokeQuery, RotateIn, key_out, lifetime_ms
from ...api.json.paging import PageQuery, page_of
from ...api.json.times import span_ms
from ...api.keys import CreateKey, KeyDescription, ListKeys, RevokeKey, RotateKey
from ...api.principals import Action
from ...errors import AlreadyExists, LastAdministrator, NotFound
from .requests import Request
from .responses import Answer, json_response, nothing
from .routing import Route

_KEY = msgspec.json.Decoder(KeyIn)
_ROTATE = msgspec.json.Decoder(RotateIn)


def _key_out(request: Request, key: KeyDescription, text: str | None = None) -> KeyOut:
    return key_out(key, text, request.app.auth.last_used_ns.get(key.key_id))


async def create(request: Request) -> Answer:
    sent = request.json(_KEY)
    expires_ms = 0 if sent.expires_in is None else lifetime_ms("expires_in", sent.expires_in)
    prefixes = tuple(sent.prefixes)
    request.allow_prefixes(prefixes)
    new = await request.execute_audited(CreateKey(sent.name, sent.role, prefixes, expires_ms))
    return json_response(_key_out(request, new.key, new.text), status=201)


async def list_keys(request: Request) -> Answer:
    asked = request.query(PageQuery)
    found = await request.execute(ListKeys())
    seen, cursor = page_of(found, asked, lambda one: one.key_id)
    return json_response(KeysOut([_key_out(request, one) for one in seen], cursor))


async def rotate(request: Request) -> Answer:
    sent = request.json(_ROTATE)
    grace_ms = lifetime_ms("grace", sent.grace) if span_ms("grace", sent.grace) else 0
    new = await request.execute_audited(RotateKey(request.params["key_id"], grace_ms))
    request.app.auth.ends.look()
    return json_response(_key_out(request, new.key, new.text))


async def revoke(request: Request) -> Answer:
    asked = request.query(RevokeQuery)
    await request.execute_audited(RevokeKey(request.params["key_id"], is_forced=asked.force))
    request.app.auth.ends.look()
    return nothing()


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
        query=RevokeQuery,
        status=204,
        errors=(NotFound, LastAdministrator),
    ),
)
