"""What a node that leads does for itself, whatever its disk does: without brokers."""

import asyncio
import logging
from threading import Lock
from types import SimpleNamespace

import pytest

from penstock.errors import NoSpace, SyncFailed
from penstock.replication.replica_file import ReplicaRecord
from penstock.runtime import fatal
from penstock.server.cluster_settings import ClusterSection
from penstock.server.settings import BrokerSection, Settings
from penstock.server.standby import leading as leading_module
from penstock.server.standby.leading import Leading
from penstock.server.standby.membership import Membership, Role


class Driver:
    """Runs what the leader writes, and nothing else."""

    def __init__(self) -> None:
        self.loop, self.driver = asyncio.get_running_loop(), SimpleNamespace(lock=Lock())
        self.is_slow = False

    async def in_thread(self, work):
        if self.is_slow:
            await asyncio.Event().wait()
        return work()

    def confirmed(self) -> None:
        pass

    def call_from_anywhere(self, work) -> None:
        work()


@pytest.fixture
async def leading(tmp_path, monkeypatch):
    monkeypatch.setattr(leading_module, "HEARTBEAT_S", 0.001)
    monkeypatch.setattr(leading_module, "_NOTE_S", 0.001)
    monkeypatch.setattr(leading_module, "read_record", lambda _disk: ReplicaRecord(1))
    cluster = ClusterSection(listen="127.0.0.1:1", peers=("127.0.0.1:2",))
    settings = Settings(broker=BrokerSection(node_id=1), cluster=cluster)
    membership = Membership(settings, tmp_path, logging.getLogger("test"))
    membership.role = Role.LEADING
    found = Leading(membership, settings, SimpleNamespace(), {"meta": 1})
    found.begin(Driver(), asyncio.Event(), SimpleNamespace(write=lambda *_: None))
    yield found
    found._driver.is_slow = False
    monkeypatch.setattr(leading_module, "write_record", lambda *_: None)
    await found.end()


async def beats(leading: Leading, monkeypatch) -> None:
    """Return when replies that wait too long were looked for a few times more."""
    seen: list[int] = []
    monkeypatch.setattr(leading.gate, "expire", lambda: seen.append(1))
    async with asyncio.timeout(120):
        while len(seen) < 9:  # noqa: ASYNC110 - told by no event
            await asyncio.sleep(0.001)


async def test_a_leader_whose_disk_is_slow_is_heard_all_the_same(leading, monkeypatch):
    leading._driver.is_slow = True
    await beats(leading, monkeypatch)


async def test_a_leader_whose_disk_is_full_is_heard_and_notes_again(leading, monkeypatch):
    notes: list[int] = []

    def write(*_: object) -> None:
        notes.append(1)
        raise NoSpace("replica")

    monkeypatch.setattr(leading_module, "write_record", write)
    await beats(leading, monkeypatch)
    async with asyncio.timeout(120):
        while len(notes) < 3:  # noqa: ASYNC110 - told by no event
            await asyncio.sleep(0.001)


async def test_a_sync_that_fails_in_a_note_ends_the_process(leading, monkeypatch):
    ended: list[BaseException] = []

    def write(*_: object) -> None:
        raise SyncFailed("replica", "Input/output error")

    monkeypatch.setattr(fatal, "exit_process", ended.append)
    monkeypatch.setattr(leading_module, "write_record", write)
    async with asyncio.timeout(120):
        while not ended:  # noqa: ASYNC110 - told by no event
            await asyncio.sleep(0.001)
