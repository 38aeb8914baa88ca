"""What a node answers its peer, and has on the disk before it does: over its listener for peers, without brokers."""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from penstock.errors import PenstockError, PromotionRaced, Refused, Unavailable, Unreachable
from penstock.replication.frames import LogFacts
from penstock.server.cluster_settings import ClusterSection
from penstock.server.settings import BrokerSection, Settings
from penstock.server.standby import membership as membership_module
from penstock.server.standby.cluster_file import ClusterFacts, read_facts, write_facts
from penstock.server.standby.election import promote
from penstock.server.standby.link import (
    Claim,
    Granted,
    Introduction,
    Link,
    Operation,
    PeerRefused,
    dial,
)
from penstock.server.standby.membership import Membership
from penstock.server.standby.operator_requests import operate
from penstock.server.standby.promotion import Peer, Role

NOWHERE = "127.0.0.1:1"


async def started(
    data: Path,
    facts: ClusterFacts,
    min_isr: int = 2,
    *,
    number: int = 2,
    peers: tuple[str, ...] = (NOWHERE,),
) -> tuple[Membership, str]:
    """A node that waits, with these facts, and where it listens."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    write_facts(data, facts)
    cluster = ClusterSection(listen=f"127.0.0.1:{port}", peers=peers, min_isr=min_isr)
    settings = Settings(broker=BrokerSection(node_id=number), cluster=cluster)
    node = Membership(settings, data, logging.getLogger("test"))
    await node.start(listener)
    return node, f"127.0.0.1:{port}"


async def claim(address: str, epoch: int, *, led_in: int) -> object:
    """What a node that led in an epoch is answered when it asks to lead in another one."""
    link = await dial(address, None)
    try:
        link.send(Introduction("penstock", "c", 1, led_in, "waiting", "ask", led=True))
        await link.expect(Introduction)
        link.send(Claim(epoch, 2))
        return await link.expect(Granted)
    finally:
        link.close()


@pytest.mark.parametrize(
    ("facts", "is_level"),
    [
        (ClusterFacts("c", 257, is_level=True, copies=2), True),
        # In that epoch the leader could go on alone.
        (ClusterFacts("c", 257, is_level=True, copies=1), False),
        # It led later than this node knows, by force.
        (ClusterFacts("c", 1, is_level=True, copies=2), False),
    ],
)
async def test_a_granted_claim_is_on_the_disk_and_level_means_all_that_was_acknowledged(
    tmp_path, facts, is_level
):
    node, address = await started(tmp_path, facts)
    granted = await claim(address, 513, led_in=257)
    await node.stop()
    assert granted == Granted(513)
    found = read_facts(tmp_path)
    assert found is not None
    assert (found.epoch, found.led, found.is_level) == (513, False, is_level)


async def test_no_claim_is_granted_below_what_was_promised(tmp_path):
    facts = ClusterFacts("c", 770, is_level=True, copies=2)
    node, address = await started(tmp_path, facts)
    with pytest.raises(PenstockError, match="770"):
        await claim(address, 513, led_in=257)
    await node.stop()
    assert read_facts(tmp_path) == facts


async def test_no_claim_is_granted_to_a_node_after_which_another_led(tmp_path):
    facts = ClusterFacts("c", 514, is_level=True, copies=2)
    node, address = await started(tmp_path, facts)
    with pytest.raises(PenstockError, match="514"):
        await claim(address, 769, led_in=257)
    await node.stop()
    assert read_facts(tmp_path) == facts


async def test_a_claim_that_only_one_of_two_peers_heard_of_is_made_again(tmp_path):
    known = ClusterFacts("c", 257, is_level=True, copies=2)
    second, at_second = await started(tmp_path / "2", known)
    third, at_third = await started(
        tmp_path / "3", msgspec.structs.replace(known, epoch=513), number=3
    )
    led = ClusterFacts("c", 257, led=True, copies=2)
    first, _ = await started(tmp_path / "1", led, number=1, peers=(at_second, at_third))
    async with asyncio.timeout(10):
        await first.changed.wait()
    assert first.role is Role.LEADING
    for one in (first, second, third):
        await one.stop()
    assert [one.epoch for one in (first, second, third)] == [769, 769, 769]


async def test_a_promoted_node_leads_in_a_later_epoch_which_is_on_the_disk(tmp_path):
    node, _ = await started(tmp_path, ClusterFacts("c", 257, is_level=True, copies=2))
    await promote(node)
    await node.stop()
    found = read_facts(tmp_path)
    assert found is not None
    assert (node.role, found.led, found.epoch) == (Role.LEADING, True, 514)


async def test_a_node_that_would_go_on_alone_is_promoted_by_force_only(tmp_path):
    node, _ = await started(tmp_path, ClusterFacts("c", 258, led=True, copies=2), min_isr=1)
    with pytest.raises(Refused, match="--force"):
        await promote(node)
    assert node.role is Role.WAITING
    await promote(node, is_forced=True)
    await node.stop()
    assert node.role is Role.LEADING
    found = read_facts(tmp_path)
    assert found is not None
    assert found.forced_epoch == node.epoch
    # The next reign goes on with the same history.
    node.lead(node.epoch + 256)
    assert node.hello().forced_epoch == found.forced_epoch


async def test_force_that_was_not_needed_begins_no_other_history(tmp_path):
    node, _ = await started(tmp_path, ClusterFacts("c", 257, is_level=True, copies=2))
    await promote(node, is_forced=True)
    await node.stop()
    assert (node.role, node.hello().forced_epoch) == (Role.LEADING, 0)


async def test_a_node_that_is_to_go_on_alone_acknowledges_alone_and_says_so(tmp_path):
    node, _ = await started(tmp_path / "2", ClusterFacts("c", 257, is_level=True, copies=2))
    await promote(node, is_alone=True)
    await node.stop()
    found = read_facts(tmp_path / "2")
    assert found is not None
    assert (found.is_alone, found.copies, found.forced_epoch) == (True, 1, node.epoch)
    assert (node.copies, node.introduction().copies, node.report()["is_alone"]) == (1, 1, True)
    node.acknowledge_alone(is_alone=False)
    assert (node.copies, node.introduction().copies, node.report()["is_alone"]) == (2, 2, False)
    # What it acknowledged alone is no other node's for all that.
    assert node.facts.forced_epoch == node.epoch


async def test_going_on_alone_begins_another_history(tmp_path):
    node, _ = await started(tmp_path, ClusterFacts("c", 257, is_level=True, copies=2))
    await promote(node)
    assert node.facts.forced_epoch == 0
    node.acknowledge_alone(is_alone=True)
    await node.stop()
    found = read_facts(tmp_path)
    assert found is not None
    assert (found.is_alone, found.copies, found.forced_epoch) == (True, 1, node.epoch)


async def test_a_node_that_was_behind_does_not_go_on_alone_without_force(tmp_path):
    node, _ = await started(tmp_path, ClusterFacts("c", 257, copies=2))
    with pytest.raises(Refused, match="--force"):
        await promote(node, is_alone=True)
    await promote(node, is_alone=True, is_forced=True)
    await node.stop()
    assert node.copies == 1


async def test_a_promotion_beside_a_leader_has_a_code_that_says_to_try_again(tmp_path):
    facts = ClusterFacts("c", 257, is_level=True, copies=2)
    leading, at_leading = await started(tmp_path / "1", facts, number=1)
    node, address = await started(tmp_path / "2", facts, peers=(at_leading,))
    leading.lead(513)
    with pytest.raises(PromotionRaced):
        await operate(node.settings, address, Operation("promote"))
    await leading.stop()
    await node.stop()
    assert (node.role, PromotionRaced.retriable) == (Role.WAITING, True)


async def test_a_leader_that_hears_of_a_later_epoch_stops(tmp_path):
    node, address = await started(tmp_path, ClusterFacts("c", 258, led=True, copies=2))
    told: list[PenstockError] = []
    node.on_stepped_down = told.append
    node.lead(514)
    node.changed.clear()
    link = await dial(address, None)
    link.send(Introduction("penstock", "c", 1, 769, "leading", "ask"))
    await link.expect(Introduction)
    # Its answer comes first.
    async with asyncio.timeout(10):
        await node.changed.wait()
    link.close()
    await node.stop()
    assert node.role is Role.WAITING
    assert [one.code for one in told] == ["NOT_LEADER"]


async def test_a_node_that_has_stepped_down_takes_no_follower_while_its_data_is_still_open(
    tmp_path,
):
    node, address = await started(tmp_path, ClusterFacts("c", 258, led=True, copies=2))
    taken: list[Introduction] = []

    async def serve(_link: Link, told: Introduction) -> None:
        taken.append(told)

    node.serve_follower = serve
    node.lead(514)
    node.step_down("another one leads")
    link = await dial(address, None)
    link.send(Introduction("penstock", "c", 1, 514, "waiting", "follow"))
    await link.expect(Introduction)
    with pytest.raises(PeerRefused) as refused:
        await link.expect(Granted)
    link.close()
    await node.stop()
    assert refused.value.refusal.code == "NOT_LEADER"
    assert not taken


@pytest.mark.parametrize(
    ("name", "cluster_id", "number", "reason"),
    [
        ("invoices", "c", 1, "it is of cluster 'invoices', not 'penstock'"),
        ("penstock", "d", 1, "it has data of another cluster (d, not c)"),
        ("penstock", "c", 2, "it has number 2, as this node has"),
    ],
)
async def test_a_node_of_another_cluster_is_refused_in_one_line_however_often_it_comes(
    tmp_path, caplog, name, cluster_id, number, reason
):
    node, address = await started(tmp_path, ClusterFacts("c", 258, led=True, copies=2))
    for _ in range(3):
        link = await dial(address, None)
        link.send(Introduction(name, cluster_id, number, 513, "waiting", "follow"))
        with pytest.raises(PenstockError) as told:
            await link.expect(Introduction)
        link.close()
        assert reason in str(told.value)
    await node.stop()
    assert len([one for one in caplog.messages if reason in one and "\n" not in one]) == 1


async def test_a_leader_that_cannot_hand_over_is_followed_on(tmp_path):
    facts = ClusterFacts("c", 257, is_level=True, copies=2)
    leading, at_leading = await started(tmp_path / "1", facts, number=1)
    node, _ = await started(tmp_path / "2", facts, peers=(at_leading,))

    async def until_cut(link: Link, _other: object) -> None:
        await link.expect(Granted)

    async def hand_over(_node: int) -> None:
        raise Unavailable("no standby is level")

    leading.serve_follower, leading.hand_over, node.follow = until_cut, hand_over, until_cut
    leading.lead(513)
    node.look()
    async with asyncio.timeout(10):
        while node.role is not Role.FOLLOWING:
            node.changed.clear()
            await node.changed.wait()
    followed = node._link
    with pytest.raises(Unavailable, match="level"):
        async with asyncio.timeout(10):
            await promote(node)
    assert (node.role, node._link) == (Role.FOLLOWING, followed)
    await node.stop()
    await leading.stop()


async def test_a_node_is_not_promoted_beside_a_peer_that_answers_with_an_error(tmp_path):
    other = ClusterFacts("d", 257, led=True, copies=2)
    peer, address = await started(tmp_path / "1", other, number=1)
    facts = ClusterFacts("c", 257, is_level=True, copies=2)
    node, _ = await started(tmp_path / "2", facts, peers=(address,))
    with pytest.raises(PenstockError, match="another cluster"):
        await promote(node)
    assert (node.role, node.epoch) == (Role.WAITING, 257)
    await node.stop()
    await peer.stop()


async def test_a_line_for_the_audit_log_that_comes_between_two_roles_is_not_lost(tmp_path):
    node, address = await started(tmp_path, ClusterFacts("c", 257, is_level=True, copies=2))
    written: list[str] = []
    try:
        await operate(node.settings, address, Operation("promote"))
        node.audit_to(lambda what, _where: written.append(what))
    finally:
        await node.stop()
    assert written == ["promote"]


def test_what_is_sent_when_the_connection_has_ended_is_dropped(tmp_path):
    """With the loop of a broker: it refuses to write to a connection that has ended."""
    uvloop = pytest.importorskip("uvloop")

    async def send_too_late() -> None:
        node, address = await started(tmp_path, ClusterFacts("c", 257))
        try:
            link = await dial(address, None)
            link.close()
            with pytest.raises(Unreachable):
                await link.receive()
            link.send(Claim(513, 2))
        finally:
            await node.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(send_too_late())


class TlsTransport(asyncio.Transport):
    """Fails, whatever it is asked, as that of asyncio does when both sides have closed it."""

    is_closed = False

    def get_extra_info(self, name, default=None):
        if self.is_closed:
            raise AttributeError("'NoneType' object has no attribute '_get_extra_info'")
        return {"peername": ("10.0.0.6", 9093), "peercert": {"serialNumber": "1"}}.get(name)

    def set_write_buffer_limits(self, high=None, low=None):
        pass


async def test_a_connection_over_tls_that_has_ended_says_with_whom_it_was():
    link, transport = Link(), TlsTransport()
    link.connection_made(transport)
    transport.is_closed = True
    link.connection_lost(None)
    with pytest.raises(Unreachable, match=r"no answer from 10\.0\.0\.6: the connection has ended"):
        await link.receive()
    assert link.certificate == {"serialNumber": "1"}


class AcceptedLink(Link):
    """A connection that tells of itself once it is there."""

    def __init__(self, accept: Callable[[Link], None]) -> None:
        super().__init__()
        self._accept = accept

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._accept(self)


class WaitingPeer:
    """Node 1, which leads nothing: it answers who it is when it may, and grants every claim."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self.answering: list[asyncio.Task[None]] = []
        self.asked = 0
        self.may_answer = asyncio.Event()

    def accept(self, link: Link) -> None:
        self.answering.append(asyncio.get_running_loop().create_task(self.answer(link)))

    async def answer(self, link: Link) -> None:
        try:
            with suppress(Unreachable):
                await link.expect(Introduction)
                self.asked += 1
                await self.may_answer.wait()
                link.send(Introduction("penstock", "c", 1, 257, "waiting"))
                self.claims.append(await link.expect(Claim))
                link.send(Granted(self.claims[-1].epoch))
        finally:
            link.close()


