"""What `penstock promote` does: the leader hands over; or without one, the node that has everything leads."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...errors import PenstockError, PromotionRaced, Refused, Unavailable, Unreachable
from ...replication.ballots import next_ballot
from ...replication.frames import Inventory, LogFacts
from .link import ASK_S, FIRST_FRAME_S, Claim, Operation
from .operator_requests import ANSWER_S, operate
from .promotion import Asked, Peer, Role, choose, doubt_of, doubt_of_count

if TYPE_CHECKING:
    from .membership import Membership

_PAIR = 2
_ALONE = "this node acknowledges alone until the others have everything again"


async def promote(
    membership: "Membership", *, is_forced: bool = False, is_alone: bool = False
) -> dict[str, object]:
    """Lead from now on. A leader that answers hands over first; without one, only what is known to be whole leads.

    `is_alone`: acknowledge without the others until enough of them have everything again. Refused: this node may lack
    what was acknowledged, and `is_forced` is not set. PromotionRaced: another node leads, or is promoted, just now.
    """
    if membership.role is Role.LEADING:
        return {**membership.report(), "note": await _lead_on(membership, is_alone=is_alone)}
    if membership.role is Role.FOLLOWING and membership.leader is not None:
        # A leader that was just silent is found out about by `_take_over`, which asks all nodes at once.
        if membership.silent_s < ASK_S:
            with suppress(Unreachable):
                await _ask_to_hand_over(membership, membership.leader.address)
                return membership.report()
        await membership.leave_leader()
    note = ""
    async with membership.deciding:
        if not membership.leads:
            note = await _take_over(membership, is_forced=is_forced, is_alone=is_alone)
    return {**membership.report(), "note": note} if note else membership.report()


async def _lead_on(membership: "Membership", *, is_alone: bool) -> str:
    """Returns what there is to say to a person who promotes a node that leads."""
    if not is_alone:
        return "this node led already"
    if membership.go_alone is None:
        raise PromotionRaced("this node opens or closes its data: try again in a moment")
    await membership.go_alone()
    return _ALONE


async def _ask_to_hand_over(membership: "Membership", address: str) -> None:
    """The leader stops, waits until this node has everything, and says so in the stream."""
    await membership.ask(address)
    await operate(membership.settings, address, Operation("hand-over"), as_node=membership.node)
    deadline = time.monotonic() + ANSWER_S
    while membership.role is not Role.LEADING:
        if time.monotonic() > deadline:
            raise Unavailable(f"the leader at {address} has not handed over in {ANSWER_S:g} s")
        membership.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await membership.changed.wait()


async def _take_over(membership: "Membership", *, is_forced: bool, is_alone: bool) -> str:
    """Lead, or have a peer lead that has more. Returns what there is to say about that."""
    peers: list[Peer] = []
    for answer in (await membership.ask_all()).values():
        if isinstance(answer, Peer):
            peers.append(answer)
        elif not isinstance(answer, Unreachable):
            raise answer.fresh()
    if membership.role is Role.FOLLOWING:
        raise PromotionRaced("the leader is back, and this node follows it: try again in a moment")
    highest = max(membership.facts.epoch, membership.written_epoch)
    for peer in peers:
        highest = max(highest, peer.epoch)
        if peer.role == Role.LEADING.value:
            raise PromotionRaced(
                f"node {peer.node} leads and is about to be followed: try again in a moment"
            )
    epoch, nodes = next_ballot(highest, membership.node), membership.cluster.node_count
    copies = min(membership.facts.copies, membership.cluster.copies)
    is_handed_over = bool(membership.epoch) and membership.handed_over_epoch == membership.epoch
    is_enough = nodes == _PAIR or copies == nodes or is_handed_over
    if not is_enough and not is_forced:
        return await _elect(membership, peers, epoch)
    # Who says that this node goes on alone knows that the others do not.
    copies = nodes if is_alone else membership.cluster.copies
    doubt = doubt_of(membership.facts, peers, membership.handed_over_epoch, copies)
    if not doubt and not membership.is_whole:
        doubt = "this node lacks what was in a damaged log, which is in set-aside/"
    if doubt and not is_forced:
        raise _refused(doubt)
    asked: list[Asked] = []
    if not is_enough:
        # Those that are there follow nothing earlier: what they elect and acknowledge later is not cut by this reign.
        asked = await _surveys(membership, peers, epoch, tolerated=PenstockError)
        if membership.epoch >= epoch:
            raise PromotionRaced(f"this node has promised to follow epoch {membership.epoch}")
    is_other_history = bool(doubt) or not is_enough or is_alone
    nodes_asked = [node.node for node in asked]
    membership.lead(epoch, is_forced=is_other_history, is_alone=is_alone, asked=nodes_asked)
    if is_alone:
        return _ALONE
    if 1 + len(peers) < membership.cluster.copies:
        return (
            f"publishes, polls and acks are refused until {membership.cluster.copies} nodes are in sync; penstock "
            "promote --alone goes on without the others"
        )
    return ""


async def _elect(membership: "Membership", peers: Sequence[Peer], epoch: int) -> str:
    """Have the longest of this node and its peers lead. Refused: too few can be asked, or none has everything."""
    nodes, copies = membership.cluster.node_count, membership.cluster.copies
    # Before anything is promised: a leader that other nodes still follow would fall.
    if doubt := doubt_of_count(
        1 + len(peers), nodes, min(membership.facts.copies or copies, copies)
    ):
        raise _refused(doubt)
    asked = [await membership.promise_to(epoch)]
    asked += await _surveys(membership, peers, epoch, tolerated=Unreachable)
    choice = choose(asked, nodes, copies)
    if choice.doubt:
        raise _refused(choice.doubt)
    chosen = choice.chosen
    if chosen.address:
        note = f"node {chosen.node} has more than this one, and leads"
        await operate(
            membership.settings, chosen.address, Operation("promote"), as_node=membership.node
        )
        membership.logger.info("%s", note)
        return note
    if membership.epoch != epoch:
        # While others were asked, this node has promised to follow a later one.
        raise PromotionRaced(f"this node has promised to follow epoch {membership.epoch}")
    membership.lead(epoch, asked=[one.node for one in asked])
    return ""


async def _surveys(
    membership: "Membership",
    peers: Sequence[Peer],
    epoch: int,
    *,
    tolerated: type[PenstockError],
) -> list[Asked]:
    """Those peers that promise, asked side by side. Raises why another one does not, unless that is tolerated."""
    asked: list[Asked] = []
    surveys = (_survey_of(membership, peer, epoch) for peer in peers)
    for survey in await asyncio.gather(*surveys, return_exceptions=True):
        if isinstance(survey, Asked):
            asked.append(survey)
        elif not isinstance(survey, PenstockError):
            raise AssertionError("a peer could not be surveyed") from survey
        elif not isinstance(survey, tolerated):
            raise survey.fresh()
    return asked


async def _survey_of(membership: "Membership", peer: Peer, epoch: int) -> Asked:
    """Have a peer follow nothing before an epoch, and hear what it has. Unreachable, Refused."""
    link, _ = await membership.dial(peer.address, "ask")
    try:
        claim = Claim(epoch, membership.cluster.copies, is_promotion=True)
        granted = await membership.granted(link, claim, peer.address)
        logs: dict[str, LogFacts] = {}
        is_last = False
        while not is_last:
            async with asyncio.timeout(FIRST_FRAME_S):
                page: Inventory = await link.expect(Inventory)
            logs.update({one.path: one for one in page.logs})
            is_last = page.is_last
    except TimeoutError:
        raise Unreachable(peer.address, "it does not say what it has") from None
    finally:
        link.close()
    return Asked(peer.node, peer.address, granted, logs)


def _refused(doubt: str) -> Refused:
    return Refused(f"{doubt}; --force leads all the same, and what is missing is lost")
