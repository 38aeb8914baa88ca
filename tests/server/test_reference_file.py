"""The configuration file of the contract: every key is there and does what it says, or is refused with the reason."""

import pytest
import yaml

import penstock
from penstock.client import Client
from penstock.errors import InvalidConfig, InvalidSettings
from penstock.server.settings_sources import read_settings, shown

from .rigs import in_process, served

FILE = """
broker:
  id: "broker-1"
  host: "0.0.0.0"
  port: 8080
  data_dir: "./data"
storage:
  segment_size_bytes: 67108864
  index_interval_bytes: 4096
  fsync_interval_ms: 1000
  retention_hours: 168
  retention_bytes: -1
producer:
  batch_size: 100
  linger_ms: 5
  batch_bytes: 65536
  ack_mode: "leader"
  retries: 3
  retry_backoff_ms: 100
consumer:
  session_timeout_ms: 30000
  heartbeat_interval_ms: 3000
  max_poll_records: 500
  auto_commit: true
  auto_commit_interval_ms: 5000
  visibility_timeout_ms: 30000
  max_retries: 3
  backoff_multiplier: 2
dlq:
  enabled: true
  suffix: ".dlq"
  retention_hours: 336
cluster:
  nodes:
    - "broker-1:8080"
    - "broker-2:8080"
    - "broker-3:8080"
  replication_factor: 3
  min_isr: 2
"""
ONE_NODE = {"nodes": ["broker-1:8080"], "replication_factor": 1, "min_isr": 1}
NO_COPIES = {"cluster.nodes", "cluster.replication_factor", "cluster.min_isr"}


def of_one_node() -> dict:
    content = yaml.safe_load(FILE)
    content["broker"]["host"] = "127.0.0.1"
    content["cluster"] = ONE_NODE
    return content


def test_the_file_is_refused_for_what_one_node_cannot_keep_and_for_that_alone():
    with pytest.raises(InvalidSettings) as found:
        read_settings(FILE)
    assert len(found.value.problems) == 4
    for name in (*NO_COPIES, "broker.host"):
        assert any(f"{name} must be " in one for one in found.value.problems), name


def test_every_key_holds_once_the_file_says_one_node():
    content = of_one_node()
    settings = shown(read_settings(yaml.safe_dump(content)))
    for section, keys in content.items():
        for key, value in keys.items():
            assert settings[section][key] == value, f"{section}.{key}"


def test_every_wrong_setting_is_named_at_once():
    text = """
broker: {host: 0.0.0.0}
limits: {value_bytes_max: 60000000, key_bytes_max: 90000000, batch_bytes_max: 80000000}
consumer: {session_timeout_ms: 5, heartbeat_interval_ms: 0, max_retries: -7}
producer: {ack_mode: quorum, retries: -1, retry_backoff_ms: 500, retry_backoff_max_ms: 400}
dlq: {suffix: .dead, retention_hours: 0}
storage: {index_interval_bytes: 0, retention_segments: 2, retention_segments_min: 3}
"""
    with pytest.raises(InvalidSettings) as found:
        read_settings(text)
    named = [
        "broker.host",
        "limits.key_bytes_max",
        "http.body_bytes_max",
        "binary.frame_bytes_max",
        "consumer.session_timeout_ms",
        "consumer.heartbeat_interval_ms",
        "consumer.max_retries",
        "producer.ack_mode",
        "producer.retries",
        "producer.retry_backoff_max_ms",
        "dlq.suffix",
        "dlq.retention_hours",
        "storage.index_interval_bytes",
        "storage.retention_segments_min",
    ]
    for name in named:
        assert sum(f"{name} must be " in one for one in found.value.problems) == 1, name
    assert len(found.value.problems) == len(named)


def test_settings_that_go_together_are_judged_together():
    settings = read_settings("limits: {value_bytes_max: 20000000, batch_bytes_max: 30000000}")
    assert settings.limits.value_bytes_max == 20_000_000


def test_every_wrong_setting_of_a_topic_is_named_at_once(tmp_path):
    with penstock.Broker(tmp_path) as broker, pytest.raises(InvalidConfig) as found:
        broker.create_topic("t", max_retries=-9, retention_hours="long", colour="red", ttl_ms=0)
    for name in ("max_retries", "retention_hours", "colour", "ttl_ms"):
        assert name in str(found.value), name
        assert name in found.value.fields["setting"]


