"""What engines such as Spark ask for: the ends of many partitions in one cheap call, and where a query first began."""

from itertools import pairwise
from pathlib import Path

import msgspec

from ...api.principals import Action, Role
from ...api.start import Start
from ...broker.partition import Now
from ...broker.queries import QueryStarted
from ...broker.start import offset_in
from ...errors import BadRequest, DamagedBatch, Forbidden, NotFound, OffsetOutOfRange
from ...log import Log
from .requests import Request
from .responses import Answer, json_response, nothing
from .routing import Route, TopicIn
from .shapes import Int64, Strict
from .times import Span, span_ms, time_ns

_TOPICS_MAX = 1000
_MS = 1_000_000


class EndsQuery(Strict):
    """Topics, separated by commas; with a time also the first offset that was stored at it or later."""

    topics: str
    at: str | None = None


class PartitionEnds(msgspec.Struct, omit_defaults=True):
    """First offset kept, next offset to be written, and what `at` asked for."""

    earliest: int
    latest: int
    at: int | None = None


class TopicEnds(msgspec.Struct):
    """A topic that is deleted and made again has another `id`."""

    id: int
    partitions: dict[str, PartitionEnds]


class EndsOut(msgspec.Struct):
    """`missing` are those that are not there."""

    topics: dict[str, TopicEnds]
    missing: list[str]


async def ends(request: Request) -> Answer:
    """Asked for some hundred times a second by every idle stream: no more than a look at numbers in memory."""
    asked = request.query(EndsQuery)
    names = [request.allow(name) for name in asked.topics.split(",") if name]
    if not 1 <= len(names) <= _TOPICS_MAX:
        raise BadRequest(f"topics must be 1..{_TOPICS_MAX} names, got {len(names)}", field="topics")
    time = None if asked.at is None else Start.at_time(time_ns("at", asked.at))
    return json_response(request.door.driver.look(lambda _now: _ends(request, names, time)))


def _ends(request: Request, names: list[str], time: Start | None) -> EndsOut:
    found, missing = {}, []
    for name in names:
        topic = request.node.open.get(name)
        if topic is None:
            missing.append(name)
            continue
        # A faulty one is an error: who plans by this would take it for a partition that there never was.
        parts = topic.partitions
        logs = [(str(number), parts[number].messages) for number in range(len(parts))]
        found[name] = TopicEnds(
            topic.facts.topic_id,
            {
                number: PartitionEnds(
                    log.start_offset, log.end_offset, None if time is None else offset_in(log, time)
                )
                for number, log in logs
            },
        )
    return EndsOut(found, missing)


class FilesIn(Strict):
    """A range of offsets, and for how long what is in it may not go."""

    offset: Int64
    end: Int64
    hold: Span = "10m"


class FileOut(msgspec.Struct):
    """A sealed segment: whole batches from offset `start` up to `end`, in the first `size_bytes` of a file."""

    path: str
    start: int
    end: int
    size_bytes: int


class FilesOut(msgspec.Struct):
    """Paths are below `data_dir`; heads are checked with `seed`. What is not in a file yet has to be fetched.

    Keys that only read are not told the directory.
    """

    data_dir: str | None
    seed: int
    files: list[FileOut]


_FILES = msgspec.json.Decoder(FilesIn)
_HOLD_MS_MAX = 3_600_000


async def files(request: Request) -> Answer:
    """The files of a range, for those who see the disk; they stay for a while."""
    sent = await request.json(_FILES)
    topic, number = request.params["topic"], int(request.params["partition"])
    hold_ms = span_ms("hold", sent.hold)
    if hold_ms > _HOLD_MS_MAX:
        raise BadRequest(f"hold may be {_HOLD_MS_MAX} ms, got {hold_ms}", field="hold")

    def run(now: Now) -> FilesOut:
        partition = request.node.partition(topic, number)
        log = partition.messages
        if not log.start_offset <= sent.offset <= log.end_offset:
            raise OffsetOutOfRange(sent.offset, start=log.start_offset, end=log.end_offset)
        partition.pins.hold(sent.offset, now.monotonic_ns + hold_ms * _MS)
        return FilesOut(_data_dir(request), log.seed, _sealed(log, sent))

    return json_response(request.door.driver.look(run))


def _data_dir(request: Request) -> str | None:
    if request.principal.role is Role.READONLY:
        return None
    return str(Path(request.door.settings.broker.data_dir).absolute())


def _sealed(log: Log, wanted: FilesIn) -> list[FileOut]:
    return [
        FileOut(one.path, one.base_offset, following.base_offset, one.size)
        for one, following in pairwise(log.segments)
        if one.base_offset < wanted.end and following.base_offset > wanted.offset
    ]


class StartIn(Strict):
    """Offsets by "topic/partition", ids by topic, and in the query's own words what it asked for."""

    offsets: dict[str, Int64]
    ids: dict[str, Int64]
    asked: str


class StartOut(msgspec.Struct):
    query: str
    offsets: dict[str, int]
    ids: dict[str, int]
    asked: str


_START = msgspec.json.Decoder(StartIn)


async def keep_start(request: Request) -> Answer:
    """The first start of a query; asked again for the same, it gets the first answer."""
    sent, name = await request.json(_START), request.params["query"]
    _allow_all(request, sent.offsets)
    start = QueryStarted(name, sent.asked, sent.offsets, sent.ids)
    driver = request.door.driver.driver
    kept = await request.door.driver.in_thread(
        lambda: driver.change(lambda now: driver.node.keep_query_start(start, now))
    )
    _allow_kept(request, kept)
    return json_response(_start_out(kept))


async def see_start(request: Request) -> Answer:
    return json_response(_start_out(_kept(request)))


async def forget_start(request: Request) -> Answer:
    name, driver = _kept(request).name, request.door.driver.driver
    await request.door.driver.in_thread(
        lambda: driver.change(lambda now: driver.node.forget_query_start(name, now))
    )
    return nothing()


def _kept(request: Request) -> QueryStarted:
    name = request.params["query"]
    found = request.door.driver.look(lambda _now: request.node.topics.queries.find(name))
    _allow_kept(request, found)
    return found


def _allow_kept(request: Request, start: QueryStarted) -> None:
    """Forbidden without the names of the topics, which the caller may not know."""
    try:
        _allow_all(request, start.offsets)
    except Forbidden:
        name = request.principal.name
        raise Forbidden(
            f"{name} does not reach the topics of query {start.name[:60]}", principal=name
        ) from None


def _allow_all(request: Request, offsets: dict[str, int]) -> None:
    for topic in {key.rpartition("/")[0] for key in offsets}:
        request.allow(topic)


def _start_out(start: QueryStarted) -> StartOut:
    return StartOut(start.name, start.offsets, start.ids, start.asked)


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
        answer=EndsOut,
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
        answer=StartOut,
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
        answer=StartOut,
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
