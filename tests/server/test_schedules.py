"""Schedules over HTTP, and of a server process that is killed."""

import signal

import pytest

from penstock.api.schedules import SCHEDULE_BYTES_MAX, ListSchedules, Missed
from penstock.client import Client
from penstock.server.audit_files import AUDIT_FILE

from .rigs import in_process, served

WAIT = "group=g&timeout=60s"


def bearer(key):
    return {"authorization": f"Bearer {key}"}


async def test_from_creation_to_deletion(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.call("POST", "/topics", {"name": "jobs", "num_partitions": 1})
        sent = {
            "key": "nightly",
            "cron": "0 3 * * *",
            "timezone": "Europe/Berlin",
            "value": "report",
            "message_key": "k",
            "headers": {"a": "1"},
            "priority": "high",
            "ttl": "2h",
            "paused": True,
        }
        made = await broker.call("POST", "/topics/jobs/schedules", sent)
        assert made.status == 201
        assert made.json == {
            "topic": "jobs",
            "partition": 0,
            "key": "nightly",
            "version": 1,
            "cron": "0 3 * * *",
            "every_ms": None,
            "timezone": "Europe/Berlin",
            "missed": "latest",
            "paused": True,
            "last_due": None,
            "next_due": None,
            "problem": None,
            "message_key": "k",
            "value": "report",
            "headers": [["a", "1"]],
            "priority": "high",
            "ttl_ms": 7_200_000,
        }
        again = await broker.call("POST", "/topics/jobs/schedules", sent)
        assert (again.status, again.json["error"]) == (409, "ALREADY_EXISTS")
        one = "/topics/jobs/schedules/nightly"
        changed = await broker.call("PATCH", one, {"paused": False, "ttl": None, "missed": "skip"})
        assert changed.json["next_due"] is not None
        assert (changed.json["version"], changed.json["ttl_ms"]) == (2, None)
        assert (await broker.call("GET", one)).json == changed.json
        listed = (await broker.call("GET", "/topics/jobs/schedules")).json
        assert listed == {"schedules": [changed.json]}
        delayed = (await broker.call("GET", "/topics/jobs/delayed")).json
        shown = {"key": "nightly", "partition": 0, "next_due": changed.json["next_due"]}
        assert delayed["schedules"] == [shown]
        ran = await broker.call("POST", f"{one}/run")
        place = {"topic": "jobs", "key": "nightly", "partition": 0, "offset": 0}
        assert (ran.status, ran.json) == (200, place)
        (message,) = (await broker.call("GET", "/topics/jobs/messages?group=g")).json["messages"]
        assert message["value"] == "report"
        assert message["headers"] == [["a", "1"], ["penstock-schedule", "nightly"]]
        assert (await broker.call("DELETE", one)).status == 204
        assert (await broker.call("GET", one)).status == 404
        assert (await broker.call("POST", f"{one}/run")).status == 404
        assert (await broker.call("GET", "/topics/other/schedules")).status == 404


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        ({"every": "1m"}, "key"),
        ({"key": "a b", "every": "1m"}, "a b"),
        ({"key": "s"}, "one of cron and every"),
        ({"key": "s", "every": "1m", "cron": "* * * * *"}, "one of cron and every"),
        ({"key": "s", "every": "999ms"}, "1000 ms"),
        ({"key": "s", "every": 0}, "1000 ms"),
        ({"key": "s", "every": "1 fortnight"}, "every"),
        ({"key": "s", "every": "1m", "timezone": "UTC"}, "timezone"),
        ({"key": "s", "cron": ""}, "cron"),
        ({"key": "s", "cron": "0 24 * * *"}, "hour is 0 to 23"),
        ({"key": "s", "cron": "0 0 30 feb *"}, "never"),
        ({"key": "s", "cron": "* * * * *", "timezone": "Mars"}, "Mars"),
        ({"key": "s", "cron": "* * * * *", "timezone": "localtime"}, "localtime"),
        ({"key": "s", "cron": "* * * * *", "timezone": "posixrules"}, "posixrules"),
        ({"key": "s", "cron": "* * * * *", "timezone": "Factory"}, "Factory"),
        ({"key": "s", "cron": "* * * * *", "timezone": "right/Europe/Berlin"}, "right/Europe"),
        ({"key": "s", "cron": "* * * * *", "timezone": "posix/UTC"}, "posix/UTC"),
        ({"key": "s", "every": "1m", "missed": "some"}, "missed"),
        ({"key": "s", "every": "1m", "priority": 9}, "priority"),
        ({"key": "s", "every": "1m", "idempotency_key": "k"}, "idempotency_key"),
        ({"key": "s", "every": "1m", "partition": 5}, "partition"),
        ({"key": "s", "every": "1m", "value": "x" * (SCHEDULE_BYTES_MAX + 1)}, "65536"),
    ],
)
async def test_a_bad_schedule_is_refused_with_what_was_wrong(tmp_path, sent, named):
    async with in_process(tmp_path) as broker:
        await broker.call("POST", "/topics", {"name": "jobs", "num_partitions": 1})
        reply = await broker.call("POST", "/topics/jobs/schedules", sent)
        assert reply.status in {400, 404, 413}
        assert named in reply.json["message"]
        assert (await broker.call("GET", "/topics/jobs/schedules")).json == {"schedules": []}


