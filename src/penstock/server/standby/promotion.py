"""Whether a node may lead without the leader's word, by what it has written down and what its peers say.

With `min_isr: 2` on both nodes neither acknowledges anything alone. So a node that led last, or had everything of its
leader once, has all that was acknowledged, and may lead. Only --force lets a node lead where that is not known: to go
on alone with `min_isr: 1` is to leave the other behind, and the other cannot know it.

With two standbys and a `min_isr` below 3 a node that had everything once may lack what the leader and the other one
acknowledged since. So the others are asked, as many that at least one of them has all that was acknowledged, and the
longest leads (`penstock.replication.reconcile.longest`).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ...replication.frames import LogFacts
from ...replication.reconcile import asked_min, longest
from .cluster_file import ClusterFacts
from .link import Granted

# With this min_isr neither node acknowledges anything alone.
_BOTH = 2
Nodes = Sequence[int]
"""Numbers of nodes."""


class Role(Enum):
    """What a node is at a moment."""

    WAITING = "waiting"
    FOLLOWING = "following"
    LEADING = "leading"


@dataclass(frozen=True, slots=True)
class Peer:
    """The other node, as it was heard last."""

    node: int
    role: str
    epoch: int
    http: str
    binary: str
    copies: int
    led: bool
    address: str
    cluster_id: str
    forced_epoch: int = 0
    begins: bool = False


def doubt_of(
    facts: ClusterFacts, peers: Sequence[Peer], handed_over_epoch: int, min_isr: int
) -> str:
    """Why something that was acknowledged may be lost if this node leads; an empty string: it is not.

    `peers` are those that answered, none of which leads; `handed_over_epoch` is that of the leader which handed over
    to this node, and `min_isr` what this node would lead with.
    """
    for peer in peers:
        if peer.led and peer.epoch > facts.epoch:
            return f"node {peer.node} led after this one, in epoch {peer.epoch}, and may have more"
    if not facts.cluster_id and not facts.epoch:
        return "this node is in no cluster: penstock serve --begin-cluster begins one, --follow copies another node"
    if not facts.led and (not facts.epoch or handed_over_epoch != facts.epoch):
        heard = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(facts.heard_ns / 1e9))
        told = f"it heard it last at {heard} in epoch {facts.epoch}"
        if not facts.is_level:
            return f"this node may lack what the leader has acknowledged: {told}, and was behind"
        if facts.copies < _BOTH:
            return (
                f"this node may lack what the leader has acknowledged: {told}, had everything then, and the leader "
                f"goes on alone (min_isr {facts.copies})"
            )
    if not peers and min(facts.copies, min_isr) < _BOTH:
        # With 2 this node acknowledges nothing before the peer is back, and then their epochs are compared.
        return (
            "the peer does not answer, so what it may have acknowledged meanwhile is not known, and with min_isr 1 "
            "this node would go on without it"
        )
    return ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A node that has promised to follow nothing earlier, and what it has; `address` is empty for this one."""

    node: int
    address: str
    said: Granted
    logs: Mapping[str, LogFacts]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which node leads, and why that may lose what was acknowledged; an empty `doubt`: it does not."""

    chosen: Asked
    doubt: str = ""


def choose(asked: Sequence[Asked], nodes: int, min_isr: int) -> Choice:
    """Take the longest of those that were asked, of which the first is this node.

    `nodes` are all of the cluster, and `min_isr` is what this node would lead with.
    """
    whole = [one for one in asked if one.said.is_whole]
    leader_epoch = max(one.said.leader_epoch for one in asked)
    level = [one for one in whole if one.said.is_level and one.said.leader_epoch == leader_epoch]
    if not level:
        return Choice(asked[0], f"no node that was asked had everything of epoch {leader_epoch}")
    copies = min(min_isr, *(one.said.copies for one in level))
    wanted = asked_min(nodes, copies)
    if len(whole) < wanted:
        return Choice(asked[0], doubt_of_count(len(whole), nodes, copies))
    number = longest([one.logs for one in whole])
    if number is None:
        return Choice(asked[0], "each of the nodes has something that another one lacks")
    return Choice(whole[number])


def doubt_of_count(asked: int, nodes: int, min_isr: int) -> str:
    """Why so many nodes that can be asked are too few; an empty string: they are enough."""
    wanted = asked_min(nodes, min_isr)
    if asked >= wanted:
        return ""
    return (
        f"{asked} of {nodes} nodes can be asked, this one included, and with min_isr {min_isr} it takes {wanted} to "
        "know what was acknowledged"
    )
