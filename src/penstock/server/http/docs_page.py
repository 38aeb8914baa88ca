"""GET /docs: every route with its parameters, bodies, answers, errors and a curl, as one page without scripts."""

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from .openapi import document, errors_of
from .routing import Route, Router

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Penstock HTTP</title>
<style>
:root{{color-scheme:light dark}}
body{{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem}}
details{{border-top:1px solid #8884;padding:.35rem 0}}details details{{border:0}}
summary{{cursor:pointer}}summary code{{font-weight:600}}summary span{{opacity:.75}}
code,pre{{font:.88em ui-monospace,monospace}}
pre{{background:#8881;padding:.7rem;overflow-x:auto;border-radius:6px}}
h4{{margin:.8rem 0 .2rem;font-size:.85rem}}
table{{border-collapse:collapse;display:block;overflow-x:auto}}
td,th{{text-align:left;vertical-align:top;padding:.15rem .9rem .15rem 0;font-size:.92rem}}
nav a{{margin-right:.8rem}}
</style></head>
<body><h1>Penstock HTTP</h1>
<p>{count} routes, also below <code>/v1</code>. For tools: <a href="openapi.json">openapi.json</a>. An error is
<code>{{"error": CODE, "message": text, "status": n}}</code>, with more fields for the particulars. A span of time
is <code>"30s"</code>, <code>"5m"</code>, or a number of milliseconds. With keys on, add
<code>-H "Authorization: Bearer $PENSTOCK_KEY"</code>.</p>
<nav>{links}</nav>
{sections}
</body></html>
"""
_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]{1,255}")
_USUAL = "http://127.0.0.1:8080"
_PARAMETER = re.compile(r"{(\w+)}")
_DEPTH_MAX = 4
# Optional as far as its type says, and needed all the same: one of two ways to name what is meant.
_ALWAYS_SHOWN = {"filter", "offsets", "receipt_handle"}
# What a reader would put there. With a body or a query before it, a name is for that one, and shown even if optional.
_EXAMPLES: Mapping[str, Any] = {
    "topic": "orders",
    "name": "orders",
    "KeyIn.name": "ann",
    "group": "billing",
    "member": "worker-1",
    "topics": ["orders"],
    "partition": 0,
    "offset": 0,
    "file": 0,
    "partitions": ["orders/0"],
    "GrowIn.count": 6,
    "ListEndsIn.topics": "orders",
    "member_id": "worker-1",
    "MessageIn.value": "a lamp",
    "MessageIn.key": "ann",
    "ProduceIn.value": "a lamp",
    "StageIn.value": "a lamp",
    "receipt_handle": "orders:0:0:1:1.1",
    "NackIn.reason": "out of stock",
    "ExtendIn.timeout": "5m",
    "MoveIn.delay": "2h",
    "delay_key": "cart-7",
    "ConfigureIn.config": {"max_retries": 5},
    "ConfigIn.compatibility": "BACKWARD",
    "DecodeIn.content": {"base64": "AAAAAAEIdGV4dA=="},
    "offsets": {"orders": {"0": 1}},
    "ResetIn.to": "earliest",
    "filter": {"reason": "REJECTED"},
    "KeepQueryStartIn.offsets": {"orders/0": 0},
    "KeepQueryStartIn.ids": {"orders": 1},
    "KeepQueryStartIn.asked": "earliest",
    "PipelineIn.state": "running",
    "schedule": "nightly",
    "CreateScheduleIn.key": "nightly",
    "CreateScheduleIn.cron": "0 3 * * *",
    "CreateScheduleIn.value": "clean up",
    "ChangeScheduleIn.paused": True,
    "mode": "READWRITE",
    "role": "readonly",
    "schema": '{"type": "string"}',
    "transactional_id": "billing-1",
    "producer_id": 1,
    "epoch": 0,
    "transaction": "1-1",
    "subject": "orders-value",
    "version": 1,
    "id": 1,
    "guid": "00000000-0000-0000-0000-000000000000",
    "pipeline": "archive",
    "query": "report",
    "key_id": "pk-1",
    "trace_id": "1c3f0d6f5f6d9bb2c0f1f6a5f2b1a9d4",
}
_BY_TYPE: Mapping[str, Any] = {
    "string": "text",
    "integer": 1,
    "number": 1,
    "boolean": True,
    "object": {},
    "array": [],
}


@lru_cache(maxsize=1)
def _page_of(router: Router) -> str:
    return page(router.routes)


def page_for(router: Router, host: str) -> str:
    """The page, made once; its commands ask the host by which the reader came, if that can be written into one."""
    made = _page_of(router)
    return made.replace(_USUAL, f"http://{host}") if _HOST.fullmatch(host) else made


def page(routes: Sequence[Route]) -> str:
    described = document(routes)
    reader = _Reader(described["components"]["schemas"], _USUAL)
    tags = list(dict.fromkeys(route.tag for route in routes))
    sections = "\n".join(
        f'<h2 id="{_slug(tag)}">{html.escape(tag.capitalize())}</h2>\n'
        + "\n".join(
            reader.route(route, described["paths"][route.path][route.method.lower()])
            for route in routes
            if route.tag == tag
        )
        for tag in tags
    )
    links = "".join(f'<a href="#{_slug(tag)}">{html.escape(tag)}</a>' for tag in tags)
    return _PAGE.format(count=len(routes), links=links, sections=sections)


class _Reader:
    """Writes parts of the OpenAPI document as HTML."""

    def __init__(self, schemas: Mapping[str, Any], address: str) -> None:
        self._schemas, self._address = schemas, address

    def route(self, route: Route, operation: Mapping[str, Any]) -> str:
        named = f"{route.method} {route.path}"
        errors = ", ".join(f"{status} <code>{code}</code>" for status, code in errors_of(route))
        note = "<p>No key is needed.</p>" if route.is_open else ""
        parts = [
            self._parameters(operation["parameters"]),
            *self._bodies(route, operation),
            self._answers(route, operation),
            f"<h4>Errors</h4><p>{errors}</p>",
            f"<pre><code>{html.escape(self._curl(route, operation))}</code></pre>",
        ]
        return (
            f'<details id="{operation["operationId"]}"><summary><code>{html.escape(named)}</code> '
            f"<span>{html.escape(route.summary)}</span></summary>{note}{''.join(parts)}</details>"
        )

    def _parameters(self, parameters: Sequence[Mapping[str, Any]]) -> str:
        rows = []
        for one in parameters:
            place = one["in"] + ("" if one["required"] else ", optional")
            rows.append(_row(one["name"], self._kind(one["schema"]), place, _note(one["schema"])))
        return _table("Parameters", rows)

    def _bodies(self, route: Route, operation: Mapping[str, Any]) -> Iterator[str]:
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            schema = content["application/json"]["schema"]
            about = _note(self._resolved(schema))
            yield _table("Body", self._fields(schema)) + (
                f"<p>{html.escape(about)}</p>" if about else ""
            )
        for kind, text in route.other_bodies.items():
            yield f"<p>Or <code>{html.escape(kind)}</code>: {html.escape(text)}.</p>"

    def _answers(self, route: Route, operation: Mapping[str, Any]) -> str:
        content = operation["responses"][str(route.status)].get("content", {})
        rows: list[str] = []
        if route.answer is not None:
            schema = content["application/json"]["schema"]
            for one in schema.get("anyOf", [schema]):
                rows += self._fields(one)
        others = "".join(
            f"<p>Or <code>{html.escape(kind)}</code>: {html.escape(text)}.</p>"
            for kind, text in route.other_answers.items()
        )
        table = _table(f"Answer, {route.status}", rows)
        return (table or f"<h4>Answer, {route.status}</h4>") + others

    def _fields(self, schema: Mapping[str, Any], before: str = "", depth: int = 0) -> list[str]:
        """Returns a row for each field, and behind a field that holds fields a row for each of those."""
        found = self._resolved(schema)
        rows = []
        for name, one in found.get("properties", {}).items():
            needed = "" if name in found.get("required", ()) else "optional"
            rows.append(_row(before + name, self._kind(one), needed, _note(one)))
            inner, mark = self._inside(one)
            if inner is not None and depth < _DEPTH_MAX:
                rows += self._fields(inner, f"{before}{name}{mark}.", depth + 1)
        return rows

    def _inside(self, schema: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str]:
        """Returns the schema of the fields that a value holds, and the mark of a list; None if it holds none."""
        for one in schema.get("anyOf", [schema]):
            if one.get("items"):  # False behind the values of a tuple
                inner, _ = self._inside(one["items"])
                return inner, "[]"
            if "properties" in self._resolved(one):
                return one, ""
        return None, ""

    def _kind(self, schema: Mapping[str, Any]) -> str:
        """Returns what a value may be, in a few words."""
        if "anyOf" in schema:
            return " or ".join(dict.fromkeys(self._kind(one) for one in schema["anyOf"]))
        found = self._resolved(schema)
        if "enum" in found:
            return " or ".join(json.dumps(one) for one in found["enum"])
        if found.get("items"):
            return f"list of {self._kind(found['items'])}"
        low, high = found.get("minimum", -(2**63)), found.get("maximum", 2**63 - 1)
        bounds = f", {low} to {high}" if (low, high) != (-(2**63), 2**63 - 1) else ""
        return f"{found.get('type', 'anything')}{bounds if found.get('type') == 'integer' else ''}"

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        return schema

    def _curl(self, route: Route, operation: Mapping[str, Any]) -> str:
        path = _PARAMETER.sub(lambda match: str(_EXAMPLES.get(match[1], "1")), route.path)
        body = self._body(operation)
        query = "&".join(self._query(route, body or {}))
        words = ["curl"]
        if route.method != "GET" and not (route.method == "POST" and body is not None):
            words.append(f"-X {route.method}")
        words.append(f"'{self._address}{path}{'?' + query if query else ''}'")
        if body is not None:
            words.append(f"-H 'Content-Type: application/json' \\\n  -d '{json.dumps(body)}'")
        elif route.other_bodies:
            kind = next(iter(route.other_bodies))
            words.append(f"-H 'Content-Type: {kind}' --data-binary @file")
        return " ".join(words)

    def _query(self, route: Route, said: Mapping[str, Any]) -> Iterator[str]:
        """Yields what the query has to say, and the body does not say already."""
        if route.query is not None:
            owner = route.query.__name__
            schema = self._schemas[owner]
            for name in schema.get("required", ()):
                if name not in said:
                    yield f"{name}={self.example(schema['properties'][name], name, owner)}"

    def _body(self, operation: Mapping[str, Any]) -> Any:
        content = operation.get("requestBody", {}).get("content", {})
        schema = content.get("application/json", {}).get("schema")
        return None if schema is None else self.example(schema)

    def example(self, schema: Mapping[str, Any], name: str = "", owner: str = "") -> Any:
        """Returns a value: the usual one of its name, or one that fits its type."""
        for known in (f"{owner}.{name}", name):
            if known in _EXAMPLES:
                return _EXAMPLES[known]
        first = schema["anyOf"][0] if "anyOf" in schema else schema
        found = self._resolved(first)
        if "examples" in found:
            return found["examples"][0]
        if "enum" in found:
            return found["enum"][0]
        if "properties" in found:
            title = found.get("title", "")
            fields = found["properties"].items()
            return {
                field: self.example(one, field, title)
                for field, one in fields
                if field in {*found.get("required", ()), *_ALWAYS_SHOWN}
                or f"{title}.{field}" in _EXAMPLES
            }
        if found.get("items"):
            return [self.example(found["items"], name, owner)]
        return _BY_TYPE.get(found.get("type", "string"), "text")


def _note(schema: Mapping[str, Any]) -> str:
    said = str(schema.get("description", ""))
    default = schema.get("default")
    return f"{said} {json.dumps(default)} if it is not said.".strip() if default else said


def _row(name: str, *cells: str) -> str:
    written = "".join(f"<td>{html.escape(one)}</td>" for one in cells)
    return f"<tr><td><code>{html.escape(name)}</code></td>{written}</tr>"


def _table(title: str, rows: Sequence[str]) -> str:
    return f"<h4>{title}</h4><table>{''.join(rows)}</table>" if rows else ""


def _slug(tag: str) -> str:
    return tag.replace(" ", "-")
