"""Acks and offsets inside of transactions: they count with the commit."""

from typing import Any

import msgspec

from ...api.json.transaction_answers import (
    AckInTransactionIn,
    AnswersStagedOut,
    NackInTransactionIn,
    OffsetsInTransactionIn,
    OffsetsStagedOut,
    RejectInTransactionIn,
)
from ...api.principals import Action
from ...api.transaction_answers import StageAnswers, StagedOffset, StageOffsets
from ...errors import (
    NotFound,
    NotOwner,
    OffsetOutOfRange,
    PartitionFaulty,
    ProducerFenced,
    StaleGeneration,
    StaleReceipt,
    TransactionInProgress,
    UnknownMember,
)
from .groups import partition_offsets
from .requests import Request
from .responses import Answer, json_response
from .routing import Route, TopicIn
from .staged import answers_in

_ACK = msgspec.json.Decoder(AckInTransactionIn)
_NACK = msgspec.json.Decoder(NackInTransactionIn)
_REJECT = msgspec.json.Decoder(RejectInTransactionIn)
_OFFSETS = msgspec.json.Decoder(OffsetsInTransactionIn)

_Sent = AckInTransactionIn | NackInTransactionIn | RejectInTransactionIn


async def ack(request: Request) -> Answer:
    return await _stage(request, request.json(_ACK))


async def nack(request: Request) -> Answer:
    return await _stage(request, request.json(_NACK))


async def reject(request: Request) -> Answer:
    return await _stage(request, request.json(_REJECT))


async def _stage(request: Request, sent: _Sent) -> Answer:
    """All of the receipts, or an error that names the first that is not held."""
    answers, count = await answers_in(request, sent)
    await request.execute(StageAnswers(sent.producer_id, sent.epoch, answers))
    return json_response(AnswersStagedOut(True, count))


async def offsets(request: Request) -> Answer:
    sent = request.json(_OFFSETS)
    reached = tuple(StagedOffset(*one) for one in partition_offsets(sent.offsets))
    await request.execute(
        StageOffsets(
            sent.producer_id,
            sent.epoch,
            sent.group,
            reached,
            sent.member_id or "",
            sent.generation,
        )
    )
    return json_response(OffsetsStagedOut(True, sent.group, sent.offsets))


_ERRORS = (NotFound, ProducerFenced, TransactionInProgress, PartitionFaulty)


def _answer(path: str, call: Any, summary: str, body: type[msgspec.Struct]) -> Route:
    return Route(
        method="POST",
        path=f"/transactions/{path}",
        call=call,
        action=Action.ANSWER,
        summary=summary,
        tag="transactions",
        body=body,
        answer=AnswersStagedOut,
        errors=(*_ERRORS, StaleReceipt),
        topic_in=TopicIn.REST,
    )


ROUTES = (
    _answer("ack", ack, "Ack leased messages with the commit of a transaction", AckInTransactionIn),
    _answer("nack", nack, "Have messages tried again, with the commit", NackInTransactionIn),
    _answer(
        "reject", reject, "Make dead letters of messages, with the commit", RejectInTransactionIn
    ),
    Route(
        method="POST",
        path="/transactions/offsets",
        call=offsets,
        action=Action.COMMIT,
        summary="Finish everything below some offsets with the commit of a transaction",
        tag="transactions",
        body=OffsetsInTransactionIn,
        answer=OffsetsStagedOut,
        errors=(*_ERRORS, OffsetOutOfRange, NotOwner, UnknownMember, StaleGeneration),
        topic_in=TopicIn.REST,
    ),
)
