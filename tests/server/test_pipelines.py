"""Pipelines report to the broker how they are."""

import pytest

from penstock.api.json.pipelines import PipelineIn
from penstock.api.principals import Role
from penstock.config import LimitsConfig
from penstock.server.pipelines import Pipelines

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


async def test_a_pipeline_without_topics_is_of_the_key_that_made_it(tmp_path):
    async with in_process(tmp_path, {("auth", "enabled"): True}) as broker:

        def key(name, role, *prefixes):
            return {"x-api-key": broker.key(name, role, *prefixes).text}

        ours, theirs = key("ours", Role.CONSUMER, "orders"), key("theirs", Role.CONSUMER, "b")
        root, viewer = key("root", Role.ADMIN), key("viewer", Role.READONLY)
        load = {**GOOD, "kind": "load", "topics": []}
        assert (await broker.call("PUT", "/pipelines/load", load, headers=ours)).status == 200
        for method, body, status in (("GET", None, 404), ("DELETE", None, 404), ("PUT", load, 403)):
            reply = await broker.call(method, "/pipelines/load", body, headers=theirs)
            assert reply.status == status, method
        assert (await broker.call("GET", "/pipelines", headers=theirs)).json["pipelines"] == []
        for everywhere in (root, viewer):
            shown = (await broker.call("GET", "/pipelines", headers=everywhere)).json["pipelines"]
            assert [pipeline["name"] for pipeline in shown] == ["load"]
        assert (await broker.call("DELETE", "/pipelines/load", headers=viewer)).status == 403
        assert (await broker.call("PUT", "/pipelines/load", load, headers=ours)).status == 200
        assert (await broker.call("DELETE", "/pipelines/load", headers=root)).status == 204


async def test_a_pipeline_that_is_not_theirs_is_refused_without_its_topics(tmp_path):
    async with in_process(tmp_path, {("auth", "enabled"): True}) as broker:
        ours, theirs = (
            {"x-api-key": broker.key(name, Role.CONSUMER, name).text} for name in ("secret", "b")
        )
        mine = {**GOOD, "topics": ["secret"]}
        assert (await broker.call("PUT", "/pipelines/lake", mine, headers=ours)).status == 200
        reply = await broker.call("PUT", "/pipelines/lake", {**GOOD, "topics": []}, headers=theirs)
        assert (reply.status, b"secret" in reply.body) == (403, False)


async def test_a_key_that_has_many_pipelines_pushes_out_none_of_another(tmp_path):
    settings = {
        ("auth", "enabled"): True,
        ("limits", "pipelines_max"): 5,
        ("limits", "pipelines_per_key_max"): 3,
    }
    async with in_process(tmp_path, settings) as broker:
        now = 0.0
        broker.app.pipelines.now = lambda: now
        ours, theirs = (
            {"x-api-key": broker.key(name, Role.CONSUMER, name).text} for name in ("ours", "theirs")
        )

        async def report(name: str, by: dict[str, str], state: str = "running"):
            path, said = f"/pipelines/{name}", {**GOOD, "topics": [], "state": state}
            return await broker.call("PUT", path, said, headers=by)

        for name in ("p0", "p1"):
            assert (await report(name, theirs)).status == 200
        for name, state in (("a", "running"), ("b", "running"), ("c", "stopped")):
            assert (await report(name, ours, state)).status == 200
        # One that is over makes room for another of its key, and then none is.
        assert (await report("d", ours)).status == 200
        reply = await report("e", ours)
        assert (reply.status, reply.json["error"]) == (409, "SHARE_FULL")
        facts = {key: reply.json[key] for key in ("kind", "used", "limit")}
        assert facts == {"kind": "pipelines", "used": 3, "limit": 3}
        listed = (await broker.call("GET", "/pipelines", headers=ours)).json["pipelines"]
        assert {one["name"] for one in listed} == {"a", "b", "d"}
        # There is no room for a third one of theirs, and none of ours goes for it, though all are lost by then.
        reply = await report("p2", theirs)
        assert (reply.status, reply.json["setting"]) == (409, "limits.pipelines_max")
        now = 31.0
        assert (await report("p1", theirs)).status == 200
        assert (await report("p2", theirs)).status == 200
        listed = (await broker.call("GET", "/pipelines", headers=theirs)).json["pipelines"]
        assert {one["name"] for one in listed} == {"p1", "p2"}
        listed = (await broker.call("GET", "/pipelines", headers=ours)).json["pipelines"]
        assert {one["name"] for one in listed} == {"a", "b", "d"}


def test_the_number_of_reports_is_bounded_and_one_that_is_over_goes():
    pipelines = Pipelines(LimitsConfig(pipelines_max=10), lambda: 0.0)
    said, ended = (PipelineIn(kind="load", state=state) for state in ("running", "failed"))
    for number in range(10):
        pipelines.report(f"p{number}", ended if number in (3, 5) else said, 0, 1.0)
    pipelines.report("p0", said, 0, 1.0)
    pipelines.report("p3", ended, 0, 1.0)
    pipelines.report("new", said, 0, 1.0)
    assert {one.name for one in pipelines.all()} == {"new", *(f"p{n}" for n in range(10))} - {"p5"}
