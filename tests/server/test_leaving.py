"""Clients that leave while several of their requests are here: nobody is answered, and nothing is said about it."""

import asyncio

import pytest

from .rigs import in_process, until
from .test_following import asks
from .test_straight import publish, read
from .wires import Wire, connected


class Closed(Wire):
    """As uvloop's transports are: whoever writes to one that is closed is told off."""

    def write(self, data: bytes) -> None:
        if self.is_closing():
            raise RuntimeError("the handler is closed")
        super().write(data)


POLL = b"GET /topics/orders/messages?group=g&timeout=20s HTTP/1.1\r\nHost: localhost\r\n\r\n"
FIRST = {"waits": asks(0), "polls": POLL, "publishes": publish(), "reads": read()}


@pytest.mark.parametrize("behind", [1, 3])
@pytest.mark.parametrize("first", FIRST)
async def test_who_leaves_with_requests_in_line_is_no_error(tmp_path, caplog, first, behind):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        connection, _ = connected(broker)
        connection.connection_made(wire := Closed())
        connection.data_received(FIRST[first] + read() * behind)
        # Either has begun to wait by then, or has not begun at all.
        if first in {"waits", "polls"}:
            async with asyncio.timeout(5):
                await until(lambda: broker.door.driver.waiting)
        wire.close()
        connection.connection_lost(None)
        async with asyncio.timeout(5):
            await until(lambda: not connection.tasks)
        assert not broker.door.driver.waiting
        assert (wire.written, broker.door.room.coming, broker.door.room.under_way) == (b"", 0, 0)
    assert caplog.messages == []
