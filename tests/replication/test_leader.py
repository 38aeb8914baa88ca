"""What a node that leads does for itself, whatever its disk does: without brokers."""

import asyncio
import logging
from dataclasses import replace
from threading import Lock
from types import SimpleNamespace

import pytest

from penstock.api.health import Check
from penstock.errors import (
    NoSpace,
    NotEnoughReplicas,
    SyncFailed,
    Unavailable,
    Unconfirmed,
    Unreachable,
)
from penstock.log.closed import ClosedLogs
from penstock.replication.frames import LEVEL, Durable, Hello, Inventory, Reconciled
from penstock.replication.replica_file import ReplicaRecord
from penstock.replication.storage import ClosedStorage
from penstock.runtime import fatal
from penstock.runtime.tickets import Ticket
from penstock.server.cluster_settings import ClusterSection
from penstock.server.settings import BrokerSection, Settings
from penstock.server.standby import leader as leader_module
from penstock.server.standby.leader import LeaderRole
from penstock.server.standby.link import Alive, Introduction
from penstock.server.standby.membership import Membership, Role

from ..server.rigs import in_process


class Driver:
    """Runs what the leader writes, and nothing else."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.driver = SimpleNamespace(lock=Lock(), sync=lambda: None)
        self.is_slow, self.looks = False, 0

    async def in_thread(self, work):
        if self.is_slow:
            await asyncio.Event().wait()
        return work()

    def confirmed(self) -> None:
        self.looks += 1

    def call_from_anywhere(self, work) -> None:
        work()


@pytest.fixture
async def leading(tmp_path, monkeypatch):
    monkeypatch.setattr(leader_module, "HEARTBEAT_S", 0.001)
    monkeypatch.setattr(leader_module, "_NOTE_S", 0.001)
    monkeypatch.setattr(leader_module, "read_record", lambda _disk: ReplicaRecord(1))
    cluster = ClusterSection(listen="127.0.0.1:1", peers=("127.0.0.1:2",))
    settings = Settings(broker=BrokerSection(node_id=1), cluster=cluster)
    membership = Membership(settings, tmp_path, logging.getLogger("test"))
    membership.role = Role.LEADING
    found = LeaderRole(
        membership, settings, SimpleNamespace(), ClosedStorage({"meta": 1}, ClosedLogs())
    )
    found.begin(Driver(), asyncio.Event(), SimpleNamespace(note=lambda *_: None))
    yield found
    found._driver.is_slow = False
    monkeypatch.setattr(leader_module, "write_record", lambda *_: None)
    await found.end()


async def beats(leading: LeaderRole, monkeypatch) -> None:
    """Return when replies that wait too long were looked for a few times more."""
    seen: list[int] = []
    monkeypatch.setattr(leading.gate, "expire", lambda: seen.append(1))
    async with asyncio.timeout(10):
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

    monkeypatch.setattr(leader_module, "write_record", write)
    await beats(leading, monkeypatch)
    async with asyncio.timeout(10):
        while len(notes) < 3:  # noqa: ASYNC110 - told by no event
            await asyncio.sleep(0.001)


async def test_a_sync_that_fails_in_a_note_ends_the_process(leading, monkeypatch):
    ended: list[BaseException] = []

    def write(*_: object) -> None:
        raise SyncFailed("replica", "Input/output error")

    monkeypatch.setattr(fatal, "exit_process", ended.append)
    monkeypatch.setattr(leader_module, "write_record", write)
    async with asyncio.timeout(10):
        while not ended:  # noqa: ASYNC110 - told by no event
            await asyncio.sleep(0.001)


class StandbyLink:
    """A standby that has everything, until its connection ends."""

    is_full = False

    def __init__(self, number: int = 2) -> None:
        self.number, self.ended = number, asyncio.Event()
        self.is_heard = asyncio.Event()
        self.told: list[object] = []

    async def expect(self, _kind: type[Hello]) -> Hello:
        return Hello("", self.number, 1, self.number, LEVEL, 0, "follower")

    def write_parts(self, parts) -> None:
        pass

    def send(self, frame) -> None:
        self.told.append(frame)

    async def deliver(self, take, silence_s: float) -> None:
        for frame in (Inventory(()), Reconciled(()), Durable(0, 0, 0), Durable(0, 0, 0)):
            take(frame, memoryview(b""))
        self.is_heard.set()
        await self.ended.wait()
        raise Unreachable("10.0.0.6", f"nothing heard for {silence_s:g} s")

    def close(self) -> None:
        self.ended.set()


async def follow(leading: LeaderRole, number: int = 2) -> tuple[StandbyLink, asyncio.Task[None]]:
    """A standby that is in sync, and what serves it."""
    link = StandbyLink(number)
    serving = asyncio.create_task(leading.serve(link, Introduction("", "", number, 0, "waiting")))
    async with asyncio.timeout(10):
        await link.is_heard.wait()
    return link, serving


async def gone(link: StandbyLink, serving: asyncio.Task[None]) -> None:
    link.close()
    with pytest.raises(Unreachable):
        await serving


ALONE = "1 machine in sync, 2 needed: publishes, polls and acks are refused"


async def test_a_standby_that_goes_and_comes_back_is_logged_once_each_and_told_to_probes(
    leading, caplog
):
    caplog.set_level(logging.INFO)
    assert leading.check() == Check("warn", ALONE)
    for _ in range(2):
        standby = await follow(leading)
        assert leading.check() == Check("pass", "2 machines in sync, 2 needed")
        await gone(*standby)
        assert leading.check() == Check("warn", ALONE)
    lines = [
        (logging.INFO, "standby 2 is in sync: 2 machines in sync, 2 needed"),
        (
            logging.WARNING,
            f"standby 2 is no longer in sync (no answer from 10.0.0.6: nothing heard for 3 s): {ALONE}",
        ),
    ]
    found = [(one.levelno, one.message) for one in caplog.records if "standby 2" in one.message]
    assert found == lines * 2


async def test_a_standby_that_is_too_slow_is_logged_once_as_well(leading, caplog):
    standby = await follow(leading)
    leading.followers[2].stream.leave()
    for _ in range(2):
        leading._flush()
    await gone(*standby)
    said = f"standby 2 is no longer in sync (too slow: it catches up from files): {ALONE}"
    assert [one for one in caplog.messages if "no longer in sync" in one] == [said]


async def test_a_leader_that_stops_or_leads_no_longer_misses_no_standby(leading, caplog):
    standby = await follow(leading)
    leading.membership.serve_follower = None
    await gone(*standby)
    leading.membership.serve_follower = leading.serve
    standby = await follow(leading)
    leading.membership.step_down("another one leads")
    await gone(*standby)
    assert not [one for one in caplog.messages if "no longer" in one and "standby" in one]


async def test_a_leader_without_its_standby_is_ready_with_a_warning(leading, tmp_path):
    async with in_process(tmp_path) as broker:
        assert "replication" not in (await broker.call("GET", "/readyz?verbose")).json["checks"]
        broker.app.leading = leading
        alone = await broker.call("GET", "/readyz?verbose")
        assert (alone.status, alone.json["status"]) == (200, "warn")
        assert alone.json["checks"]["replication"] == {"status": "warn", "message": ALONE}
        standby = await follow(leading)
        assert (await broker.call("GET", "/readyz")).json["status"] == "pass"
        await gone(*standby)


async def test_a_leader_that_may_go_on_alone_says_that_it_does(leading):
    leading.gate.copies = 1
    said = "1 machine in sync, 1 needed: what is acknowledged is on this one only"
    assert leading.check() == Check("warn", said)


@pytest.mark.parametrize("is_lost", [False, True], ids=["too late", "lost"])
async def test_a_hand_over_that_fails_half_way_leaves_a_leader_that_admits(
    leading, monkeypatch, is_lost
):
    link, serving = await follow(leading)
    monkeypatch.setattr(leading.followers[2].stream, "hand_over", lambda: False)
    # Nobody waits for one that is lost until the time is up.
    monkeypatch.setattr(leader_module, "_HAND_OVER_S", 3600 if is_lost else 0.01)
    if is_lost:
        leading._driver.driver.sync = link.close
    with pytest.raises(Unavailable, match="leads on"):
        async with asyncio.timeout(10):
            await leading.hand_over()
    assert not leading.leader.is_over
    assert leading.membership.role is Role.LEADING
    if is_lost:
        with pytest.raises(Unreachable):
            await serving
        with pytest.raises(NotEnoughReplicas):
            leading.gate.admit()
        link, serving = await follow(leading)
    leading.gate.admit()
    await gone(link, serving)


async def test_a_standby_that_confirms_nothing_for_too_long_is_waited_for_no_more(leading):
    standby = await follow(leading)
    limit_s = leading.membership.cluster.replica_lag_ms / 1000
    leading.followers[2].lag_s = lambda: limit_s + 1
    async with asyncio.timeout(10):
        while leading.followers:  # noqa: ASYNC110 - told by no event
            await asyncio.sleep(0.001)
    with pytest.raises(NotEnoughReplicas):
        leading.gate.admit()
    await gone(*standby)


async def test_a_leader_hands_over_to_the_standby_that_is_named_and_to_no_other(
    leading, monkeypatch
):
    monkeypatch.setattr(leader_module, "_HAND_OVER_S", 0.01)
    standby = await follow(leading)
    with pytest.raises(Unavailable, match="no standby"):
        await leading.hand_over(3)
    assert leading.membership.role is Role.LEADING
    leading.gate.admit()
    await gone(*standby)


async def test_requests_that_wait_for_a_standby_hear_at_once_that_it_is_lost(leading):
    link, serving = await follow(leading)
    tickets = [Ticket(), Ticket()]
    for position, ticket in enumerate(tickets, 1):
        ticket.position = position
        leading.gate.hold(ticket)
    looks = leading._driver.looks
    await gone(link, serving)
    for ticket in tickets:
        assert ticket.is_settled
        with pytest.raises(Unconfirmed):
            ticket.check()
    assert leading._driver.looks > looks, "what is committed without it is looked for"


async def test_the_loss_of_the_first_of_two_standbys_keeps_what_the_second_confirms(leading):
    """With two copies of three nodes what waits is confirmed by either of them."""
    standbys = [await follow(leading, number) for number in (2, 3)]
    ticket = Ticket()
    ticket.position = 1
    leading.gate.hold(ticket)
    await gone(*standbys[0])
    assert not ticket.is_settled
    leading.gate.admit()
    await gone(*standbys[1])
    with pytest.raises(Unconfirmed):
        ticket.check()


async def test_every_standby_hears_that_its_leader_acknowledges_alone_no_longer(leading):
    peers = ("127.0.0.1:2", "127.0.0.1:3")
    leading._cluster = replace(leading._cluster, peers=peers, min_isr=3)
    await leading.go_alone()
    standbys = [await follow(leading, number) for number in (2, 3)]
    assert leading.gate.copies == 3
    for link, serving in standbys:
        assert [type(frame) for frame in link.told if not isinstance(frame, Alive)] == [
            Introduction
        ]
        await gone(link, serving)
