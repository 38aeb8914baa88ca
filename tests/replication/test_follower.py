"""The follower's connection: what keeps it alive, and how it ends."""

import asyncio
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from penstock.errors import DamagedFile, Unreachable
from penstock.replication.frames import LEVEL, Hello, Level
from penstock.replication.storage import SetAside, StoragePlan
from penstock.server.standby import follower
from penstock.server.standby.follower import FollowerRole
from penstock.server.standby.link import Alive, Link, dial
from penstock.server.standby.promotion import Peer


class Replica:
    """Stores nothing; notes the frames that it is given."""

    leader, epoch = None, 257
    aside: Sequence[SetAside] = ()
    record = SimpleNamespace(disk_id=2, handed_over=0)

    def __init__(self, *, is_whole: bool = True) -> None:
        self.frames: list[object] = []
        self.is_whole = is_whole

    def hello(self) -> Hello:
        return Hello("c", 2, 1, 2, LEVEL, 257, "follower")

    def disconnect(self) -> None: ...
    def discard(self) -> None: ...

    def receive(self, frame: object, _payload: memoryview) -> list[object]:
        self.frames.append(frame)
        return []

    def plan_sync(self) -> StoragePlan:
        return StoragePlan([], 0, 0)

    def synced(self, _plan: StoragePlan) -> None:
        return None

    def note_committed(self) -> None: ...

    def scrub(self) -> Iterable[int]:
        return []


class DamagedReplica(Replica):
    """Finds damage while it stores what the leader sends, and sets the log aside."""

    def scrub(self) -> Iterable[int]:
        self.is_whole = False
        raise DamagedFile("messages", "its checksum is wrong")


class Membership(SimpleNamespace):
    def __init__(self) -> None:
        cluster = SimpleNamespace(replica_lag_ms=10_000)
        facts = SimpleNamespace(cluster_id="c")
        super().__init__(node=2, is_whole=True, cluster=cluster, facts=facts, times_level=0)

    def leveled(self) -> None:
        self.times_level += 1


@contextmanager
def following(replica: Replica) -> Iterator[tuple[FollowerRole, Membership]]:
    """A node that follows, with this replica as its logs."""
    membership = Membership()
    with ThreadPoolExecutor(1) as storage:
        role = FollowerRole(None, membership, storage, logging.getLogger("test"))  # type: ignore[arg-type]  # As much as it asks.
        role._replica = replica  # type: ignore[assignment]  # It does not store.
        yield role, membership


def connected() -> Link:
    link = Link()
    link.connection_made(Transport())
    return link


@pytest.mark.parametrize("is_whole", [False, True])
async def test_a_node_is_whole_again_when_it_has_what_was_set_aside(is_whole: bool) -> None:
    """A start that sets a log aside, and a leader that is lost before or after it sent that again."""
    with following(replica := Replica(is_whole=is_whole)) as (role, membership):
        await role.open()
        assert membership.is_whole == is_whole
        role._link, role._announced = connected(), 1
        role._stored([], Level(257, 1, 1))
        assert membership.times_level == 0, "not all of that is durable here"
        role._durable = 1
        role._stored([], Level(257, 1, 1))
        assert (membership.times_level, membership.is_whole) == (1, is_whole)
        replica.is_whole = True
        role._stored([], Level(257, 1, 1))
        assert membership.is_whole


async def test_a_node_that_finds_damage_does_not_lead_when_its_leader_is_lost_then() -> None:
    with following(DamagedReplica()) as (role, membership):
        async with asyncio.timeout(10):
            with pytest.raises(DamagedFile):
                await role.run(connected(), Peer(1, "leading", 257, "", "", 2, True, "", "c"))
        assert not membership.is_whole


async def test_a_node_that_finds_damage_again_tells_of_that_too() -> None:
    class Damaging(Replica):
        def plan_sync(self) -> StoragePlan:
            raise DamagedFile("messages", "its checksum is wrong")

    with following(Replica()) as (role, _):
        for path in ("a/messages", "b/messages", "c/messages"):
            replica = Damaging()
            replica.aside = [SetAside(path, "kept", "damaged", range(1))]
            role._replica = replica  # type: ignore[assignment]  # It does not store.
            await role.open()
            with pytest.raises(DamagedFile):
                role._store_all(role._opened(), [])
            assert role.aside()[-1].startswith(path)
        assert len(role.aside()) == role.status()["set_aside"] == 3


async def test_a_node_whose_disk_is_busy_is_heard_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower, "HEARTBEAT_S", 0.001)
    is_free = threading.Event()

    class BusyReplica(Replica):
        def scrub(self) -> Iterable[int]:
            is_free.wait()
            return []

    with following(BusyReplica()) as (role, _):
        link = connected()
        leader = Peer(1, "leading", 257, "", "", 2, True, "", "c")
        running = asyncio.create_task(role.run(link, leader))
        try:
            async with asyncio.timeout(10):
                while link.bytes_out < 1000:  # noqa: ASYNC110 - told by no event
                    await asyncio.sleep(0.001)
        finally:
            is_free.set()
            link.connection_lost(None)
            with pytest.raises(Unreachable):
                await running


class Transport(asyncio.Transport):
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def write(self, data: object) -> None: ...

    def is_closing(self) -> bool:
        return False


async def test_a_frame_that_comes_while_the_connection_is_given_up_does_not_hide_its_end() -> None:
    role = FollowerRole(None, None, None, logging.getLogger("test"))  # type: ignore[arg-type]  # None is asked.
    replica, loop = Replica(), asyncio.get_running_loop()
    role._link = Link()
    role._link.connection_made(Transport())
    late = Level(257, 1, 1)
    for frame in (None, (late, memoryview(b""))):
        role._received.put(frame)
    with ThreadPoolExecutor(1) as storage:
        storing = loop.run_in_executor(storage, role._store, replica, loop)
        try:
            async with asyncio.timeout(10):
                assert await storing is None
        finally:
            # Of a thread that still waits, so that the test ends.
            role._received.put(None)


async def test_a_sign_of_life_breaks_the_silence_and_is_nothing_else() -> None:
    taken: list[object] = []
    made, has_taken = asyncio.Queue[Link](), asyncio.Event()

    def take(frame: object, _payload: memoryview) -> None:
        taken.append(frame)
        has_taken.set()

    class AcceptedLink(Link):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            made.put_nowait(self)

    server = await asyncio.get_running_loop().create_server(AcceptedLink, "127.0.0.1", 0)
    link = await dial(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", None)
    async with asyncio.timeout(10):
        other = await made.get()
        link.heard_at = 0.0
        other.send(Alive())
        other.send(Level(257, 1, 1))
        delivering = asyncio.create_task(link.deliver(take, 1e9))
        await has_taken.wait()
    assert taken == [Level(257, 1, 1)]
    assert link.heard_at > 0
    delivering.cancel()
    link.close()
    server.close()
