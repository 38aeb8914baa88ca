"""The dearest requests of HTTP, made from the table of routes and the types of their queries and bodies."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import inspect

from dear.binary import OWN, OWN_KEY, PREPARE, batch, forms_of, tomorrow_ns
from dear.names import BIG, JOURNEYS, LETTERS, SUBJECT, Names
from dear.requests import FRAME_BYTES_MAX, DearRequest, Prepare
from dear.values import LARGE_BYTES, Form, Maker
from penstock.api.answers import Kind, LeaseAnswer
from penstock.api.units import time_text
from penstock.server.http.app import JSON_BYTES_MAX
from penstock.server.http.openapi import failures_of
from penstock.server.http.routing import Route
from penstock.server.http.table import ROUTES

_QUERY_BYTES_MAX = 60_000
_PARAMETER = re.compile(r"{(\w+)}")
_NDJSON, _BATCH = "application/x-ndjson", "application/vnd.penstock.batch"
_RECEIPTS = 1000

# Routes that change or destroy what later requests ask for are given the judge's own.
_OWN_TOPIC: Mapping[str, Any] = {"topic": OWN, "name": OWN, "partitions": 200}
_OWN_GROUP: Mapping[str, Any] = {"group": OWN}
_OWN_SUBJECT: Mapping[str, Any] = {"subject": OWN}
_OF_KEY: Mapping[str, Any] = {"key_id": OWN_KEY}
_OWN: Mapping[str, tuple[Mapping[str, Any], Prepare]] = {
    "POST /topics": (_OWN_TOPIC, PREPARE["CreateTopic"]),
    **{
        f"{method} {path}": (_OWN_TOPIC, PREPARE["DeleteTopic"])
        for method, path in (
            ("DELETE", "/topics/{topic}"),
            ("PATCH", "/topics/{topic}"),
            ("POST", "/admin/topics/{topic}/partitions"),
        )
    },
    "DELETE /groups/{group}": (_OWN_GROUP, PREPARE["CloseGroup"]),
    "POST /groups/{group}/offsets/reset": (_OWN_GROUP, PREPARE["ResetGroup"]),
    "POST /admin/keys": ({"name": OWN}, PREPARE["CreateKey"]),
    "POST /admin/keys/{key_id}/rotate": (_OF_KEY, PREPARE["RotateKey"]),
    "DELETE /admin/keys/{key_id}": (_OF_KEY, PREPARE["RevokeKey"]),
    "DELETE /queries/{query}/start": ({"query": OWN}, PREPARE["ForgetQueryStart"]),
    "POST /commits/{commit}/reset": ({"commit": OWN}, PREPARE["ResetCommitName"]),
    **{
        f"{method} {path}": (_OWN_SUBJECT, PREPARE["DeleteSubject"])
        for method in ("DELETE", "PUT")
        for path in (
            "/subjects/{subject}",
            "/subjects/{subject}/versions/{version}",
            "/config/{subject}",
            "/mode/{subject}",
        )
    },
}
_PATH: Mapping[str, str] = {
    "topic": BIG,
    "partition": "0",
    "offset": "0",
    "subject": SUBJECT,
    "version": "1",
    "id": "1",
    "guid": "00000000-0000-0000-0000-000000000000",
    "schedule": "schedule-0",
    "query": "query-0",
    "trace_id": "0" * 32,
    "file": "index.html",
    "folder": "lib",
    "commit": OWN,
    "staging": "none",
    "pipeline": OWN,
    "key_id": OWN_KEY,
}
_TOPIC_OF: tuple[tuple[str, str], ...] = (
    ("/topics/{topic}/d", LETTERS),
    ("/topics/{topic}/schedules", LETTERS),
    ("/topics/{topic}/partitions/{partition}/messages", JOURNEYS),
)


def http_requests(names: Names) -> Iterator[DearRequest]:
    """Every route with every kind of body that it takes."""
    for route in ROUTES:
        yield from _requests_of(route, names)


def _requests_of(route: Route, names: Names) -> Iterator[DearRequest]:
    prepare = _OWN[_name(route)][1] if _name(route) in _OWN else None
    answers = frozenset(map(str, {route.status, *failures_of(route)}))
    kinds = ["application/json"] if route.body is not None else []
    for kind in [*kinds, *route.other_bodies] or [""]:
        more = "" if kind in {"", "application/json"} else f" ({kind})"
        for form in forms_of(partial(_sketch, route, kind, names)):
            yield DearRequest(
                port="http",
                family=route.tag,
                name=f"{_name(route)}{more}: {form.value}",
                make=partial(_bytes, route, kind, form, names),
                prepare=prepare,
                answers=answers,
            )


def _sketch(route: Route, kind: str, names: Names, form: Form) -> bytes:
    return _request(route, kind, _maker(route, form, names, items=3, large=9))


def _name(route: Route) -> str:
    return f"{route.method} {route.path}"


def _maker(route: Route, form: Form, names: Names, *, items: int, large: int) -> Maker:
    overrides = _OWN[_name(route)][0] if _name(route) in _OWN else {}
    return Maker(names, form, items=items, large=large, is_json=True, overrides=overrides)


def _bytes(route: Route, kind: str, form: Form, names: Names) -> bytes:
    """The request, with half as many items as long as it is too large for the broker."""
    items, large = names.sizes.items, LARGE_BYTES
    is_beyond = form is Form.BEYOND
    while True:
        request = _request(route, kind, _maker(route, form, names, items=items, large=large))
        if (
            len(request) <= (JSON_BYTES_MAX if kind == "application/json" else FRAME_BYTES_MAX)
            or is_beyond
        ):
            return request
        items, large = items // 2, large // 2


def _request(route: Route, kind: str, maker: Maker) -> bytes:
    """A line and headers, an empty line, and the body; `HttpWire` adds what depends on the broker."""
    body = _body(route, kind, maker)
    head = f"{route.method} {_path(route, maker)}{_query(route, kind, maker)} HTTP/1.1"
    if route.method != "GET":
        content = f"\r\nContent-Type: {kind}" if kind else ""
        head += f"{content}\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def _path(route: Route, maker: Maker) -> str:
    given = {**_PATH, "group": maker.names.groups[0]}
    given["producer_id"] = str(maker.names.session.producer_id)
    given["transaction"] = f"{maker.names.session.producer_id}-0"
    for path, topic in _TOPIC_OF:
        if route.path.startswith(path):
            given["topic"] = topic
    if _name(route) in _OWN:
        given |= {name: str(value) for name, value in _OWN[_name(route)][0].items()}
    if maker.form is Form.ABSENT:
        given |= dict.fromkeys(("trace_id", "query", "schedule", "key_id"), "absent")
    return _PARAMETER.sub(lambda match: quote(given[match[1]], safe=""), route.path)


def _query(route: Route, kind: str, maker: Maker) -> str:
    """The query; where a body can say the same, there is none."""
    if route.query is None or kind == "application/json":
        return ""
    described = inspect.type_info(route.query)
    assert isinstance(described, inspect.StructType), "a query is a struct"
    short = Maker(maker.names, maker.form, items=1, large=min(maker.large, 10_000), is_json=True)
    fields = short.fields(described)
    if "topics" in fields:
        fields["topics"] = _joined([*maker.names.topics] * maker.items, maker.form)
    words = {name: _word(value) for name, value in fields.items() if value not in (None, "")}
    return f"?{urlencode(words)[:_QUERY_BYTES_MAX]}" if words else ""


def _joined(topics: list[str], form: Form) -> str:
    if form is Form.SAME:
        topics = [BIG] * len(topics)
    if form is Form.ABSENT:
        topics = [f"absent-{place}" for place in range(len(topics))]
    return ",".join(topics)[: _QUERY_BYTES_MAX // 2].rpartition(",")[0]


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else json.dumps(value)


def _body(route: Route, kind: str, maker: Maker) -> bytes:
    if kind == _BATCH and "answers" in route.path:
        offsets = [*range(maker.items)]
        answer = LeaseAnswer(Kind.ACK, BIG, 0, 1, 1, offsets)
        return b"PAN1" + msgspec.msgpack.encode([answer])
    if kind == _BATCH:
        return batch(maker)
    if kind == _NDJSON:
        value = "x" * (maker.large if maker.form is Form.LARGE else 1)
        line = json.dumps({"value": value}) + "\n"
        return (line * (1 if maker.form is Form.LARGE else maker.items)).encode()
    if route.body is None:
        return b""
    described = inspect.type_info(route.body)
    assert isinstance(described, inspect.StructType), "a body is a struct"
    return msgspec.json.encode(_sensible(maker.fields(described), maker))


def _sensible(fields: dict[str, Any], maker: Maker) -> dict[str, Any]:
    """What the types of a body do not say: how receipts, moments and places look as text."""
    from penstock.api.receipts import Place, write_receipt

    if "receipt_handles" in fields:
        count = len(fields["receipt_handles"])
        known = min(count, 1 if maker.form is Form.SAME else _RECEIPTS)
        receipts = [write_receipt(Place(BIG, 0, 1), place, 1, 1) for place in range(known)]
        fields["receipt_handles"] = (receipts * (count // known + 1))[:count]
    if isinstance(fields.get("partitions"), list) and "member_id" in fields:
        fields["partitions"] = [f"{BIG}/{place}" for place in range(len(fields["partitions"]))]
    if "deliver_at" in fields:
        fields["deliver_at"] = time_text(tomorrow_ns())
    return fields