async def test_a_bad_change_is_refused_and_changes_nothing(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.call("POST", "/topics", {"name": "jobs", "num_partitions": 1})
        made = {"key": "s", "cron": "@hourly"}
        before = (await broker.call("POST", "/topics/jobs/schedules", made)).json
        for sent in (
            {},
            {"cron": "x"},
            {"every": "1ms"},
            {"cron": "@daily", "every": "1h"},
            {"timezone": "Mars"},
            {"cron": None},
            {"paused": None},
            {"colour": "red"},
        ):
            reply = await broker.call("PATCH", "/topics/jobs/schedules/s", sent)
            assert reply.status == 400, sent
        assert (await broker.call("GET", "/topics/jobs/schedules/s")).json == before


async def test_who_may_and_what_the_audit_log_says(tmp_path):
    async with in_process(tmp_path, {("auth", "enabled"): True}) as broker:
        admin = bearer((tmp_path / "admin.key").read_text().strip())
        for name in ("jobs", "other"):
            await broker.call("POST", "/topics", {"name": name}, headers=admin)
        made, path = {"key": "s", "every": "1h"}, "/topics/jobs/schedules"
        for role, expected in {"consumer": 403, "readonly": 403, "producer": 201}.items():
            sent = {"name": role, "role": role, "prefixes": ["jobs"]}
            key = await broker.call("POST", "/admin/keys", sent, headers=admin)
            mine = bearer(key.json["key"])
            assert (await broker.call("GET", path, headers=mine)).status == 200
            assert (await broker.call("POST", path, made, headers=mine)).status == expected
            other = await broker.call("POST", "/topics/other/schedules", made, headers=mine)
            assert other.status == 403
        for method, where, sent in (
            ("PATCH", f"{path}/s", {"paused": True}),
            ("POST", f"{path}/s/run", None),
            ("DELETE", f"{path}/s", None),
        ):
            assert (await broker.call(method, where, sent, headers=admin)).status in {200, 204}
    text = (tmp_path / AUDIT_FILE).read_text()
    for done in ("created", "changed, version 2", "run", "deleted"):
        assert f"jobs: schedule s {done}" in text


@pytest.mark.tier("test")
def test_a_server_that_is_killed_publishes_each_occurrence_once(tmp_path):
    dues: list[str] = []
    with served(tmp_path / "data", "--binary-port", "0") as broker:
        broker.call("POST", "/topics", {"name": "jobs", "num_partitions": 1})
        sent = {"key": "s", "every": "1s", "missed": "all", "value": "x"}
        assert broker.call("POST", "/topics/jobs/schedules", sent).status == 201
        first = broker.call("GET", f"/topics/jobs/messages?{WAIT}").json["messages"]
        assert first
        broker.signal(signal.SIGKILL)
        broker.wait()
    with served(tmp_path / "data", "--binary-port", "0") as broker:
        with Client(broker.binary_address) as client:
            (found,) = client.execute(ListSchedules("jobs"))
            assert found.missed is Missed.ALL
        while len(dues) < 4:
            offset = len(dues)
            path = f"/topics/jobs/partitions/0/messages?offset={offset}&timeout=60s"
            dues += [one["timestamp_ns"] for one in broker.call("GET", path).json["messages"]]
    seconds = [int(one) // 1_000_000_000 for one in dues]
    assert seconds == [*range(seconds[0], seconds[0] + len(seconds))]
