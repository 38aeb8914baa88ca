"""Who gets in and what they may do."""

import asyncio
import json
import time

import pytest

from penstock.api.answers import Kind, LeaseAnswer
from penstock.api.principals import Action, Principal, Role
from penstock.api.topics import CreateTopic
from penstock.broker.authorise import ALLOWED, authorise
from penstock.errors import Forbidden
from penstock.server import audit_files
from penstock.server.http import auth, requests
from penstock.server.http.limits import Room
from penstock.server.http.routing import TopicIn
from penstock.server.http.table import ROUTES
from penstock.server.logs import masked
from tests.api.answer_bytes import encode_answers

from .rigs import example_path, in_process

AUTH = {("auth", "enabled"): True}
_SESSION = {"producer_id": 1, "epoch": 0}
BODIES = {
    "/messages/ack": {"receipt_handle": "orders:0:0:1:1.1"},
    "/messages/nack": {"receipt_handle": "orders:0:0:1:1.1"},
    "/messages/reject": {"receipt_handle": "orders:0:0:1:1.1"},
    "/messages/visibility": {"receipt_handle": "orders:0:0:1:1.1", "timeout": 1000},
    "/topics": {"name": "orders"},
    "/groups/{group}/offsets": {"offsets": {"orders": {"0": 0}}},
    "/groups/{group}/offsets/reset": {"to": "latest", "topic": "orders"},
    "/groups/{group}/inflight/release": {"receipt_handle": "orders:0:0:1:1.1"},
    "/groups/{group}/inflight/extend": {"receipt_handle": "orders:0:0:1:1.1", "timeout": 1000},
    "/groups/{group}/inflight/dead-letter": {"receipt_handle": "orders:0:0:1:1.1"},
    "/groups/{group}/join": {"topics": ["orders"]},
    "/groups/{group}/heartbeat": {"member_id": "theirs"},
    "/groups/{group}/leave": {"member_id": "theirs"},
    "/groups/{group}/revoke": {"member_id": "theirs", "partitions": []},
    "/groups/{group}/poll": "member_id=theirs&timeout=0",
    "/pipelines/{pipeline}": {"kind": "archive", "state": "running", "topics": ["orders"]},
    "/topics/{topic}/schedules": {"key": "s", "every": "1h"},
    "/topics/{topic}/schedules/{schedule}": {"paused": True},
    "/offsets": "topics=orders",
    "/queries/{query}/start": {"offsets": {"orders/0": 0}, "ids": {}, "asked": "latest"},
    "/transactions/add-partition": {
        "producer_id": 1,
        "epoch": 0,
        "topic": "orders",
        "partition": 0,
    },
    "/transactions/publish": {"producer_id": 1, "epoch": 0, "topic": "orders", "value": "1"},
    "/transactions/ack": {**_SESSION, "receipt_handle": "orders:0:0:1:1.1"},
    "/transactions/nack": {**_SESSION, "receipt_handle": "orders:0:0:1:1.1"},
    "/transactions/reject": {**_SESSION, "receipt_handle": "orders:0:0:1:1.1"},
    "/transactions/offsets": {**_SESSION, "group": "g", "offsets": {"orders": {"0": 0}}},
    "/stagings/{staging}/messages": {"topic": "orders", "messages": [{"value": "1"}]},
    "/stagings/{staging}/ack": {"receipt_handle": "orders:0:0:1:1.1"},
    "/stagings/{staging}/nack": {"receipt_handle": "orders:0:0:1:1.1"},
    "/stagings/{staging}/reject": {"receipt_handle": "orders:0:0:1:1.1"},
    "/priority/stats": "topic=orders",
    "/traces": "topic=orders",
    "/traces/search": "topic=orders",
    "/traces/{trace_id}": "topic=orders",
    "/produce": {"topic": "orders", "value": "1"},
    "/consume": "topic=orders&group=g",
    "/ack": {"topic": "orders", "group": "g", "partition": 0, "offset": 0},
    "/nack": {"topic": "orders", "group": "g", "partition": 0, "offset": 0},
    "/ack-cumulative": {"topic": "orders", "group": "g", "partition": 0, "offset": 0},
    "/messages/answers": encode_answers([LeaseAnswer(Kind.ACK, "orders", 0, 1, 1, [0])]),
}
BATCH = {"content-type": "application/vnd.penstock.batch"}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("command", Action)
def test_every_command_has_an_entry_for_every_role(command, role):
    principal = Principal("somebody", role)
    assert command in ALLOWED, "a command without an entry"
    if role in ALLOWED[command]:
        authorise(principal, command, "orders")
    else:
        with pytest.raises(Forbidden):
            authorise(principal, command, "orders")


