"""What a request stages for a transaction or a named commit: messages, at once or delayed, and answers."""

from collections.abc import Sequence

from ...api.answers import Kind, LeaseAnswer, ReceiptsByLease, checked_reason
from ...api.json.answers import NackIn, ReceiptsIn, RejectIn, receipts_of
from ...api.json.messages import MessageIn, message_of
from ...api.json.publish import delayed_of, moment_of
from ...api.json.times import span_ms
from ...api.publish import Delayed
from ...api.receipts import read_receipt
from ...model import Message
from .requests import Request


def staged_of(items: Sequence[MessageIn], request: Request) -> tuple[list[Message], list[Delayed]]:
    """Those that come with the commit, and those that it schedules."""
    now_ns, limits = request.now_ns(), request.app.limits
    messages: list[Message] = []
    delayed: list[Delayed] = []
    for one in items:
        moment = moment_of(one, now_ns)
        if moment is None:
            messages.append(message_of(one, now_ns, limits))
        else:
            delayed.append(delayed_of(one, moment, now_ns, limits))
    return messages, delayed


async def answers_in(request: Request, said: ReceiptsIn) -> tuple[list[LeaseAnswer], int]:
    """What a body answers, an ack unless it nacks or rejects, and how many messages that is about."""
    kind, reason = Kind.ACK, ""
    delay_ms: int | None = None
    if isinstance(said, NackIn):
        kind, reason = Kind.NACK, checked_reason(said.reason)
        delay_ms = None if said.delay is None else span_ms("delay", said.delay)
    elif isinstance(said, RejectIn):
        kind, reason = Kind.REJECT, checked_reason(said.reason)
    texts, leases = receipts_of(said), ReceiptsByLease()
    async for piece in request.pieces(texts):
        leases.add(map(read_receipt, piece))
    leases.require_within_bounds()
    return [*leases.answers(kind, reason, delay_ms).values()], len(texts)
