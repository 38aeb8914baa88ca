"""Offsets that consumers commit for their group, and where a group goes on."""

from typing import Any

from ...api.classic import CommitOffsets, CommittedOffset, ListCommitted
from ...errors import PenstockError
from .consumer_groups import member_name
from .errors import Code, code_of, group_code_of
from .session import KafkaSession
from .wire import Values

_NEVER_COMMITTED = -1
# A client's own text; Kafka's limit.
NOTE_CHARACTERS_MAX = 4096


def asked_offsets(request: Values) -> list[tuple[str, int, int, str]]:
    """The topic, partition, offset and text of everything that a request commits."""
    return [
        (
            topic["name"],
            part["partition_index"],
            part["committed_offset"],
            part["committed_metadata"] or "",
        )
        for topic in request["topics"]
        for part in topic["partitions"]
    ]


async def offset_commit(session: KafkaSession, request: Values) -> Values:
    offsets = tuple([CommittedOffset(*one) for one in asked_offsets(request)])
    command = CommitOffsets(
        request["group_id"],
        offsets,
        member=member_name(request["member_id"]),
        generation=request["generation_id_or_member_epoch"],
        instance=request["group_instance_id"] or "",
    )
    codes: list[Code]
    if any(len(one.note) > NOTE_CHARACTERS_MAX for one in offsets):
        return commit_reply(request, [Code.OFFSET_METADATA_TOO_LARGE] * len(offsets))
    try:
        refused = await session.execute(command)
        codes = [Code.NONE if one is None else code_of(one) for one in refused]
    except PenstockError as error:
        codes = [group_code_of(error)] * len(offsets)
    return commit_reply(request, codes)


def commit_reply(request: Values, codes: list[Code]) -> Values:
    """The reply to a request that commits offsets: a code for each, in the order of `asked_offsets`."""
    left = iter(codes)
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": part["partition_index"], "error_code": next(left)}
                    for part in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ]
    }


async def offset_fetch(session: KafkaSession, request: Values) -> Values:
    """Since version 8 of several groups at once; before, of one."""
    is_stable = request["require_stable"]
    if request["groups"]:
        asked = {group["group_id"]: group for group in request["groups"]}
        groups = [await _fetched(session, group, is_stable=is_stable) for group in asked.values()]
        return {"groups": groups}
    found = await _fetched(session, request, is_stable=is_stable)
    del found["group_id"]
    return found


async def _fetched(session: KafkaSession, asked: Values, *, is_stable: bool) -> Values:
    """With `is_stable`, an error instead of an offset that an open transaction is about to move."""
    group, topics = asked["group_id"], asked["topics"]
    try:
        committed = await session.execute(ListCommitted(group=group))
    except PenstockError as error:
        code = group_code_of(error)
        return {"group_id": group, "error_code": code, "topics": _of(topics or [], {}, code)}
    if not is_stable:
        committed = [one for one in committed if one.offset != _NEVER_COMMITTED]
    known = {(one.topic, one.partition): one for one in committed}
    if topics is None:
        numbers: dict[str, list[int]] = {}
        for offset in committed:
            numbers.setdefault(offset.topic, []).append(offset.partition)
        topics = [{"name": name, "partition_indexes": numbers[name]} for name in sorted(numbers)]
    return {"group_id": group, "topics": _of(topics, known, Code.NONE, is_stable=is_stable)}


def _of(
    topics: list[Values],
    known: dict[tuple[str, int], CommittedOffset],
    code: Code,
    *,
    is_stable: bool = False,
) -> list[Values]:
    return [
        {
            "name": topic["name"],
            "partitions": [
                _partition(number, known.get((topic["name"], number)), code, is_stable=is_stable)
                for number in topic["partition_indexes"]
            ],
        }
        for topic in topics
    ]


def _partition(
    number: int, committed: CommittedOffset | None, code: Code, *, is_stable: bool
) -> dict[str, Any]:
    if committed is not None and is_stable and not committed.is_stable:
        code, committed = Code.UNSTABLE_OFFSET_COMMIT, None
    return {
        "partition_index": number,
        "committed_offset": _NEVER_COMMITTED if committed is None else committed.offset,
        "metadata": "" if committed is None else committed.note,
        "error_code": code,
    }