async def test_members_are_as_the_settings_say(tmp_path):
    settings = {
        ("consumer", "session_timeout_ms"): 4000,
        ("consumer", "heartbeat_interval_ms"): 500,
        ("consumer", "auto_commit_interval_ms"): 1000,
    }
    async with in_process(tmp_path, settings) as broker:
        await broker.topic()
        await broker.publish("a")
        sent = {"topics": ["orders"], "member_id": "m", "auto_commit": True}
        joined = (await broker.call("POST", "/groups/g/join", sent)).json
        assert (joined["session_timeout_ms"], joined["heartbeat_interval_ms"]) == (4000, 500)
        polled = await broker.call("GET", "/groups/g/poll?member_id=m&timeout=0s")
        assert len(polled.json["messages"]) == 1
        broker.clock.advance("999ms")
        assert (await broker.call("GET", "/groups/g/lag")).json["total"] == 1
        broker.clock.advance("2ms")
        assert (await broker.call("GET", "/groups/g/lag")).json["total"] == 0
        broker.clock.advance("3s")
        late = await broker.call("POST", "/groups/g/heartbeat", {"member_id": "m"})
        assert (late.status, late.json["error"]) == (404, "UNKNOWN_MEMBER")


async def test_without_auto_commit_a_member_that_asks_for_it_is_refused(tmp_path):
    async with in_process(tmp_path, {("consumer", "auto_commit"): False}) as broker:
        await broker.topic()
        sent = {"topics": ["orders"], "member_id": "m", "auto_commit": True}
        refused = await broker.call("POST", "/groups/g/join", sent)
        assert refused.status == 400
        assert "consumer.auto_commit" in refused.json["message"]
        assert (await broker.call("GET", "/groups/g")).status == 404
        assert (await broker.call("POST", "/groups/g/join", {"topics": ["orders"]})).status == 200


async def test_a_publish_that_does_not_say_waits_for_what_the_settings_say(tmp_path):
    async with in_process(tmp_path, {("producer", "ack_mode"): "all"}) as broker:
        await broker.topic()
        sent = {"messages": [{"value": "a"}]}
        (plain,) = (await broker.call("POST", "/topics/orders/messages", sent)).json["results"]
        (own,) = (
            await broker.call("POST", "/topics/orders/messages", {**sent, "acks": "leader"})
        ).json["results"]
        one = (await broker.call("POST", "/produce", {"topic": "orders", "value": "a"})).json
        found = (plain["guarantee"], own["guarantee"], one["guarantee"])
        assert found == ("fsynced", "buffered", "fsynced")


async def test_dead_letters_are_kept_for_as_long_as_the_settings_say(tmp_path):
    async with in_process(tmp_path, {("dlq", "retention_hours"): 7}) as broker:
        await broker.topic(max_retries=0)
        await broker.publish("a")
        (message,) = await broker.poll()
        sent = {"receipt_handle": message["receipt_handle"], "reason": "no"}
        assert (await broker.call("POST", "/messages/reject", sent)).status == 200
        broker.settle()
        found = (await broker.call("GET", "/topics/orders.dlq")).json
        assert found["config"]["retention_hours"] == 7


def test_a_broker_with_the_file_tells_its_clients(tmp_path):
    content = of_one_node()
    content["broker"] |= {"port": 0, "binary_port": 0}
    content["storage"]["index_interval_bytes"] = 512
    content["producer"]["ack_mode"] = "all"
    file = tmp_path / "penstock.yaml"
    file.write_text(yaml.safe_dump(content))
    with (
        served(tmp_path / "data", "--config", str(file)) as server,
        Client(server.binary_address) as client,
    ):
        client.create_topic("t", partitions=1)
        assert client.topic("t").config["index_interval_bytes"] == 512
        assert client.publish("t", b"a").guarantee == "fsynced"
        assert client.publish("t", b"a", acks="leader").guarantee == "buffered"
        with client.producer("t") as producer:
            first = producer.send(b"a")
        settings = producer.settings
        found = (settings.batch_messages_max, settings.batch_bytes_max, settings.acks)
        assert found == (100, 65_536, "all")
        assert first.result().guarantee == "fsynced"
        with client.producer("t", batch_messages_max=7) as producer:
            producer.send(b"a")
        assert producer.settings.batch_messages_max == 7
