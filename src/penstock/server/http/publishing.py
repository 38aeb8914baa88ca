"""Publishing: JSON, NDJSON, one message in a query, and batches that the client encoded."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ...api.principals import Action
from ...api.publish import Delayed, PublishBatch, Published, PublishedRun, Schedule
from ...api.publish import PublishOutcome as Stored
from ...config import LimitsConfig
from ...errors import (
    BacklogFull,
    BadRequest,
    MalformedBatch,
    NoSpace,
    NotFound,
    OutOfSequence,
    PenstockError,
    Refused,
    TooLarge,
    Unavailable,
)
from ...model import Message
from .delays import due_ns, moments_of_first
from .inlet import Answers, Run
from .requests import Request, decode, decode_lines, read_fields
from .responses import BATCH, NDJSON, Answer, Response, encode_json, json_response
from .routing import Route, TopicIn
from .shapes import (
    Content,
    Int64,
    MessageIn,
    Strict,
    bytes_of,
    expires_at,
    message_of,
    priority_of,
)
from .statuses import error_fields, error_response
from .times import Span, time_text_or_none

MESSAGES_MAX = 100_000
_ACKS = {"none": 0, "leader": 1, "all": 2, 0: 0, 1: 1, 2: 2, "0": 0, "1": 1, "2": 2}
_ALL, _NONE, _LEADER = 2, 0, 1
# Stands for an offset in a template; no offset is that large.
_MARK = (1 << 62) + 12_345


class PublishIn(Strict):
    """Messages, and what to wait for: none (0), leader (1, the broker's fsync policy), all (2, an fsync)."""

    messages: list[MessageIn]
    acks: str | int = "leader"


class PlainMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A message that is nothing but text."""

    value: str


class PlainIn(Strict):
    """The usual request: see `_plain`."""

    messages: list[PlainMessage]
    acks: str | int = "leader"


class PublishedOut(msgspec.Struct, kw_only=True, gc=False, rename={"deliver_at_too": "deliverAt"}):
    """Where a message is, and how safe. If it is `delayed`, its offset is that in the delay log."""

    partition: int | None
    offset: int | None
    priority: int | None = None
    delayed: bool = False
    deliver_at: str | None = None
    deliver_at_too: str | None = None
    duplicate: bool = False
    guarantee: str = "buffered"
    error: str | None = None


class PublishOut(msgspec.Struct):
    """A result for each message, in their order; one that failed has `error`, `message` and `status`."""

    results: list[PublishedOut]


class ProduceIn(Strict, rename={"deliver_at_too": "deliverAt"}):
    """One message, in a query or as JSON."""

    topic: str
    key: Content = None
    value: Content = None
    headers: dict[str, Any] | list[Any] | None = None
    partition: Int64 | None = None
    priority: Int64 | str | None = None
    ttl: Span | None = None
    idempotency_key: Content = None
    delay: Span | None = None
    deliver_at: str | None = None
    deliver_at_too: str | None = None
    delay_key: Content = None
    acks: str | int = "leader"


class AcksQuery(Strict):
    """What to wait for, if the body does not say."""

    acks: str | None = None


class BatchOut(msgspec.Struct):
    """Where a batch is, and how many partitions its topic has by now."""

    partition: int
    base_offset: int
    next_offset: int
    count: int
    duplicate: bool
    guarantee: str
    partitions: int


_PUBLISH = msgspec.json.Decoder(PublishIn)
_PLAIN = msgspec.json.Decoder(PlainIn)
_LINE = msgspec.json.Decoder(MessageIn)
_PRODUCE = msgspec.json.Decoder(ProduceIn)


def acks_of(written: str | int) -> int:
    if written not in _ACKS:
        raise BadRequest(
            f"acks must be none, leader or all, got {str(written)[:40]!r}", field="acks"
        )
    return _ACKS[written]


async def publish(request: Request) -> Answer:
    """Messages as one JSON object, or one a line."""
    topic = request.params["topic"]
    asked = request.query(AcksQuery).acks if request.scope["query_string"] else None
    if request.content_type == NDJSON:
        items = decode_lines(await request.body(), _LINE)
        acks = acks_of(asked or _LEADER)
    else:
        body = await request.body()
        plain = _plain(body)
        if plain is not None:
            return await _publish_plain(request, topic, plain, acks_of(asked or plain.acks))
        sent = decode(body, _PUBLISH)
        items, acks = sent.messages, acks_of(asked or sent.acks)
    if len(items) > MESSAGES_MAX:
        raise TooLarge("messages in one request", found=len(items), limit=MESSAGES_MAX)
    if not items:
        request.door.driver.look(lambda _now: request.node.topic(topic))
        return json_response(PublishOut([]))
    results, moments = await store(request, topic, items, acks)
    return _response(request, items, results, acks, moments)


def _plain(body: bytes) -> PlainIn | None:
    """Most producers send nothing but values of text; whatever has more to it is read again, with more care."""
    try:
        sent = _PLAIN.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return sent if 0 < len(sent.messages) <= MESSAGES_MAX else None


async def _publish_plain(request: Request, topic: str, sent: PlainIn, acks: int) -> Answer:
    values = [one.value.encode() for one in sent.messages]
    found = await request.door.inlet.publish(
        topic, None, values, is_synced=acks == _ALL, is_awaited=acks != _NONE
    )
    return _plain_response(request, sent, found, acks)


def publish_at_once(request: Request, body: bytes, admit: Callable[[], None]) -> Response | None:
    """`publish` for plain values that are the first of their turn and wait for nothing. None: these are others.

    `admit` has the door's questions, and raises if the answer is no.
    """
    door = request.door
    inlet = door.inlet
    if not inlet.is_free or len(body) > door.settings.http.body_bytes_max:
        return None
    sent = _plain(body)
    acks = _ALL if sent is None else _ACKS.get(sent.acks, _ALL)
    is_waiting = acks == _ALL or (acks != _NONE and door.driver.is_always_synced)
    if sent is None or is_waiting:
        return None
    admit()
    messages = sent.messages
    # A list of one is made by hand: this is for those who come one by one.
    values = (
        [messages[0].value.encode()]
        if len(messages) == 1
        else [one.value.encode() for one in messages]
    )
    found = inlet.publish_now(request.params["topic"], values)
    return _plain_response(request, sent, found, acks)


def _plain_response(request: Request, sent: PlainIn, found: Answers, acks: int) -> Response:
    if isinstance(found, list):
        items = [MessageIn(value=one.value) for one in sent.messages]
        return _response(request, items, found, acks, {})
    request.door.traffic.published += found.length
    return Response(_run_body(found, _guarantee(request, acks)))


def _run_body(run: Run, guarantee: str) -> bytes:
    """The same as `_response` would write, made from a template: of the results only the offset differs."""
    before, after = _template(run.partition, guarantee)
    if run.length == 1:
        return f'{{"results":[{before}{run.offset}{after}]}}'.encode()
    offsets = map(str, range(run.offset, run.offset + run.length))
    return f'{{"results":[{before}{f"{after},{before}".join(offsets)}{after}]}}'.encode()


@lru_cache(maxsize=1024)
def _template(partition: int, guarantee: str) -> tuple[str, str]:
    written = encode_json(
        PublishedOut(partition=partition, offset=_MARK, priority=2, guarantee=guarantee)
    )
    before, after = written.decode().split(str(_MARK))
    return before, after


async def produce(request: Request) -> Answer:
    """One message."""
    sent = await _one(request)
    topic = request.allow(sent.topic)
    acks = acks_of(sent.acks)
    fields = [(one.name, one.encode_name) for one in msgspec.structs.fields(MessageIn)]
    given = {name: getattr(sent, own) for own, name in fields if getattr(sent, own) is not None}
    item = read_fields(given, MessageIn)
    (result,), moments = await store(request, topic, [item], acks)
    if isinstance(result, PenstockError):
        return error_response(result)
    return json_response(_result(item, result, _guarantee(request, acks), moments.get(0)))


async def _one(request: Request) -> ProduceIn:
    body = await request.body()
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
    now_ns = request.door.driver.driver.clock.now_ns()
    limits = request.door.limits
    results: list[Stored | None] = [None] * len(items)
    places: dict[int | None, tuple[list[int], list[Message]]] = {}
    later: list[tuple[int, Delayed]] = []
    for index, item in enumerate(items):
        try:
            moment = _moment_of(item, now_ns)
            if moment is not None:
                later.append((index, _delayed_of(item, moment, now_ns, limits)))
                continue
            message = message_of(item, now_ns, limits)
        except PenstockError as error:
            results[index] = error
            continue
        place = places.get(item.partition)
        if place is None:
            place = places[item.partition] = ([], [])
        place[0].append(index)
        place[1].append(message)
    for index, one in later:
        results[index] = await _schedule(request, topic, items[index].partition, one, acks)
    inlet = request.door.inlet
    waits = [
        inlet.publish(topic, partition, messages, is_synced=acks == _ALL, is_awaited=acks != _NONE)
        for partition, (_, messages) in places.items()
    ]
    answers = [await waits[0]] if len(waits) == 1 else await asyncio.gather(*waits)
    stored = _in_order(items, results, [*places.values()], answers)
    moments = {index: one.due_ns for index, one in later}
    return stored, moments | moments_of_first(request, topic, stored)


def _moment_of(item: MessageIn, now_ns: int) -> int | None:
    """When a message is to come; None: at once."""
    if item.delay is None and item.deliver_at is None and item.deliver_at_too is None:
        if item.delay_key is not None:
            raise BadRequest("delay_key needs delay or deliver_at", field="delay_key")
        return None
    if item.deliver_at is not None and item.deliver_at_too is not None:
        raise BadRequest("give one of deliver_at and deliverAt", field="deliver_at")
    return due_ns(item.delay, item.deliver_at or item.deliver_at_too, now_ns)


def _delayed_of(item: MessageIn, moment: int, now_ns: int, limits: LimitsConfig) -> Delayed:
    message = message_of(item, now_ns, limits)
    if item.ttl is not None:
        # The time to live begins when the message comes.
        late = expires_at(item.ttl, max(moment, now_ns))
        message = msgspec.structs.replace(message, expires_at=late)
    return Delayed(message, moment, bytes_of(item.delay_key))


async def _schedule(
    request: Request, topic: str, partition: int | None, delayed: Delayed, acks: int
) -> Stored:
    driver, command = request.door.driver, Schedule(topic, [delayed], partition)
    try:
        (found,), ticket = driver.driver.start(
            command, request.principal, writers=int(acks == _ALL)
        )
        if ticket is not None and acks != _NONE:
            await driver.settled(ticket)
    except (Refused, Unavailable) as error:
        return error
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


def _guarantee(request: Request, acks: int) -> str:
    is_safe = acks == _ALL or (acks != _NONE and request.door.driver.is_always_synced)
    return "fsynced" if is_safe else "buffered"


def _response(
    request: Request,
    items: Sequence[MessageIn],
    results: Sequence[Stored],
    acks: int,
    moments: Mapping[int, int | None],
) -> Response:
    guarantee = _guarantee(request, acks)
    out = [
        _result(item, one, guarantee, moments.get(index))
        for index, (item, one) in enumerate(zip(items, results, strict=True))
    ]
    failed = [one for one in results if isinstance(one, PenstockError)]
    traffic = request.door.traffic
    traffic.published += len(results) - len(failed)
    for error in failed:
        traffic.count_error(error.code)
    if len(failed) < len(results):
        return json_response({"results": out})
    # Nothing was stored, so the whole answer is the first error, with everybody's beside it.
    first = error_response(failed[0])
    body = {**error_fields(failed[0]), "results": out}
    return json_response(body, status=first.status, headers=first.headers)


def _result(item: MessageIn, one: Stored, guarantee: str, moment: int | None) -> object:
    if isinstance(one, PenstockError):
        return {"partition": item.partition, "offset": None, **error_fields(one)}
    deliver_at = time_text_or_none(moment)
    return PublishedOut(
        partition=one.partition,
        offset=one.offset,
        delayed=one.is_delayed,
        deliver_at=deliver_at,
        deliver_at_too=deliver_at,
        priority=2 if item.priority is None else priority_of(item.priority),
        duplicate=one.is_duplicate,
        guarantee=guarantee,
    )


async def append_batch(request: Request) -> Answer:
    """A batch in our own format, stored whole or not at all."""
    acks = acks_of(request.query(AcksQuery).acks or _LEADER)
    topic, partition = request.params["topic"], int(request.params["partition"])
    if request.content_type != BATCH:
        raise BadRequest(f"content-type must be {BATCH.decode()}")
    batch = await request.batch(size_max=request.door.limits.batch_bytes_max)
    if not batch:
        raise MalformedBatch("it is empty")

    command = PublishBatch(topic, partition, batch)
    found = await request.execute(command, is_synced=acks == _ALL)
    stored = found.stored
    request.door.traffic.published += len(stored)
    out = BatchOut(
        partition,
        stored[0].offset,
        stored[-1].offset + 1,
        len(stored),
        _is_repeat(stored),
        _guarantee(request, acks),
        found.partitions,
    )
    return json_response(out)


def _is_repeat(stored: Sequence[Published]) -> bool:
    if isinstance(stored, PublishedRun):
        return stored.first.is_duplicate
    return all(one.is_duplicate for one in stored)


_ERRORS = (NotFound, TooLarge, BacklogFull, NoSpace)

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
        at_once=publish_at_once,
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
