"""What a command prints with --json is what the route of HTTP answers for the same thing: one shape for both."""

import json
import time

import pytest

from penstock.api.json.pipelines import PipelineIn
from penstock.api.keys import CreateKey
from penstock.api.principals import Role
from penstock.api.transactions import InitProducer, Stage
from penstock.client import Client, Outgoing
from penstock.client.http_page import client_call
from penstock.client.pipelines import report_pipeline
from penstock.model import Message

# They differ from one moment to the next: here only their type counts.
MOVING = {"time_remaining", "lag_seconds", "deadline", "age_ms", "open_ms", "seconds_ago"}
# Of two things that were made one after the other.
MADE = {"next_due", "created_at", "expires_at", "key_id", "key", "id"}
# What HTTP alone knows: the binary port does not tell it.
UNTOLD = {"delay_id", "last_used"}

TOPIC = "shapes"
SCHEMA = '{"type":"record","name":"Shape","fields":[{"name":"id","type":"int"}]}'


@pytest.fixture(scope="module")
def things(url):
    """One of each thing that both show."""
    with Client(url) as client:
        client.create_topic(TOPIC, partitions=1, max_retries=0, visibility_timeout_ms=600_000)
        headers = [("a", b"1"), ("a", b"\xff"), ("none", None)]
        rich = Outgoing(b"\xff", key=b"\xfe", headers=headers, priority="high", ttl="1h")
        client.publish_many(TOPIC, [rich, Outgoing(b"plain", idempotency_key="once"), None])
        (first,) = client.poll(TOPIC, "shape-readers", limit=1)
        client.reject(first, "no such lamp")
        client.publish(TOPIC, b"\xff", key=b"k", delay="1d", delay_key=b"cart", priority="low")
        client.poll(TOPIC, "shape-readers", limit=1)
        lasting = {"headers": {"a": "1"}, "priority": "low", "ttl": "1h"}
        client.create_schedule(TOPIC, "shape-nightly", b"\xff", cron="0 3 * * *", **lasting)
        for name in ("shape-open", "shape-cli", "shape-http"):
            topic = f"{name}-late"
            client.create_topic(topic, partitions=1)
            client.publish(topic, b"later", deliver_at="2100-01-01T00:00:00Z")
            session = client.execute(InitProducer(name))
            client.execute(Stage(*session, topic, [Message(b"staged")]))
            for sequence in (1, 2):
                with client.staging(name, sequence, "job-1", attempt="task 9") as staging:
                    staging.publish(topic, b"staged")
                if sequence == 1:
                    client.commit_stagings(name, 1, "job-1", [staging.handle])
        client.register_schema("shape-value", SCHEMA)
        client.execute(CreateKey("shape-key", Role.READONLY, ("shape",), 0, "pk-0123456789ab"))
        report_pipeline(
            client, "shape-lake", PipelineIn(kind="archive", state="running", expect_within="1h")
        )
        while not client.dead_letters(TOPIC):
            time.sleep(0.01)


