"""How a cluster begins: once, with the data directory of the node that a person starts without --follow."""

from typing import TYPE_CHECKING

from ...errors import PenstockError, Refused, Unreachable
from ...replication.ballots import next_ballot

if TYPE_CHECKING:
    from .membership import Membership

IN_NO_CLUSTER = (
    "this node is in no cluster, and waits for a peer: with --begin-cluster it begins one without, and if its disk was "
    "lost it is started with --follow"
)


async def begin_cluster(membership: "Membership") -> None:
    """Lead a new cluster, if a person says so or a peer answers that is in none.

    Refused: a peer is in one, or would begin one as well. A leader whose disk was lost is not to begin another cluster
    while its standby is away.
    """
    may_begin = membership.cluster.begin
    for address, peer in (await membership.ask_all()).items():
        if isinstance(peer, Unreachable):
            continue
        if isinstance(peer, PenstockError):
            raise peer.fresh()
        if peer.epoch:
            raise Refused(
                f"the peer at {address} is in a cluster already (epoch {peer.epoch}), and this data directory in "
                "none: start this node with --follow, so that it copies the peer"
            )
        if peer.begins:
            raise Refused(
                f"this node and the peer at {address} are both new, and both started without --follow: the one that "
                "has no data is started with it"
            )
        may_begin = True
    if may_begin:
        highest = max(membership.facts.epoch, membership.written_epoch)
        membership.lead(next_ballot(highest, membership.node))
    else:
        membership.say("begin", IN_NO_CLUSTER)
