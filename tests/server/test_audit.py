"""The audit log: what administrators did and who was refused, whole, in order, and on the disk before the answer."""

import json
import os
from pathlib import Path

from penstock.server import audit

from .rigs import in_process

AUTH = {("auth", "enabled"): True}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_requests_without_a_good_key_are_written_down_and_counted(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        for number in range(30):
            await broker.call("GET", "/topics", headers=bearer(f"pk-{number}.secret"))
        assert (await broker.call("GET", "/topics")).status == 401
        broker.app.auth.refusals.close()
    text = (tmp_path / audit.AUDIT_FILE).read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(one["who"], one["what"], one["is_allowed"]) for one in lines] == [
        ("127.0.0.1", "authenticate", False),
        ("penstock", "count refusals", False),
    ]
    assert lines[0]["where"] == "GET /topics"
    assert lines[1]["where"].startswith("30 more")
    assert "secret" not in text
    assert audit.verify(tmp_path / audit.AUDIT_FILE) == []


async def test_what_administrators_do_is_written_down_in_a_chain(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic("orders")
        await broker.topic("invoices")
        await broker.call("DELETE", "/topics/orders")
    path = tmp_path / audit.AUDIT_FILE
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["who"], one["what"], one["where"]) for one in lines] == [
        ("local", "create a topic", "orders"),
        ("local", "create a topic", "invoices"),
        ("local", "delete a topic", "orders"),
    ]
    assert audit.verify(path) == []
    async with in_process(tmp_path) as broker:
        await broker.topic("more")
    assert audit.verify(path) == []
    changed = path.read_text().replace("invoices", "receipts")
    path.write_text(changed)
    assert [one.line for one in audit.verify(path)] == [2]
    path.write_text("\n".join(changed.splitlines()[2:]) + "\n")
    assert [one.line for one in audit.verify(path)] == [1, 0]


async def test_what_an_administrator_did_is_on_the_disk_before_it_is_answered(
    tmp_path, monkeypatch
):
    path = tmp_path / audit.AUDIT_FILE
    synced, sync = [0], os.fsync

    def noted(descriptor: int) -> None:
        sync(descriptor)
        if Path(f"/proc/self/fd/{descriptor}").resolve() == path.resolve():
            synced.append(path.stat().st_size)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "fdatasync", noted)
    async with in_process(tmp_path) as broker:
        for number in range(3):
            before = synced[-1]
            await broker.topic(f"orders-{number}")
            assert synced[-1] == path.stat().st_size > before
