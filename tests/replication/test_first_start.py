"""How a cluster begins: a node with an empty data directory, and what its peer is. Without brokers."""

import asyncio
import logging
import socket
from pathlib import Path

import pytest

from penstock.errors import Refused
from penstock.server.cluster_settings import ClusterSection
from penstock.server.settings import BrokerSection, Settings
from penstock.server.standby.cluster_file import ClusterFacts, read_facts, write_facts
from penstock.server.standby.election import promote
from penstock.server.standby.membership import Membership
from penstock.server.standby.promotion import Role

from .pairs import free_ports


class Nodes:
    """Two nodes that know each other's addresses and are started one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = dict(zip((1, 2), free_ports(2), strict=True))
        self.started: list[Membership] = []
        self.listeners: list[socket.socket] = []

    async def start(self, number: int, *, follows: bool = False, begin: bool = False) -> Membership:
        other = f"127.0.0.1:{self.ports[3 - number]}"
        cluster = ClusterSection(
            listen=f"127.0.0.1:{self.ports[number]}",
            peers=(other,),
            follow=other if follows else "",
            begin=begin,
        )
        settings = Settings(broker=BrokerSection(node_id=number), cluster=cluster)
        node = Membership(settings, self.data(number), logging.getLogger("test"))
        self.started.append(node)
        self.listeners.append(socket.create_server(("127.0.0.1", self.ports[number])))
        await node.start(self.listeners[-1])
        return node

    def data(self, number: int) -> Path:
        return self.directory / str(number)

    async def stop(self) -> None:
        for node in self.started:
            await node.stop()
        for listener in self.listeners:
            listener.close()


@pytest.fixture
async def nodes(tmp_path):
    found = Nodes(tmp_path)
    try:
        yield found
    finally:
        await found.stop()


async def until_told(node: Membership) -> None:
    async with asyncio.timeout(10):
        while node.problem is None:  # noqa: ASYNC110 - told by no event
            await asyncio.sleep(0.01)


async def test_a_new_node_begins_no_cluster_before_its_peer_answers(nodes):
    first = await nodes.start(1)
    assert (first.role, first.epoch) == (Role.WAITING, 0)
    assert "--begin-cluster" in str(first.refusal())
    assert read_facts(nodes.data(1)) is None
    with pytest.raises(Refused, match="--begin-cluster"):
        await promote(first)
    second = await nodes.start(2, follows=True)
    async with asyncio.timeout(10):
        await first.changed.wait()
    assert (first.role, second.leads) == (Role.LEADING, False)
    found = read_facts(nodes.data(1))
    assert found is not None
    assert (found.epoch, found.led, bool(found.cluster_id)) == (257, True, True)


async def test_a_person_says_that_a_node_begins_a_cluster(nodes):
    assert (await nodes.start(1, begin=True)).role is Role.LEADING


async def test_an_empty_node_whose_peer_comes_back_does_not_begin_another_cluster(nodes):
    """The leader has lost its disk while its standby was away."""
    first = await nodes.start(1)
    write_facts(nodes.data(2), ClusterFacts("c", 257, is_level=True, copies=2))
    await nodes.start(2, follows=True)
    await until_told(first)
    assert (first.role, read_facts(nodes.data(1))) == (Role.WAITING, None)
    assert "--follow" in first.problem_text


async def test_of_two_new_nodes_that_are_both_to_lead_neither_does(nodes):
    first = await nodes.start(1)
    with pytest.raises(Refused, match="both"):
        await nodes.start(2)
    assert (first.role, read_facts(nodes.data(2))) == (Role.WAITING, None)
