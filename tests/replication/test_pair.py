"""A broker and its standby, by what clients and operators see of them: two real processes."""

import json
import shutil
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from socket import create_connection
from tempfile import TemporaryDirectory

import pytest

from penstock.client import Client, ClientSettings, RetryPolicy
from penstock.config import StorageConfig
from penstock.errors import NotLeader, PenstockError
from penstock.replication.replica_file import NAME, read_record
from penstock.runtime import RealDisk

from .pairs import PATIENCE_S, TOPIC, Node, Pair, pair

EXAMPLE = Path(__file__).parents[2] / "examples" / "standby.py"
PATIENT = ClientSettings(retry=RetryPolicy(retries=1000, backoff_ms=20, backoff_ms_max=30_000))


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with pair(tmp_path_factory.mktemp("pair")) as nodes:
        yield nodes


@pytest.fixture
def nodes(running):
    """The leader and its standby, in sync, with an empty topic: one pair of processes for all tests."""
    found = running.in_sync()
    found.remake_topic()
    return found


@pytest.mark.tier("test")
def test_a_standby_has_everything_that_was_acknowledged_and_the_old_leader_follows_it(nodes):
    first, second = nodes
    stored = first.publish("a", "b", "c", "d", "e")
    assert {(one["guarantee"], one["copies"]) for one in stored.json["results"]} == {
        ("replicated", 2)
    }
    assert first.publish("later", delay="1h").status == 200
    schema = {"schema": '{"type": "object"}', "schemaType": "JSON"}
    made = first.call("POST", "/subjects/orders-value/versions", schema)
    assert made.status == 200, made.json
    lent = first.poll(3)
    acked = {"receipt_handle": lent[0]["receipt_handle"]}
    assert first.call("POST", "/messages/ack", acked).status == 200

    first.kill()
    refused = second.call("GET", "/topics/orders/partitions/0/messages?offset=0")
    assert refused.json["error"] == "NOT_LEADER"
    second.promote()

    assert second.values() == ["a", "b", "c", "d", "e"]
    assert second.call("GET", "/subjects/orders-value/versions").json == [1]
    assert second.call("GET", "/topics/orders/delayed").json["messages"] != []
    # Alone it confirms nothing: what it would acknowledge now, the loss of this machine would take.
    alone = second.publish("f")
    assert (alone.status, alone.json["error"]) == (503, "NOT_ENOUGH_REPLICAS")
    assert alone.headers["retry-after"]
    # A load balancer sends changes elsewhere before long, and reads here.
    second.until(lambda: second.call("GET", "/leader").status == 503, "not writable")
    assert second.call("GET", "/leader?for=reads").json["is_leader"]
    ready = second.call("GET", "/readyz?verbose")
    assert (ready.status, ready.json["status"]) == (200, "warn")
    assert "1 machine in sync, 2 needed" in ready.json["checks"]["replication"]["message"]

    first.start()
    second.until_in_sync()
    assert first.role() == "following"
    assert second.publish("f").status == 200
    second.until(lambda: second.call("GET", "/leader").status == 200, "writable")
    # What was lent before is still lent, with the same receipt, and what was acked stays so.
    held = {"receipt_handle": lent[1]["receipt_handle"]}
    assert second.call("POST", "/messages/ack", held).status == 200
    assert [one["value"] for one in second.poll()] == ["d", "e", "f"]


