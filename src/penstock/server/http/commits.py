"""Named commits: stagings, the commit that publishes some of them once, and a look at names."""

from typing import Any

import msgspec

from ...api.bounds import PUBLISH_MESSAGES_MAX
from ...api.commits import (
    CommitNameFacts,
    CommitStagings,
    NamedCommit,
    OpenStaging,
    ResetCommitName,
    StageNamed,
    StageNamedAnswers,
    StagingRef,
)
from ...api.json.answers import NackIn, ReceiptsIn, RejectIn
from ...api.json.commits import (
    NamedCommitIn,
    OpenStagingIn,
    StagedMessageOut,
    StagedMessagesOut,
    StageNamedIn,
    StagingOut,
)
from ...api.json.forms import json_of, writer_of
from ...api.json.transaction_answers import AnswersStagedOut
from ...api.principals import Action
from ...errors import (
    BacklogFull,
    BadRequest,
    CommitInProgress,
    CommitNameTaken,
    InvalidName,
    NotFound,
    OutOfSequence,
    OverCommitQuota,
    OverStagingQuota,
    PartitionFaulty,
    RepeatDiffers,
    SchemaViolation,
    SequenceCommitted,
    ShareFull,
    StagingMismatch,
    StaleReceipt,
    TooLarge,
    UnknownStaging,
)
from .requests import Request
from .responses import Answer, json_response
from .routing import Route, TopicIn
from .staged import answers_in, staged_of

_OPEN = msgspec.json.Decoder(OpenStagingIn)
_STAGE = msgspec.json.Decoder(StageNamedIn)
_COMMIT = msgspec.json.Decoder(NamedCommitIn)
_ACK = msgspec.json.Decoder(ReceiptsIn)
_NACK = msgspec.json.Decoder(NackIn)
_REJECT = msgspec.json.Decoder(RejectIn)
_COMMIT_OUT, _NAME_OUT = writer_of(NamedCommit).kind, writer_of(CommitNameFacts).kind


async def open_staging(request: Request) -> Answer:
    said, name = request.json(_OPEN), request.params["commit"]
    command = OpenStaging(name, said.sequence, said.writer, said.attempt)
    staging = await request.execute(command)
    return json_response(StagingOut(staging, name, said.sequence, said.writer), status=201)


async def stage(request: Request) -> Answer:
    """Stage messages; durable when it is answered."""
    said = request.json(_STAGE)
    topic, staging = request.allow(said.topic), request.params["staging"]
    if len(said.messages) > PUBLISH_MESSAGES_MAX:
        raise TooLarge(
            "messages in one request", found=len(said.messages), limit=PUBLISH_MESSAGES_MAX
        )
    if any(one.partition is not None for one in said.messages):
        raise BadRequest("the partition is said once, beside the messages", field="partition")
    messages, delayed = staged_of(said.messages, request)
    command = StageNamed(staging, topic, messages, said.partition, said.sequence, delayed)
    found = await request.execute(command, is_synced=True)
    results = [StagedMessageOut(*one) for one in found]
    return json_response(StagedMessagesOut(len(results), results))


async def ack(request: Request) -> Answer:
    return await _answer(request, request.json(_ACK))


async def nack(request: Request) -> Answer:
    return await _answer(request, request.json(_NACK))


async def reject(request: Request) -> Answer:
    return await _answer(request, request.json(_REJECT))


async def _answer(request: Request, said: ReceiptsIn) -> Answer:
    """All of the receipts, or an error that names the first that is not held."""
    answers, count = await answers_in(request, said)
    await request.execute(StageNamedAnswers(request.params["staging"], answers))
    return json_response(AnswersStagedOut(True, count))


async def commit(request: Request) -> Answer:
    said = request.json(_COMMIT)
    stagings = [StagingRef(one.staging, one.messages) for one in said.stagings]
    command = CommitStagings(
        request.params["commit"],
        said.sequence,
        said.writer,
        stagings,
        said.one_off,
        said.fingerprint,
    )
    return json_response(json_of(await request.execute(command)))


async def reset(request: Request) -> Answer:
    found = await request.execute_audited(ResetCommitName(request.params["commit"]))
    return json_response(json_of(found))


def _answer_route(path: str, call: Any, summary: str, body: type[msgspec.Struct]) -> Route:
    return Route(
        method="POST",
        path=f"/stagings/{{staging}}/{path}",
        call=call,
        action=Action.ANSWER,
        summary=summary,
        tag="commits",
        body=body,
        answer=AnswersStagedOut,
        errors=(
            UnknownStaging,
            NotFound,
            StaleReceipt,
            OverCommitQuota,
            PartitionFaulty,
        ),
        topic_in=TopicIn.REST,
    )


ROUTES = (
    Route(
        method="POST",
        path="/commits/{commit}/stagings",
        call=open_staging,
        action=Action.PUBLISH,
        summary="Begin a staging for one sequence of a named commit",
        tag="commits",
        body=OpenStagingIn,
        answer=StagingOut,
        status=201,
        errors=(
            InvalidName,
            CommitNameTaken,
            SequenceCommitted,
            ShareFull,
            OverCommitQuota,
            PartitionFaulty,
        ),
    ),
    Route(
        method="POST",
        path="/stagings/{staging}/messages",
        call=stage,
        action=Action.PUBLISH,
        summary="Stage messages for a named commit: no reader sees them before it",
        tag="commits",
        body=StageNamedIn,
        answer=StagedMessagesOut,
        errors=(
            UnknownStaging,
            NotFound,
            OutOfSequence,
            OverCommitQuota,
            OverStagingQuota,
            TooLarge,
            SchemaViolation,
            BacklogFull,
            PartitionFaulty,
        ),
        topic_in=TopicIn.REST,
    ),
    _answer_route("ack", ack, "Ack leased messages with a named commit", ReceiptsIn),
    _answer_route("nack", nack, "Have messages tried again, with a named commit", NackIn),
    _answer_route("reject", reject, "Make dead letters of messages, with a named commit", RejectIn),
    Route(
        method="POST",
        path="/commits/{commit}",
        call=commit,
        action=Action.PUBLISH,
        summary="Publish exactly these stagings, once, for ever; a repeat is answered and publishes nothing",
        tag="commits",
        body=NamedCommitIn,
        answer=_COMMIT_OUT,
        errors=(
            InvalidName,
            NotFound,
            UnknownStaging,
            CommitNameTaken,
            StagingMismatch,
            RepeatDiffers,
            CommitInProgress,
            OverCommitQuota,
            PartitionFaulty,
        ),
    ),
    Route(
        method="DELETE",
        path="/commits/{commit}",
        call=reset,
        action=Action.ABORT_TRANSACTION,
        summary="As `POST .../reset`",
        tag="commits",
        answer=_NAME_OUT,
        errors=(NotFound, CommitInProgress, PartitionFaulty),
    ),
    Route(
        method="POST",
        path="/commits/{commit}/reset",
        call=reset,
        action=Action.ABORT_TRANSACTION,
        summary="Forget a name and drop its stagings: any writer may begin anew; the answer is what it was",
        tag="commits",
        answer=_NAME_OUT,
        errors=(NotFound, CommitInProgress, PartitionFaulty),
    ),
)
