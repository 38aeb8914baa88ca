"""Shared consumption: a long poll, or a stream that lasts until the client leaves."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from secrets import token_hex

import msgspec

from ...api.answers import ReleaseMember
from ...api.bounds import POLL_BYTES_MAX
from ...api.consume import CountHeld, Poll
from ...api.json.messages import is_base64_wanted, polled_out
from ...api.json.poll import ConsumeQuery, PollOut, PollQuery, checked_request_id, lane_of, lease_ms
from ...api.json.start import start_in
from ...api.json.times import Span, span_ms
from ...api.leased import LeasedMessages
from ...api.principals import Action
from ...broker.groups import check_group
from ...errors import (
    BadRequest,
    DamagedBatch,
    ModeConflict,
    NotFound,
    PenstockError,
    ShareFull,
    TooManyGroups,
)
from ...model import check_name
from ...runtime.waits import MemberLoad
from ..leased_parts import fitting, leased_parts
from .requests import Request
from .responses import (
    BATCH,
    NDJSON,
    SSE,
    Answer,
    HeaderPairs,
    Response,
    Stream,
    encode_json,
    json_response,
)
from .routing import Route, TopicIn

_MS = 1_000_000
_STREAM_UNANSWERED_MAX = 10_000
# Long enough to cost nothing, short enough for a proxy that closes what is silent.
_KEEP_ALIVE_NS = 15_000 * _MS


def poll_limit(request: Request, wanted: int) -> int:
    if wanted < 1:
        raise BadRequest(f"max must be above 0, got {wanted}", field="max")
    consumer = request.app.settings.consumer
    is_binary = request.accepts(BATCH)
    return min(wanted, consumer.max_poll_records_binary if is_binary else consumer.max_poll_records)


def poll_timeout_ns(request: Request, written: Span) -> int:
    longest_ms = request.app.settings.consumer.poll_timeout_ms_max
    return min(span_ms("timeout", written), longest_ms) * _MS


async def poll(request: Request) -> Answer:
    """Messages for a group; any member gets any of them."""
    asked = request.query(PollQuery)
    is_base64 = is_base64_wanted(asked.encoding)
    command = Poll(
        request.params["topic"],
        check_group(asked.group),
        check_name(asked.owner, "owner"),
        poll_limit(request, asked.max),
        lease_ms(asked.visibility_timeout),
        lane_of(asked.priority),
        checked_request_id(asked.request_id),
        bytes_max=POLL_BYTES_MAX,
        start=start_in(asked.start),
        host=request.client,
    )
    messages: LeasedMessages
    with request.ends_with_client():
        messages = await request.app.driver.poll(
            [command], request.principal, poll_timeout_ns(request, asked.timeout)
        )
    messages = await within_bytes(request, messages)
    if request.accepts(BATCH):
        return leased_response(messages)
    return json_response(PollOut(polled_out(messages, is_base64=is_base64)))


async def within_bytes(request: Request, messages: LeasedMessages) -> LeasedMessages:
    """Keep the messages that fit into one answer, at least one; the others are released, without an attempt."""
    messages, others = fitting(messages)
    if others:
        await request.execute(others.release())
    return messages


def leased_response(messages: LeasedMessages, headers: HeaderPairs = ()) -> Response:
    """The answer of a poll in binary: docs/formats/leased.md."""
    return Response(leased_parts(messages), 200, BATCH, headers)


async def consume(request: Request) -> Answer:
    """Messages one a line as they come. What is not answered when the client leaves goes back at once."""
    asked = request.query(ConsumeQuery)
    topic, group = request.allow(asked.topic), check_group(asked.group)
    owner = check_name(asked.owner or f"stream-{token_hex(6)}", "owner")
    if not 1 <= asked.max <= _STREAM_UNANSWERED_MAX:
        raise BadRequest(
            f"max must be in 1..{_STREAM_UNANSWERED_MAX}, got {asked.max}", field="max"
        )
    is_base64 = is_base64_wanted(asked.encoding)
    lane = lane_of(asked.priority)
    start = start_in(asked.start)
    command = Poll(
        topic,
        group,
        owner,
        asked.max,
        asked.lease_ms,
        lane,
        bytes_max=POLL_BYTES_MAX,
        start=start,
        host=request.client,
    )
    # Before the first byte, so that a topic that does not exist is an error and not an empty stream.
    first = await request.app.driver.poll([command], request.principal, 0)
    is_sse = request.accepts(SSE)
    lines = _lines(request, command, first, is_base64)
    pieces = _as_sse(lines) if is_sse else _as_ndjson(lines)
    return Stream(pieces, SSE if is_sse else NDJSON)


async def _lines(
    request: Request, command: Poll, messages: LeasedMessages, is_base64: bool
) -> AsyncGenerator[list[bytes], None]:
    """Messages as JSON, those that are ready together; nothing now and then, when none came for a while."""
    app, limit = request.app, command.limit
    key = (command.topic, command.group, command.member)
    app.streams[key] = app.streams.get(key, 0) + 1
    try:
        with request.ends_with_client():
            yield [encode_json(one) for one in polled_out(messages, is_base64=is_base64)]
            while not app.is_draining:
                held = await request.execute(CountHeld(*key))
                if held >= limit:
                    await app.driver.until(MemberLoad(*key), -limit, _KEEP_ALIVE_NS)
                    continue
                rest = msgspec.structs.replace(command, limit=limit - held)
                messages = await app.driver.poll([rest], request.principal, _KEEP_ALIVE_NS)
                yield [encode_json(one) for one in polled_out(messages, is_base64=is_base64)]
    finally:
        _leave(request, key)


def _leave(request: Request, key: tuple[str, str, str]) -> None:
    """Give back what the stream holds, unless another one goes by the same name."""
    app, (topic, group, owner) = request.app, key
    app.streams[key] -= 1
    if app.streams[key]:
        return
    del app.streams[key]
    with suppress(PenstockError):
        app.driver.start(ReleaseMember(topic, group, owner))


async def _as_ndjson(groups: AsyncGenerator[list[bytes], None]) -> AsyncGenerator[bytes, None]:
    # One send for all lines that are ready: a send of its own costs a line a hundred times more.
    try:
        async for lines in groups:
            if lines:
                yield b"\n".join(lines) + b"\n"
    finally:
        await groups.aclose()


async def _as_sse(groups: AsyncGenerator[list[bytes], None]) -> AsyncGenerator[bytes, None]:
    try:
        async for lines in groups:
            yield b"".join(b"data: %b\n\n" % line for line in lines) or b": still here\n\n"
    finally:
        await groups.aclose()


ROUTES = (
    Route(
        method="GET",
        path="/topics/{topic}/messages",
        call=poll,
        action=Action.CONSUME,
        summary="Lend messages to a group, waiting for them if asked to",
        tag="consume",
        query=PollQuery,
        answer=PollOut,
        other_answers={BATCH.decode(): "docs/formats/leased.md, if the client accepts that"},
        errors=(NotFound, ModeConflict, ShareFull, TooManyGroups, DamagedBatch),
        topic_in=TopicIn.PATH,
    ),
    Route(
        method="GET",
        path="/consume",
        call=consume,
        action=Action.CONSUME,
        summary="Stream messages until the client leaves; its leases return at once",
        tag="consume",
        query=ConsumeQuery,
        other_answers={
            NDJSON.decode(): "one message a line",
            SSE.decode(): "one message an event, if the client accepts that",
        },
        errors=(NotFound, ModeConflict, ShareFull, TooManyGroups, DamagedBatch),
        topic_in=TopicIn.REST,
    ),
)
