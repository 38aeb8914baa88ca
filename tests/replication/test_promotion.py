"""Whether a node may lead without the leader's word: what it has written down, what the peer says, and min_isr."""

from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.replication.frames import EpochAt, LogFacts
from penstock.server.standby.cluster_file import ClusterFacts
from penstock.server.standby.link import Granted
from penstock.server.standby.promotion import Asked, Peer, choose, doubt_of, doubt_of_count

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


def asked(
    node: int, end: int, *, epoch: int = LED, is_level: bool = True, is_whole: bool = True
) -> Asked:
    """A node whose only log ends there, of a leader with min_isr 2."""
    logs = {"meta": LogFacts("meta", 7, 0, end, (EpochAt(epoch, 0),))}
    return Asked(node, f"at-{node}", Granted(999, epoch, is_level, 2, is_whole), logs)


@pytest.mark.parametrize(
    ("nodes", "chosen", "doubt"),
    [
        ([asked(1, 5), asked(2, 5)], 1, ""),
        ([asked(1, 5), asked(2, 6)], 2, ""),
        # A later epoch is more than a longer log.
        ([asked(1, 9), asked(2, 6, epoch=FOLLOWED)], 2, ""),
        ([asked(1, 9), asked(2, 6, epoch=FOLLOWED, is_level=False)], 1, "had everything"),
        ([asked(1, 5), asked(2, 9, is_whole=False)], 1, "1 of 3 nodes"),
        ([asked(1, 5)], 1, "1 of 3 nodes"),
    ],
)
def test_the_longest_of_enough_nodes_leads(nodes: list[Asked], chosen: int, doubt: str) -> None:
    choice = choose(nodes, 3, 2)
    assert choice.chosen.node == chosen
    assert doubt in choice.doubt
    assert bool(doubt) == bool(choice.doubt)


@pytest.mark.parametrize(
    ("count", "min_isr", "is_enough"),
    [(1, 3, True), (1, 2, False), (2, 2, True), (2, 1, False), (3, 1, True)],
)
def test_how_many_of_three_nodes_have_to_be_asked(
    count: int, min_isr: int, is_enough: bool
) -> None:
    assert bool(doubt_of_count(count, 3, min_isr)) is not is_enough


NODES = 3


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.booleans(), st.booleans(), st.integers(1, NODES)),
        min_size=1,
        max_size=NODES,
    ),
    st.integers(1, NODES),
)
def test_no_node_leads_without_doubt_that_may_lack_what_was_acknowledged(
    told: list[tuple[int, bool, bool, int]], min_isr: int
) -> None:
    """Whatever min_isr any of them heard last: while it is raised, the leader acknowledged with the lower one."""
    nodes = [
        Asked(
            number,
            "",
            Granted(999, LED, is_level, copies, is_whole),
            asked(number, end).logs,
        )
        for number, (end, is_level, is_whole, copies) in enumerate(told)
    ]
    choice = choose(nodes, NODES, min_isr)
    if choice.doubt:
        return
    whole = {node.node for node in nodes if node.said.is_whole}
    level = [node for node in nodes if node.said.is_whole and node.said.is_level]
    assert level
    assert choice.chosen.node in whole
    for copies in {min_isr, *(node.said.copies for node in level)}:
        assert all(whole & {*holders} for holders in combinations(range(NODES), copies))
    longest = max(node.logs["meta"].end for node in nodes if node.said.is_whole)
    assert choice.chosen.logs["meta"].end == longest


@given(st.lists(st.sampled_from(["follow", "next", "level", "promise", "lead"]), max_size=8))
def test_what_a_node_writes_down_is_about_the_leader_that_it_followed_last(
    steps: list[str],
) -> None:
    facts, leader, is_level, has_led = ClusterFacts("c"), 0, False, False
    for step in steps:
        if step in {"follow", "next"}:
            epoch = facts.epoch + 1 if step == "next" or not leader else facts.epoch
            is_new = epoch > leader or has_led
            leader, is_level, has_led = epoch, is_level and not is_new, False
            facts = facts.following("c", epoch, 2, 1)
        elif step == "level" and leader and not has_led:
            facts, is_level = msgspec.structs.replace(facts, is_level=True), True
        elif step == "promise" and leader:
            facts = facts.promised(facts.epoch + 1)
            is_level, has_led = is_level or has_led, False
        elif step == "lead":
            epoch = facts.epoch + 1
            facts = msgspec.structs.replace(facts, epoch=epoch, led=True, heard_epoch=0)
            leader, has_led = epoch, True
        assert facts.leader_epoch == leader
        assert facts.epoch >= leader
        assert (facts.is_level, facts.led) == (is_level, has_led)
