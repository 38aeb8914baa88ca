"""Share groups: a queue for Kafka clients. What a member acquires is leased to it, as by a poll of a shared group.

Accept is an ack, release a nack without delay, whose attempt counts, reject a rejection: attempts, retries and dead
letters are those of the topic. Every member is assigned all partitions of its topics.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from ...api.answers import Answer, Kind, LeaseAnswer, ReleaseMember
from ...api.consume import Poll
from ...api.groups import DescribeGroup, Mode
from ...api.members import DescribeMember
from ...api.received import Received
from ...api.topics import DescribeLayouts, DescribeTopics, TopicLayout
from ...broker.authorise import authorise_member
from ...broker.groups import check_group
from ...codec.kafka_writer import kafka_batch_of_rows
from ...errors import NotFound, PartitionFaulty, PenstockError, Refused, UnknownMember
from ...groups.classic import ProtocolConflict
from ...model import NAME_LENGTH_MAX, Headers, MessageColumns, TopicPartition
from .consumer_groups import member_name, partitions_by_topic
from .dead_letters import provenance_headers
from .errors import Code, code_of, group_code_of
from .members import Partition, ShareSession
from .metadata import all_layouts, topic_uuid
from .session import KafkaSession
from .wire import Values

_JOIN, _LAST = 0, -1
_EPOCH = 1
_HEARTBEAT_MS = 1000
_SESSION_S = 45.0
_DEAD = "Dead"
_SHARED = Mode.SHARED.name.lower()
_RECORDS_MAX = 500
# Topics that a member subscribes to before they are made.
_AWAITED_MAX = 100
# Of what a session remembers of one partition.
_HELD_MAX = 20_000
_MS = 1_000_000
_GAP, _ACCEPT, _RELEASE, _REJECT = range(4)
_KINDS = {_GAP: Kind.ACK, _ACCEPT: Kind.ACK, _RELEASE: Kind.NACK, _REJECT: Kind.REJECT}
_LEADER = {"leader_id": -1, "leader_epoch": -1}


async def heartbeat(session: KafkaSession, request: Values) -> Values:
    """All partitions of the topics that a member subscribes to.

    Members are those of shared groups, whichever port they come by: one that is silent for long gives back what it
    holds. It may go on by another connection.
    """
    group, member, epoch = request["group_id"], request["member_id"], request["member_epoch"]
    name = member_name(member)
    try:
        await _authorise(session, group, name)
        if epoch < _JOIN:
            await _leave(session, group, name)
            return {"member_id": member, "member_epoch": epoch}
        known = session.find_member(group, name)
        topics = request["subscribed_topic_names"]
        if topics is None:
            if known is None:
                # It was forgotten, or the broker started again: it joins again, and says what it subscribes to.
                return {"error_code": Code.UNKNOWN_MEMBER_ID}
            topics = known.topics
        layouts = await session.execute(DescribeLayouts(tuple(sorted(set(topics)))))
        there = [one.name for one in layouts]
        if request["subscribed_topic_names"] is not None:
            _check_awaited({*topics} - {*there})
        await _join(session, check_group(group), name, there)
        known = session.keep_member(group, name)
    except PenstockError as error:
        return {"error_code": group_code_of(error), "error_message": str(error)}
    known.topics, known.host = tuple(sorted(set(topics))), f"/{session.connection.client}"
    return {
        "member_id": member,
        "member_epoch": _EPOCH,
        "heartbeat_interval_ms": _HEARTBEAT_MS,
        "assignment": {
            "topic_partitions": [
                {
                    "topic_id": topic_uuid(one.topic_id),
                    "partitions": list(range(len(one.epochs))),
                }
                for one in layouts
            ]
        },
    }


def _check_awaited(topics: Collection[str]) -> None:
    """Refused: a member subscribes to too many topics that are not there. They are remembered until they are."""
    if len(topics) > _AWAITED_MAX or any(len(one) > NAME_LENGTH_MAX for one in topics):
        raise Refused(f"a member waits for at most {_AWAITED_MAX} topics that are not there yet")


async def _authorise(session: KafkaSession, group: str, name: str) -> None:
    """Forbidden: the principal may not consume, or does not reach the topics of the member of this name.

    ProtocolConflict: that is a member of an assigned group.
    """
    if await session.execute(DescribeMember(group, name)) is not None:
        raise ProtocolConflict(group, "the broker assigns its partitions")
    known = session.service.shared.get(group, name)
    if known is not None:
        authorise_member(session.principal, name, known.topics)


async def _join(session: KafkaSession, group: str, name: str, topics: Sequence[str]) -> None:
    """Have a member that is heard of among those of shared groups. ModeConflict: it is an assigned group."""
    shared = session.service.shared
    known = shared.find(group, name)
    if known is not None and list(known.topics) == topics:
        return
    # A poll for nothing opens the group, and finds out if it is an assigned one.
    with suppress(PartitionFaulty):
        await session.poll([Poll(topic, group, name, 0, 1000) for topic in topics], 0)
    client = session.client_id if session.client_id.isidentifier() else "member"
    shared.join(
        group, name, client, topics, _SESSION_S, by=session.principal, limits=session.limits
    )


async def _leave(session: KafkaSession, group: str, name: str) -> None:
    known = session.find_member(group, name)
    if known is None:
        return
    session.forget_member(group, name)
    with suppress(UnknownMember):
        session.service.shared.leave(group, name)
    if known.share is not None:
        await _release(session, (group, name), known.share, await _layouts(session))


async def describe(session: KafkaSession, request: Values) -> Values:
    """Share groups and their members; a group of another kind is not found."""
    groups = []
    for group in dict.fromkeys(request["group_ids"]):
        try:
            groups.append(await _described(session, group))
        except PenstockError as error:
            told = {"error_code": group_code_of(error), "error_message": str(error)}
            groups.append({"group_id": group, "group_state": _DEAD, **told})
    return {"groups": groups}


async def _described(session: KafkaSession, group: str) -> Values:
    modes: Collection[str] = ()
    # The group of a member whose topics are not there yet reads none.
    with suppress(NotFound):
        modes = (await session.execute(DescribeGroup(group))).modes.values()
    shared = session.service.shared
    members = [
        {
            "member_id": name,
            "member_epoch": _EPOCH,
            "client_id": there.client,
            "client_host": known.host,
            "subscribed_topic_names": list(known.topics),
            "assignment": {"topic_partitions": await _assignment(session, there.topics)},
        }
        for name, known in session.members.of_group(group).items()
        if (there := shared.get(group, name)) is not None
        and all(map(session.principal.reaches, there.topics))
    ]
    if not members and _SHARED not in modes:
        raise NotFound("share group", group)
    return {
        "group_id": group,
        "group_state": "Stable" if members else "Empty",
        "group_epoch": _EPOCH,
        "assignment_epoch": _EPOCH,
        "assignor_name": "simple",
        "members": members,
    }


async def _assignment(session: KafkaSession, topics: Sequence[str]) -> list[Values]:
    layouts = await session.execute(DescribeLayouts(tuple(topics)))
    every = tuple(
        TopicPartition(one.name, number) for one in layouts for number in range(len(one.epochs))
    )
    return await partitions_by_topic(session, every, is_named=True)


async def fetch(session: KafkaSession, request: Values) -> Values:
    """Answers for what the member held, then messages for it, waiting for them if there are none."""
    key = request["group_id"] or "", member_name(request["member_id"] or "")
    epoch = request["share_session_epoch"]
    try:
        layouts = await _layouts(session)
        if epoch == _JOIN:
            await _close(session, key, layouts)
            session.keep_member(*key).share = ShareSession()
        share = _session_of(session, key)
        if share is None:
            return {"error_code": Code.SHARE_SESSION_NOT_FOUND}
        missing = _update(share, request, layouts)
        codes = await _answered(session, share, request["topics"], layouts)
        found: dict[Partition, list[Received]] = {}
        if epoch != _LAST:
            found = await _acquired(session, key, share, request, layouts)
        else:
            await _close(session, key, layouts)
        lock_ms = await _lock_ms(session, _names(share.topics, layouts))
    except PenstockError as error:
        return {"error_code": group_code_of(error), "error_message": str(error)}
    responses: dict[bytes, list[Values]] = {}
    for place in sorted({*codes, *missing, *found}):
        part = _partition(place[1], found.get(place, []), codes.get(place, Code.NONE))
        part["error_code"] = missing.get(place, Code.NONE)
        responses.setdefault(place[0], []).append(part)
    return {
        "acquisition_lock_timeout_ms": lock_ms,
        "responses": [{"topic_id": uuid, "partitions": parts} for uuid, parts in responses.items()],
    }


def _update(
    share: ShareSession, request: Values, layouts: Mapping[bytes, TopicLayout]
) -> dict[Partition, Code]:
    """Take over what the request says of the partitions that its session fetches.

    Those that are not there, as after their topic was deleted, are forgotten; the answer says of each why.
    """
    share.partitions |= {
        (topic["topic_id"], part["partition_index"])
        for topic in request["topics"]
        for part in topic["partitions"]
    }
    share.partitions -= {
        (topic["topic_id"], number)
        for topic in request["forgotten_topics_data"]
        for number in topic["partitions"]
    }
    codes = {one: _place_code(one, layouts) for one in share.partitions}
    missing = {one: code for one, code in codes.items() if code}
    share.partitions -= missing.keys()
    share.held = {one: held for one, held in share.held.items() if one[0] in layouts}
    return missing


def _place_code(place: Partition, layouts: Mapping[bytes, TopicLayout]) -> Code:
    """What is wrong with a partition that a client names."""
    uuid, number = place
    if uuid not in layouts:
        return Code.UNKNOWN_TOPIC_ID
    is_there = 0 <= number < len(layouts[uuid].epochs)
    return Code.NONE if is_there else Code.UNKNOWN_TOPIC_OR_PARTITION


def _session_of(session: KafkaSession, key: tuple[str, str]) -> ShareSession | None:
    known = session.find_member(*key)
    return None if known is None else known.share


async def _layouts(session: KafkaSession) -> dict[bytes, TopicLayout]:
    return {topic_uuid(layout.topic_id): layout for layout in await all_layouts(session)}


def _names(topics: Iterable[bytes], layouts: Mapping[bytes, TopicLayout]) -> list[str]:
    return sorted(layouts[one].name for one in topics if one in layouts)


async def _lock_ms(session: KafkaSession, topics: Sequence[str]) -> int:
    """How long a member has for what it acquired: the shortest of its topics."""
    described = await session.execute(DescribeTopics(topics))
    return min((int(one.settings["visibility_timeout_ms"]) for one in described), default=30_000)


async def _acquired(
    session: KafkaSession,
    key: tuple[str, str],
    share: ShareSession,
    request: Values,
    layouts: Mapping[bytes, TopicLayout],
) -> dict[Partition, list[Received]]:
    group, member = key
    limit = min(max(1, request["max_records"]), _RECORDS_MAX)
    bytes_max = max(1, request["max_bytes"])
    polls = [
        Poll(topic, group, member, limit, bytes_max=bytes_max, host=session.connection.client)
        for topic in _names({uuid for uuid, _ in share.partitions}, layouts)
    ]
    if not polls:
        return {}
    try:
        leased = await session.poll(polls, max(0, request["max_wait_ms"]) * _MS)
    except NotFound:
        # A topic was deleted meanwhile: the next fetch says which.
        return {}
    found: dict[Partition, list[Received]] = {}
    uuids = {layout.name: uuid for uuid, layout in layouts.items()}
    for one in leased.messages():
        place = uuids[one.place.topic], one.place.partition
        found.setdefault(place, []).append(one)
        held = share.held.setdefault(place, {})
        held[one.offset] = one.lease, one.place.group
        if len(held) > _HELD_MAX:
            # Long over: a member holds far fewer at a time.
            del held[next(iter(held))]
    return found


def _partition(number: int, found: list[Received], code: Code) -> Values:
    answer: Values = {
        "partition_index": number,
        "acknowledge_error_code": code,
        "current_leader": _LEADER,
        "records": b"",
        "acquired_records": [],
    }
    if found:
        found = sorted(found, key=lambda one: one.offset)
        answer["records"] = kafka_batch_of_rows(_columns(found))
        answer["acquired_records"] = _ranges(found)
    return answer


def _columns(found: Sequence[Received]) -> MessageColumns:
    nothing: list[None] = [None] * len(found)
    return MessageColumns(
        [one.value for one in found],
        [one.key for one in found],
        [_headers(one) for one in found],
        [one.priority for one in found],
        [one.timestamp for one in found],
        nothing,
        nothing,
        nothing,
        [one.offset for one in found],
    )


def _headers(one: Received) -> Headers:
    died = one.dead_letter
    return one.headers if died is None else (*one.headers, *provenance_headers(died))


def _ranges(found: Sequence[Received]) -> list[Values]:
    """Runs of offsets that were delivered equally often."""
    ranges: list[Values] = []
    for one in found:
        last = ranges[-1] if ranges else None
        is_next = last is not None and last["last_offset"] + 1 == one.offset
        if last is not None and is_next and last["delivery_count"] == one.attempts:
            last["last_offset"] = one.offset
        else:
            ranges.append(
                {
                    "first_offset": one.offset,
                    "last_offset": one.offset,
                    "delivery_count": min(one.attempts, 0x7FFF),
                }
            )
    return ranges


async def _answered(
    session: KafkaSession,
    share: ShareSession,
    topics: Sequence[Values],
    layouts: Mapping[bytes, TopicLayout],
) -> dict[Partition, Code]:
    """Give the answers of a request; for each partition that has some, what went wrong with them."""
    codes = dict[Partition, Code]()
    for topic in topics:
        for part in topic["partitions"]:
            place = topic["topic_id"], part["partition_index"]
            if not part["acknowledgement_batches"]:
                continue
            if code := _place_code(place, layouts):
                codes[place] = code
                continue
            held, name = share.held.get(place, {}), layouts[place[0]].name
            answers, is_unknown = _answers((name, place[1]), held, part["acknowledgement_batches"])
            codes[place] = Code.INVALID_RECORD_STATE if is_unknown else Code.NONE
            for outcome in await session.execute(Answer(answers)):
                if isinstance(outcome, PenstockError):
                    codes[place] = code_of(outcome)
                elif outcome.stale or outcome.missing:
                    codes[place] = Code.INVALID_RECORD_STATE
    return codes


def _answers(
    place: tuple[str, int], held: dict[int, tuple[int, int]], batches: Sequence[Values]
) -> tuple[list[LeaseAnswer], bool]:
    """One answer for each lease and kind; and whether something was answered for that the member does not hold."""
    by_lease: dict[tuple[int, int, Kind], list[int]] = {}
    is_unknown = False
    for batch in batches:
        first, last = batch["first_offset"], batch["last_offset"]
        types = batch["acknowledge_types"]
        # What is held is walked, not the range: a client may name any.
        for offset in sorted(one for one in held if first <= one <= last):
            kind = types[0] if len(types) == 1 else types[offset - first : offset - first + 1]
            kind = kind if isinstance(kind, int) else (kind[0] if kind else _GAP)
            lease, group = held.pop(offset)
            by_lease.setdefault((lease, group, _KINDS.get(kind, Kind.NACK)), []).append(offset)
        is_unknown = is_unknown or first > last
    answers = [
        LeaseAnswer(kind, *place, group, lease, offsets, ms=0 if kind is Kind.NACK else None)
        for (lease, group, kind), offsets in by_lease.items()
    ]
    return answers, is_unknown or not answers


async def acknowledge(session: KafkaSession, request: Values) -> Values:
    key = request["group_id"] or "", member_name(request["member_id"] or "")
    share = _session_of(session, key)
    if share is None:
        return {"error_code": Code.SHARE_SESSION_NOT_FOUND}
    try:
        layouts = await _layouts(session)
        codes = await _answered(session, share, request["topics"], layouts)
        if request["share_session_epoch"] == _LAST:
            await _close(session, key, layouts)
    except PenstockError as error:
        return {"error_code": group_code_of(error), "error_message": str(error)}
    responses: dict[bytes, list[Values]] = {}
    for (uuid, number), code in codes.items():
        part = {"partition_index": number, "error_code": code, "current_leader": _LEADER}
        responses.setdefault(uuid, []).append(part)
    return {
        "responses": [{"topic_id": uuid, "partitions": parts} for uuid, parts in responses.items()]
    }


async def _close(
    session: KafkaSession, key: tuple[str, str], layouts: Mapping[bytes, TopicLayout]
) -> None:
    """End the share session of a member, if it has one."""
    known = session.find_member(*key)
    if known is not None and known.share is not None:
        share, known.share = known.share, None
        await _release(session, key, share, layouts)


async def _release(
    session: KafkaSession,
    key: tuple[str, str],
    share: ShareSession,
    layouts: Mapping[bytes, TopicLayout],
) -> None:
    """Give back, uncounted, what a session that ends still holds."""
    for topic in _names(share.topics, layouts):
        with suppress(NotFound, PartitionFaulty):
            await session.execute(ReleaseMember(topic, *key, is_unseen=True))
