"""`penstock trace` against a server process: a message is followed by hand, through a restart."""

import json
import time

import pytest

from penstock.cli.exits import Exit
from penstock.client import Client
from penstock.testing.server import running_server

pytestmark = pytest.mark.tier("test")


def polled(client, owner):
    """The next message; real time passes here, because the server is a process."""
    ends = time.monotonic() + 120
    while time.monotonic() < ends:
        found = client.poll("orders", "billing", limit=1, owner=owner, timeout=60)
        if found:
            return found
    raise AssertionError("nothing came")


def lives(client):
    """A message that is delayed, fails twice, dies, is redriven and acked."""
    config = {"max_retries": 1, "backoff_base_ms": 1}
    client.create_topic("orders", partitions=1, **config)
    client.publish("orders", b"lamp", key=b"cart-7", delay="50ms")
    client.nack(polled(client, "one"), "no bulb")
    client.nack(polled(client, "two"), "no socket")


def test_a_message_is_followed_by_hand_through_a_restart(tmp_path, run, surroundings):
    data = tmp_path / "data"
    with running_server(data) as url, Client(url) as client:
        lives(client)
    with running_server(data) as url, Client(url) as client:
        surroundings.setenv("PENSTOCK_SERVER", url)
        while not client.dead_letters("orders"):
            time.sleep(0.01)
        client.redrive("orders", target="group")
        client.ack(polled(client, "three"))
        shown = run("trace", "message", "orders", "0/0")
        assert shown.code == Exit.OK
        told = json.loads(run("trace", "message", "orders", "0/0", "--json").out)
        assert [one["event_type"] for one in told["spans"]] == [
            "delay.scheduled",
            "delay.fired",
            "publish.persisted",
            "consume.fetched",
            "consume.nacked",
            "consume.fetched",
            "consume.nacked",
            "dlq.routed",
            "publish.persisted",
            "dlq.redriven",
            "consume.reopened",
            "consume.fetched",
            "consume.acked",
        ]
        times = [int(one["timestamp_ns"]) for one in told["spans"]]
        assert times == sorted(times)
        # The time line has a line for each event, in this order.
        events = [one["event_type"] for one in told["spans"]]
        lines = [line for line in shown.out.splitlines() if line.startswith((" ", "+"))]
        assert [line.split("  ")[2].strip() for line in map(str.strip, lines)] == events
        for text in ("by one", "no bulb", "no socket", "billing: completed"):
            assert text in shown.out
        by_id = run("trace", "show", told["trace_id"], "--json")
        assert json.loads(by_id.out) == told
        (found,) = run("trace", "search", "orders", "--key", "cart-7", "--json").out.splitlines()
        assert json.loads(found)["trace_id"] == told["trace_id"]
        (listed,) = run("trace", "list", "--topic", "orders", "--json").out.splitlines()
        assert json.loads(listed)["status"] == "completed"
        none = run("trace", "search", "orders", "--status", "failed")
        assert (none.code, none.out) == (Exit.OK, "")
        assert run("trace", "message", "orders", "0/9").code == Exit.REFUSED
        assert run("trace", "show", "f" * 32).code == Exit.REFUSED
