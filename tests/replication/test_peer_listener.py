"""Connections to the listener for peers that never say who they are: few of an address, few in all, for a while."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from penstock.errors import PenstockError
from penstock.server.standby import peer_listener
from penstock.server.standby.cluster_file import ClusterFacts
from penstock.server.standby.link import Introduction, Link, dial
from penstock.server.standby.peer_listener import STRANGERS_PER_ADDRESS_MAX, PeerListener

from .test_membership import started


class Stranger(NamedTuple):
    """A connection that sends nothing."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def is_ended(self) -> bool:
        """Returns once the node has hung up."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    @property
    def is_open(self) -> bool:
        return not self.reader.at_eof()


class Port:
    """The port of a listener for peers, on every address of this machine's own."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._strangers: list[Stranger] = []

    async def stranger(self, at: str = "127.0.0.1") -> Stranger:
        opened = await asyncio.open_connection(at, self.number, local_addr=(at, 0))
        self._strangers.append(Stranger(*opened))
        return self._strangers[-1]

    async def close(self) -> None:
        for stranger in self._strangers:
            stranger.writer.close()
            with suppress(ConnectionError):
                await stranger.writer.wait_closed()


@asynccontextmanager
async def listening(data: Path, context: ssl.SSLContext | None = None) -> AsyncIterator[Port]:
    node, _ = await started(data, ClusterFacts("c", 257, is_level=True, copies=2))
    listener, bound = PeerListener(node), socket.create_server(("", 0))
    listener.start(bound, context)
    port = Port(bound.getsockname()[1])
    try:
        async with asyncio.timeout(10):
            yield port
    finally:
        await port.close()
        await listener.stop()
        await node.stop()


async def introduced(port: Port) -> Link:
    """A connection on which a peer has said who it is. PenstockError: the node has hung up."""
    link = await dial(f"127.0.0.1:{port.number}", None)
    link.send(Introduction("penstock", "c", 1, 257, "waiting", "ask"))
    await link.expect(Introduction)
    return link


async def test_so_many_of_an_address_may_be_silent_and_peers_that_are_known_do_not_count(tmp_path):
    async with listening(tmp_path) as port:
        known = [await introduced(port) for _ in range(3)]
        silent = [await port.stranger() for _ in range(STRANGERS_PER_ADDRESS_MAX)]
        assert await (await port.stranger()).is_ended()
        with pytest.raises(PenstockError):
            await introduced(port)
        other = await port.stranger(at="127.0.0.2")
        silent.pop().writer.close()
        # The node learns in its own time that one has hung up.
        while len(known) == 3:
            try:
                known.append(await introduced(port))
            except PenstockError:
                await asyncio.sleep(0)
        assert all(one.is_open for one in [*silent, other])
        for link in known:
            link.close()


async def test_so_many_may_be_silent_of_all_addresses_together(tmp_path, monkeypatch):
    monkeypatch.setattr(peer_listener, "STRANGERS_MAX", 4)
    async with listening(tmp_path) as port:
        silent = [await port.stranger(at=f"127.0.0.{2 + number}") for number in range(4)]
        assert await (await port.stranger(at="127.0.0.9")).is_ended()
        assert all(one.is_open for one in silent)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02"])
async def test_one_that_does_not_begin_tls_is_hung_up_on(tmp_path, monkeypatch, sent):
    assert peer_listener.FIRST_FRAME_S == 5
    monkeypatch.setattr(peer_listener, "FIRST_FRAME_S", 0.05)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    async with listening(tmp_path, context) as port:
        silent = [await port.stranger() for _ in range(3)]
        for one in silent:
            one.writer.write(sent)
        for one in silent:
            assert await one.is_ended()
        # Their places are given back.
        for _ in range(2 * STRANGERS_PER_ADDRESS_MAX):
            assert await (await port.stranger()).is_ended()
