"""What a command prints with --json is what the route of HTTP answers for the same thing: one shape for both."""

import json
import time

import pytest

from penstock.client import Client, Outgoing
from penstock.client.http_page import client_call

# They differ from one moment to the next: here only their type counts.
MOVING = {"time_remaining", "lag_seconds", "deadline", "age_ms", "open_ms", "seconds_ago"}
# What HTTP alone knows: the binary port does not tell it.
UNTOLD = {"delay_id", "last_used"}

TOPIC = "shapes"


@pytest.fixture(scope="module")
def things(url):
    """One of each thing that both show."""
    with Client(url) as client:
        client.create_topic(TOPIC, partitions=1, max_retries=0)
        headers = [("a", b"1"), ("a", b"\xff"), ("none", None)]
        rich = Outgoing(b"\xff", key=b"\xfe", headers=headers, priority="high", ttl="1h")
        client.publish_many(TOPIC, [rich, Outgoing(b"plain", idempotency_key="once"), None])
        (first,) = client.poll(TOPIC, "shape-readers", limit=1)
        client.reject(first, "no such lamp")
        client.publish(TOPIC, b"\xff", key=b"k", delay="1d", delay_key=b"cart", priority="low")
        for which in ("cli", "http"):
            client.create_topic(f"shape-{which}-late", partitions=1)
            client.publish(f"shape-{which}-late", b"later", deliver_at="2100-01-01T00:00:00Z")
        client.poll(TOPIC, "shape-readers", limit=1)
        while not client.dead_letters(TOPIC):
            time.sleep(0.01)


def shown(call, *words):
    done = call(*words, "--json")
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def comparable(found):
    """The shape without what moves between two questions, and without what HTTP alone knows."""
    if isinstance(found, list):
        return [comparable(one) for one in found]
    if not isinstance(found, dict):
        return found
    return {
        name: type(one).__name__ if name in MOVING else comparable(one)
        for name, one in found.items()
        if name not in UNTOLD
    }


def own(items):
    """Without what other tests have left at the same server."""
    return [one for one in items if "shape" in json.dumps(one)]


# By the words of the command: the route, and the field of its answer that holds the items.
PAIRS = {
    f"consume {TOPIC}": (f"/topics/{TOPIC}/partitions/0/messages", "messages"),
    f"consume {TOPIC}.dlq": (f"/topics/{TOPIC}.dlq/partitions/0/messages", "messages"),
    "topic list": ("/topics?details=true", "topics"),
    f"topic show {TOPIC}": (f"/topics/{TOPIC}", ""),
    "group show shape-readers": ("/groups/shape-readers", ""),
    "group lag shape-readers": ("/groups/shape-readers/lag", "partitions"),
    "group held shape-readers": ("/groups/shape-readers/inflight", "in_flight"),
    f"dlq list {TOPIC}": (f"/topics/{TOPIC}/dlq", "dead_letters"),
    f"dlq show {TOPIC} 0/0": (f"/topics/{TOPIC}/dlq?limit=1", "dead_letters"),
    f"dlq list {TOPIC} --group-by error": (f"/topics/{TOPIC}/dlq?group_by=error", "groups"),
    f"delay list {TOPIC}": (f"/topics/{TOPIC}/delayed", "messages"),
    f"delay show {TOPIC} 0/0": (f"/topics/{TOPIC}/delayed/0/0", ""),
}


@pytest.mark.usefixtures("things")
@pytest.mark.parametrize("words", PAIRS)
def test_a_command_prints_what_the_route_answers(call, client, words):
    path, field = PAIRS[words]
    answer = client_call(client, path)
    printed, items = shown(call, *words.split()), answer[field] if field else [answer]
    if words.endswith(" list"):
        printed, items = own(printed), own(items)
    assert items
    assert comparable(printed) == comparable(items)


@pytest.mark.usefixtures("things")
def test_a_group_of_the_list_is_that_of_two_routes(call, client):
    groups = own(client_call(client, "/groups?details=true")["groups"])
    lags = client_call(client, "/stats/lag?limit=10000")["lags"]
    lag_of = {one["group"]: one["lag"] for one in lags}
    with_lag = [{**one, "lag": lag_of[one["group"]]} for one in groups]
    assert own(shown(call, "group", "list")) == with_lag != []


@pytest.mark.usefixtures("things")
def test_messages_of_a_group_are_those_of_a_poll(call, client):
    path = f"/topics/{TOPIC}/messages?group=shape-polled&max=2"
    over_http = client_call(client, path)["messages"]
    printed = shown(call, "consume", TOPIC, "--group", "shape-printed", "--count", "2")
    for one in (*over_http, *printed):
        del one["receipt_handle"]  # Of another lease.
    assert comparable(printed) == comparable(over_http)


# What is done twice, to a thing for the command and to a thing for the route; ~ stands for which of the two it is.
# By the words of the command: the method, the route, the body, and the field of the answer that holds the items.
TWICE = {
    "topic create shape-~ --partitions 1": (
        "POST",
        "/topics",
        {"name": "shape-~", "num_partitions": 1},
        "",
    ),
    "topic set shape-~ max_retries=7": (
        "PATCH",
        "/topics/shape-~",
        {"config": {"max_retries": 7}},
        "",
    ),
    "topic compact shape-~": ("POST", "/admin/topics/shape-~/compact", None, ""),
    "topic grow shape-~ 2": ("POST", "/admin/topics/shape-~/partitions", {"count": 2}, ""),
    f"group reset shape-readers --to earliest --topic {TOPIC} --dry-run": (
        "POST",
        "/groups/shape-readers/offsets/reset",
        {"to": "earliest", "topic": TOPIC, "dry_run": True},
        "partitions",
    ),
    f"dlq redrive {TOPIC} --all --dry-run": (
        "POST",
        f"/topics/{TOPIC}/dlq/redrive",
        {"all": True, "dry_run": True},
        "",
    ),
    f"dlq discard {TOPIC} --all --dry-run": (
        "POST",
        f"/topics/{TOPIC}/dlq/discard",
        {"all": True, "dry_run": True},
        "",
    ),
    "delay move shape-~-late 0/0 --deliver-at 2101-01-01T00:00:00Z": (
        "PATCH",
        "/topics/shape-~-late/delayed/0/0",
        {"deliver_at": "2101-01-01T00:00:00Z"},
        "",
    ),
    "delay cancel shape-~-late 0/0": ("DELETE", "/topics/shape-~-late/delayed/0/0", None, ""),
}


@pytest.mark.usefixtures("things")
def test_what_a_command_did_is_told_as_over_http(call, client):
    for words, (method, path, body, field) in TWICE.items():
        printed = shown(call, *words.replace("~", "cli").split())
        sent = json.loads(json.dumps(body).replace("~", "http"))
        answer = client_call(client, path.replace("~", "http"), method, sent)
        items = answer[field] if field else [answer]
        told = json.loads(json.dumps(items).replace("shape-http", "shape-cli"))
        assert items, words
        assert comparable(printed) == comparable(told), words