async def test_a_node_that_is_promoted_while_it_asks_its_peer_does_not_claim_another_epoch(
    tmp_path,
):
    peer = WaitingPeer()
    server = await asyncio.get_running_loop().create_server(
        lambda: AcceptedLink(peer.accept), "127.0.0.1", 0
    )
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    node, _ = await started(tmp_path, ClusterFacts("c", 258, led=True, copies=2), peers=(address,))
    promotion = asyncio.create_task(promote(node))
    async with asyncio.timeout(10):
        # By the node that looks for a leader, and by the promotion.
        while peer.asked < 2:  # noqa: ASYNC110 - told by no event
            await asyncio.sleep(0.001)
        peer.may_answer.set()
        await promotion
        # It leads without a follower, and asks again: what it began before is over.
        while peer.asked < 3:  # noqa: ASYNC110 - told by no event
            await asyncio.sleep(0.001)
    epoch = node.epoch
    await node.stop()
    server.close()
    # One of the two began to lead, and the other found it done.
    assert node.role is Role.LEADING
    assert [one.epoch for one in peer.claims] in ([], [epoch])
    assert epoch == 514


async def test_a_node_that_stops_while_it_asks_a_peer_hangs_up(tmp_path):
    asked, hung_up = asyncio.Event(), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        hung_up.set()
        writer.close()

    async with asyncio.timeout(10):
        server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        node, _ = await started(tmp_path, ClusterFacts("c", 257), peers=(address,))
        await asked.wait()
        await node.stop()
        await hung_up.wait()
        server.close()


