"""Publishing: JSON, NDJSON, one message in a query, and batches that the client encoded."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import count

import msgspec

from ...api.bounds import MESSAGES_MAX
from ...api.json.messages import (
    PRIORITY_NAMES,
    MessageIn,
    Strict,
    message_of,
    priority_of,
)
from ...api.json.publish import (
    AcksQuery,
    BatchOut,
    PlainIn,
    ProduceIn,
    PublishedOut,
    PublishIn,
    PublishOut,
    acks_of,
    delayed_of,
    moment_of,
)
from ...api.json.reading import decode, decode_line, read_fields
from ...api.json.times import time_text_or_none
from ...api.principals import LOCAL, Action
from ...api.publish import (
    LARGE_MESSAGES,
    Delayed,
    PublishBatch,
    PublishEach,
    Published,
    PublishedRun,
    Safety,
    Schedule,
)
from ...api.publish import PublishOutcome as Stored
from ...errors import (
    BacklogFull,
    BadRequest,
    MalformedBatch,
    NotFound,
    OutOfSequence,
    PenstockError,
    Refused,
    SchemaViolation,
    TooLarge,
    Unavailable,
)
from ...journeys.traces import TRACEPARENT, TRACESTATE, parse_traceparent
from ...model import Message, Priority
from .delays import moments_of_first
from .publish_coalescer import Answers, Run
from .requests import Request
from .responses import BATCH, NDJSON, Answer, Response, encode_json, json_response
from .routing import Route, TopicIn
from .statuses import error_fields, error_response

# After so many messages, or so much of a body, other requests get their turn.
_PIECE_MESSAGES, _PIECE_BYTES = 1000, 256 << 10
_ALL, _NONE = 2, 0
_NORMAL = PRIORITY_NAMES[Priority.NORMAL]
# Stands for an offset in a template; no offset is that large.
_MARK = (1 << 62) + 12_345


_TRACEPARENT, _TRACESTATE = TRACEPARENT.encode(), TRACESTATE.encode()
_PUBLISH = msgspec.json.Decoder(PublishIn)
_PLAIN = msgspec.json.Decoder(PlainIn)
_LINE = msgspec.json.Decoder(MessageIn)
_PRODUCE = msgspec.json.Decoder(ProduceIn)


async def publish(request: Request) -> Answer:
    """Messages as one JSON object, or one a line."""
    topic = request.params["topic"]
    asked = request.query(AcksQuery).acks if request.query_string else None
    if request.content_type == NDJSON:
        items = await _lines(request.body)
        acks = _acks_of(request, asked)
    else:
        body = request.body
        # The usual request has no trace that its messages would have to carry.
        plain = _plain(body) if request.header(_TRACEPARENT) is None else None
        if plain is not None:
            return await _publish_plain(
                request, topic, plain, _acks_of(request, asked or plain.acks)
            )
        sent = decode(body, _PUBLISH)
        items, acks = sent.messages, _acks_of(request, asked or sent.acks)
    if len(items) > MESSAGES_MAX:
        raise TooLarge("messages in one request", found=len(items), limit=MESSAGES_MAX)
    if not items:
        raise BadRequest("messages is empty", field="messages")
    results, moments = await store(request, topic, items, acks)
    return await _response(request, items, results, acks, moments)


async def _lines(body: bytes | bytearray) -> list[MessageIn]:
    """A message from each line that has something; other requests get their turns meanwhile.

    BadRequest names the line, counted from 1. TooLarge: there are too many.
    """
    items: list[MessageIn] = []
    position, paused_at = 0, 0
    for number in count(1):
        end = body.find(b"\n", position)
        line = body[position : end if end >= 0 else len(body)]
        if line.strip():
            items.append(decode_line(line, _LINE, number))
            if len(items) > MESSAGES_MAX:
                found = len(items) + body.count(b"\n", position)
                raise TooLarge("messages in one request", found=found, limit=MESSAGES_MAX)
        if end < 0:
            break
        position = end + 1
        if position - paused_at >= _PIECE_BYTES or number % _PIECE_MESSAGES == 0:
            paused_at = position
            await asyncio.sleep(0)
    return items


def _acks_of(request: Request, asked: str | int | None) -> int:
    """What to wait for, as the request says or else as the broker is configured."""
    return acks_of(request.app.settings.producer.ack_mode if asked is None else asked)


def _plain(body: bytes | bytearray) -> PlainIn | None:
    """Most producers send nothing but values of text; whatever has more to it is read again, with more care."""
    try:
        sent = _PLAIN.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return sent if 0 < len(sent.messages) <= MESSAGES_MAX else None


async def _publish_plain(request: Request, topic: str, sent: PlainIn, acks: int) -> Answer:
    values = [one.value.encode() for one in sent.messages]
    found = await request.app.coalescer.publish(
        topic, None, values, is_synced=acks == _ALL, is_awaited=acks != _NONE
    )
    return await _plain_response(request, sent, found, acks)


async def _plain_response(request: Request, sent: PlainIn, found: Answers, acks: int) -> Response:
    if isinstance(found, list):
        items = [MessageIn(value=one.value) for one in sent.messages]
        return await _response(request, items, found, acks, {})
    safety = _safety(request, acks)
    return Response(_run_body(found, safety))


def _run_body(run: Run, safety: Safety) -> bytes:
    """What `_response` would write, made from a template: of the results only the offset differs."""
    before, after = _template(run.partition, safety)
    if run.length == 1:
        return f'{{"results":[{before}{run.offset}{after}]}}'.encode()
    offsets = map(str, range(run.offset, run.offset + run.length))
    return f'{{"results":[{before}{f"{after},{before}".join(offsets)}{after}]}}'.encode()


@lru_cache(maxsize=1024)
def _template(partition: int, safety: Safety) -> tuple[str, str]:
    written = encode_json(
        PublishedOut(
            partition=partition,
            offset=_MARK,
            priority=_NORMAL,
            guarantee=safety.guarantee.value,
            copies=_copies_out(safety),
        )
    )
    before, after = written.decode().split(str(_MARK))
    return before, after


async def produce(request: Request) -> Answer:
    """One message."""
    sent = await _one(request)
    topic = request.allow(sent.topic)
    acks = _acks_of(request, sent.acks)
    fields = [(one.name, one.encode_name) for one in msgspec.structs.fields(MessageIn)]
    given = {name: getattr(sent, own) for own, name in fields if getattr(sent, own) is not None}
    item = read_fields(given, MessageIn)
    (result,), moments = await store(request, topic, [item], acks)
    if isinstance(result, PenstockError):
        return error_response(result)
    out = _result(item, result, _safety(request, acks), moments.get(0))
    return json_response(out)


async def _one(request: Request) -> ProduceIn:
    body = request.body
    if body:
        request.query(Strict)
        return decode(body, _PRODUCE)
    return request.query(ProduceIn)


async def store(
    request: Request, topic: str, items: Sequence[MessageIn], acks: int
) -> tuple[Sequence[Stored], Mapping[int, int | None]]:
    """An answer or an error for each message, and for those that come later when, by their index.

    What is wrong with one does not hold up the others.
    """
    now_ns = request.now_ns()
    limits = request.app.limits
    items = _traced(request, items)
    results: list[Stored | None] = [None] * len(items)
    places: dict[int | None, tuple[list[int], list[Message]]] = {}
    later: list[tuple[int, Delayed]] = []
    for index, item in enumerate(items):
        if index % _PIECE_MESSAGES == _PIECE_MESSAGES - 1:
            await asyncio.sleep(0)
        try:
            moment = moment_of(item, now_ns)
            if moment is not None:
                later.append((index, delayed_of(item, moment, now_ns, limits)))
                continue
            message = message_of(item, now_ns, limits)
        except PenstockError as error:
            request.app.activity.refuse(error)
            results[index] = error.fresh()
            continue
        place = places.get(item.partition)
        if place is None:
            place = places[item.partition] = ([], [])
        place[0].append(index)
        place[1].append(message)
    for index, one in later:
        results[index] = await _schedule(request, topic, items[index].partition, one, acks)
    publishes: Callable[..., Awaitable[Answers]] = partial(
        request.app.coalescer.publish, topic, is_synced=acks == _ALL, is_awaited=acks != _NONE
    )
    if len(items) > LARGE_MESSAGES:
        publishes = partial(_publish_large, request, topic, acks)
    contents = [(partition, messages) for partition, (_, messages) in places.items()]
    # In no local: a future keeps its error, and the traceback of that this frame.
    if len(contents) == 1:
        answers = [await publishes(*contents[0])]
    else:
        answers = await asyncio.gather(*(publishes(*some) for some in contents))
    stored = _in_order(items, results, [*places.values()], answers)
    moments = {index: one.due_ns for index, one in later}
    return stored, moments | await moments_of_first(request, topic, stored)


async def _publish_large(
    request: Request, topic: str, acks: int, partition: int | None, messages: Sequence[Message]
) -> Answers:
    """By themselves, in turns of the loop: together with those of other requests they would hold these up."""
    command = PublishEach(topic, messages, partition)
    try:
        return await request.app.driver.execute(command, LOCAL, is_synced=acks == _ALL)
    except NotFound as error:
        return [error.fresh()] * len(messages)


def _traced(request: Request, items: Sequence[MessageIn]) -> Sequence[MessageIn]:
    """The messages with the trace of the request, as headers, unless they have one of their own.

    A header that is not as W3C Trace Context says is ignored, as it says.
    """
    sent = request.header(_TRACEPARENT)
    if sent is None or parse_traceparent(sent) is None:
        return items
    trace = [(TRACEPARENT, sent.decode())]
    state = request.header(_TRACESTATE)
    if state is not None and state.isascii():
        trace.append((TRACESTATE, state.decode()))
    return [_with_trace(item, trace) for item in items]


def _with_trace(item: MessageIn, trace: Sequence[tuple[str, str]]) -> MessageIn:
    headers = item.headers or []
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if any(name == TRACEPARENT for name, _ in pairs):
        return item
    return msgspec.structs.replace(item, headers=[*pairs, *trace])


async def _schedule(
    request: Request, topic: str, partition: int | None, delayed: Delayed, acks: int
) -> Stored:
    command = Schedule(topic, [delayed], partition)
    try:
        if acks == _NONE:
            (found,) = request.app.driver.start(command, request.principal)
        else:
            (found,) = await request.execute(command, is_synced=acks == _ALL)
    except (Refused, Unavailable) as error:
        return error.fresh()
    return found


def _in_order(
    items: Sequence[MessageIn],
    results: list[Stored | None],
    places: Sequence[tuple[list[int], list[Message]]],
    answers: Sequence[Answers],
) -> Sequence[Stored]:
    """Answers of all partitions, in the order of the messages."""
    if len(answers) == 1 and isinstance(answers[0], list) and len(answers[0]) == len(items):
        return answers[0]
    for (indexes, _), found in zip(places, answers, strict=True):
        assert isinstance(found, list), "only plain values come as a run"
        for index, one in zip(indexes, found, strict=True):
            results[index] = one
    return [one for one in results if one is not None]


def _safety(request: Request, acks: int) -> Safety:
    driver = request.app.driver
    return driver.safety(is_synced=acks == _ALL or (acks != _NONE and driver.is_always_synced))


def _copies_out(safety: Safety) -> int | msgspec.UnsetType:
    """On how many machines a message is; nothing is said of it without a standby."""
    return safety.copies or msgspec.UNSET


async def _response(
    request: Request,
    items: Sequence[MessageIn],
    results: Sequence[Stored],
    acks: int,
    moments: Mapping[int, int | None],
) -> Response:
    safety = _safety(request, acks)
    for index, one in enumerate(results):
        if isinstance(one, SchemaViolation):
            # Until here it is the index among what several requests had stored together.
            one.fields["index"] = index
    out: list[object] = []
    for index, (item, one) in enumerate(zip(items, results, strict=True)):
        if index % _PIECE_MESSAGES == _PIECE_MESSAGES - 1:
            await request.app.driver.give_way()
        out.append(_result(item, one, safety, moments.get(index)))
    failed = [one for one in results if isinstance(one, PenstockError)]
    if len(failed) < len(results):
        return json_response({"results": out})
    # Nothing was stored, so the whole answer is the first error, with all of them beside it.
    first = error_response(failed[0])
    body = {**error_fields(failed[0]), "results": out}
    return json_response(body, status=first.status, headers=first.headers, is_last=first.is_last)


def _result(item: MessageIn, one: Stored, safety: Safety, moment: int | None) -> object:
    if isinstance(one, PenstockError):
        return {"partition": item.partition, "offset": None, **error_fields(one)}
    deliver_at = time_text_or_none(moment)
    return PublishedOut(
        partition=one.partition,
        offset=one.offset,
        delayed=one.is_delayed,
        deliver_at=deliver_at,
        deliver_at_too=deliver_at,
        priority=_NORMAL if item.priority is None else PRIORITY_NAMES[priority_of(item.priority)],
        duplicate=one.is_duplicate,
        guarantee=safety.guarantee.value,
        copies=_copies_out(safety),
    )


async def append_batch(request: Request) -> Answer:
    """A batch in our own format, stored whole or not at all."""
    acks = _acks_of(request, request.query(AcksQuery).acks)
    topic, partition = request.params["topic"], int(request.params["partition"])
    if request.content_type != BATCH:
        raise BadRequest(f"content-type must be {BATCH.decode()}")
    batch = request.body
    if not batch:
        raise MalformedBatch("it is empty")

    command = PublishBatch(topic, partition, batch)
    found = await request.execute(command, is_synced=acks == _ALL)
    stored, safety = found.stored, _safety(request, acks)
    out = BatchOut(
        partition,
        stored[0].offset,
        stored[-1].offset + 1,
        len(stored),
        _is_repeat(stored),
        safety.guarantee.value,
        found.partitions,
        _copies_out(safety),
    )
    return json_response(out)


def _is_repeat(stored: Sequence[Published]) -> bool:
    if isinstance(stored, PublishedRun):
        return stored.first.is_duplicate
    return all(one.is_duplicate for one in stored)


_ERRORS = (NotFound, TooLarge, SchemaViolation, BacklogFull)

ROUTES = (
    Route(
        method="POST",
        path="/topics/{topic}/messages",
        call=publish,
        action=Action.PUBLISH,
        summary="Publish messages; 200 if any was stored, otherwise the status of the first error",
        tag="publish",
        query=AcksQuery,
        body=PublishIn,
        other_bodies={NDJSON.decode(): "one message a line; `acks` in the query"},
        answer=PublishOut,
        errors=_ERRORS,
        topic_in=TopicIn.PATH,
    ),
    Route(
        method="POST",
        path="/produce",
        call=produce,
        action=Action.PUBLISH,
        summary="Publish one message, in the query or as JSON",
        tag="publish",
        query=ProduceIn,
        body=ProduceIn,
        answer=PublishedOut,
        errors=_ERRORS,
        topic_in=TopicIn.REST,
    ),
    Route(
        method="POST",
        path="/topics/{topic}/partitions/{partition}/batches",
        call=append_batch,
        action=Action.PUBLISH,
        summary="Publish one encoded batch, whole",
        tag="publish",
        query=AcksQuery,
        other_bodies={BATCH.decode(): "a batch, docs/formats/batch.md"},
        answer=BatchOut,
        errors=(*_ERRORS, OutOfSequence),
        topic_in=TopicIn.PATH,
        is_batch=True,
    ),
)
