"""The files of the console, and the routes that it needs: who asks, lag, the last hour, settings, the audit log."""

import hashlib
import json
import re
from pathlib import Path

import penstock
from penstock.api.principals import Role
from penstock.observability.recent import GROUPS_MAX, ROWS_MAX

from .rigs import in_process

AUTH = {("auth", "enabled"): True}
STATIC = Path(penstock.__file__).parent / "console" / "static"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_the_page_and_all_that_it_loads_come_from_us_alone(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        page = await broker.call("GET", "/")
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert not re.search(r"<script(?![^>]*src=)|\son\w+=|javascript:", page.body.decode())
        for path in sorted(STATIC.rglob("*")):
            if path.is_file():
                name = path.relative_to(STATIC)
                found = await broker.call("GET", f"/console/{name}")
                assert (found.status, found.body) == (200, path.read_bytes()), name
                assert found.headers["x-content-type-options"] == "nosniff"
                assert found.headers["content-security-policy"] == policy


async def test_a_file_that_a_browser_has_is_not_sent_again(tmp_path):
    async with in_process(tmp_path) as broker:
        first = await broker.call("GET", "/console/app.js")
        known = {"if-none-match": first.headers["etag"]}
        again = await broker.call("GET", "/console/app.js", headers=known)
        assert (again.status, again.body) == (304, b"")
        assert "content-length" not in again.headers
        other = await broker.call("GET", "/console/console.css", headers=known)
        assert other.status == 200


async def test_nothing_but_the_files_of_the_console_is_served(tmp_path):
    async with in_process(tmp_path) as broker:
        for name in (
            "nothing.js",
            "__init__.py",
            "%2e%2e/__init__.py",
            "..%2f__init__.py",
            "screens",
        ):
            assert (await broker.call("GET", f"/console/{name}")).status == 404, name


async def test_the_console_can_be_switched_off(tmp_path):
    async with in_process(tmp_path, {("broker", "console"): False}) as broker:
        page = await broker.call("GET", "/")
        assert "<script" not in page.body.decode()
        assert (await broker.call("GET", "/console/app.js")).status == 404


def test_libraries_are_those_that_their_hashes_name():
    facts = json.loads((STATIC / "libraries" / "libraries.json").read_text())
    named = {file["name"]: file for library in facts["libraries"] for file in library["files"]}
    there = {one.name for one in (STATIC / "libraries").iterdir()} - {"libraries.json"}
    assert there == set(named)
    for name, file in named.items():
        content = (STATIC / "libraries" / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == file["sha256"], name
    for library in facts["libraries"]:
        assert any(file["name"].endswith(".LICENSE.txt") for file in library["files"])


def test_no_script_of_the_console_makes_markup_of_text():
    """Payloads become text nodes; a script that could do otherwise is refused by the policy as well."""
    ours = [one for one in STATIC.rglob("*.js") if one.parent.name != "libraries"]
    assert len(ours) > 20
    for path in ours:
        text = path.read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text
        )
        assert len(text.splitlines()) <= 500


async def test_a_key_is_told_what_it_may_do(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        assert (await broker.call("GET", "/whoami")).status == 401
        for role, allowed, refused in (
            (Role.READONLY, "see topics", "publish"),
            (Role.CONSUMER, "consume", "see stats"),
            (Role.ADMIN, "delete a topic", None),
        ):
            key = broker.key(f"a-{role.value}", role, "orders").text
            found = (await broker.call("GET", "/whoami", headers=bearer(key))).json
            assert (found["role"], found["prefixes"]) == (role.value, ["orders"])
            assert allowed in found["actions"]
            assert refused not in found["actions"]


async def test_without_keys_every_client_is_an_administrator(tmp_path):
    async with in_process(tmp_path) as broker:
        found = (await broker.call("GET", "/whoami")).json
        assert (found["has_key"], found["role"]) == (False, "admin")


async def test_lag_of_all_groups_is_told_the_furthest_behind_first(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        admin = bearer((tmp_path / "admin.key").read_text().strip())
        for topic, group, count in (("orders", "far", 3), ("orders", "near", 1), ("bills", "b", 9)):
            await broker.call("POST", "/topics", {"name": topic}, headers=admin)
            messages = {"messages": [{"value": "x"}] * 1}
            await broker.call("POST", f"/topics/{topic}/messages", messages, headers=admin)
            target = f"/topics/{topic}/messages?group={group}&max={count}"
            assert (await broker.call("GET", target, headers=admin)).status == 200
        await broker.call(
            "POST", "/topics/orders/messages", {"messages": [{"value": "y"}] * 5}, headers=admin
        )
        found = (await broker.call("GET", "/stats/lag", headers=admin)).json
        assert [one["lag"] for one in found["lags"]] == sorted(
            (one["lag"] for one in found["lags"]), reverse=True
        )
        by_group = {one["group"]: one for one in found["lags"]}
        assert {name: one["lag"] for name, one in by_group.items()} == {"far": 7, "near": 7, "b": 1}
        assert (found["groups"], found["total"]) == (3, 15)
        assert by_group["far"]["in_flight"] == 1
        theirs = bearer(broker.key("theirs", Role.CONSUMER, "bills").text)
        scoped = (await broker.call("GET", "/stats/lag", headers=theirs)).json
        assert ([one["group"] for one in scoped["lags"]], scoped["total"]) == (["b"], 1)
        first = (await broker.call("GET", "/stats/lag?limit=1", headers=admin)).json
        assert (len(first["lags"]), first["groups"]) == (1, 3)


async def test_lags_may_be_as_old_as_the_caller_allows(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.poll(group="g")
        await broker.call("GET", "/stats/lag")
        await broker.publish("1", "2")

        async def total(query: str) -> int:
            return (await broker.call("GET", f"/stats/lag{query}")).json["total"]

        assert await total("?max_age=5s") == 0
        assert await total("") == 2
        await broker.publish("3")
        assert await total("?max_age=5s") == 2
        broker.clock.advance(5)
        assert await total("?max_age=5s") == 3


async def test_the_last_hour_has_rates_and_lags_and_forgets_what_is_older(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.app.sample()
        await broker.publish("1", "2", "3")
        await broker.poll("&max=1", group="g")
        broker.clock.advance(10)
        await broker.app.sample()
        found = (await broker.call("GET", "/stats/recent")).json
        assert found["step_seconds"] == 10
        assert found["rates"]["published"] == [0.0, 0.3]
        assert found["rates"]["delivered"] == [0.0, 0.1]
        assert (found["lag"], found["in_flight"]) == ([0, 3], [0, 1])
        assert found["groups"] == {"g": [None, 3]}
        for _ in range(ROWS_MAX + 5):
            broker.clock.advance(10)
            await broker.app.sample()
        later = (await broker.call("GET", "/stats/recent")).json
        assert len(later["times"]) == ROWS_MAX
        assert later["times"][0] > found["times"][-1]


async def test_the_last_hour_names_a_bounded_number_of_groups(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        admin = bearer((tmp_path / "admin.key").read_text().strip())
        await broker.call("POST", "/topics", {"name": "orders"}, headers=admin)
        for number in range(GROUPS_MAX + 5):
            await broker.call(
                "GET", f"/topics/orders/messages?group=g{number}&max=1", headers=admin
            )
        broker.clock.advance(10)
        await broker.app.sample()
        found = (await broker.call("GET", "/stats/recent", headers=admin)).json
        assert len(found["groups"]) == GROUPS_MAX
        theirs = bearer(broker.key("theirs", Role.READONLY, "orders").text)
        assert (await broker.call("GET", "/stats/recent", headers=theirs)).json["groups"] == {}


async def test_settings_are_shown_with_what_they_mean(tmp_path):
    async with in_process(tmp_path, {("topic", "num_partitions"): 7}) as broker:
        sections = (await broker.call("GET", "/admin/settings")).json["sections"]
        partitions = next(one for one in sections["topic"] if one["name"] == "num_partitions")
        assert (partitions["value"], partitions["default"]) == (7, 3)
        assert all(one["text"] for settings in sections.values() for one in settings)
        topic = (await broker.call("GET", "/topic-settings")).json["settings"]
        assert {"retention_hours", "validation"} <= {one["name"] for one in topic}
        assert all(one["text"] for one in topic)


async def test_the_audit_log_is_read_from_its_end_page_by_page(tmp_path):
    async with in_process(tmp_path) as broker:
        names = [f"topic-{number}" for number in range(25)]
        for name in names:
            await broker.call("POST", "/topics", {"name": name, "num_partitions": 1})
        seen, cursor = [], ""
        while cursor is not None:
            page = await broker.call("GET", f"/admin/audit?limit=10&cursor={cursor}")
            seen += [one["where"] for one in page.json["lines"]]
            cursor = page.json["cursor"]
        assert seen == names[::-1]
        for wrong in ("x", "-1", "1" * 30):
            assert (await broker.call("GET", f"/admin/audit?cursor={wrong}")).status == 400


async def test_settings_and_the_audit_log_are_for_administrators_of_the_whole_broker(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        keys = [broker.key(f"a-{role.value}", role) for role in Role if role is not Role.ADMIN]
        keys.append(broker.key("part", Role.ADMIN, "orders"))
        for target in ("/admin/settings", "/admin/audit"):
            for key in keys:
                refused = await broker.call("GET", target, headers=bearer(key.text))
                assert refused.status == 403, (target, key.key.name)


async def test_discarded_dead_letters_are_listed_no_more_also_after_a_restart(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(max_retries=0)
        await broker.publish("1", "2", "3")
        for number, one in enumerate(await broker.poll("&max=3")):
            body = {"receipt_handle": one["receipt_handle"], "reason": f"reason {number % 2}"}
            assert (await broker.call("POST", "/messages/reject", body)).status == 200
        broker.settle()
        target = "/topics/orders/dlq/discard"
        for wrong in ({}, {"filter": {}}, {"all": True, "filter": {"reason": "x"}}):
            assert (await broker.call("POST", target, wrong)).status == 400
        wanted = {"filter": {"error": "reason 0"}}
        dry = (await broker.call("POST", target, {**wanted, "dry_run": True})).json
        assert dry == {"matched": 2, "discarded": 0, "dry_run": True}
        done = (await broker.call("POST", target, wanted)).json
        assert done == {"matched": 2, "discarded": 2, "dry_run": False}
        left = (await broker.call("GET", "/topics/orders/dlq")).json["dead_letters"]
        assert [one["originalValue"] for one in left] == ["2"]
        again = (await broker.call("POST", target, wanted)).json
        assert again["matched"] == 0
        # What is discarded cannot be sent back either; what is left can.
        back = (await broker.call("POST", "/topics/orders/dlq/redrive", {"all": True})).json
        assert (back["matched"], back["redriven"]) == (1, 1)
        lines = (await broker.call("GET", "/admin/audit?limit=10")).json["lines"]
        assert "orders: 2 dead letters discarded" in [one["where"] for one in lines]
        disk = broker.disk
    async with in_process(tmp_path, disk=disk) as broker:
        assert (await broker.call("GET", "/topics/orders/dlq")).json["dead_letters"] == []
