"""Where a group that is new begins, by whatever way it is made."""

import json
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from penstock.client import Client
from penstock.errors import Refused

BEFORE = datetime.now(UTC) - timedelta(hours=1)
# The start, and the messages of four that a new group then gets.
STARTS = [
    ("earliest", [b"0", b"1", b"2", b"3"]),
    ("latest", []),
    (3, [b"3"]),
    ("1h", [b"0", b"1", b"2", b"3"]),
    (BEFORE, [b"0", b"1", b"2", b"3"]),
    (BEFORE + timedelta(hours=9), []),
]


@pytest.fixture(scope="module")
def client(url):
    with Client(url) as client:
        client.create_topic("starts", partitions=1)
        client.publish_many("starts", [b"0", b"1", b"2", b"3"])
        yield client


@pytest.mark.parametrize(("start", "expected"), STARTS)
def test_a_poll_and_a_consumer_begin_a_group_where_they_say(client, start, expected):
    name = f"at-{str(start).replace(':', '').replace(' ', '').replace('+', '')}"
    polled = client.poll("starts", f"poll-{name}", start=start)
    assert [one.value for one in polled] == expected
    for mode in ("shared", "assigned"):
        with client.consumer("starts", f"{mode}-{name}", mode=mode, start=start) as consumer:
            assert [one.value for one in consumer.poll(10, wait=60 if expected else 0)] == expected


def test_a_group_that_is_there_goes_on_where_it_was(client):
    (first,) = client.poll("starts", "there", limit=1)
    client.ack(first)
    assert [one.value for one in client.poll("starts", "there", start="latest")] == [
        b"1",
        b"2",
        b"3",
    ]


@pytest.mark.parametrize("start", ["soon", "-1", "5 parsecs", -1, 1.5, None])
def test_a_start_that_is_none_makes_no_group(client, start):
    with pytest.raises(Refused):
        client.poll("starts", "nowhere", start=start)
    assert "nowhere" not in [one.group for one in client.groups()]


def asked(base, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def test_the_same_over_http(client):
    base = client.server().http
    for number, (start, expected) in enumerate(STARTS):
        if start == "1h":
            continue
        text = start.isoformat() if isinstance(start, datetime) else str(start)
        query = urllib.parse.urlencode({"group": f"http-{number}", "start": text})
        found = asked(base, f"/topics/starts/messages?{query}")
        assert [one["value"].encode() for one in found["messages"]] == expected
    body = {"topics": ["starts"], "start": "latest", "member_id": "m"}
    for mode in ("assigned", "shared"):
        asked(base, f"/groups/http-{mode}/join", {**body, "mode": mode})
        assert client.lag(f"http-{mode}").total == 0
    with pytest.raises(urllib.error.HTTPError) as refused:
        asked(base, "/topics/starts/messages?group=http-none&start=soon")
    assert refused.value.code == 400
    assert json.load(refused.value)["field"] == "start"
