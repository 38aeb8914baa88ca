"""What engines such as Spark ask for: the ends of many partitions in one cheap call, and where a query first began."""

from pathlib import Path

import msgspec

from ...api.json.queries import EndsQuery, FilesIn, FilesOut, StartIn
from ...api.json.times import span_ms, time_ns
from ...api.principals import Action, Role
from ...api.queries import (
    EndsReply,
    ForgetQueryStart,
    HoldFiles,
    KeepQueryStart,
    ListEnds,
    QueryStart,
    SeeQueryStart,
)
from ...errors import BadRequest, DamagedBatch, NotFound, OffsetOutOfRange, ShareFull
from .requests import Request
from .responses import Answer, json_response, nothing
from .routing import Route, TopicIn

_TOPICS_MAX = 1000


async def ends(request: Request) -> Answer:
    asked = request.query(EndsQuery)
    names = [name for name in asked.topics.split(",") if name]
    if not 1 <= len(names) <= _TOPICS_MAX:
        raise BadRequest(f"topics must be 1..{_TOPICS_MAX} names, got {len(names)}", field="topics")
    at_ns = None if asked.at is None else time_ns("at", asked.at)
    found = await request.execute(ListEnds(names, at_ns))
    return json_response(found)


_FILES = msgspec.json.Decoder(FilesIn)
_HOLD_MS_MAX = 3_600_000


async def files(request: Request) -> Answer:
    """The files of a range, for clients that see the disk; the files stay for a while."""
    sent = request.json(_FILES)
    topic, number = request.params["topic"], int(request.params["partition"])
    hold_ms = span_ms("hold", sent.hold)
    if hold_ms > _HOLD_MS_MAX:
        raise BadRequest(f"hold may be {_HOLD_MS_MAX} ms, got {hold_ms}", field="hold")

    held = await request.execute(HoldFiles(topic, number, sent.offset, sent.end, hold_ms))
    return json_response(FilesOut(_data_dir(request), held.seed, held.files))


def _data_dir(request: Request) -> str | None:
    if request.principal.role is Role.READONLY:
        return None
    return str(Path(request.app.settings.broker.data_dir).absolute())


_START = msgspec.json.Decoder(StartIn)


async def keep_start(request: Request) -> Answer:
    """The first start of a query; asked again for the same, it gets the first answer."""
    sent = request.json(_START)
    start = QueryStart(request.params["query"], sent.offsets, sent.ids, sent.asked)
    kept = await request.execute(KeepQueryStart(start))
    return json_response(kept)


async def see_start(request: Request) -> Answer:
    kept = await request.execute(SeeQueryStart(request.params["query"]))
    return json_response(kept)


async def forget_start(request: Request) -> Answer:
    await request.execute(ForgetQueryStart(request.params["query"]))
    return nothing()


_TAG = "read"
_START_PATH = "/queries/{query}/start"

ROUTES = (
    Route(
        method="GET",
        path="/offsets",
        call=ends,
        action=Action.SEE_TOPICS,
        summary="Ends of all partitions of some topics",
        tag=_TAG,
        query=EndsQuery,
        answer=EndsReply,
        errors=(DamagedBatch,),
        topic_in=TopicIn.REST,
    ),
    Route(
        method="POST",
        path="/topics/{topic}/partitions/{partition}/files",
        call=files,
        action=Action.FETCH,
        summary="Files of a range of messages, kept for a while, for those who see the disk",
        tag=_TAG,
        body=FilesIn,
        answer=FilesOut,
        errors=(NotFound, OffsetOutOfRange),
        topic_in=TopicIn.PATH,
    ),
    Route(
        method="GET",
        path=_START_PATH,
        call=see_start,
        action=Action.SEE_GROUPS,
        summary="Where a query first began",
        tag=_TAG,
        answer=QueryStart,
        errors=(NotFound,),
        topic_in=TopicIn.REST,
    ),
    Route(
        method="POST",
        path=_START_PATH,
        call=keep_start,
        action=Action.COMMIT,
        summary="Keep where a query first began; the first answer stays",
        tag=_TAG,
        body=StartIn,
        answer=QueryStart,
        errors=(ShareFull,),
        topic_in=TopicIn.REST,
    ),
    Route(
        method="DELETE",
        path=_START_PATH,
        call=forget_start,
        action=Action.COMMIT,
        summary="Forget where a query first began",
        tag=_TAG,
        status=204,
        errors=(NotFound,),
        topic_in=TopicIn.REST,
    ),
)
