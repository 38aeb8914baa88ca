"""Pipelines report to the broker how they are."""

import pytest

from penstock.api.json.pipelines import PipelineIn
from penstock.api.principals import Role
from penstock.server.pipelines import PIPELINES_MAX, Pipelines

from .rigs import in_process

GOOD = {"kind": "archive", "state": "running", "topics": ["orders"], "messages": 7, "lag": 2}
MORE = {"rate": 3.5, "batch_ms": 1500}


async def test_a_report_is_shown_until_it_is_too_old_and_then_the_pipeline_is_lost(tmp_path):
    async with in_process(tmp_path) as broker:
        now = 100.0
        broker.app.pipelines.now = lambda: now
        reply = await broker.call("PUT", "/pipelines/lake", {**GOOD, **MORE, "expect_within": "5s"})
        assert (reply.status, reply.json["state"]) == (200, "running")
        now = 104.9
        (one,) = (await broker.call("GET", "/pipelines")).json["pipelines"]
        assert (one["name"], one["state"], one["messages"]) == ("lake", "running", 7)
        assert (one["rate"], one["batch_ms"]) == (3.5, 1500)
        assert one["seconds_ago"] == pytest.approx(4.9)
        now = 105.1
        assert (await broker.call("GET", "/pipelines/lake")).json["state"] == "lost"
        text = (await broker.call("GET", "/metrics")).body.decode()
        assert 'penstock_pipeline_up{pipeline="lake"} 0' in text
        assert 'penstock_pipeline_lag_messages{pipeline="lake"} 2' in text
        assert 'penstock_pipeline_batch_seconds{pipeline="lake"} 1.5' in text
        await broker.call("PUT", "/pipelines/lake", {**GOOD, "state": "stopped"})
        now = 9999.0
        assert (await broker.call("GET", "/pipelines/lake")).json["state"] == "stopped"
        assert (await broker.call("DELETE", "/pipelines/lake")).status == 204
        assert (await broker.call("GET", "/pipelines/lake")).status == 404
        assert (await broker.call("DELETE", "/pipelines/lake")).status == 404


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"state": "happy"}, "state"),
        ({"kind": "magic"}, "kind"),
        ({"colour": "red"}, "colour"),
        ({"topics": ["a/b"]}, "a/b"),
        ({"topics": ["t"] * 101}, "100"),
        ({"messages": -1}, "messages"),
        ({"batch_ms": -1}, "batch_ms"),
        ({"error": "x" * 1001}, "1000"),
        ({"expect_within": "1ms"}, "1s..1h"),
        ({"expect_within": "soon"}, "expect_within"),
    ],
)
async def test_a_bad_report_is_refused_with_what_was_wrong(tmp_path, changes, named):
    async with in_process(tmp_path) as broker:
        reply = await broker.call("PUT", "/pipelines/lake", {**GOOD, **changes})
        assert reply.status == 400
        assert named in reply.json["message"]
        assert (await broker.call("GET", "/pipelines")).json["pipelines"] == []


async def test_a_pipeline_is_seen_and_replaced_only_by_who_reaches_its_topics(tmp_path):
    async with in_process(tmp_path, {("auth", "enabled"): True}) as broker:

        def key(role, *prefixes):
            name = "-".join((role.value, *prefixes))
            return {"x-api-key": broker.key(name, role, *prefixes).text}

        ours, theirs = key(Role.CONSUMER, "orders"), key(Role.CONSUMER, "invoices")
        assert (await broker.call("PUT", "/pipelines/lake", GOOD, headers=ours)).status == 200
        reader = key(Role.READONLY, "invoices")
        assert (await broker.call("GET", "/pipelines", headers=reader)).json["pipelines"] == []
        assert (await broker.call("GET", "/pipelines/lake", headers=theirs)).status == 404
        assert (await broker.call("DELETE", "/pipelines/lake", headers=theirs)).status == 404
        taken = {**GOOD, "topics": ["invoices"]}
        assert (await broker.call("PUT", "/pipelines/lake", taken, headers=theirs)).status == 403
        page = await broker.call("GET", "/metrics", headers=reader)
        assert "lake" not in page.body.decode()


def test_the_number_of_reports_is_bounded_and_the_most_silent_goes():
    pipelines = Pipelines(lambda: 0.0)
    said = PipelineIn(kind="load", state="running")
    for number in range(PIPELINES_MAX):
        pipelines.report(f"p{number}", said, 0, 1.0)
    pipelines.report("p0", said, 0, 1.0)
    pipelines.report("new", said, 0, 1.0)
    names = {one.name for one in pipelines.all()}
    assert len(names) == PIPELINES_MAX
    assert "p1" not in names
    assert {"p0", "new"} <= names
