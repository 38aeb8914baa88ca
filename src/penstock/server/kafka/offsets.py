"""Offsets of a partition: where it begins and ends, by time, and where an epoch ended."""

from ...api.fetch import DescribeBounds, FindEpochEnd, FindTimestamp, TimedOffset
from ...errors import PenstockError
from .errors import Code, code_of, repeats
from .session import KafkaSession
from .wire import Values

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED = -1, -2, -3, -4, -5
_MS = 1_000_000


async def list_offsets(session: KafkaSession, request: Values) -> Values:
    topics = []
    repeated = repeats(
        (topic["name"], part["partition_index"])
        for topic in request["topics"]
        for part in topic["partitions"]
    )
    for topic in request["topics"]:
        parts = []
        for part in topic["partitions"]:
            if (topic["name"], part["partition_index"]) in repeated:
                refused = {"error_code": Code.INVALID_REQUEST}
                parts.append({"partition_index": part["partition_index"], **refused})
                continue
            try:
                found = await _offset(session, topic["name"], part)
            except PenstockError as error:
                found = {"error_code": code_of(error)}
            parts.append({"partition_index": part["partition_index"], **found})
        topics.append({"name": topic["name"], "partitions": parts})
    return {"topics": topics}


async def _offset(session: KafkaSession, topic: str, part: Values) -> Values:
    time_ms, partition = part["timestamp"], part["partition_index"]
    if time_ms in (_LATEST, _EARLIEST, _EARLIEST_LOCAL):
        bounds = await session.execute(DescribeBounds(topic, partition))
        offset = bounds.end if time_ms == _LATEST else bounds.start
        return {"offset": offset, "leader_epoch": bounds.epoch}
    if time_ms == _LATEST_TIERED:
        return {}
    time_ns = None if time_ms == _MAX_TIMESTAMP else time_ms * _MS
    found = await _timed(session, topic, partition, time_ns)
    if found is None:
        return {}
    return {
        "offset": found.offset,
        "timestamp": found.timestamp // _MS,
        "leader_epoch": found.epoch,
    }


async def _timed(
    session: KafkaSession, topic: str, partition: int, time_ns: int | None
) -> TimedOffset | None:
    """The first message of a time, or without one the latest, file by file: others have their turn between."""
    latest: TimedOffset | None = None
    offset: int | None = 0
    while offset is not None:
        step = await session.execute(FindTimestamp(topic, partition, time_ns, offset))
        found, offset = step
        if found is not None and (latest is None or found.timestamp > latest.timestamp):
            latest = found
    return latest


async def offset_for_leader_epoch(session: KafkaSession, request: Values) -> Values:
    topics = []
    for topic in request["topics"]:
        parts = []
        for part in topic["partitions"]:
            number = part["partition"]
            try:
                command = FindEpochEnd(topic["topic"], number, part["leader_epoch"])
                epoch, end = await session.execute(command)
                found: Values = {"leader_epoch": epoch, "end_offset": end}
            except PenstockError as error:
                found = {"error_code": code_of(error)}
            parts.append({"partition": number, **found})
        topics.append({"topic": topic["topic"], "partitions": parts})
    return {"topics": topics}
