"""The OpenAPI document says what the routes do, and the docs say the same."""

import re
from importlib.metadata import version
from pathlib import Path

from penstock.errors import PenstockError
from penstock.server.http import openapi
from penstock.server.http.reference import markdown
from penstock.server.http.statuses import STATUS_OF, status_of_kind
from penstock.server.http.table import ROUTES

from .rigs import in_process

DOCS = Path(__file__).parents[2] / "docs"


def all_errors(kind: type[PenstockError] = PenstockError) -> list[type[PenstockError]]:
    return [one for child in kind.__subclasses__() for one in (child, *all_errors(child))]


def test_every_error_has_a_status():
    assert all(400 <= status_of_kind(kind) < 600 for kind in all_errors())
    assert set(STATUS_OF) <= set(all_errors())


async def test_the_document_is_served_and_names_every_route(tmp_path):
    async with in_process(tmp_path) as broker:
        found = (await broker.call("GET", "/v1/openapi.json")).json
        served = {(method, path) for path, one in found["paths"].items() for method in one}
        assert served == {(route.method.lower(), route.path) for route in ROUTES}
        operations = [one for path in found["paths"].values() for one in path.values()]
        names = [one["operationId"] for one in operations]
        assert len(set(names)) == len(names)
        page = (await broker.call("GET", "/docs")).body.decode()
        assert all(route.path in page for route in ROUTES)


def test_every_reference_leads_somewhere():
    found = openapi.document(ROUTES)
    names = set(re.findall(r"#/components/schemas/([\w-]+)", str(found)))
    assert names <= set(found["components"]["schemas"])


async def test_wrong_methods_and_unknown_routes(tmp_path):
    async with in_process(tmp_path) as broker:
        wrong = await broker.call("PUT", "/topics")
        assert (wrong.status, wrong.headers["allow"]) == (405, "GET, POST")
        assert wrong.json["error"] == "METHOD_NOT_ALLOWED"
        assert (await broker.call("GET", "/nowhere")).status == 404
        assert (await broker.call("GET", "/v1/v1/topics")).status == 404


async def test_request_ids_are_echoed_if_they_are_harmless(tmp_path):
    async with in_process(tmp_path) as broker:
        echoed = await broker.call("GET", "/topics", headers={"x-request-id": "abc-1"})
        assert echoed.headers["x-request-id"] == "abc-1"
        for bad in ("a" * 200, "a b"):
            made = await broker.call("GET", "/topics", headers={"x-request-id": bad})
            assert made.headers["x-request-id"] != bad


def test_the_docs_are_made_from_the_table():
    assert (DOCS / "http.md").read_text() == markdown(ROUTES), (
        "penstock config reference --http > docs/http.md"
    )


def test_every_span_says_what_a_bare_number_is():
    """A field without a unit in its name that takes text or a number: seconds elsewhere, milliseconds here."""
    document = openapi.document(ROUTES)
    schemas = [(name, one) for name, one in document["components"]["schemas"].items()]
    fields = [
        (f"{name}.{field}", shown)
        for name, one in schemas
        for field, shown in one.get("properties", {}).items()
    ]
    fields += [
        (f"{path} {one['name']}", one["schema"])
        for path, methods in document["paths"].items()
        for method in methods.values()
        for one in method.get("parameters", ())
    ]
    spans = {name for name, shown in fields if "A bare number is milliseconds" in str(shown)}
    words = ("timeout", "delay", "ttl", "grace", "hold", "expires_in", "expect_within")
    named = {
        name
        for name, _ in fields
        if name.replace(" ", ".").endswith(tuple(f".{one}" for one in words))
    }
    answers = {name for name in named if name.split(".")[0].endswith("Out")}
    assert named - answers <= spans
    assert len(spans) > 15


async def test_the_first_page_without_the_console_links_to_what_is_there(tmp_path):
    settings = {("auth", "enabled"): True, ("broker", "console"): False}
    async with in_process(tmp_path, settings) as broker:
        reply = await broker.call("GET", "/")
        page = reply.body.decode()
        assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert version("penstock") in page
        assert "<script" not in page
        links = re.findall(r'href="(.*?)"', page)
        assert links == ["docs", "openapi.json", "healthz", "metrics"]
        assert {f"/{one}" for one in links} <= {route.path for route in ROUTES}
