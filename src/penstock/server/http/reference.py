"""docs/http.md, from the table of routes."""

from collections.abc import Sequence
from typing import Any

import msgspec

from .openapi import alternatives, failures_of
from .routing import Route

_HEAD = """# HTTP

Made from the table of routes by `penstock config reference --http`; a test keeps it so. A broker serves the same as
`/openapi.json` (for tools) and `/docs` (for people). [server.md](server.md) is the tour.

- All routes are at `/` and at `/v1`. Names are snake_case. An unknown field is refused with its name.
- A key, value or header value is a JSON string (its UTF-8 bytes), null, or `{"base64": "..."}`. Answers use a string
  if the bytes are UTF-8 and base64 otherwise, or always with `?encoding=base64`.
- A span of time (`timeout`, `delay`, `ttl`, `visibility_timeout`, `session_timeout`, `expires_in` and the like) is
  `"500ms"`, `"30s"`, `"5m"`, `"2h"` or `"3d"`. **A bare number is milliseconds**, in JSON as in a query: `timeout=30`
  waits for 30 ms. It is seconds in Python and refused on the command line, so better write the unit. A field with a
  unit in its name (`lease_ms`, `retention_hours`, `extension_seconds`) is a number of those.
- Times are RFC 3339 with nanoseconds; fields that end in `_ns` are numbers written as strings.
- A poll brings at most `consumer.max_poll_records` messages (500), in binary `consumer.max_poll_records_binary`
  (10,000), and never more than a member may have unanswered on a partition (`max_in_flight_per_consumer` of the
  topic, 1000). To ask for more is no error. A consumer that holds that many gets nothing until it has answered some.
- Every list takes `limit` and `cursor`; the `cursor` of an answer asks for the next page; null: there is none.
- An error is `{"error": CODE, "message": text, "status": n, ...}`; more fields give the particulars, such as the limit
  that was passed. 429 and 503 come with `Retry-After`.
- The routes of schemas are those of Confluent's registry ([schemas.md](schemas.md)): they are at `/schemas`, too, their
  errors are `{"error_code": n, "message": text}`, they ignore what they do not know in a query, and have no `cursor`.
- `X-Request-Id` is echoed, or made.
- Before any route is reached: 400 for what is not HTTP/1.1 with a certain end, 408 for headers that do not come in
  time, 431 for headers or trailers that are too large or too many, 503 for one connection too many, 429 for a request
  that changes something while as many as fit are under way. Then 404 for an unknown route, 405 with `Allow` for a
  wrong method.
- A body has a `Content-Length`, or `Transfer-Encoding: chunked` and no other coding; both, or one of them twice, is
  400, and the connection ends. Trailers are read over. `Upgrade` is ignored. A body that comes too slowly gets 408. A
  request has one `Host`. Requests may be sent behind each other; they are carried out and answered in order.
- A request that changes something has no body, or one of type `application/json`, `application/x-ndjson`,
  `application/vnd.penstock.batch` or `application/vnd.schemaregistry.v1+json`: a web page cannot send those without
  being asked. A `Host` or `Origin` that is not ours is refused with 403 `FORBIDDEN_ORIGIN`; of hosts, with
  `auth.enabled`, only if `http.allowed_hosts` lists some. So is whatever changes
  something, polls included, if the browser says that another site's page sent it (`Sec-Fetch-Site`) and no allowed
  `Origin` comes with it.
- A body of JSON has 8 MiB at most, whatever `http.body_bytes_max` is; lines and batches may have more
  ([bounds](configuration.md#bounds-of-requests)).
- With `auth.enabled` every route but the open ones wants `Authorization: Bearer ID.SECRET`, `X-Api-Key`, or HTTP
  Basic with the id as user and the secret as password; see [security.md](security.md). What waits when its key ends
  gets 401; a stream is cut off.
"""


def markdown(routes: Sequence[Route]) -> str:
    lines = [_HEAD]
    for tag in dict.fromkeys(route.tag for route in routes):
        lines += [f"## {tag.capitalize()}", ""]
        for route in routes:
            if route.tag == tag:
                lines += _section(route)
    return "\n".join(lines).rstrip() + "\n"


def _section(route: Route) -> list[str]:
    open_word = " No key is needed." if route.is_open else ""
    lines = [f"### `{route.method} {route.path}`", "", f"{route.summary}.{open_word}", ""]
    if route.query is not None:
        lines.append(f"- query: {_fields(route.query)}")
    if route.body is not None:
        lines.append(f"- body: {_fields(route.body)}")
    lines += [f"- or `{kind}`: {text}" for kind, text in route.other_bodies.items()]
    lines.append(f"- {route.status}{_answer(route)}")
    lines.append(f"- errors: {', '.join(str(one) for one in sorted(failures_of(route)))}")
    return [*lines, ""]


def _answer(route: Route) -> str:
    found = [_fields(kind) for kind in alternatives(route.answer) if kind is not None]
    found += [f"`{kind}`, {text}" for kind, text in route.other_answers.items()]
    return f": {'; or '.join(found)}" if found else ""


def _fields(kind: Any) -> str:
    fields = msgspec.structs.fields(kind)
    written = [
        f"`{one.encode_name}`" + ("" if one.required or kind.__name__.endswith("Out") else "?")
        for one in fields
    ]
    return ", ".join(written) or "nothing"
