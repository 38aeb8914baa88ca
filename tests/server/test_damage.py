"""What a broker tells over HTTP of what its start did and of what is damaged, and how reads get past it."""

import json
import logging
from pathlib import Path

import pytest

import penstock
from penstock.api.principals import Role
from penstock.cli.exits import Exit, run
from penstock.cli.root import root
from penstock.client import Client
from penstock.errors import PenstockError
from penstock.sim import SimDisk, Tree

from .rigs import in_process, served
from .test_security import AUTH, bearer

SEGMENT = "topics/default/{}.{}/partition-{}/messages/00000000000000000000.log"
BATCH = {"accept": "application/vnd.penstock.batch"}


def flipped(tree: Tree, path: str, value: bytes) -> Tree:
    data = bytearray(tree.files[path])
    data[data.index(value)] ^= 1
    return Tree({**tree.files, path: bytes(data)}, tree.directories)


async def damaged_disk(tmp_path: Path, *, torn: bytes = b"", partitions: int = 1) -> SimDisk:
    """Topics orders and invoices; offset 1 of partition 0 of both is damaged, the end of orders perhaps torn."""
    async with in_process(tmp_path) as broker:
        for name in ("orders", "invoices"):
            await broker.topic(name, partitions=partitions)
            for number in range(4):
                for partition in range(partitions):
                    message = {"value": f"{name} {number} {partition}", "partition": partition}
                    target = f"/topics/{name}/messages"
                    assert (
                        await broker.call("POST", target, {"messages": [message]})
                    ).status == 200
    tree = broker.disk.tree()
    paths = {name: SEGMENT.format(name, one, 0) for one, name in ((1, "orders"), (2, "invoices"))}
    for name, path in paths.items():
        tree = flipped(tree, path, f"{name} 1 0".encode())
    files = {**tree.files, paths["orders"]: tree.files[paths["orders"]] + torn}
    return SimDisk(Tree(files, tree.directories))


def metric(text: str, name: str) -> float:
    return next(
        float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " ")
    )


async def poll_all(broker, topic: str = "orders") -> list[str]:
    """What a group gets until there is nothing or an error; all of it acked."""
    found = []
    while True:
        reply = await broker.call("GET", f"/topics/{topic}/messages?group=g&max=2")
        if reply.status != 200 or not reply.json["messages"]:
            return [*found, reply.status]
        for one in reply.json["messages"]:
            found.append(one["value"])
            receipt = {"receipt_handle": one["receipt_handle"]}
            assert (await broker.call("POST", "/messages/ack", receipt)).status < 300


async def test_what_a_start_did_is_logged_counted_and_listed(tmp_path, caplog):
    disk = await damaged_disk(tmp_path, torn=b"half a batch")
    async with in_process(tmp_path, disk=disk) as broker:
        path = SEGMENT.format("orders", 1, 0)
        (line,) = [one for one in caplog.records if "tail_cut" in one.getMessage()]
        assert line.levelno == logging.WARNING
        assert f"tail_cut {path} at byte" in line.getMessage()
        health = (await broker.call("GET", "/healthz")).json
        assert health["status"] == "pass"
        assert health["checks"]["recovery"]["message"] == "1 event at the start, 12 bytes cut off"
        assert health["checks"]["damage"]["status"] == "pass"
        assert not {"recovery", "faulty", "damaged"} & set(health)
        for target in ("/readyz?verbose", "/health?verbose=1", "/healthz?verbose=true"):
            shown = (await broker.call("GET", target)).json
            (event,) = shown["recovery"]
            assert event.pop("reason")
            assert event == {
                "kind": "tail_cut",
                "path": path,
                "position": len(disk.tree().files[path]),
                "size_bytes": 12,
                "topic": "orders",
                "partition": 0,
            }
            assert (shown["faulty"], shown["damaged"]) == ([], [])
        text = (await broker.call("GET", "/metrics")).body.decode()
        assert metric(text, 'penstock_recovery_events{kind="tail_cut"}') == 1
        assert metric(text, 'penstock_recovery_events{kind="set_aside"}') == 0
        assert metric(text, "penstock_recovery_cut_bytes") == 12
        assert metric(text, "penstock_faulty_partitions") == 0
        assert metric(text, 'penstock_damaged_batches_total{topic="orders"}') == 0


