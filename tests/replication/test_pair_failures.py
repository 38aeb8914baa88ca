"""What a pair of brokers keeps through kills, stops and damaged files: two real processes that ask for keys."""

import shutil
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from penstock.client import Client, ClientSettings, RetryPolicy

from ..stalls import despite_stalls
from .pairs import Node, Pair, pair

PATIENT = ClientSettings(retry=RetryPolicy(retries=1000, backoff_ms=20, backoff_ms_max=30_000))
# As long a machine may stall while a standby is to confirm; one test waits for it.
ACK_TIMEOUT_MS = 4000


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    directory = tmp_path_factory.mktemp("pair")
    settings = {"auth__enabled": "true", "cluster__ack_timeout_ms": str(ACK_TIMEOUT_MS)}
    with pair(directory, is_started=False, **settings) as nodes:
        nodes.first.start("--begin-cluster")
        key = (nodes.first.data / "admin.key").read_text().strip()
        nodes.first.key = nodes.second.key = key
        nodes.second.start("--follow", f"127.0.0.1:{nodes.first.peer}")
        yield nodes


@pytest.fixture
def nodes(running):
    """The leader and its standby, in sync, with an empty topic."""
    found = running.in_sync()
    found.remake_topic()
    return found


def client_of(nodes: Pair) -> Client:
    return Client(nodes.addresses, key=nodes.first.key, settings=PATIENT)


def values(messages) -> list[bytes]:
    return [one.value for one in messages]


@pytest.mark.tier("test")
def test_everything_that_was_acknowledged_is_on_the_other_after_a_kill(nodes):
    """Dead letters, transactions, keys, a schema, delays, a shared and a strict group."""
    first, second = nodes
    with client_of(nodes) as client:
        client.create_topic("jobs", partitions=1, max_retries=0, visibility_timeout_ms=600_000)
        client.publish_many("jobs", [b"dies", b"done", b"open"], acks="all")
        dies, done, held = client.poll("jobs", "shared", limit=3)
        client.reject(dies, "broken")
        client.ack(done)
        client.publish("jobs", b"later", delay="1h", acks="all")
        producer = client.transactional_producer("till")
        with producer.transaction() as committed:
            committed.publish("orders", b"in")
        open_one = producer.transaction()
        open_one.__enter__()
        open_one.publish("orders", b"out")
        options = {"mode": "assigned", "order": "strict", "member": "m", "auto_commit": False}
        with client.consumer("orders", "strict", **options) as strict:
            assert values(strict.poll(limit=1, wait=60)) == [b"in"]
        schema = {"schema": '{"type": "object"}', "schemaType": "JSON"}
        assert first.call("POST", "/subjects/jobs-value/versions", schema).status == 200
        made = first.call("POST", "/admin/keys", {"name": "reader", "role": "consumer"})
        assert made.status in {200, 201}, made.json
        first.until(lambda: len([*client.dead_letters("jobs")]) == 1, "a dead letter")
        first.until_confirmed()

        first.kill()
        second.promote()
        first.start()
        second.until_in_sync()

        names = {one["name"] for one in second.call("GET", "/admin/keys").json["keys"]}
        assert {"first-admin", "reader"} <= names
        wrong = Client(second.address, key="pk-000000000000.wrong")
        with wrong, pytest.raises(Exception, match=r"(?i)key"):
            wrong.topics()
        assert second.call("GET", "/subjects/jobs-value/versions").json == [1]
        assert len([*client.dead_letters("jobs")]) == 1
        assert second.call("GET", "/topics/jobs/delayed").json["messages"] != []
        # A lease that was confirmed is still that of its holder, and of no other.
        assert values(client.poll("jobs", "shared", limit=9)) == []
        client.ack(held)
        # Of the transaction that was open nothing is seen, and what was committed comes once.
        assert second.values() == ["in"]
        with client.consumer("orders", "strict", **options) as strict:
            (again,) = strict.poll(limit=9, wait=60)
            assert again.value == b"in"
            strict.ack(again)
        assert client.lag("strict").total == 0


