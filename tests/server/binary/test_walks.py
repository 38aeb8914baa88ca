"""Commands that walk, over the wire: cancelled, left by their client, ended with its key."""

import asyncio

import pytest

from penstock.api.frames import CANCEL, COMMAND, request_frame
from penstock.api.keys import RevokeKey
from penstock.api.principals import Role
from penstock.api.topics import CreateTopic, DescribeTopics
from penstock.api.wire import encode_command
from penstock.runtime.loop_turns import LoopTurns
from penstock.runtime.slices import SliceBudgets
from penstock.server.binary.connection import Connection

from ..rigs import in_process
from ..wires import until
from .services import service_of
from .transports import on_wire

NAMES = [f"topic-{number}" for number in range(20)]
DESCRIBE = encode_command(DescribeTopics(NAMES))


class OneEntry(SliceBudgets):
    """A slice is one entry."""

    def entries_for(self, _kind) -> int:
        return 1


class SlowClock:
    """Each look at it takes longer than a turn of the loop may."""

    at_ns = 0

    def monotonic_ns(self) -> int:
        self.at_ns += 10_000_000
        return self.at_ns


async def walking(broker, role=None) -> tuple[Connection, object, object]:
    """A connection with a walk under way, its wire, and its key."""
    for name in NAMES:
        broker.driver.execute(CreateTopic(name, 1))
    broker.driver.slice_budgets = OneEntry(broker.clock)
    broker.app.driver.turns = LoopTurns(asyncio.get_running_loop(), SlowClock())
    key = None if role is None else broker.key("reader", role)
    connection, wire = on_wire(service_of(broker), key)
    connection.data_received(b"".join(request_frame(COMMAND, 7, DESCRIBE)))
    assert 7 not in wire.replies
    assert connection.in_flight == 1
    return connection, wire, key


@pytest.mark.parametrize("how", ["answered", "cancelled", "left"])
def test_a_walk_ends(tmp_path, how) -> None:
    async def scenario() -> None:
        async with in_process(tmp_path) as broker:
            connection, wire, _ = await walking(broker)
            turns = broker.app.driver.turns
            await asyncio.sleep(0)
            assert len(turns) == 1
            if how == "answered":
                await until(lambda: 7 in wire.replies)
                reply = bytes(wire.replies[7])
                assert all(name.encode() in reply for name in NAMES)
            elif how == "cancelled":
                body = (7).to_bytes(4, "big")
                connection.data_received(b"".join(request_frame(CANCEL, 8, [body])))
                assert b"CANCELLED" in bytes(wire.replies[7])
            else:
                connection.connection_lost(None)
            assert len(turns) == 0
            assert (connection.in_flight, connection.service.under_way) == (0, 0)
            assert not connection.parked

    asyncio.run(scenario())


def test_a_walk_ends_with_the_key_of_its_connection(tmp_path) -> None:
    async def scenario() -> None:
        async with in_process(tmp_path, {("auth", "enabled"): True}) as broker:
            connection, wire, key = await walking(broker, Role.READONLY)
            await asyncio.sleep(0)
            broker.driver.execute(RevokeKey(key.key.key_id))
            await until(lambda: 7 in wire.replies)
            assert b"UNAUTHENTICATED" in bytes(wire.replies[7])
            assert len(broker.app.driver.turns) == 0
            assert (connection.in_flight, connection.service.under_way) == (0, 0)

    asyncio.run(scenario())