def test_a_node_that_follows_names_the_leader_on_every_port(nodes):
    first, second = nodes
    assert first.call("GET", "/leader").status == 200
    assert second.call("GET", "/leader").status == 503
    ready = second.call("GET", "/readyz")
    assert (ready.status, ready.json["role"]) == (200, "following")
    for target in ("/topics", "/topics/orders/messages?group=g", "/no/such/route"):
        refused = second.call("GET", target)
        assert (refused.status, refused.json["error"]) == (421, "NOT_LEADER")
        assert refused.json["leader"] == first.address
    written = second.call("POST", "/topics/orders/messages", {"messages": [{"value": "x"}]})
    assert (written.status, written.json["error"]) == (421, "NOT_LEADER")
    with (
        Client(second.address, settings=ClientSettings(retry=RetryPolicy(retries=0))) as client,
        pytest.raises(NotLeader) as refusal,
    ):
        client.publish("orders", b"x")
    assert refusal.value.fields["leader"] == first.address
    # A client of Kafka that knows only this node finds the leader through it.
    from confluent_kafka import Producer

    failed: list[object] = []
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{second.binary}", "acks": "all"})
    producer.produce("orders", b"by-kafka", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    assert failed == [None]
    assert first.values() == ["by-kafka"]


@pytest.mark.tier("test")
def test_the_example_runs_to_its_end():
    ran = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "11 orders are on both"


class Load:
    """A producer with both addresses, which repeats what was not answered under the same key."""

    def __init__(self, nodes: Pair) -> None:
        self.acknowledged: list[str] = []
        self._nodes, self._is_over = nodes, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        with Client(self._nodes.addresses, settings=PATIENT) as client:
            while not self._is_over.is_set():
                value = str(number)
                try:
                    client.publish("orders", value.encode(), acks="all", idempotency_key=value)
                except PenstockError:
                    continue
                self.acknowledged.append(value)
                number += 1

    def until(self, more: int) -> None:
        """Return when so many more were acknowledged."""
        wanted = len(self.acknowledged) + more
        self._nodes.first.until(lambda: len(self.acknowledged) >= wanted, "acknowledged")


def test_a_planned_switch_over_under_load_loses_nothing_and_stores_nothing_twice(nodes):
    before = {one.number: len(one.log.read_text()) for one in nodes}
    refused = create_connection((nodes.second.host, nodes.second.http), PATIENCE_S)
    with Load(nodes) as load, refused:
        load.until(20)
        nodes.second.promote()
        # Else its client would be told for ever that this node does not lead.
        assert refused.recv(1) == b""
        load.until(20)
        nodes.first.promote()
        load.until(20)
    nodes.first.until_in_sync()
    assert nodes.first.values() == load.acknowledged
    # Nothing was written behind a hand-over that would have to be cut.
    for one in nodes:
        assert "set aside" not in one.log.read_text()[before[one.number] :]


@pytest.mark.tier("test")
def test_whichever_is_killed_nothing_acknowledged_is_lost(nodes, effort):
    leader, other = nodes
    with Load(nodes) as load:
        for _ in range(effort(check=1, test=2, torture=50)):
            load.until(10)
            leader.kill()
            other.promote()
            leader.start()
            other.until_in_sync()
            leader, other = other, leader
            load.until(5)
            other.kill()
            other.start()
            leader.until_in_sync()
    found = leader.values()
    assert [one for one in found if one in {*load.acknowledged}] == load.acknowledged
    assert len(found) == len({*found})


@pytest.mark.tier("test")
def test_a_leader_that_starts_again_asks_its_standby_and_leads_on(nodes):
    first, second = nodes
    assert first.publish("a").status == 200
    epoch = first.call("GET", "/leader").json["epoch"]
    assert first.stop() == 0
    first.start()
    first.until_in_sync()
    assert first.call("GET", "/leader").json["epoch"] > epoch
    assert second.role() == "following"
    assert first.values() == ["a"]
    # Both off, and only one comes back: it does not know what the other did meanwhile.
    second.kill()
    first.kill()
    first.start()
    assert first.role() == "waiting"
    refused = first.call("GET", "/topics")
    assert (refused.status, refused.json["error"]) == (503, "NOT_LEADER")
    first.promote()
    assert first.values() == ["a"]


@pytest.mark.tier("test")
def test_certificates_of_another_cluster_are_refused_in_one_line(tmp_path):
    with pair(tmp_path, is_started=False, cluster__name="orders") as (first, second):
        for name in ("ours", "theirs"):
            words = ("--directory", str(tmp_path / name), "--name", "orders")
            done = first.command_without_settings("certs", *words, "--node", "1", "--node", "2")
            assert done.returncode == 0, done.stderr
        for node, name in ((first, "ours"), (second, "theirs")):
            node.use_certificates(tmp_path / name)
        first.start()
        second.start("--follow", f"127.0.0.1:{first.peer}")
        second.until(lambda: "is not of this cluster" in second.log.read_text(), "refused")
        assert second.role() == "waiting"
        assert "Traceback" not in first.log.read_text() + second.log.read_text()
        # With one of the same authority, but that of another node, it is refused as well.
        second.stop()
        second.use_certificates(tmp_path / "ours", number=1)
        second.start("--follow", f"127.0.0.1:{first.peer}")
        second.until(lambda: "not of node-2.orders" in second.log.read_text(), "refused")
        second.stop()
        second.use_certificates(tmp_path / "ours")
        second.start("--follow", f"127.0.0.1:{first.peer}")
        first.until_in_sync()


def committed_by(node: Node) -> dict[str, int]:
    """The ends of logs that a node has written down as committed, by path."""
    with TemporaryDirectory() as directory:
        shutil.copy(node.data / NAME, directory)
        with closing(RealDisk(directory, StorageConfig())) as disk:
            record = read_record(disk)
    assert record is not None
    return record.committed


def safety_of(one):
    return one.guarantee, one.copies


@pytest.mark.tier("test")
def test_a_leader_that_goes_on_alone_says_so_and_its_standby_leads_only_by_force(tmp_path):
    with pair(tmp_path, cluster__min_isr="1") as (first, second):
        assert first.call("POST", "/topics", TOPIC).status == 201
        both = first.publish("0").json["results"][0]
        assert (both["guarantee"], both["copies"]) == ("replicated", 2)
        seen = first.command_without_settings("top", "--json", "--server", first.address)
        (standby,) = json.loads(seen.stdout)["replication"]["standbys"]
        assert (standby["node"], standby["is_in_sync"]) == (2, True)
        assert (standby["lag_bytes"] >= 0, standby["lag_s"] >= 0) == (True, True)
        with Client(first.address) as client:
            assert safety_of(client.publish("orders", b"1", acks="all")) == ("replicated", 2)
        first.until_confirmed()
        second.kill()
        first.until(lambda: first.call("GET", "/cluster").json["in_sync"] == 1, "alone")
        alone = first.publish("a").json["results"][0]
        assert (alone["guarantee"], alone["copies"]) == ("fsynced", 1)
        with Client(first.address) as client, client.producer("orders", acks="all") as producer:
            # A value alone, a message with a key, and a batch: none of them is asked for in the same way.
            alone = client.publish("orders", b"b", acks="all")
            keyed = client.publish("orders", b"c", key=b"k", acks="all")
            assert [*map(safety_of, (alone, keyed))] == [("fsynced", 1)] * 2
            assert safety_of(client.publish("orders", b"d", acks="none")) == ("buffered", 1)
            assert safety_of(producer.send(b"e").result(120)) == ("fsynced", 1)
        # It has written down that all of it is committed.
        messages = "topics/default/orders.1/partition-0/messages"
        first.until(lambda: committed_by(first).get(messages) == 7, "noted")
        first.kill()
        second.start()
        refused = second.command("promote")
        assert refused.returncode == 3
        assert "--force" in refused.stderr
        second.promote("--force")
        assert second.values() == ["0", "1"]
        epoch = second.call("GET", "/cluster").json["forced_epoch"]
        assert epoch == second.call("GET", "/cluster").json["epoch"]
        # What only the old leader had is cut there, and kept in a file.
        first.start()
        second.until_in_sync()
        assert "set aside" in first.log.read_text()
        status = json.loads(first.command("standby", "status", "--json").stdout)
        assert (status["role"], status["forced_epoch"], status["problem"]) == (
            "following",
            epoch,
            "",
        )
        assert any(file.startswith(messages) for file in status["set_aside_files"])
        health = first.call("GET", "/readyz").json
        assert (health["status"], health["set_aside"] > 0) == ("pass", True)
        metrics = first.call("GET", "/metrics").json.decode()
        assert f"penstock_replication_forced_epoch {epoch}\n" in metrics
        # The history goes on from there: what is committed now is never cut, whichever of the two leads.
        assert second.publish("2").status == 200
        first.promote()
        first.until_in_sync()
        assert first.values() == ["0", "1", "2"]
        assert first.call("GET", "/cluster").json["forced_epoch"] == epoch


@pytest.mark.tier("test")
def test_a_node_goes_on_alone_when_a_person_says_so_and_until_the_other_is_back(tmp_path):
    with pair(tmp_path) as (first, second):
        assert first.call("POST", "/topics", TOPIC).status == 201
        assert first.publish("0").status == 200
        first.kill()
        promoted = second.command("promote", "--json")
        assert "--alone" in json.loads(promoted.stdout)["note"]
        second.until_role("leading")
        produced = second.command_without_settings(
            "produce", "orders", "no", "--server", second.address
        )
        assert produced.returncode == 4
        assert "not stored yet" in produced.stderr.splitlines()[0]
        assert "NOT_ENOUGH_REPLICAS" in produced.stderr.splitlines()[0]

        second.promote("--alone")
        alone = second.publish("1").json["results"][0]
        assert (alone["guarantee"], alone["copies"]) == ("fsynced", 1)
        status = second.call("GET", "/cluster").json
        assert (status["is_alone"], status["min_isr"]) == (True, 1)
        assert second.call("GET", "/leader").status == 200
        # It is over when the other has everything.
        first.start()
        second.until(lambda: second.call("GET", "/cluster").json["min_isr"] == 2, "together")
        assert second.publish("2").json["results"][0]["copies"] == 2
        first.until(lambda: json.loads((first.data / "cluster.json").read_text())["copies"] == 2)
        second.kill()
        first.promote()
        assert first.publish("3").status == 503
        second.start()
        first.until_in_sync()
        assert first.values() == ["0", "1", "2"]


@pytest.mark.tier("test")
def test_a_standby_that_would_lose_what_is_committed_says_so_once_and_does_not_cut(tmp_path):
    with pair(tmp_path) as (first, second):
        assert first.call("POST", "/topics", TOPIC).status == 201
        assert first.publish("0").status == 200
        assert first.stop() == 0
        shutil.copytree(first.data, tmp_path / "old")
        first.start()
        first.until_in_sync()
        assert first.publish("1").status == 200
        messages = "topics/default/orders.1/partition-0/messages"
        second.until(lambda: committed_by(second)[messages] == 2, "noted")
        second.stop()
        first.stop()
        # Put back, it does not know that it lacks something.
        shutil.rmtree(first.data)
        shutil.copytree(tmp_path / "old", first.data)
        first.start()
        since = len(second.log.read_text())
        first.promote()
        second.start()

        def problem() -> str:
            return json.loads(second.command("standby", "status", "--json").stdout)["problem"]

        second.until(lambda: problem().startswith("HISTORY_LOST"), "problem")
        health = second.call("GET", "/readyz?verbose")
        assert (health.status, health.json["status"]) == (200, "warn")
        assert health.json["checks"]["replication"]["status"] == "warn"
        assert "orders" not in str(health.json)
        metrics = second.call("GET", "/metrics").json.decode()
        assert 'penstock_replication_problem{code="HISTORY_LOST"} 1\n' in metrics
        assert second.log.read_text()[since:].count("HISTORY_LOST") == 1
        assert committed_by(second)[messages] == 2
