"""Whether a node may lead without the leader's word: what it has written down, what the peer says, and min_isr."""

import pytest

from penstock.server.standby.cluster_file import ClusterFacts
from penstock.server.standby.promotion import Peer, doubt_of

LED, FOLLOWED = 257, 514


def led(copies: int = 2) -> ClusterFacts:
    return ClusterFacts("c", LED, led=True, copies=copies)


def followed(*, is_level: bool = True, copies: int = 2) -> ClusterFacts:
    return ClusterFacts("c", FOLLOWED, is_level=is_level, copies=copies)


def peer(epoch: int, *, has_led: bool) -> Peer:
    return Peer(2, "waiting", epoch, "", "", 2, has_led, "", "c")


@pytest.mark.parametrize(
    ("facts", "peers", "min_isr", "doubt"),
    [
        # Neither acknowledges anything alone: who led, or was level, has everything.
        (led(), [], 2, ""),
        (followed(), [], 2, ""),
        (followed(is_level=False), [], 2, "was behind"),
        (ClusterFacts("c"), [], 2, "was behind"),
        # The leader could go on alone.
        (followed(copies=1), [], 2, "goes on alone"),
        (followed(copies=1), [peer(FOLLOWED, has_led=True)], 2, "goes on alone"),
        # This node would go on alone, and does not know what the other did.
        (led(), [], 1, "does not answer"),
        (led(copies=1), [], 2, "does not answer"),
        (followed(), [], 1, "does not answer"),
        # The peer answers, and did nothing since.
        (led(copies=1), [peer(LED, has_led=False)], 1, ""),
        (followed(), [peer(FOLLOWED, has_led=True)], 1, ""),
        # It led later.
        (led(), [peer(FOLLOWED, has_led=True)], 2, "led after this one"),
    ],
)
def test_doubt(facts: ClusterFacts, peers: list[Peer], min_isr: int, doubt: str) -> None:
    found = doubt_of(facts, peers, 0, min_isr)
    assert doubt in found
    assert bool(doubt) == bool(found)


def test_node_that_was_handed_over_to_has_everything() -> None:
    facts = followed(is_level=False, copies=1)
    peers = [peer(FOLLOWED, has_led=False)]
    assert doubt_of(facts, peers, FOLLOWED, 1) == ""
    assert doubt_of(facts, peers, LED, 1)
