"""How many peers it takes to lead again, and which epoch a node begins whatever they have promised."""

import asyncio
import logging

import pytest
from msgspec.structs import replace

from penstock.server.cluster_settings import ClusterSection
from penstock.server.settings import BrokerSection, Settings
from penstock.server.standby import membership as membership_module
from penstock.server.standby.cluster_file import ClusterFacts
from penstock.server.standby.election import promote
from penstock.server.standby.membership import Membership
from penstock.server.standby.promotion import Peer, Role

from .test_membership import NOWHERE, started


@pytest.mark.parametrize(
    ("led_with", "min_isr", "answering", "may_claim"),
    [
        (3, 3, 0, False),
        (3, 3, 1, True),
        (2, 2, 1, True),
        (1, 1, 2, True),
        # Whichever of the two is lower counts: it acknowledged with the one, and others may lead with the other.
        (1, 3, 1, False),
        (3, 1, 1, False),
        (1, 3, 2, True),
    ],
)
def test_how_many_of_two_peers_have_to_answer_a_node_that_led(
    tmp_path, led_with, min_isr, answering, may_claim
):
    cluster = ClusterSection(listen=NOWHERE, peers=(NOWHERE, "127.0.0.1:2"), min_isr=min_isr)
    settings = Settings(broker=BrokerSection(node_id=1), cluster=cluster)
    node = Membership(settings, tmp_path, logging.getLogger("test"))
    node.facts = ClusterFacts("c", 257, led=True, copies=led_with)
    peer = Peer(2, "waiting", 257, "", "", 2, False, NOWHERE, "c")
    assert node._may_claim([peer] * answering) == may_claim


@pytest.mark.parametrize("promised", [(257, 770), (770, 257), (257, 257)])
@pytest.mark.parametrize("has_led", [False, True])
async def test_an_epoch_is_later_than_any_that_a_node_knows(
    tmp_path, monkeypatch, promised, has_led
):
    """Whichever peer promised the latest, and whether a promotion begins it or a claim: at the first try."""
    monkeypatch.setattr(membership_module, "_ASK_AGAIN_S", 3600)
    peers = [
        await started(
            tmp_path / str(number), ClusterFacts("c", epoch, is_level=True, copies=3), number=number
        )
        for number, epoch in enumerate(promised, 2)
    ]
    facts = ClusterFacts("c", 257, led=has_led, is_level=True, copies=3)
    if has_led:
        # They promised it to this very node, whose claim went no further.
        for peer, _ in peers:
            peer.facts = replace(peer.facts, epoch=peer.epoch // 256 * 256 + 1)
    node, _ = await started(
        tmp_path, facts, 3, number=1, peers=tuple(address for _, address in peers)
    )
    async with asyncio.timeout(10):
        if not has_led:
            await promote(node)
        await node.changed.wait()
    known = max(peer.epoch for peer, _ in peers)
    for one in (node, *(peer for peer, _ in peers)):
        await one.stop()
    assert node.role is Role.LEADING
    assert node.epoch >= known if has_led else node.epoch > known