async def test_damage_met_since_the_start_is_logged_and_counted_once_and_listed(tmp_path, caplog):
    disk = await damaged_disk(tmp_path)
    async with in_process(tmp_path, disk=disk) as broker:
        fetch = "/topics/orders/partitions/0/messages?offset=1"
        for _ in range(3):
            reply = await broker.call("GET", fetch)
            assert reply.status == 500
            assert reply.json["error"] == "DAMAGED_BATCH"
            assert reply.json["path"] == SEGMENT.format("orders", 1, 0)
            assert (reply.json["offset"], reply.json["next_offset"]) == (1, 2)
            assert await poll_all(broker) in (["orders 0 0", 500], [500])
        lines = [one for one in caplog.records if "damaged batch" in one.getMessage()]
        assert [one.levelno for one in lines] == [logging.ERROR]
        health = (await broker.call("GET", "/readyz?verbose")).json
        assert (health["status"], health["checks"]["damage"]["message"]) == (
            "warn",
            "1 damaged batch",
        )
        (found,) = health["damaged"]
        assert found["position"] == reply.json["position"]
        assert (found["topic"], found["partition"]) == ("orders", 0)
        assert (found["offset"], found["next_offset"]) == (1, 2)
        text = (await broker.call("GET", "/metrics")).body.decode()
        assert metric(text, 'penstock_damaged_batches_total{topic="orders"}') == 1
        await broker.call("DELETE", "/topics/orders")
        assert (await broker.call("GET", "/readyz")).json["status"] == "pass"


async def test_only_who_may_see_statistics_sees_names_and_only_of_their_topics(tmp_path):
    disk = await damaged_disk(tmp_path, torn=b"half a batch")
    async with in_process(tmp_path, AUTH, disk=disk) as broker:
        admin = broker.key("everything", Role.ADMIN).text
        theirs = broker.key("theirs", Role.READONLY, "inv").text
        consumer = broker.key("consumer", Role.CONSUMER).text
        for topic in ("orders", "invoices"):
            target = f"/topics/{topic}/partitions/0/messages?offset=1"
            assert (await broker.call("GET", target, headers=bearer(admin))).status == 500
        seen = {}
        for name, headers in {
            "nobody": {},
            "wrong": bearer("a.b"),
            "consumer": bearer(consumer),
            "theirs": bearer(theirs),
            "admin": bearer(admin),
        }.items():
            reply = await broker.call("GET", "/readyz?verbose", headers=headers)
            assert (reply.status, reply.json["status"]) == (200, "warn")
            assert reply.json["checks"]["damage"]["message"] == "2 damaged batches"
            seen[name] = reply
        for name in ("nobody", "wrong", "consumer"):
            assert "orders" not in seen[name].body.decode()
            assert not {"recovery", "faulty", "damaged"} & set(seen[name].json)
        assert "orders" not in seen["theirs"].body.decode()
        assert [one["topic"] for one in seen["theirs"].json["damaged"]] == ["invoices"]
        assert seen["theirs"].json["recovery"] == []
        assert len(seen["admin"].json["damaged"]) == 2
        assert len(seen["admin"].json["recovery"]) == 1


async def test_other_partitions_are_served_and_the_topic_goes_on_once_it_says_skip(tmp_path):
    disk = await damaged_disk(tmp_path, partitions=3)
    async with in_process(tmp_path, disk=disk) as broker:
        found = await poll_all(broker)
        others = [f"orders {number} {one}" for number in range(4) for one in (1, 2)]
        assert sorted(found[:-1]) == sorted(["orders 0 0", *others])
        assert found[-1] == 500
        waiting = await broker.call("GET", "/topics/orders/messages?group=g&timeout=5s")
        assert waiting.json["error"] == "DAMAGED_BATCH"
        reply = await broker.call("PATCH", "/topics/orders", {"config": {"on_damage": "skip"}})
        assert reply.json["config"]["on_damage"] == "skip"
        assert await poll_all(broker) == ["orders 2 0", "orders 3 0", 200]
        stats = (await broker.call("GET", "/reliability/stats")).json
        assert (stats["skipped"], stats["groups"]["g"]["skipped"]) == (1, 1)
        lags = (await broker.call("GET", "/groups/g/lag")).json
        assert lags["total"] == 0
        text = (await broker.call("GET", "/metrics")).body.decode()
        assert metric(text, 'penstock_group_skipped_total{group="g",topic="orders"}') == 1


async def test_a_wrong_policy_is_refused_by_name(tmp_path):
    async with in_process(tmp_path) as broker:
        wrong = {"name": "orders", "config": {"on_damage": "ignore"}}
        reply = await broker.call("POST", "/topics", wrong)
        assert reply.status == 400
        assert "on_damage must be stop or skip" in reply.json["message"]


async def test_reads_by_position_go_on_behind_damage_and_say_so(tmp_path):
    disk = await damaged_disk(tmp_path)
    async with in_process(tmp_path, disk=disk) as broker:
        await broker.call("PATCH", "/topics/orders", {"config": {"on_damage": "skip"}})
        target = "/topics/orders/partitions/0/messages"
        first = (await broker.call("GET", f"{target}?limit=1")).json
        assert [one["offset"] for one in first["messages"]] == [0]
        assert "skipped" not in first
        whole = (await broker.call("GET", target)).json
        assert [one["offset"] for one in whole["messages"]] == [0, 2, 3]
        (skipped,) = whole["skipped"]
        assert (skipped["from"], skipped["to"]) == (1, 2)
        assert skipped["reason"].startswith("checksum of the body")
        reply = await broker.call("GET", f"{target}?offset=1", headers=BATCH)
        assert (reply.status, reply.headers["penstock-skipped"]) == (200, "1-2")
        assert (reply.headers["penstock-offset"], reply.headers["penstock-next-offset"]) == (
            "2",
            "4",
        )


