"""The console's files, and a plain page in its place if `broker.console` is off."""

import html
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from typing import NamedTuple

from ...api.principals import Action
from ...errors import NotFound
from .openapi import HTML, PAGE_HEADERS
from .requests import Request
from .responses import Answer, HeaderPairs, Response
from .routing import Route

_TYPES = {
    "html": HTML,
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
    "txt": b"text/plain; charset=utf-8",
    "json": b"application/json",
}
# Scripts and styles only from our own files: a payload that reached the page as markup would still not run.
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS: HeaderPairs = (
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
# Kept, and asked for again each time: a new version of the broker is seen at once.
_CACHING = b"no-cache"


class StaticFile(NamedTuple):
    content: bytes
    content_type: bytes
    etag: bytes


@cache
def _static_files() -> dict[str, StaticFile]:
    """Every file of the console by its path, read once. There are few, and nothing else can be asked for."""
    root = files("penstock") / "console" / "static"
    found = {}
    for folder in ("", "screens", "libraries"):
        for one in (root / folder if folder else root).iterdir():
            if one.is_file():
                content = one.read_bytes()
                path = f"{folder}/{one.name}" if folder else one.name
                kind = _TYPES[one.name.rpartition(".")[2]]
                tag = b'"%b"' % sha256(content).hexdigest()[:32].encode()
                found[path] = StaticFile(content, kind, tag)
    return found


async def first_page(request: Request) -> Answer:
    if request.app.settings.broker.console:
        return _answer(request, "index.html")
    broker = html.escape(request.app.settings.broker.id)
    text = _START_PAGE.format(version=html.escape(version("penstock")), broker=broker)
    return Response(text.encode(), 200, HTML, PAGE_HEADERS)


async def file(request: Request) -> Answer:
    """NotFound for a file that is not there, and for all while the console is off."""
    params = request.params
    path = "/".join(params[name] for name in ("folder", "file") if name in params)
    if not request.app.settings.broker.console or path not in _static_files():
        raise NotFound("file", path[:100])
    return _answer(request, path)


def _answer(request: Request, path: str) -> Response:
    found = _static_files()[path]
    headers = (*_HEADERS, (b"etag", found.etag))
    if found.etag in (request.header(b"if-none-match") or b""):
        return Response(b"", 304, found.content_type, headers, caching=_CACHING)
    return Response(found.content, 200, found.content_type, headers, caching=_CACHING)


_START_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Penstock</title>
<style>body{{font:16px/1.5 sans-serif;margin:2rem auto;max-width:40rem;padding:0 1rem}}</style>
<h1>Penstock</h1>
<p>Version {version}, broker <code>{broker}</code>. A durable message log and work queue.</p>
<ul>
<li><a href="docs">docs</a>: all routes</li>
<li><a href="openapi.json">openapi.json</a>: the same for tools</li>
<li><a href="healthz">healthz</a>: whether the broker is ready</li>
<li><a href="metrics">metrics</a>: figures for Prometheus</li>
</ul>
</html>
"""


def _file_route(path: str) -> Route:
    return Route(
        method="GET",
        path=path,
        call=file,
        action=Action.SEE_HEALTH,
        summary="A file of the console",
        tag="console",
        is_open=True,
        other_answers={"text/javascript": "or a style sheet, a picture or a licence"},
        errors=(NotFound,),
    )


ROUTES = (
    Route(
        method="GET",
        path="/",
        call=first_page,
        action=Action.SEE_HEALTH,
        summary="The console, for people; name, version and links if it is off",
        tag="console",
        is_open=True,
        other_answers={HTML.decode(): "a page"},
    ),
    _file_route("/console/{file}"),
    _file_route("/console/{folder}/{file}"),
)