def test_administrators_may_everything_and_readers_change_nothing():
    changes = {one for one in Action if not one.value.startswith(("see", "read"))}
    assert all(Role.ADMIN in ALLOWED[one] for one in Action)
    assert not any(Role.READONLY in ALLOWED[one] for one in changes)


async def test_every_route_asks_for_every_role(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        keys = {role: broker.key(role.value, role).text for role in Role}
        for route in ROUTES:
            target = example_path(route)
            bare = await broker.call(route.method, target)
            assert (bare.status == 401) == (not route.is_open), target
            for role, key in keys.items():
                reply = await broker.call(route.method, target, headers=bearer(key))
                is_refused = role not in ALLOWED[route.action] and not route.is_open
                assert (reply.status == 403) == is_refused, (
                    f"{target} for {role}: {reply.status}; is the route's action that of its command?"
                )


async def test_no_route_reaches_a_topic_of_somebody_else(tmp_path):
    touching = [route for route in ROUTES if route.topic_in is not TopicIn.NOWHERE]
    async with in_process(tmp_path, AUTH) as broker:
        admin = bearer((tmp_path / "admin.key").read_text().strip())
        await broker.call("POST", "/topics", {"name": "orders"}, headers=admin)
        joining = {"topics": ["orders"], "member_id": "theirs"}
        assert (await broker.call("POST", "/groups/g/join", joining, headers=admin)).status == 200
        start = BODIES["/queries/{query}/start"]
        assert (await broker.call("POST", "/queries/q/start", start, headers=admin)).status == 200
        keys = {role: broker.key(f"their-{role.value}", role, "invoices").text for role in Role}
        for route in touching:
            for role in ALLOWED[route.action]:
                key = keys[role]
                target = example_path(route)
                body = BODIES.get(route.path)
                if route.topic_in is TopicIn.PATH:
                    body = None
                elif isinstance(body, str):
                    target, body = f"{target}?{body}", None
                else:
                    assert body is not None, f"{route.path} needs an example here"
                kind = BATCH if isinstance(body, bytes) else {}
                reply = await broker.call(
                    route.method, target, body, headers={**kind, **bearer(key)}
                )
                assert reply.status == 403, (route.method, target, role, reply.body)


@pytest.mark.parametrize("mode", ["assigned", "shared"])
async def test_a_member_is_only_replaced_by_a_key_that_reaches_its_topics(tmp_path, mode):
    """Also not by way of the other mode, and nobody else speaks for it either."""
    async with in_process(tmp_path, AUTH) as broker:
        admin = bearer((tmp_path / "admin.key").read_text().strip())
        for name in ("orders", "invoices"):
            await broker.call("POST", "/topics", {"name": name}, headers=admin)
        ours = bearer(broker.key("ours", Role.CONSUMER, "orders").text)
        theirs = bearer(broker.key("theirs", Role.CONSUMER, "invoices").text)
        joining = {"topics": ["orders"], "member_id": "m", "mode": mode}
        assert (await broker.call("POST", "/groups/g/join", joining, headers=ours)).status == 200
        for other in ("assigned", "shared"):
            evicting = {"topics": ["invoices"], "member_id": "m", "mode": other}
            refused = await broker.call("POST", "/groups/g/join", evicting, headers=theirs)
            assert refused.status == 403
            assert "orders" not in refused.body.decode()
        member = {"member_id": "m"}
        for target, body in (
            ("heartbeat", member),
            ("leave", member),
            ("offsets", {**member, "offsets": {"invoices": {"0": 0}}}),
        ):
            refused = await broker.call("POST", f"/groups/g/{target}", body, headers=theirs)
            assert refused.status in {403, 404}, target
        polled = await broker.call("GET", "/groups/g/poll?member_id=m&timeout=0", headers=theirs)
        assert polled.status == 403
        beat = await broker.call("POST", "/groups/g/heartbeat", member, headers=ours)
        assert beat.status == 200
        if mode == "assigned":
            assert len(beat.json["partitions_assigned"]) == 3
        assert (await broker.call("POST", "/groups/g/join", joining, headers=ours)).status == 200


async def test_a_group_of_two_teams_shows_each_its_own_members(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        admin = bearer((tmp_path / "admin.key").read_text().strip())
        keys = {}
        for name in ("orders", "invoices"):
            await broker.call("POST", "/topics", {"name": name}, headers=admin)
            keys[name] = bearer(broker.key(name, Role.CONSUMER, name).text)
            joining = {"topics": [name], "member_id": f"of-{name}"}
            await broker.call("POST", "/groups/g/join", joining, headers=keys[name])
        for name, other in (("orders", "invoices"), ("invoices", "orders")):
            shown = await broker.call("GET", "/groups/g", headers=keys[name])
            assert other not in shown.body.decode()
            assert len(shown.json["members"][0]["assigned_partitions"]) == 3


async def test_lists_show_only_what_a_key_reaches(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        admin = (tmp_path / "admin.key").read_text().strip()
        for name in ("orders", "invoices"):
            await broker.call("POST", "/topics", {"name": name}, headers=bearer(admin))
            await broker.call("GET", f"/topics/{name}/messages?group={name}", headers=bearer(admin))
        key = broker.key("theirs", Role.READONLY, "inv").text
        topics = (await broker.call("GET", "/topics", headers=bearer(key))).json
        assert topics["topics"] == ["invoices"]
        groups = (await broker.call("GET", "/groups", headers=bearer(key))).json["groups"]
        assert groups == ["invoices"]
        assert (await broker.call("GET", "/groups/orders/lag", headers=bearer(key))).status == 404
        stats = (await broker.call("GET", "/stats", headers=bearer(key))).json
        assert list(stats["topic_stats"]) == ["invoices"]
        for target in ("/metrics", "/priority/stats", "/delay/stats", "/rebalance/stats"):
            reply = await broker.call("GET", target, headers=bearer(key))
            assert reply.status == 200
            assert "orders" not in reply.body.decode()
        assert (
            "invoices" in (await broker.call("GET", "/metrics", headers=bearer(key))).body.decode()
        )


async def test_of_a_group_a_key_sees_only_what_concerns_its_own_topics(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        admin = bearer((tmp_path / "admin.key").read_text().strip())
        for name in ("orders", "invoices"):
            await broker.call("POST", "/topics", {"name": name}, headers=admin)
            sent = {"messages": [{"value": f"of {name}"}]}
            await broker.call("POST", f"/topics/{name}/messages", sent, headers=admin)
            taken = await broker.call("GET", f"/topics/{name}/messages?group=g", headers=admin)
            assert len(taken.json["messages"]) == 1
        key = broker.key("theirs", Role.READONLY, "inv").text
        for view in ("", "/inflight", "/lag", "/offsets"):
            reply = await broker.call("GET", f"/groups/g{view}", headers=bearer(key))
            assert reply.status == 200
            assert b"invoices" in reply.body
            assert b"orders" not in reply.body, view


async def test_of_members_and_rebalances_a_key_sees_those_of_its_own_topics(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        admin = bearer((tmp_path / "admin.key").read_text().strip())
        for name in ("orders", "invoices"):
            await broker.call("POST", "/topics", {"name": name}, headers=admin)

        async def join(member: str, *topics: str) -> None:
            body = {"topics": topics, "member_id": member}
            assert (await broker.call("POST", "/groups/g/join", body, headers=admin)).status == 200

        async def leave(member: str) -> None:
            await broker.call("POST", "/groups/g/leave", {"member_id": member}, headers=admin)

        await join("hidden-1", "orders")
        await join("seen", "invoices")
        await join("hidden-2", "orders")
        await join("both", "orders", "invoices")
        await leave("hidden-1")
        await leave("seen")
        key = bearer(broker.key("theirs", Role.READONLY, "inv").text)
        for target in ("/rebalance/stats", "/groups/g"):
            shown = await broker.call("GET", target, headers=key)
            assert b"hidden" not in shown.body, target
            assert b"orders" not in shown.body, target
            assert b"both" in shown.body, target
        rebalances = (await broker.call("GET", "/rebalance/stats", headers=key)).json["groups"]["g"]
        everything = (await broker.call("GET", "/rebalance/stats", headers=admin)).json["groups"][
            "g"
        ]
        # One that a hidden member caused, and that moved partitions of its topics, has no member.
        assert [one["members"] for one in rebalances] == [["seen"], ["both"], [], ["seen"]]
        assert [len(one["members"]) for one in everything] == [1] * 6


async def test_of_the_registry_a_key_sees_totals_of_its_own_subjects(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        admin = bearer((tmp_path / "admin.key").read_text().strip())
        for subject, text in (
            ("orders-value", '"int"'),
            ("inv-key", '"int"'),
            ("inv-value", '"long"'),
        ):
            path = f"/subjects/{subject}/versions"
            reply = await broker.call("POST", path, {"schema": text}, headers=admin)
            assert reply.status == 200
        key = bearer(broker.key("theirs", Role.READONLY, "inv").text)
        for headers, counts in ((key, (2, 2, 2, 11)), (admin, (2, 3, 3, 11))):
            shown = (await broker.call("GET", "/schemas/stats", headers=headers)).json
            found = (shown[one] for one in ("schemas", "subjects", "versions", "text_bytes"))
            assert tuple(found) == counts
        none = bearer(broker.key("none", Role.READONLY, "bills").text)
        shown = (await broker.call("GET", "/schemas/stats", headers=none)).json
        assert (shown["schemas"], shown["subjects"], shown["text_bytes"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("target", "status"),
    [("/topics", 200), ("/health", 200), ("/topics/none", 404), ("/nothing", 404), ("/docs", 200)],
)
async def test_no_answer_is_kept_by_a_cache_or_taken_for_another_type(tmp_path, target, status):
    async with in_process(tmp_path) as broker:
        reply = await broker.call("GET", target)
        assert reply.status == status
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        if target == "/docs":
            assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]


async def test_neither_is_an_answer_without_a_body_or_a_stream(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        deleted = await broker.call("DELETE", "/topics/orders")
        assert deleted.headers["x-content-type-options"] == "nosniff"
        await broker.topic()
        await broker.publish("a")
        for accept in ("application/json", "application/vnd.penstock.batch"):
            target = "/topics/orders/partitions/0/messages?offset=0"
            reply = await broker.call("GET", target, headers={"accept": accept})
            assert reply.headers["cache-control"] == "no-store", accept
            assert reply.headers["x-content-type-options"] == "nosniff", accept


async def test_somebody_who_tries_keys_is_slowed_down(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        statuses = [
            (await broker.call("GET", "/topics", headers=bearer(f"pk-{one}.x"))).status
            for one in range(25)
        ]
        assert (statuses[0], statuses[-1]) == (401, 429)
        good = (tmp_path / "admin.key").read_text().strip()
        assert (await broker.call("GET", "/topics", headers=bearer(good))).status == 200
        assert (await broker.call("GET", "/health")).status == 200


async def test_after_a_minute_wrong_keys_are_counted_anew(tmp_path, monkeypatch):
    clock, moved_s = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock() + moved_s[0])
    async with in_process(tmp_path, AUTH) as broker:

        async def tried(count: int) -> list[int]:
            wrong = bearer("pk-1.x")
            return [
                (await broker.call("GET", "/topics", headers=wrong)).status for _ in range(count)
            ]

        for _ in range(3):
            assert await tried(22) == [401] * 20 + [429] * 2
            moved_s[0] += 61


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "127.0.0.1:8080"}, 200),
        ({"host": "[::1]:8080"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": ""}, 403),
        ({"origin": "http://localhost"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "https://console.example"}, 200),
        # Browsers leave the usual port out.
        ({"origin": "https://shop.example"}, 200),
        ({"origin": "http://shop.example"}, 403),
        ({"origin": "http://[::1]"}, 200),
        ({"host": "broker.example:80"}, 200),
    ],
)
async def test_pages_and_names_that_are_not_ours_are_refused(tmp_path, headers, status):
    known = {
        ("http", "allowed_hosts"): ["broker.example"],
        ("http", "allowed_origins"): [
            "https://console.example",
            "https://Shop.example:443",
            "http://[::1]:80",
        ],
    }
    async with in_process(tmp_path, known) as broker:
        reply = await broker.call("GET", "/topics", headers=headers)
        assert reply.status == status
        if status == 403:
            assert reply.json["error"] == "FORBIDDEN_ORIGIN"


PAGE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
LEASING = (
    "/consume?topic=orders&group=page",
    "/topics/orders/messages?group=page",
    "/groups/page/poll?member_id=m",
)


async def test_forms_that_a_web_page_can_send_change_nothing(tmp_path):
    async with in_process(tmp_path) as broker:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            reply = await broker.call(
                "POST", "/topics", b'{"name": "orders"}', headers={"content-type": kind}
            )
            assert reply.status == 415
        assert (await broker.call("GET", "/topics")).json["topics"] == []


async def test_refusals_are_written_down_once_a_minute(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        key = broker.key("reader", Role.READONLY).text
        for _ in range(5):
            assert (await broker.call("DELETE", "/topics/x", headers=bearer(key))).status == 403
    lines = (tmp_path / audit_files.AUDIT_FILE).read_text().splitlines()
    assert [(json.loads(one)["who"], json.loads(one)["is_allowed"]) for one in lines] == [
        ("reader", False)
    ]


async def test_over_the_rate_is_429_with_retry_after(tmp_path):
    async with in_process(tmp_path, {("http", "requests_per_s"): 5}) as broker:
        replies = [await broker.call("GET", "/topics") for _ in range(20)]
        refused = [one for one in replies if one.status == 429]
        assert replies[0].status == 200
        assert refused[-1].json["error"] == "RESOURCE_EXHAUSTED"
        assert refused[-1].headers["retry-after"] == "1"
        assert (await broker.call("GET", "/livez")).status == 200


async def test_too_many_requests_at_once_are_429(tmp_path):
    async with in_process(tmp_path, {("http", "requests_max"): 3}, fsync="always") as broker:
        await broker.topic()
        sent = {"messages": [{"value": "1"}]}
        calls = [broker.call("POST", "/topics/orders/messages", sent) for _ in range(10)]
        statuses = [one.status for one in await asyncio.gather(*calls)]
        assert (statuses.count(200), statuses.count(429)) == (3, 7)
        assert (await broker.call("POST", "/topics/orders/messages", sent)).status == 200


def test_the_more_are_turned_away_the_later_they_are_told_to_come_back():
    now = 100.0
    room = Room(8, lambda: now)

    assert [room.enter() for _ in range(9)] == [True] * 8 + [False]
    waits = [room.wait_ms() for _ in range(30)]
    assert waits[:4] == [1500, 2000, 2500, 3000]
    assert max(waits) == waits[-1] == 10_000
    now += 60
    assert room.wait_ms() == 1500
    room.leave()
    assert room.enter()


async def test_a_secret_is_in_no_answer_no_log_and_no_metric(tmp_path, caplog):
    async with in_process(tmp_path, AUTH) as broker:
        planted = broker.key("canary", Role.ADMIN).text
        secret = planted.partition(".")[2]
        seen = []
        for headers in (bearer(planted), bearer(planted + "x"), {"x-api-key": planted}):
            for target in ("/topics", "/metrics", "/admin/keys", "/stats", "/nowhere", "/health"):
                reply = await broker.call("GET", target, headers=headers)
                seen.append(str(reply))
        kept = [one.read_bytes() for one in tmp_path.iterdir() if one.is_file()]
        kept += broker.disk.tree().files.values()
        assert not any(secret in one for one in seen)
        assert not any(secret.encode() in one for one in kept)
    assert secret not in caplog.text
    assert secret not in masked(f"Authorization: Bearer {planted} and {planted}")


def test_headers_of_any_length_are_read_and_long_ones_not_remembered():
    for call, known in (
        (auth._host_of, auth._known_host),
        (requests._kind_of, requests._known_kind),
    ):
        known.cache_clear()
        long = b"A" * 60_000
        assert call(b"a:1") == known(b"a:1")
        assert call(long) == known.__wrapped__(long)
        assert known.cache_info().currsize == 1


async def test_transactions_and_named_commits_of_another_key_are_refused(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        broker.driver.execute(CreateTopic("orders", 1))
        ann, ben = (bearer(broker.key(one, Role.PRODUCER).text) for one in ("ann", "ben"))

        async def call(by, path, body):
            found = await broker.call("POST", path, body, headers=by)
            return found.status, found.json.get("error"), found.json

        *_, mine = await call(ann, "/producers/init", {"transactional_id": "billing"})
        *_, opened = await call(ann, "/commits/nightly/stagings", {"sequence": 1, "writer": "w"})
        staging = opened["staging"]
        calls = (
            ("/producers/init", {"transactional_id": "billing"}),
            (f"/producers/{mine['producer_id']}/heartbeat", {"epoch": 0}),
            ("/transactions/begin", mine),
            ("/transactions/publish", {**mine, "topic": "orders", "value": "x"}),
            ("/transactions/commit", mine),
            ("/transactions/abort", mine),
            ("/commits/nightly/stagings", {"sequence": 1, "writer": "w"}),
            (f"/stagings/{staging}/messages", {"topic": "orders", "messages": [{"value": "x"}]}),
            ("/commits/nightly", {"sequence": 1, "writer": "w", "stagings": []}),
        )
        for path, body in calls:
            assert (await call(ben, path, body))[:2] == (403, "PERMISSION_DENIED"), path
        for path, body in calls:
            assert (await call(ann, path, body))[0] in (200, 201, 204, 409), path
