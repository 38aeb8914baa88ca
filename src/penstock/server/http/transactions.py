"""Transactions: sessions of producers, messages that are staged, commits and aborts."""

from uuid import uuid4

import msgspec

from ...api.json.forms import json_of, writer_of
from ...api.json.transactions import (
    AddPartitionIn,
    BegunOut,
    EndIn,
    HeartbeatIn,
    InitIn,
    SessionIn,
    SessionOut,
    StagedOut,
    StageIn,
)
from ...api.principals import Action
from ...api.transactions import (
    BeginTransaction,
    EndTransaction,
    InitProducer,
    ProducerHeartbeat,
    Stage,
    TransactionEnd,
)
from ...errors import (
    BacklogFull,
    NotFound,
    OutOfSequence,
    OverStagingQuota,
    PartitionFaulty,
    ProducerFenced,
    ShareFull,
    TooLarge,
    TransactionEnded,
    TransactionInProgress,
)
from ...model import TopicPartition
from .requests import Request
from .responses import Answer, json_response, nothing
from .routing import Route, TopicIn
from .staged import staged_of

_INIT = msgspec.json.Decoder(InitIn)
_END = msgspec.json.Decoder(EndIn)
_PARTITION = msgspec.json.Decoder(AddPartitionIn)
_SESSION = msgspec.json.Decoder(SessionIn)
_HEARTBEAT = msgspec.json.Decoder(HeartbeatIn)
_STAGE = msgspec.json.Decoder(StageIn)


async def init(request: Request) -> Answer:
    """The epoch of the answer holds for the session: its commits and aborts leave it as it is."""
    said = request.json(_INIT)
    name = f"unnamed-{uuid4().hex}" if said.transactional_id is None else said.transactional_id
    command = InitProducer(name, said.transaction_timeout_ms, keeps_epoch=True)
    return json_response(SessionOut(*await request.execute(command)))


async def heartbeat(request: Request) -> Answer:
    said = request.json(_HEARTBEAT)
    producer_id = int(request.params["producer_id"])
    await request.execute(ProducerHeartbeat(producer_id, said.epoch, said.transactional_id))
    return nothing()


async def begin(request: Request) -> Answer:
    said = request.json(_SESSION)
    await _check_name(request, said)
    command = BeginTransaction(said.producer_id, said.epoch, is_first=True)
    return json_response(BegunOut(await request.execute(command)))


async def _check_name(request: Request, said: SessionIn) -> None:
    """NotFound: the producer has another name than the one that was sent."""
    if said.transactional_id:
        command = ProducerHeartbeat(said.producer_id, said.epoch, said.transactional_id)
        await request.execute(command)


async def add_partition(request: Request) -> Answer:
    said = request.json(_PARTITION)
    topic = request.allow(said.topic)
    await _check_name(request, said)
    partitions = (TopicPartition(topic, said.partition),)
    command = BeginTransaction(said.producer_id, said.epoch, partitions)
    return json_response(BegunOut(await request.execute(command)))


async def publish(request: Request) -> Answer:
    """Stage one message; durable when it is answered."""
    said = request.json(_STAGE)
    topic = request.allow(said.topic)
    messages, delayed = staged_of([said.message()], request)
    command = Stage(
        said.producer_id,
        said.epoch,
        topic,
        messages,
        said.partition,
        said.sequence,
        delayed,
        may_begin_anywhere=True,
    )
    (one,) = await request.execute(command, is_synced=True)
    return json_response(StagedOut(True, one.partition, None, one.sequence, one.is_duplicate))


async def commit(request: Request) -> Answer:
    return await _end(request, is_commit=True)


async def abort(request: Request) -> Answer:
    return await _end(request, is_commit=False)


async def _end(request: Request, *, is_commit: bool) -> Answer:
    said = request.json(_END)
    await _check_name(request, said)
    command = EndTransaction(said.producer_id, said.epoch, is_commit, said.transaction_id)
    return json_response(json_of(await request.execute(command)))


_END_OUT = writer_of(TransactionEnd).kind
_ENDS = (NotFound, ProducerFenced, TransactionEnded, TransactionInProgress, PartitionFaulty)

ROUTES = (
    Route(
        method="POST",
        path="/producers/init",
        call=init,
        action=Action.PUBLISH,
        summary="Begin a session of a transactional producer; an earlier one of its name is fenced",
        tag="transactions",
        body=InitIn,
        answer=SessionOut,
        errors=(TransactionInProgress, ShareFull, PartitionFaulty),
    ),
    Route(
        method="POST",
        path="/producers/{producer_id}/heartbeat",
        call=heartbeat,
        action=Action.PUBLISH,
        summary="Put off the time-out of the open transaction; 409 once another session took over",
        tag="transactions",
        body=HeartbeatIn,
        status=204,
        errors=(NotFound, ProducerFenced, PartitionFaulty),
    ),
    Route(
        method="POST",
        path="/transactions/begin",
        call=begin,
        action=Action.PUBLISH,
        summary="Begin a transaction; the first message does so by itself. 409 while one is open",
        tag="transactions",
        body=SessionIn,
        answer=BegunOut,
        errors=(NotFound, ProducerFenced, TransactionInProgress, PartitionFaulty),
    ),
    Route(
        method="POST",
        path="/transactions/add-partition",
        call=add_partition,
        action=Action.PUBLISH,
        summary="Have a partition take part in the transaction, which begins with this; publishing does so by itself",
        tag="transactions",
        body=AddPartitionIn,
        answer=BegunOut,
        errors=(NotFound, ProducerFenced, TransactionInProgress, PartitionFaulty),
        topic_in=TopicIn.REST,
    ),
    Route(
        method="POST",
        path="/transactions/publish",
        call=publish,
        action=Action.PUBLISH,
        summary="Stage a message: no reader sees it before the commit",
        tag="transactions",
        body=StageIn,
        answer=StagedOut,
        errors=(
            NotFound,
            ProducerFenced,
            TransactionInProgress,
            OutOfSequence,
            TooLarge,
            BacklogFull,
            OverStagingQuota,
            PartitionFaulty,
        ),
        topic_in=TopicIn.REST,
    ),
    Route(
        method="POST",
        path="/transactions/commit",
        call=commit,
        action=Action.PUBLISH,
        summary="Commit; the answer has the final offsets, and the epoch of the next transaction",
        tag="transactions",
        body=EndIn,
        answer=_END_OUT,
        errors=_ENDS,
    ),
    Route(
        method="POST",
        path="/transactions/abort",
        call=abort,
        action=Action.PUBLISH,
        summary="Abort; the answer has the epoch of the next transaction",
        tag="transactions",
        body=EndIn,
        answer=_END_OUT,
        errors=_ENDS,
    ),
)