class SilentNode:
    """Takes connections and says nothing."""

    def __init__(self) -> None:
        self.connections = 0
        self.asked = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.asked.set()
        with suppress(ConnectionError):
            while await reader.read(1000):
                pass
        writer.close()


async def test_peers_are_asked_side_by_side_and_a_silent_leader_is_not_asked_to_hand_over(tmp_path):
    silent = [SilentNode(), SilentNode()]
    servers = [await asyncio.start_server(one.serve, "127.0.0.1", 0) for one in silent]
    addresses = tuple(f"127.0.0.1:{one.sockets[0].getsockname()[1]}" for one in servers)
    facts = ClusterFacts("c", 257, is_level=True, copies=3)
    node, _ = await started(tmp_path, facts, 3, number=2, peers=addresses)
    async with asyncio.timeout(10):
        # Neither is given up before the other is asked.
        asking = asyncio.create_task(node.ask_all())
        for peer in silent:
            await peer.asked.wait()
        assert not asking.done()
        answers = await asking
        assert {type(answer) for answer in answers.values()} == {Unreachable}
    # It follows a leader of which nothing more comes: its connection has ended, or is as good as.
    node.leader = Peer(1, "leading", 257, "", "", 3, True, addresses[0], "c")
    node.role = Role.FOLLOWING
    node._watching.cancel()
    for peer in silent:
        peer.connections = 0
    promotion = asyncio.create_task(promote(node))
    await asyncio.sleep(0)
    node.role = Role.WAITING
    async with asyncio.timeout(10):
        await promotion
    assert node.role is Role.LEADING
    assert [peer.connections for peer in silent] == [1, 1]
    await node.stop()
    for server in servers:
        server.close()


