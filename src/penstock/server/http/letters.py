"""Dead letters: browsed, counted, sent back."""

from typing import Any

import msgspec

from ...api.principals import Action
from ...api.units import time_text
from ...broker.letters import DeadLetter
from ...broker.outbox import Edit
from ...broker.redrive import ALL, LETTERS_A_CALL, GroupBy, Order, RedriveAnswer, Selection, Target
from ...errors import BadRequest, NotFound
from .paging import page_limit
from .redriving import check_rate, send_back, send_paced
from .requests import Request
from .responses import Answer, json_response
from .routing import Route, TopicIn
from .shapes import (
    Base64,
    Content,
    ContentOut,
    Int64,
    Strict,
    bytes_of,
    content_of,
    headers_of,
    headers_out,
    is_base64_wanted,
)
from .times import time_ns, time_text_or_none


class LettersQuery(Strict):
    """Which dead letters, or what to count them by (reason, error, consumer)."""

    reason: str | None = None
    group: str | None = None
    error: str | None = None
    before: str | None = None
    after: str | None = None
    group_by: str | None = None
    limit: Int64 = 100
    cursor: str = ""
    encoding: str | None = None


class LetterOut(msgspec.Struct, rename="camel", kw_only=True):
    """A dead letter: its own place, the message as it was, and its story."""

    partition: int
    offset: int
    original_topic: str
    original_partition: int
    original_offset: int
    original_timestamp: str
    original_key: ContentOut
    original_value: ContentOut
    headers: list[tuple[str, ContentOut]]
    priority: int
    delivery_attempts: int
    first_delivery: str | None
    last_delivery: str | None
    last_consumer: str
    group: str
    last_error: str
    dlq_timestamp: str
    dlq_reason: str


class LettersOut(msgspec.Struct):
    dead_letters: list[LetterOut]
    cursor: str | None


class CountsOut(msgspec.Struct):
    groups: list[dict[str, Any]]


class PlaceIn(Strict):
    partition: Int64
    offset: Int64


class FilterIn(Strict):
    """Every condition that is given has to hold."""

    reason: str | None = None
    group: str | None = None
    error: str | None = None
    offsets: list[PlaceIn] | None = None
    before: str | None = None
    after: str | None = None


class EditIn(Strict):
    """What to change in the messages."""

    key: Content | msgspec.UnsetType = msgspec.UNSET
    value: Content | msgspec.UnsetType = msgspec.UNSET
    headers: dict[str, str | Base64] | list[tuple[str, str | Base64]] | None = None


class RedriveIn(Strict):
    """Which letters (`filter` or `all`), to whom (`topic`, or only the `group` that failed), and how many at most.

    With `rate`, so many a second.
    """

    filter: FilterIn | None = None
    all: bool = False
    target: str = "topic"
    set: EditIn | None = None
    rate: Int64 | None = None
    limit: Int64 = LETTERS_A_CALL
    dry_run: bool = False


class RedriveOut(msgspec.Struct):
    matched: int
    redriven: int
    failed: list[dict[str, Any]]
    dry_run: bool


_REDRIVE = msgspec.json.Decoder(RedriveIn)


async def browse(request: Request) -> Answer:
    asked, topic = request.query(LettersQuery), request.params["topic"]
    is_base64, limit = is_base64_wanted(asked.encoding), page_limit(asked.limit)
    selection, cursor = _asked(asked), _cursor(asked.cursor)
    driver = request.door.driver.driver
    if asked.group_by is not None:
        by = _group_by(asked.group_by)
        counts = await request.door.driver.in_thread(
            lambda: driver.look(
                lambda _now: driver.node.count_dead_letters(topic, by, selection=selection)
            )
        )
        shown = [
            {
                by.value: one.value,
                "count": one.count,
                "first": time_text(one.first_ns),
                "last": time_text(one.last_ns),
            }
            for one in counts
        ]
        return json_response(CountsOut(shown))
    page = await request.door.driver.in_thread(
        lambda: driver.look(
            lambda _now: driver.node.dead_letters(
                topic, selection=selection, limit=limit, cursor=cursor
            )
        )
    )
    following = None if page.cursor is None else f"{page.cursor[0]}-{page.cursor[1]}"
    letters = [_letter_out(one, is_base64=is_base64) for one in page.letters]
    return json_response(LettersOut(letters, following))


def _asked(asked: LettersQuery | FilterIn) -> Selection:
    offsets = getattr(asked, "offsets", None)
    conditions: dict[str, Any] = {
        "reason": asked.reason,
        "group": asked.group,
        "error": asked.error,
        "offsets": None
        if offsets is None
        else frozenset((one.partition, one.offset) for one in offsets),
        "before_ns": None if asked.before is None else time_ns("before", asked.before),
        "after_ns": None if asked.after is None else time_ns("after", asked.after),
    }
    return ALL if all(one is None for one in conditions.values()) else Selection(**conditions)