@pytest.mark.tier("test")
def test_reply_without_the_standby_is_unconfirmed_and_a_poll_that_waits_is_answered(nodes):
    """SIGSTOP: the connection stands, and nothing comes over it."""
    despite_stalls(partial(poll_without_the_standby, nodes), (6, 20, 45))


def poll_without_the_standby(nodes: Pair, delay_s: int) -> None:
    first, second = nodes
    first.until_in_sync()
    nodes.remake_topic()
    topic = f"later-{delay_s}"
    made = first.call("POST", "/topics", {"name": topic, "num_partitions": 1})
    assert made.status == 201, made.json
    # It is due when the standby is known to be away, and wakes a poll that began before.
    assert first.publish("0", topic=topic, delay=f"{delay_s}s").status == 200
    polled: list[int] = []

    def wait() -> None:
        target = f"/topics/{topic}/messages?group=g&max=9&timeout=60s"
        polled.append(first.call("GET", target).status)

    waiting = threading.Thread(target=wait)
    waiting.start()
    second.signal(signal.SIGSTOP)
    try:
        unsure = first.publish("a")
        assert (unsure.status, unsure.json["error"]) == (504, "UNCONFIRMED")
        first.until(lambda: first.call("GET", "/cluster").json["in_sync"] == 1, "alone")
        refused = first.publish("b")
        assert (refused.status, refused.json["error"]) == (503, "NOT_ENOUGH_REPLICAS")
        # What is not on both machines is not in sight, and counts nowhere.
        assert first.values() == []
        with Client(first.address, key=first.key) as client:
            assert client.topic("orders").total_messages == 0
        waiting.join()
        assert polled == [504]
    finally:
        second.signal(signal.SIGCONT)
        waiting.join()
    first.until_in_sync()
    assert first.publish("c").status == 200
    assert first.values()[0] == "a"
    assert first.values()[-1] == "c"


def publish_late(node: Node, statuses: list[int]) -> None:
    statuses.append(node.publish("late").status)


@pytest.mark.tier("test")
def test_a_stopped_leader_that_wakes_up_is_fenced(nodes, effort):
    """Stopped, and another leads: what it does when it goes on is acknowledged to no client, and cut."""
    leader, other = nodes
    stored: list[str] = []
    for number in range(effort(check=1, test=1, torture=50)):
        stored.append(f"before {number}")
        assert leader.publish(stored[-1]).status == 200
        (lent,) = leader.poll(1, group="leases")
        late: list[int] = []
        leader.signal(signal.SIGSTOP)
        # In the socket of the stopped leader while the other one is promoted.
        send = threading.Thread(target=publish_late, args=(leader, late))
        send.start()
        other.promote()
        leader.signal(signal.SIGCONT)
        send.join()
        assert late[0] in {421, 503, 504}
        other.until_in_sync()
        assert other.poll(9, group="leases") == []
        held = {"receipt_handle": lent["receipt_handle"]}
        assert other.call("POST", "/messages/ack", held).status == 200
        assert other.values() == stored
        leader, other = other, leader


def kinds(node: Node) -> dict[str, list[Path]]:
    """The files of the logs of a node, by what they are."""
    found: dict[str, list[Path]] = {}
    for path in [*node.data.glob("meta/*"), *node.data.glob("topics/**/*")]:
        if path.is_file() and path.stat().st_size:
            log = "meta" if path.parent.name == "meta" else path.parent.name
            found.setdefault(f"{log} {path.suffix or path.name}", []).append(path)
    return found


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.tier("test")
def test_an_old_copy_of_the_directory_of_a_standby_fetches_what_it_lacks(nodes, tmp_path):
    first, second = nodes
    assert first.publish("a").status == 200
    assert second.stop() == 0
    shutil.copytree(second.data, tmp_path / "old")
    second.start()
    first.until_in_sync()
    assert first.publish("b", "c").status == 200
    second.kill()
    shutil.rmtree(second.data)
    shutil.copytree(tmp_path / "old", second.data)
    second.start()
    first.until_in_sync()
    first.kill()
    second.promote()
    first.start()
    second.until_in_sync()
    assert second.values() == ["a", "b", "c"]