async def test_a_new_leader_is_followed_at_once(tmp_path, monkeypatch):
    """Not only when the other one looks again by itself."""
    monkeypatch.setattr(membership_module, "_ASK_AGAIN_S", 3600)
    facts = ClusterFacts("c", 257, is_level=True, copies=2)
    followed: asyncio.Queue[int] = asyncio.Queue()

    async def follow(_link: Link, peer: Peer) -> None:
        followed.put_nowait(peer.epoch)

    other, address = await started(tmp_path / "3", facts, number=3)
    node, at_node = await started(tmp_path / "2", facts, number=2, peers=(address,))
    other.cluster = ClusterSection(listen=address, peers=(at_node,))
    other.follow = follow
    heard, met = other.heard, asyncio.Event()

    def hear(peer: Peer) -> None:
        heard(peer)
        met.set()

    other.heard = hear
    async with asyncio.timeout(20):
        # The node has looked, and waits.
        await met.wait()
        node.lead(514)
        assert await followed.get() == 514
    for one in (node, other):
        await one.stop()


async def test_a_node_that_is_forced_to_lead_has_those_that_are_there_promise(tmp_path):
    """Else what they elect and acknowledge while it is away could be in an earlier epoch, and be cut."""
    facts = ClusterFacts("c", 257, copies=2)
    other, address = await started(tmp_path / "3", facts, number=3)

    async def nothing(*_: object) -> tuple[bool, dict[str, LogFacts]]:
        return True, {}

    other.follow = other.survey = nothing
    node, _ = await started(tmp_path / "2", facts, number=2, peers=(address, NOWHERE))
    await promote(node, is_forced=True)
    await node.stop()
    await other.stop()
    assert other.epoch == node.epoch == node.facts.forced_epoch
    found = read_facts(tmp_path / "3")
    assert found is not None
    assert found.epoch == node.epoch
