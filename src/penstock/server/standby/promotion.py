"""Whether a node may lead without the leader's word, by what it has written down and what its peer says.

With `min_isr: 2` on both nodes neither acknowledges anything alone. So a node that led last, or had everything of its
leader once, has all that was acknowledged, and may lead. Only --force lets a node lead where that is not known: to go
on alone with `min_isr: 1` is to leave the other behind, and the other cannot know it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from .cluster_file import ClusterFacts

# With this min_isr neither node acknowledges anything alone.
_BOTH = 2


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
