"""The OpenAPI document, made from the table of routes: what is served is what is documented."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from types import UnionType
from typing import Any, get_args

import msgspec

from ...api.principals import Action
from ...broker.authorise import READING
from ...errors import (
    BadRequest,
    Forbidden,
    NoSpace,
    PenstockError,
    TooLarge,
    TooManyRequests,
    TooSlow,
    Unauthenticated,
    Unavailable,
    UnsupportedMediaType,
)
from .requests import Request
from .responses import JSON, Answer, Response, encode_json
from .routing import NUMBERS, Route, Router
from .statuses import status_of_kind

_ERROR = "#/components/schemas/Error"
_REGISTRY_ERROR = "#/components/schemas/RegistryError"
_REFERENCE = "#/components/schemas/{name}"
_ALWAYS: tuple[type[PenstockError], ...] = (BadRequest, Forbidden, TooManyRequests, Unavailable)
# What all others do is written down, and a disk without a byte left takes nothing.
_UNWRITTEN = READING | {Action.REPORT_PIPELINE, Action.HAND_OVER}
_WITH_BODY: tuple[type[PenstockError], ...] = (TooLarge, TooSlow, UnsupportedMediaType)
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,245}$"}
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
_PARAMETER = re.compile(r"{(\w+)}")
HTML = b"text/html; charset=utf-8"


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """Everything about every route."""
    kinds = sorted(_kinds(routes), key=lambda one: one.__name__)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    schema_of = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _operation(route, schema_of, components)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": version("penstock"),
            "description": "A durable message log and a work queue in one.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}, {"url": "/v1"}],
        "security": [{"key": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                **components,
                "Error": _error_schema(),
                "RegistryError": _registry_error_schema(),
            },
        },
    }


def _kinds(routes: Iterable[Route]) -> set[Any]:
    found: set[Any] = set()
    for route in routes:
        for kind in (route.query, route.body, *alternatives(route.answer)):
            if kind is not None:
                found.add(kind)
    return found


def alternatives(kind: Any) -> Sequence[Any]:
    """The types of a union, or the type itself."""
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _error_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "What was wrong; more fields say the particulars.",
        "required": ["error", "message", "status"],
        "properties": {
            "error": {"type": "string"},
            "message": {"type": "string"},
            "status": {"type": "integer"},
        },
    }


def _registry_error_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "What was wrong, with the number that Confluent's clients know it by.",
        "required": ["error_code", "message"],
        "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
    }


def _operation(
    route: Route, schema_of: Mapping[Any, Any], components: Mapping[str, Any]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-z0-9]+', '_', route.path)}",
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [*_path_parameters(route), *_query_parameters(route, components)],
        "responses": {str(route.status): _success(route, schema_of), **_failures(route)},
        "x-penstock-command": route.action.value,
    }
    content = {kind: {"schema": {"type": "string"}} for kind in route.other_bodies}
    if route.body is not None:
        content = {"application/json": {"schema": schema_of[route.body]}, **content}
    if content:
        is_optional = route.query is not None and route.body is not None
        operation["requestBody"] = {"required": not is_optional, "content": content}
    if route.is_open:
        operation["security"] = []
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": _NUMBER if name in NUMBERS else _NAME,
        }
        for name in _PARAMETER.findall(route.path)
    ]


def _query_parameters(route: Route, components: Mapping[str, Any]) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    described = components[route.query.__name__]
    # Where a body can say the same, the query need not.
    required = () if route.body is not None else described.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in described["properties"].items()
    ]


def _success(route: Route, schema_of: Mapping[Any, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {
        kind: {"schema": {} if kind == "application/json" else {"type": "string"}}
        for kind in route.other_answers
    }
    if route.answer is not None:
        schemas = [schema_of[kind] for kind in alternatives(route.answer)]
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        content = {"application/json": {"schema": schema}, **content}
    answer: dict[str, Any] = {"description": route.summary}
    return {**answer, "content": content} if content else answer


def failures_of(route: Route) -> set[int]:
    """Every status that is not a success."""
    return {status_of_kind(one) for one in _error_kinds(route)}


def errors_of(route: Route) -> list[tuple[int, str]]:
    """Every status that is not a success, with its code; each once, the lowest first."""
    return sorted({(status_of_kind(one), one.code) for one in _error_kinds(route)})


def _error_kinds(route: Route) -> set[type[PenstockError]]:
    found: set[type[PenstockError]] = {*_ALWAYS, *route.errors}
    if route.action not in _UNWRITTEN:
        found.add(NoSpace)
    if not route.is_open:
        found.add(Unauthenticated)
    if route.method != "GET":
        found.update(_WITH_BODY)
    return found


def _failures(route: Route) -> dict[str, Any]:
    reference = _ERROR if route.refusal is None else _REGISTRY_ERROR
    content = {"application/json": {"schema": {"$ref": reference}}}
    return {
        str(status): {"description": "what was wrong", "content": content}
        for status in sorted(failures_of(route))
    }


@lru_cache(maxsize=1)
def _document_of(router: Router) -> bytes:
    """Made once: it takes a third of a second, and every client may ask for it."""
    return encode_json(document(router.routes))


async def _openapi(request: Request) -> Answer:
    router = request.app.router
    content = await request.app.driver.in_thread(lambda: _document_of(router))
    return Response(content, 200, JSON)


async def _docs(request: Request) -> Answer:
    from .docs_page import page_for

    host = (request.header(b"host") or b"").decode("latin-1")
    router = request.app.router
    content = await request.app.driver.in_thread(lambda: page_for(router, host))
    return Response(content.encode(), 200, HTML, PAGE_HEADERS)


# The pages need nothing from anywhere, so they may load nothing.
PAGE_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
)
ROUTES = (
    Route(
        method="GET",
        path="/openapi.json",
        call=_openapi,
        action=Action.SEE_HEALTH,
        summary="This description",
        tag="health",
        is_open=True,
        other_answers={"application/json": "an OpenAPI document"},
    ),
    Route(
        method="GET",
        path="/docs",
        call=_docs,
        action=Action.SEE_HEALTH,
        summary="All routes, for people",
        tag="health",
        is_open=True,
        other_answers={HTML.decode(): "a page"},
    ),
)