def _group_by(written: str) -> GroupBy:
    names = {one.value: one for one in GroupBy}
    if written not in names:
        raise BadRequest(
            f"group_by must be one of {', '.join(names)}, got {written[:40]!r}", field="group_by"
        )
    return names[written]


def _cursor(written: str) -> tuple[int, int]:
    if not written:
        return (0, 0)
    partition, _, offset = written.partition("-")
    if not all(one.isascii() and one.isdecimal() and len(one) < 19 for one in (partition, offset)):
        raise BadRequest("cursor is not one of ours", field="cursor")
    return int(partition), int(offset)


def _letter_out(letter: DeadLetter, *, is_base64: bool) -> LetterOut:
    story, message = letter.provenance, letter.message
    return LetterOut(
        partition=letter.partition,
        offset=letter.offset,
        original_topic=story.original_topic,
        original_partition=story.original_partition,
        original_offset=story.original_offset,
        original_timestamp=time_text(story.original_timestamp),
        original_key=content_of(message.key, is_base64=is_base64),
        original_value=content_of(message.value, is_base64=is_base64),
        headers=headers_out(message.headers, is_base64=is_base64),
        priority=message.priority,
        delivery_attempts=story.delivery_attempts,
        first_delivery=time_text_or_none(story.first_delivery or None),
        last_delivery=time_text_or_none(story.last_delivery or None),
        last_consumer=story.last_consumer,
        group=story.group,
        last_error=story.last_error,
        dlq_timestamp=time_text(story.dlq_timestamp),
        dlq_reason=story.dlq_reason,
    )


async def redrive(request: Request) -> Answer:
    """Send dead letters back; each arrives once."""
    sent, topic = await request.json(_REDRIVE), request.params["topic"]
    order = _order(request, sent)
    driver = request.door.driver
    answer = RedriveAnswer()
    try:
        if sent.rate is None or sent.dry_run:
            answer = await driver.in_thread(lambda: send_back(driver.driver, topic, order))
        else:
            await send_paced(request, topic, order, sent.rate, answer)
    finally:
        # Also if the client left half way: what went back went back.
        if not sent.dry_run:
            request.audit(f"{topic}: {answer.redriven} dead letters to the {sent.target}")
    failed = [
        {"partition": partition, "offset": offset, "reason": reason}
        for partition, offset, reason in answer.failed
    ]
    return json_response(RedriveOut(answer.matched, answer.redriven, failed, sent.dry_run))


def _order(request: Request, sent: RedriveIn) -> Order:
    if (sent.filter is None) != sent.all:
        raise BadRequest("say which dead letters: give one of filter and all", field="filter")
    selection = ALL if sent.filter is None else _asked(sent.filter)
    if sent.filter is not None and selection is ALL:
        raise BadRequest("filter has no condition; say all: true if you mean all", field="filter")
    targets = {one.value: one for one in Target}
    if sent.target not in targets:
        raise BadRequest(f"target must be topic or group, got {sent.target[:40]!r}", field="target")
    check_rate(sent.rate)
    return Order(
        selection=selection,
        target=targets[sent.target],
        edit=None if sent.set is None else _edit(request, sent.set),
        limit=sent.limit,
        is_dry_run=sent.dry_run,
    )


def _edit(request: Request, written: EditIn) -> Edit:
    key, value = written.key, written.value
    return Edit(
        key=None if isinstance(key, msgspec.UnsetType) else bytes_of(key),
        is_key_set=not isinstance(key, msgspec.UnsetType),
        value=None if isinstance(value, msgspec.UnsetType) else bytes_of(value),
        is_value_set=not isinstance(value, msgspec.UnsetType),
        headers=None
        if written.headers is None
        else tuple(headers_of(written.headers, request.door.limits)),
    )


ROUTES = (
    Route(
        method="GET",
        path="/topics/{topic}/dlq",
        call=browse,
        action=Action.SEE_DEAD_LETTERS,
        summary="Browse dead letters, or count them by reason, error or consumer",
        tag="dead letters",
        query=LettersQuery,
        answer=LettersOut | CountsOut,
        errors=(NotFound,),
        topic_in=TopicIn.PATH,
    ),
    Route(
        method="POST",
        path="/topics/{topic}/dlq/redrive",
        call=redrive,
        action=Action.REDRIVE,
        summary="Send dead letters back to the topic, or to the group that failed",
        tag="dead letters",
        body=RedriveIn,
        answer=RedriveOut,
        errors=(NotFound,),
        topic_in=TopicIn.PATH,
    ),
)
