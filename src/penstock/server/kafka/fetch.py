"""Fetching: stored batches from offsets on, of several partitions at once, waiting until there is enough.

Every fetch names all its partitions: fetch sessions are never begun, which clients understand.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from ...api.fetch import DescribeBounds, Fetch, FetchReply, LogBounds
from ...api.start import Start
from ...codec import batches_in
from ...errors import OffsetOutOfRange, PenstockError, TooManyRequests
from ...model import Buffer
from .dead_letters import holds_dead_letters
from .errors import Code, code_of
from .session import KafkaSession
from .wire import Values

_NO_SESSION = 0
_FIRST_EPOCHS = (-1, 0)
_MS = 1000
# A client that asks for more gets it in several answers.
_ANSWER_BYTES_MAX = 64 << 20


class Wanted(NamedTuple):
    """One partition of a fetch."""

    topic: str
    partition: int
    offset: int
    bytes_max: int
    # The epoch of the log as the client knows it from metadata; below zero if it does not say.
    epoch: int

    def code(self, bounds: LogBounds) -> Code:
        """A client that has not heard of the newest epoch gets no message, so that its position stays while it checks
        that position (OffsetForLeaderEpoch): librdkafka compares the answer with where it is then, and where the
        position has moved takes the log for cut, and drops what it has fetched and not handed out."""
        return Code.FENCED_LEADER_EPOCH if 0 <= self.epoch < bounds.epoch else Code.NONE


class Part(NamedTuple):
    """What was found in one partition."""

    wanted: Wanted
    answer: Values
    size: int
    # Another fetch would not find more by waiting.
    is_settled: bool


async def fetch(session: KafkaSession, request: Values) -> Values:
    if request["session_id"] != _NO_SESSION or request["session_epoch"] not in _FIRST_EPOCHS:
        return {"error_code": Code.FETCH_SESSION_ID_NOT_FOUND}
    # A partition that is named twice is fetched once, from where it was named last, as Kafka does.
    wanted = {
        (topic["topic"], one["partition"]): Wanted(
            topic["topic"],
            one["partition"],
            one["fetch_offset"],
            one["partition_max_bytes"],
            one["current_leader_epoch"],
        )
        for topic in request["topics"]
        for one in topic["partitions"]
    }
    parts = await _parts(session, [*wanted.values()], request)
    by_topic: dict[str, list[Values]] = {topic["topic"]: [] for topic in request["topics"]}
    for part in parts:
        by_topic[part.wanted.topic].append(part.answer)
    return {"responses": [{"topic": name, "partitions": found} for name, found in by_topic.items()]}


async def _parts(
    session: KafkaSession, wanted: Sequence[Wanted], request: Values
) -> Sequence[Part]:
    driver = session.driver
    until = driver.loop.time() + max(0, request["max_wait_ms"]) / _MS
    while True:
        room = _room(session, request["max_bytes"])
        parts = []
        for one in wanted:
            parts.append(await _part(session, one, room))
            room -= parts[-1].size
        enough = sum(part.size for part in parts) >= request["min_bytes"]
        left = until - driver.loop.time()
        if enough or left <= 0 or driver.is_draining or any(part.is_settled for part in parts):
            return parts
        await _growth(session, [_end_of(part) for part in parts], left)


def _room(session: KafkaSession, bytes_max: int) -> int:
    """How large an answer may be: nothing while too much waits for clients that do not read."""
    try:
        session.service.budget.require_room()
    except TooManyRequests:
        return 0
    return min(max(1, bytes_max), _ANSWER_BYTES_MAX)


def _end_of(part: Part) -> tuple[str, int, int]:
    return part.wanted.topic, part.wanted.partition, part.answer["high_watermark"]


async def _growth(
    session: KafkaSession, places: Sequence[tuple[str, int, int]], timeout_s: float
) -> None:
    """Return when one of some partitions ends beyond an offset, or when the time is up."""
    driver = session.driver
    is_over: asyncio.Future[None] = driver.loop.create_future()

    def end() -> None:
        if not is_over.done():
            is_over.set_result(None)

    def wake() -> None:
        driver.call_from_anywhere(end)

    for place in places:
        driver.subscribe(place, wake)
    timer = driver.loop.call_later(timeout_s, end)
    try:
        await is_over
    finally:
        timer.cancel()
        for place in places:
            driver.unsubscribe(place, wake)


async def _part(session: KafkaSession, wanted: Wanted, room: int) -> Part:
    topic, partition, offset, bytes_max, _ = wanted
    try:
        if room <= 0:
            bounds = await session.execute(DescribeBounds(topic, partition))
            return _found(wanted, bounds, [])
        start = Start.at_offset(offset)
        size_max = max(1, min(bytes_max, room))
        reply = await session.execute(Fetch(topic, partition, start, bytes_max=size_max))
    except OffsetOutOfRange as error:
        bounds = await session.execute(DescribeBounds(topic, partition))
        return _refused(wanted, bounds, wanted.code(bounds) or code_of(error))
    except PenstockError as error:
        answer = {"partition_index": partition, "error_code": code_of(error), "high_watermark": -1}
        return Part(wanted, answer | {"records": []}, 0, True)
    bounds = LogBounds(reply.start_offset, reply.end_offset, reply.epoch)
    if code := wanted.code(bounds):
        return _refused(wanted, bounds, code)
    return _found(wanted, bounds, _converted(session, reply, topic))


def _converted(session: KafkaSession, reply: FetchReply, topic: str) -> list[Buffer]:
    converted, is_dead_letters = session.converted, holds_dead_letters(topic)
    return [
        piece
        for head, batch in batches_in(reply.data, seed=reply.seed, is_verified=True)
        for piece in converted.convert(head, batch, reply.seed, is_dead_letters=is_dead_letters)
    ]


def _found(wanted: Wanted, bounds: LogBounds, records: list[Buffer]) -> Part:
    answer = _answer(wanted.partition, bounds, records)
    return Part(wanted, answer, sum(map(len, records)), False)


def _refused(wanted: Wanted, bounds: LogBounds, code: Code) -> Part:
    return Part(wanted, _answer(wanted.partition, bounds, []) | {"error_code": code}, 0, True)


def _answer(partition: int, bounds: LogBounds, records: list[Buffer]) -> Values:
    return {
        "partition_index": partition,
        "high_watermark": bounds.end,
        # No reader ever waits for a transaction.
        "last_stable_offset": bounds.end,
        "log_start_offset": bounds.start,
        "aborted_transactions": [],
        "records": records,
    }