def test_a_broker_of_its_own_tells_clients_and_the_command_line_gets_past_damage(tmp_path, capsys):
    data = tmp_path / "data"
    with penstock.Broker(data) as broker:
        broker.create_topic("orders", partitions=1)
        for number in range(4):
            broker.publish("orders", b"orders %d" % number)
    file = data / SEGMENT.format("orders", 1, 0)
    content = bytearray(file.read_bytes())
    content[content.index(b"orders 3")] ^= 1
    file.write_bytes(bytes(content))
    with served(data) as server, Client(server.binary_address) as client:
        with pytest.raises(PenstockError) as stopped:
            [*client.fetches("orders", 0)]
        assert stopped.value.fields["offset"] == 3
        words = ["topic", "set", "orders", "on_damage=skip", "--server", server.binary_address]
        assert run(root, words) == Exit.OK
        fetched = [*client.fetches("orders", 0)]
        assert [one.offset for part in fetched for one in part] == [0, 1, 2]
        assert client.fetch("orders", 0, offset=3).skipped == [(3, 4)]
        client.publish("orders", b"orders 4")
        behind = client.fetch("orders", 0, offset=3)
        assert ([one.offset for one in behind], behind.skipped) == ([4], [(3, 4)])
        assert server.stop() == 0
    told = [json.loads(line) for line in server.lines if line.startswith("{")]
    assert [one["level"] for one in told if "damaged batch" in one["message"]] == ["error"]


async def test_a_damaged_delayed_message_is_told_in_the_list_and_the_others_are_in_it(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders", partitions=1)
        for number in range(4):
            message = {
                "value": f"later {number}",
                "delay": f"{number + 1}h",
                "delay_key": f"{number}",
            }
            reply = await broker.call("POST", "/topics/orders/messages", {"messages": [message]})
            assert reply.status == 200
    path = SEGMENT.format("orders", 1, 0).replace("messages", "delayed")
    disk = SimDisk(flipped(broker.disk.tree(), path, b"later 1"))
    async with in_process(tmp_path, disk=disk) as broker:
        listed, pages = "/topics/orders/delayed", []
        cursor = ""
        while cursor is not None:
            page = (await broker.call("GET", f"{listed}?limit=3&cursor={cursor}")).json
            pages.append(page)
            cursor = page["cursor"]
        assert [(page["count"], page["unreadable"]) for page in pages] == [(3, 1), (1, 0)]
        found = [one for page in pages for one in page["messages"]]
        assert [one["value"] for one in found] == ["later 0", None, "later 2", "later 3"]
        damaged = found[1]
        assert damaged["damage"].startswith(f"damaged batch in {path} at byte ")
        assert [one["damage"] for one in found if one is not damaged] == [None] * 3
        assert (damaged["offset"], damaged["state"], damaged["delay_key"]) == (1, "PENDING", "1")
        for target in (f"{listed}/0/1", f"{listed}/1", f"{listed}?delay_key=1"):
            reply = await broker.call("GET", target)
            assert (reply.status, reply.json["error"]) == (500, "DAMAGED_BATCH")
        reply = await broker.call("PATCH", f"{listed}/0/1", {"delay": "9h"})
        assert (reply.status, reply.json["damage"]) == (200, damaged["damage"])
        reply = await broker.call("DELETE", f"{listed}?delay_key=1")
        assert (reply.status, reply.json["state"]) == (200, "CANCELLED")
        assert (await broker.call("GET", listed)).json["unreadable"] == 0


def test_the_command_line_lists_what_is_to_come_and_says_what_cannot_be_read(tmp_path, capsys):
    with penstock.Broker(tmp_path / "data") as broker:
        broker.create_topic("orders", partitions=1)
        broker.publish("orders", b"later 0", delay="1h")
        broker.publish("orders", b"later 1", delay="2h")
    file = tmp_path / "data" / SEGMENT.format("orders", 1, 0).replace("messages", "delayed")
    content = bytearray(file.read_bytes())
    content[content.index(b"later 0")] ^= 1
    file.write_bytes(bytes(content))
    with served(tmp_path / "data") as server:
        words = ["delay", "list", "orders", "--server", server.binary_address]
        assert run(root, words) == Exit.OK
        shown = capsys.readouterr()
        assert "later 1" in shown.out
        assert shown.err.startswith("1 cannot be read: damaged batch in topics/default/orders.1/")
        assert run(root, [*words, "--json"]) == Exit.OK
        first, second = map(json.loads, capsys.readouterr().out.splitlines())
        assert ("at byte" in first["damage"], second["damage"]) == (True, None)
        with Client(server.binary_address) as client:
            assert [one.damage is None for one in client.delayed("orders")] == [False, True]