def shown(call, *words):
    done = call(*words, "--json")
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def comparable(found, moving=MOVING):
    """The shape without what moves between two questions, and without what HTTP alone knows."""
    if isinstance(found, list):
        return [comparable(one, moving) for one in found]
    if not isinstance(found, dict):
        return found
    return {
        name: type(one).__name__ if name in moving else comparable(one, moving)
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
    f"delay show {TOPIC} 0/0": (f"/topics/{TOPIC}/delayed/0/0", ""),
    f"schedule list {TOPIC}": (f"/topics/{TOPIC}/schedules", "schedules"),
    f"schedule show {TOPIC} shape-nightly": (f"/topics/{TOPIC}/schedules/shape-nightly", ""),
    "commits list": ("/commits", "commits"),
    "commits show shape-open": ("/commits/shape-open", ""),
    "transactions list": ("/transactions", "transactions"),
    "schema list shape-value": ("/subjects/shape-value/versions/1", ""),
    "schema show shape-value": ("/subjects/shape-value/versions/latest", ""),
    "pipeline list": ("/pipelines", "pipelines"),
    f"trace list --topic {TOPIC}": (f"/traces?topic={TOPIC}", "traces"),
    f"trace search {TOPIC} --status failed": (
        f"/traces/search?topic={TOPIC}&status=failed",
        "traces",
    ),
    f"trace message {TOPIC} 0/0": (f"/topics/{TOPIC}/partitions/0/messages/0/journey", ""),
    "keys list": ("/admin/keys", "keys"),
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
def test_a_group_of_the_list_is_a_part_of_its_details(call, client):
    details = own(client_call(client, "/groups?details=true")["groups"])
    groups = [{name: group[name] for name in ("group", "topics", "lag")} for group in details]
    assert own(shown(call, "group", "list")) == groups != []


@pytest.mark.usefixtures("things")
def test_what_is_to_come_is_in_one_list(call, client):
    answer = client_call(client, f"/topics/{TOPIC}/delayed")
    items = [*answer["messages"], *answer["schedules"]]
    items.sort(key=lambda one: one.get("deliver_at") or one["next_due"])
    assert len(items) == 2
    assert comparable(shown(call, "delay", "list", TOPIC)) == comparable(items)


@pytest.mark.usefixtures("things")
def test_figures_of_delays_and_latency_are_by_topic(call, client):
    by_topic = client_call(client, "/delay/stats")["by_topic"]
    (printed,) = [one for one in shown(call, "delay", "stats") if one["topic"] == TOPIC]
    assert printed == {"topic": TOPIC, **by_topic[TOPIC]}
    latency = client_call(client, "/traces/stats")["latency"]
    assert shown(call, "trace", "latency", "--topic", TOPIC) == [
        one for one in latency if one["topic"] == TOPIC
    ]


def same(printed, answer):
    """The fields that both have: the view adds rates and leaves out settings."""
    both = printed.keys() & answer.keys()
    return {name: printed[name] for name in both} == {name: answer[name] for name in both}


@pytest.mark.usefixtures("things")
def test_the_view_of_everything_has_the_names_of_the_routes(call, client):
    (view,) = shown(call, "top")
    assert view["node_id"] == client_call(client, "/stats")["node_id"]
    (topic,) = [one for one in view["topics"] if one["name"] == TOPIC]
    described = client_call(client, f"/topics/{TOPIC}")
    assert {"partitions", "total_messages", "total_size_bytes"} <= topic.keys() & described.keys()
    assert same(topic, described)
    lags = client_call(client, "/stats/lag?limit=10000")["lags"]
    for line in own(view["groups"]):
        (lag,) = comparable([one for one in lags if one["group"] == line["group"]])
        assert lag.keys() <= line.keys()
        assert same(comparable(line), lag)


@pytest.mark.usefixtures("things")
def test_a_transaction_is_described_and_aborted_as_over_http(call, client):
    found = own(client_call(client, "/transactions?state=Ongoing")["transactions"])
    name_of = {one["transactional_id"]: one["transaction_id"] for one in found}
    path = f"/transactions/{name_of['shape-http']}"
    described = shown(call, "transactions", "describe", name_of["shape-http"])
    assert comparable(described) == comparable([client_call(client, path)])
    (printed,) = shown(call, "transactions", "abort", name_of["shape-cli"])
    told = client_call(client, f"{path}/force-abort", "POST")
    assert {**printed, "transaction_id": told["transaction_id"]} == told


@pytest.mark.usefixtures("things")
def test_a_schema_of_the_list_is_that_of_two_routes(call, client):
    version = client_call(client, "/subjects/shape-value/versions/latest")
    level = client_call(client, "/config/shape-value?defaultToGlobal=true")
    assert {**version, **level} in shown(call, "schema", "list")
    by_id = shown(call, "schema", "show", "--id", str(version["id"]))
    assert by_id == [client_call(client, f"/schemas/ids/{version['id']}")]


@pytest.mark.usefixtures("things")
def test_messages_of_a_group_are_those_of_a_poll(call, client):
    path = f"/topics/{TOPIC}/messages?group=shape-polled&max=2"
    over_http = client_call(client, path)["messages"]
    printed = shown(call, "consume", TOPIC, "--group", "shape-printed", "--count", "2")
    for one in (*over_http, *printed):
        del one["receipt_handle"]  # Of another lease.
    assert comparable(printed) == comparable(over_http)


@pytest.mark.usefixtures("things")
def test_a_message_has_the_same_fields_with_a_group_and_without(call):
    """But for what belongs to a lease, and for the idempotency key, which a poll does not bring."""
    of_lease = {"attempts", "delivery_count", "last_error", "receipt_handle"}
    (read,) = shown(call, "consume", TOPIC, "--count", "1")
    (taken,) = shown(call, "consume", TOPIC, "--group", "shape-taken", "--count", "1")
    del read["idempotency_key"]
    assert {name: one for name, one in taken.items() if name not in of_lease} == read


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
    "produce shape-~ lamp desk --priority high -v": (
        "POST",
        "/topics/shape-~/messages",
        {"messages": [{"value": value, "priority": "high"} for value in ("lamp", "desk")]},
        "results",
    ),
    "produce shape-~ later -v --deliver-at 2100-01-01T00:00:00Z": (
        "POST",
        "/topics/shape-~/messages",
        {"messages": [{"value": "later", "deliver_at": "2100-01-01T00:00:00Z"}]},
        "results",
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
    "schedule create shape-~-late hourly tick --every 1d --missed skip": (
        "POST",
        "/topics/shape-~-late/schedules",
        {"key": "hourly", "value": "tick", "every": "1d", "missed": "skip"},
        "",
    ),
    "schedule pause shape-~-late hourly": (
        "PATCH",
        "/topics/shape-~-late/schedules/hourly",
        {"paused": True},
        "",
    ),
    "schedule run shape-~-late hourly": (
        "POST",
        "/topics/shape-~-late/schedules/hourly/run",
        None,
        "",
    ),
    "commits reset shape-~": ("POST", "/commits/shape-~/reset", None, ""),
    "schema register shape-~ FILE": ("POST", "/subjects/shape-~/versions", {"schema": SCHEMA}, ""),
    "schema check shape-~ FILE": (
        "POST",
        "/compatibility/subjects/shape-~/versions/latest?verbose=true",
        {"schema": SCHEMA},
        "",
    ),
    "keys create shape-~ --role readonly --prefix shape --expires-in 1d": (
        "POST",
        "/admin/keys",
        {"name": "shape-~", "role": "readonly", "prefixes": ["shape"], "expires_in": "1d"},
        "",
    ),
}


@pytest.mark.usefixtures("things")
def test_what_a_command_did_is_told_as_over_http(call, client, tmp_path):
    file = tmp_path / "shape.avsc"
    file.write_text(SCHEMA)
    for words, (method, path, body, field) in TWICE.items():
        printed = shown(call, *words.replace("~", "cli").replace("FILE", str(file)).split())
        sent = json.loads(json.dumps(body).replace("~", "http"))
        answer = client_call(client, path.replace("~", "http"), method, sent)
        items = answer[field] if field else [answer]
        told = json.loads(json.dumps(items).replace("shape-http", "shape-cli"))
        assert items, words
        moving = MOVING | MADE
        assert comparable(printed, moving) == comparable(told, moving), words
