"""The audit log: what administrators did and who was refused, whole, in order, and on the disk before the answer."""

import json
import os
from pathlib import Path
from threading import get_ident

from penstock.api.keys import RevokeKey
from penstock.api.principals import Role
from penstock.api.topics import ListTopics
from penstock.runtime import RealDisk
from penstock.server import audit_files

from .rigs import in_process

AUTH = {("auth", "enabled"): True}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def verified(data: Path) -> list[int]:
    """The lines that something is wrong with."""
    with RealDisk.open_read_only(data) as disk:
        return [problem.line for problem in audit_files.verify(disk)]


async def test_requests_without_a_good_key_are_written_down_and_counted(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        for number in range(30):
            await broker.call("GET", "/topics", headers=bearer(f"pk-{number}.secret"))
        assert (await broker.call("GET", "/topics")).status == 401
        broker.app.auth.refusals.close()
    text = (tmp_path / audit_files.AUDIT_FILE).read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(one["who"], one["what"], one["is_allowed"]) for one in lines] == [
        ("127.0.0.1", "authenticate", False),
        ("penstock", "count refusals", False),
    ]
    assert lines[0]["where"] == "GET /topics"
    assert lines[1]["where"].startswith("30 more")
    assert "secret" not in text
    assert verified(tmp_path) == []


async def test_what_administrators_do_is_written_down_in_a_chain(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        await broker.topic("invoices")
        await broker.call("DELETE", "/topics/orders")
    path = tmp_path / audit_files.AUDIT_FILE
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["who"], one["what"], one["where"]) for one in lines] == [
        ("local", "create a topic", "orders"),
        ("local", "create a topic", "invoices"),
        ("local", "delete a topic", "orders"),
    ]
    assert verified(tmp_path) == []
    async with in_process(tmp_path) as broker:
        await broker.topic("more")
    assert verified(tmp_path) == []
    changed = path.read_text().replace("invoices", "receipts")
    path.write_text(changed)
    assert verified(tmp_path) == [2]
    path.write_text("\n".join(changed.splitlines()[2:]) + "\n")
    assert verified(tmp_path) == [1, 0]


async def test_what_an_administrator_did_is_on_the_disk_before_it_is_answered(
    tmp_path, monkeypatch
):
    path = tmp_path / audit_files.AUDIT_FILE
    synced, sync = [0], os.fsync

    def noted(descriptor: int) -> None:
        sync(descriptor)
        if Path(f"/proc/self/fd/{descriptor}").resolve() == path.resolve():
            synced.append(path.stat().st_size)
            assert get_ident() != loop, "the event loop waits for no disk"

    loop = get_ident()
    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "fdatasync", noted)
    async with in_process(tmp_path) as broker:
        for number in range(3):
            before = synced[-1]
            await broker.topic(f"orders-{number}")
            assert synced[-1] == path.stat().st_size > before


async def test_a_refusal_names_the_topic_and_the_address(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        reader = bearer(broker.key("reader", Role.READONLY).text)
        part = bearer(broker.key("part", Role.ADMIN, "orders").text)
        assert (await broker.call("DELETE", "/topics/invoices", headers=reader)).status == 403
        assert (await broker.call("GET", "/topics/payments", headers=part)).status == 403
    text = (tmp_path / audit_files.AUDIT_FILE).read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["who"], line["what"], line["where"], line["client"]) for line in lines] == [
        ("reader", "delete a topic", "invoices", "127.0.0.1"),
        ("part", "see topics", "payments", "127.0.0.1"),
    ]


async def test_a_key_has_a_share_of_the_lines(tmp_path):
    settings = {**AUTH, ("audit", "key_lines_per_hour"): 3}
    async with in_process(tmp_path, settings) as broker:
        made = {role: broker.key(role.value, role) for role in Role}
        keys = {role: bearer(key.text) for role, key in made.items()}
        states = [("starting", 200), ("stopped", 200), ("starting", 200), ("stopped", 429)]
        for state, status in [*states, ("starting", 200)]:
            report = {"kind": "archive", "state": state, "target": "lake"}
            reply = await broker.call("PUT", "/pipelines/p", report, headers=keys[Role.CONSUMER])
            assert reply.status == status, reply.body
        # A report that changes nothing gets no line, and the one that was refused changed nothing.
        assert reply.json["state"] == "starting"
        for number in range(5):
            topic = {"name": f"topic-{number}", "num_partitions": 1}
            reply = await broker.call("POST", "/topics", topic, headers=keys[Role.ADMIN])
            assert reply.status == (201 if number < 3 else 429)
        assert reply.json["error"] == "RESOURCE_EXHAUSTED"
        assert "lines of the audit log an hour" in reply.json["message"]
        assert int(reply.headers["retry-after"]) <= 1200
        # A later key of the same name has a share of its own.
        broker.driver.execute(RevokeKey(made[Role.ADMIN].key.key_id))
        other = bearer(broker.key(Role.ADMIN.value, Role.ADMIN).text)
        topic = {"name": "topic-5", "num_partitions": 1}
        assert (await broker.call("POST", "/topics", topic, headers=other)).status == 201
        assert broker.driver.execute(ListTopics()) == ["topic-0", "topic-1", "topic-2", "topic-5"]
    lines = (tmp_path / audit_files.AUDIT_FILE).read_bytes().splitlines()
    assert len(lines) == 7


async def test_without_keys_there_are_no_shares(tmp_path):
    async with in_process(tmp_path, {("audit", "key_lines_per_hour"): 1}) as broker:
        for name in ("a", "b", "c"):
            await broker.topic(name)
