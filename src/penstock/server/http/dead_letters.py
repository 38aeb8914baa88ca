"""Dead letters: browsed, counted, sent back."""

from typing import Any

import msgspec
from msgspec.structs import replace

from ...api.dead_letters import (
    ALL,
    REDRIVE_LIMIT,
    BrowseDeadLetters,
    CountDeadLetters,
    DeadLetter,
    Edit,
    GroupBy,
    RedriveDeadLetters,
    RedriveReply,
    Selection,
    Target,
)
from ...api.principals import Action
from ...api.units import time_text
from ...errors import BadRequest, NotFound
from .paging import page_limit
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


class DeadLettersQuery(Strict):
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


class DeadLetterOut(msgspec.Struct, rename="camel", kw_only=True):
    """A dead letter: its own place, the message as it was, and its provenance."""

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


class DeadLettersOut(msgspec.Struct):
    dead_letters: list[DeadLetterOut]
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
    """Which letters (`filter` or `all`), where to (`topic`, or only the `group` that failed), and how many at most.

    With `rate`, so many a second.
    """

    filter: FilterIn | None = None
    all: bool = False
    target: str = "topic"
    set: EditIn | None = None
    rate: Int64 | None = None
    limit: Int64 = REDRIVE_LIMIT
    dry_run: bool = False


class RedriveOut(msgspec.Struct):
    matched: int
    redriven: int
    failed: list[dict[str, Any]]
    dry_run: bool


_RATE_MAX = 1_000_000
_SECONDS_A_CALL = 10
_REDRIVE = msgspec.json.Decoder(RedriveIn)


async def browse(request: Request) -> Answer:
    asked, topic = request.query(DeadLettersQuery), request.params["topic"]
    is_base64, limit = is_base64_wanted(asked.encoding), page_limit(asked.limit)
    selection, cursor = _selection(asked), _cursor(asked.cursor)
    if asked.group_by is not None:
        by = _group_by(asked.group_by)
        counts = await request.execute(CountDeadLetters(topic, by, selection))
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
    page = await request.execute(BrowseDeadLetters(topic, selection, limit, cursor))
    following = None if page.cursor is None else f"{page.cursor[0]}-{page.cursor[1]}"
    letters = [_dead_letter_out(one, is_base64=is_base64) for one in page.letters]
    return json_response(DeadLettersOut(letters, following))


def _selection(asked: DeadLettersQuery | FilterIn) -> Selection:
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


def _dead_letter_out(letter: DeadLetter, *, is_base64: bool) -> DeadLetterOut:
    died, message = letter.provenance, letter.message
    return DeadLetterOut(
        partition=letter.partition,
        offset=letter.offset,
        original_topic=died.original_topic,
        original_partition=died.original_partition,
        original_offset=died.original_offset,
        original_timestamp=time_text(died.original_timestamp),
        original_key=content_of(message.key, is_base64=is_base64),
        original_value=content_of(message.value, is_base64=is_base64),
        headers=headers_out(message.headers, is_base64=is_base64),
        priority=message.priority,
        delivery_attempts=died.delivery_attempts,
        first_delivery=time_text_or_none(died.first_delivery or None),
        last_delivery=time_text_or_none(died.last_delivery or None),
        last_consumer=died.last_consumer,
        group=died.group,
        last_error=died.last_error,
        dlq_timestamp=time_text(died.dlq_timestamp),
        dlq_reason=died.dlq_reason,
    )


async def redrive(request: Request) -> Answer:
    """Send dead letters back; each arrives once."""
    sent, topic = await request.json(_REDRIVE), request.params["topic"]
    command = _command(request, topic, sent)
    out = RedriveOut(0, 0, [], sent.dry_run)
    try:
        if sent.rate is None or sent.dry_run:
            reply = await _send_back(request, command)
            out.matched = reply.matched
            _add(out, reply)
        else:
            await _send_paced(request, command, sent.rate, out)
    finally:
        # Also if the client left half way: what went back went back.
        if not sent.dry_run:
            request.audit(f"{topic}: {out.redriven} dead letters to the {sent.target}")
    return json_response(out)


async def _send_back(request: Request, command: RedriveDeadLetters) -> RedriveReply:
    """All of them now. Letters that were on their way before have arrived, and so have these afterwards."""
    driver = request.door.driver
    await driver.in_thread(driver.driver.settle)
    reply = await request.execute(command)
    if not command.is_dry_run:
        await driver.in_thread(driver.driver.settle)
    return reply


async def _send_paced(
    request: Request, command: RedriveDeadLetters, rate: int, out: RedriveOut
) -> None:
    """At most `rate` letters each second, until all are gone or the time is up. `out` grows as they go.

    The request waits without a thread and ends after some seconds: the caller learns what was done and calls again
    while `matched` is more than `redriven` and `failed`. Nothing about it is kept between calls, so a restart, or a
    client that leaves, forgets nothing: what has not gone back is still listed.
    """
    found = await _send_back(request, replace(command, is_dry_run=True))
    out.matched = found.matched
    _add(out, replace(found, redriven=0))
    left = found.places
    for _ in range(_SECONDS_A_CALL):
        some, left = left[:rate], left[rate:]
        if some:
            these = Selection(offsets=frozenset(some))
            _add(out, await _send_back(request, replace(command, selection=these, limit=len(some))))
        if not left or request.door.is_draining:
            return
        # Also after the last, so that a client that calls again at once keeps to the rate.
        with request.ends_with_client():
            await request.door.sleep(1.0)


def _add(out: RedriveOut, reply: RedriveReply) -> None:
    out.redriven += reply.redriven
    out.failed += [
        {"partition": partition, "offset": offset, "reason": reason}
        for partition, offset, reason in reply.failed
    ]


def _command(request: Request, topic: str, sent: RedriveIn) -> RedriveDeadLetters:
    if (sent.filter is None) != sent.all:
        raise BadRequest("say which dead letters: give one of filter and all", field="filter")
    selection = ALL if sent.filter is None else _selection(sent.filter)
    if sent.filter is not None and selection is ALL:
        raise BadRequest("filter has no condition; say all: true if you mean all", field="filter")
    targets = {one.value: one for one in Target}
    if sent.target not in targets:
        raise BadRequest(f"target must be topic or group, got {sent.target[:40]!r}", field="target")
    if sent.rate is not None and not 1 <= sent.rate <= _RATE_MAX:
        raise BadRequest(f"rate must be in 1..{_RATE_MAX} messages a second", field="rate")
    edit = None if sent.set is None else _edit(request, sent.set)
    return RedriveDeadLetters(
        topic, selection, targets[sent.target], edit, sent.limit, sent.dry_run
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
        query=DeadLettersQuery,
        answer=DeadLettersOut | CountsOut,
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
