"""The follower's connection: what keeps it alive, and how it ends."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from penstock.replication.frames import Level
from penstock.replication.storage import StoragePlan
from penstock.server.standby.follower import FollowerRole
from penstock.server.standby.link import Alive, Link, dial


class Replica:
    """Stores nothing; notes the frames that it is given."""

    leader, aside, is_whole = None, (), True

    def __init__(self) -> None:
        self.frames: list[object] = []

    def receive(self, frame: object, _payload: memoryview) -> list[object]:
        self.frames.append(frame)
        return []

    def plan_sync(self) -> StoragePlan:
        return StoragePlan([], 0, 0)

    def synced(self, _plan: StoragePlan) -> None:
        return None

    def note_committed(self) -> None: ...

    def scrub(self) -> list[int]:
        return []


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
    async with asyncio.timeout(30):
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
