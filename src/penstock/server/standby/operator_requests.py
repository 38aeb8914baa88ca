"""What an operator asks of a node, on its listener for peers."""

import asyncio

import msgspec

from ...errors import Fenced, NotLeader, PromotionRaced, Unavailable, Unreachable
from ..settings import Settings
from .link import FIRST_FRAME_S, Introduction, Operation, PeerRefused, Report, dial
from .peer_tls import peer_contexts, require_node

OPERATOR = "operator"
# A planned switch-over is over by then.
ANSWER_S = 30.0
# Another node was promoted, or promised to follow one, meanwhile.
_RACED = frozenset({PromotionRaced.code, Fenced.code, NotLeader.code})


async def operate(
    settings: Settings, address: str, operation: Operation, *, as_node: int | None = None
) -> dict[str, object]:
    """Ask something of the node that listens at an address, with the certificate of these settings.

    Unreachable, Forbidden, Refused: as the node says. PromotionRaced, Unavailable: the same may go through soon.
    """
    contexts = peer_contexts(settings.cluster)
    link = await dial(address, contexts[1] if contexts else None)
    try:
        node = settings.broker.node_id if as_node is None else as_node
        link.send(Introduction(settings.cluster.name, "", node, 0, OPERATOR, "operate"))
        async with asyncio.timeout(FIRST_FRAME_S):
            told: Introduction = await link.expect(Introduction)
        if settings.cluster.is_tls:
            require_node(link.certificate, told.node, settings.cluster.name)
        link.introduced()
        link.send(operation)
        async with asyncio.timeout(ANSWER_S + FIRST_FRAME_S):
            report: Report = await link.expect(Report)
    except PeerRefused as refused:
        if refused.refusal.code in _RACED:
            raise PromotionRaced(refused.refusal.reason) from None
        if refused.refusal.code == Unavailable.code:
            raise Unavailable(refused.refusal.reason) from None
        raise
    except TimeoutError:
        raise Unreachable(address, "no answer") from None
    finally:
        link.close()
    found: dict[str, object] = msgspec.json.decode(report.content)
    return found