@pytest.mark.tier("test")
def test_flipped_bits_in_files_of_a_standby_heal_from_the_leader(nodes, effort):
    first, second = nodes
    assert first.publish(*map(str, range(50))).status == 200
    assert first.publish("later", delay="1h").status == 200
    assert len(first.poll(9)) == 9
    with client_of(nodes) as client, client.transactional_producer("till").transaction() as one:
        one.publish("orders", b"50")
    first.until_confirmed()
    # A leader makes snapshots when it closes.
    assert first.stop() == 0
    first.start()
    first.until_in_sync()
    # One kind after the other, or all in one start.
    names = sorted(kinds(second))
    for some in [[one] for one in names] if effort(check=0, test=0, torture=1) else [names]:
        assert second.stop() == 0
        for path in [path for name in some for path in kinds(second).get(name, [])]:
            flip(path)
        second.start()
        first.until_in_sync()
    second.promote()
    first.until(lambda: first.role() == "following")
    second.until_in_sync()
    assert second.values() == [*map(str, range(51))]
    assert second.call("GET", "/topics/orders/delayed").json["messages"] != []
    assert [one["value"] for one in second.poll()] == [*map(str, range(9, 51))]


def until_told(node: Node, text: str, *, since: int) -> None:
    node.until(lambda: text in node.log.read_text()[since:], text)


@pytest.mark.tier("test")
def test_flipped_bits_behind_a_checkpoint_are_found_without_a_reader_and_heal(nodes):
    """A start reads what is behind the checkpoint. The rest a standby reads when it follows."""
    first, second = nodes
    for number in range(20):
        assert first.publish(str(number)).status == 200
    first.until_confirmed()
    assert second.stop() == 0
    since = len(second.log.read_text())
    for path in kinds(second)["messages .log"]:
        flip(path)
    second.start()
    until_told(second, "set aside: topics/default/orders", since=since)
    until_told(second, "all that is stored was read, and is whole", since=since)
    first.until_in_sync()
    assert second.stop() == 0
    for directory in ("meta", "topics"):
        found = second.command_without_settings("log", "verify", str(second.data / directory))
        assert found.returncode == 0, found.stdout
    second.start()


@pytest.mark.tier("test")
def test_a_leader_that_starts_with_a_damaged_log_leaves_the_lead_to_its_standby(nodes):
    first, second = nodes
    for number in range(20):
        assert first.publish(str(number)).status == 200
    first.until_confirmed()
    assert first.stop() == 0
    for name in ("messages .log", "messages checkpoint"):
        for path in kinds(first)[name]:
            flip(path)
    since = len(first.log.read_text())
    first.start()
    until_told(first, "set aside: topics/default/orders", since=since)
    refused = first.command("promote")
    assert refused.returncode == 3
    assert "damaged log" in refused.stderr
    second.promote()
    second.until_in_sync()
    assert second.values() == [*map(str, range(20))]
    first.promote()
    first.until_in_sync()
    assert first.values() == [*map(str, range(20))]


@pytest.mark.tier("test")
def test_an_empty_node_does_not_begin_another_cluster(nodes, tmp_path):
    """The disk of a node is lost, and it is started as on the very first day: its peer is away, or is there."""
    first, second = nodes
    second.kill()
    first.kill()
    kept, second.data = second.data, tmp_path / "empty"
    try:
        second.start()
        assert second.role() == "waiting"
        answer = second.publish("lost")
        assert (answer.status, answer.json["error"]) == (503, "NOT_LEADER")
        assert (
            "--begin-cluster"
            in second.call("GET", "/readyz").json["checks"]["replication"]["message"]
        )
        second.stop()
        first.start()
        refused = second.command("serve")
        assert refused.returncode != 0
        assert "is in a cluster already" in refused.stderr
        assert "--follow" in refused.stderr
    finally:
        second.data = kept
    second.start()
    first.until_in_sync()
