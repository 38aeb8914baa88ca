"""GET /docs has every route with what it takes, what it says no with, and a command that works."""

import html
import json
import re
import shlex
from typing import Any
from urllib.parse import urlsplit

from penstock.server.http.docs_page import page, page_for
from penstock.server.http.openapi import document, errors_of
from penstock.server.http.routing import Router
from penstock.server.http.table import ROUTES

from .rigs import in_process


def sections(text: str) -> dict[str, str]:
    """The part of the page about each route, by the route's id."""
    found = re.findall(r'<details id="(\w+)">(.*?)</details>', text, re.DOTALL)
    assert len(dict(found)) == len(found)
    return dict(found)


def command_of(section: str) -> list[str]:
    (shown,) = re.findall(r"<pre><code>(.*?)</code></pre>", section, re.DOTALL)
    return shlex.split(html.unescape(shown).replace("\\\n", ""))


def test_every_route_shows_parameters_body_answer_and_errors():
    described = document(ROUTES)
    shown = sections(page(ROUTES))
    assert len(shown) == len(ROUTES)
    for route in ROUTES:
        operation = described["paths"][route.path][route.method.lower()]
        section = shown[operation["operationId"]]
        names = set(re.findall(r"<td><code>(.*?)</code></td>", section))
        assert {one["name"] for one in operation["parameters"]} <= names, route.path
        for kind in (route.body, route.answer):
            if kind is not None and not hasattr(kind, "__args__"):
                fields = described["components"]["schemas"][kind.__name__]["properties"]
                assert set(fields) <= names, route.path
        for status, code in errors_of(route):
            assert f"{status} <code>{code}</code>" in section
        assert f">{html.escape(route.summary)}<" in section


def test_fields_inside_of_fields_are_shown():
    section = sections(page(ROUTES))["post_topics_topic_messages"]
    names = re.findall(r"<td><code>(.*?)</code></td>", section)
    assert {"messages", "messages[].key", "messages[].value", "acks"} <= set(names)


def test_commands_ask_the_host_that_the_reader_came_by():
    assert "curl 'http://shop.example:80/topics'" in html.unescape(
        page_for(Router(ROUTES), "shop.example:80")
    )
    for hostile in ("x'; rm -rf /", "<script>", "", "a b"):
        text = page_for(Router(ROUTES), hostile)
        assert "curl 'http://127.0.0.1:8080/topics'" in html.unescape(text)
        assert "<script" not in text


async def test_every_command_is_one_that_the_server_understands(tmp_path):
    """A command may ask for what is not there, but none has a field, a value or a path that is wrong."""
    async with in_process(tmp_path) as broker:
        text = (await broker.call("GET", "/docs")).body.decode()
        shown = sections(text)
        described = document(ROUTES)
        # Topics are deleted, and the like, when all others were asked.
        order = sorted(ROUTES, key=lambda route: route.method == "DELETE")
        for route in order:
            operation = described["paths"][route.path][route.method.lower()]
            words = command_of(shown[operation["operationId"]])
            if "--data-binary" in words or route.path == "/consume":
                continue  # A file of the reader's own; a stream without an end.
            reply = await broker.call(*request_of(words))
            assert is_understood(reply), ("docs_page.py has no example for it", words, reply.body)


def request_of(words: list[str]) -> tuple[str, str, Any]:
    body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
    method = words[words.index("-X") + 1] if "-X" in words else "GET" if body is None else "POST"
    (url,) = [word for word in words if word.startswith("http://")]
    parts = urlsplit(url)
    return method, parts.path + (f"?{parts.query}" if parts.query else ""), body


def is_understood(reply: Any) -> bool:
    """Whether a route took the request as it was written; a receipt, say, may be of no message."""
    is_route = reply.status != 404 or reply.json.get("kind") != "route"
    return is_route and reply.status not in {400, 405, 413, 415}
