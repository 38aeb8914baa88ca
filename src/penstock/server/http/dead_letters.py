"""Dead letters: browsed, counted, sent back."""

import msgspec
from msgspec.structs import replace

from ...api.dead_letters import (
    REDRIVE_LIMIT,
    BrowseDeadLetters,
    CountDeadLetters,
    RedriveDeadLetters,
    RedriveReply,
    Selection,
)
from ...api.json.dead_letters import (
    CountsOut,
    DeadLettersOut,
    DeadLettersQuery,
    DiscardIn,
    DiscardOut,
    RedriveIn,
    RedriveOut,
    count_out,
    cursor_of,
    dead_letter_out,
    discard_of,
    group_by_of,
    redrive_of,
    selection_of,
)
from ...api.json.messages import is_base64_wanted
from ...api.json.paging import page_limit
from ...api.letters import failed_rows
from ...api.principals import Action
from ...errors import NotFound
from .requests import Request
from .responses import Answer, json_response
from .routing import Route, TopicIn

_SECONDS_A_CALL = 10
_REDRIVE = msgspec.json.Decoder(RedriveIn)
_DISCARD = msgspec.json.Decoder(DiscardIn)


async def browse(request: Request) -> Answer:
    asked, topic = request.query(DeadLettersQuery), request.params["topic"]
    is_base64, limit = is_base64_wanted(asked.encoding), page_limit(asked.limit)
    selection, cursor = selection_of(asked), cursor_of(asked.cursor)
    if asked.group_by is not None:
        by = group_by_of(asked.group_by)
        counts = await request.execute(CountDeadLetters(topic, by, selection))
        return json_response(CountsOut([count_out(by, one) for one in counts]))
    page = await request.execute(BrowseDeadLetters(topic, selection, limit, cursor))
    following = None if page.cursor is None else f"{page.cursor[0]}-{page.cursor[1]}"
    letters = [dead_letter_out(one, is_base64=is_base64) for one in page.letters]
    return json_response(DeadLettersOut(letters, following))


async def redrive(request: Request) -> Answer:
    """Send dead letters back; each arrives once."""
    sent, topic = request.json(_REDRIVE), request.params["topic"]
    command = redrive_of(topic, sent, request.app.limits)
    out = RedriveOut(0, 0, [], sent.dry_run)
    if not sent.dry_run:
        request.admit_line()
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
            await request.audit(f"{topic}: {out.redriven} dead letters to the {sent.target}")
    return json_response(out)


async def discard(request: Request) -> Answer:
    """Have dead letters listed no more. Letters that were on their way before have arrived."""
    sent, topic = request.json(_DISCARD), request.params["topic"]
    await request.app.driver.settle()
    reply = await request.execute_audited(discard_of(topic, sent))
    return json_response(DiscardOut(reply.matched, reply.discarded, sent.dry_run))


async def _send_back(request: Request, command: RedriveDeadLetters) -> RedriveReply:
    """All of them now. Letters that were on their way before have arrived, and so have these afterwards."""
    await request.app.driver.settle()
    reply = await request.execute(command)
    if not command.is_dry_run:
        await request.app.driver.settle()
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
    left, most = found.places, min(rate, REDRIVE_LIMIT)
    for _ in range(_SECONDS_A_CALL):
        some, left = left[:most], left[most:]
        if some:
            these = Selection(offsets=frozenset(some))
            _add(out, await _send_back(request, replace(command, selection=these, limit=len(some))))
        if not left or request.app.is_draining:
            return
        # Also after the last, so that a client that calls again at once keeps to the rate.
        with request.ends_with_client():
            await request.app.sleep(1.0)


def _add(out: RedriveOut, reply: RedriveReply) -> None:
    out.redriven += reply.redriven
    out.failed += failed_rows(reply)


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
    Route(
        method="POST",
        path="/topics/{topic}/dlq/discard",
        call=discard,
        action=Action.DISCARD,
        summary="Have dead letters listed no more, without sending them anywhere",
        tag="dead letters",
        body=DiscardIn,
        answer=DiscardOut,
        errors=(NotFound,),
        topic_in=TopicIn.PATH,
    ),
)
