"""Groups of KIP-848: the broker assigns, as for assigned groups of ours, and tells each member in its heartbeats."""

from base64 import urlsafe_b64encode
from contextlib import suppress

from ...api.groups import DescribeGroup, GroupFacts
from ...api.members import Heartbeat, JoinGroup, LeaveGroup, ReleasePartitions, Standing
from ...api.topics import DescribeLayouts
from ...errors import InvalidName, PenstockError, StaleGeneration
from ...model import TopicPartition, check_name
from .errors import Code, group_code_of
from .members import NONE_SENT
from .metadata import all_layouts, topic_uuid
from .session import KafkaSession
from .wire import Values

_JOIN = 0
_HEARTBEAT_MS = 1000
_SESSION_MS = 45_000
_DEAD = "Dead"


async def heartbeat(session: KafkaSession, request: Values) -> Values:
    group, member, epoch = request["group_id"], request["member_id"], request["member_epoch"]
    name = member_name(member)
    if request["subscribed_topic_regex"]:
        reason = "subscribe to topics by their names: patterns are not served"
        return {"error_code": Code.INVALID_REGULAR_EXPRESSION, "error_message": reason}
    try:
        if epoch < _JOIN:
            await session.execute(LeaveGroup(group, name))
            session.forget_member(group, name)
            return {"member_id": member, "member_epoch": epoch}
        name, standing = await _standing(session, request, name)
        member = member or name
        if standing is None:
            return {"member_id": member, "heartbeat_interval_ms": _HEARTBEAT_MS}
        told = await _told(session, group, name, standing, is_full=epoch == _JOIN)
        return {**told, "member_id": member}
    except StaleGeneration as error:
        return {"error_code": Code.FENCED_MEMBER_EPOCH, "error_message": str(error)}
    except PenstockError as error:
        return {"error_code": group_code_of(error), "error_message": str(error)}


def member_name(member: str) -> str:
    """The name of a member for an id that its client made: ours are letters, digits, `.`, `_` and `-`."""
    with suppress(InvalidName):
        return check_name(member, "member") if member else ""
    return "id." + urlsafe_b64encode(member.encode()).decode().rstrip("=")


async def _standing(
    session: KafkaSession, request: Values, member: str
) -> tuple[str, Standing | None]:
    """What a member has to know, after it joined, subscribed to something else, or let partitions go.

    None: there is none of the topics yet, so it is no member yet.
    """
    group, epoch = request["group_id"], request["member_epoch"]
    wanted = request["subscribed_topic_names"]
    known = session.find_member(group, member)
    names = () if known is None else known.topics
    if wanted is not None:
        layouts = await session.execute(DescribeLayouts(tuple(sorted(set(wanted)))))
        there = tuple(one.name for one in layouts)
        if epoch == _JOIN or there != names:
            if not there:
                return member, None
            if member:
                # Refused before it joins.
                session.keep_member(group, member)
            client = session.client_id if session.client_id.isidentifier() else "member"
            join = JoinGroup(
                group,
                member,
                there,
                client,
                session_ms=_SESSION_MS,
                keeps_leases=epoch != _JOIN,
                host=session.connection.client,
            )
            reply = await session.execute(join)
            joined = session.keep_member(group, reply.member)
            joined.topics, joined.sent = there, NONE_SENT
            return reply.member, reply.standing
    standing = await session.execute(Heartbeat(group, member, generation=epoch))
    owned = request["topic_partitions"]
    if standing.to_release and owned is not None:
        kept = await _partitions(session, owned)
        gone = tuple(one for one in standing.to_release if one not in kept)
        if gone:
            await session.execute(ReleasePartitions(group, member, gone))
            standing = await session.execute(Heartbeat(group, member))
    return member, standing


async def _partitions(session: KafkaSession, owned: list[Values]) -> set[TopicPartition]:
    names = {topic_uuid(layout.topic_id): layout.name for layout in await all_layouts(session)}
    return {
        TopicPartition(names[one["topic_id"]], number)
        for one in owned
        if one["topic_id"] in names
        for number in one["partitions"]
    }


async def _told(
    session: KafkaSession, group: str, member: str, standing: Standing, *, is_full: bool
) -> Values:
    """The answer to a member, with its assignment if that is another one than it was sent before."""
    known = session.keep_member(group, member)
    sent, known.sent = known.sent, standing.changes
    answer: Values = {
        "member_epoch": standing.generation,
        "heartbeat_interval_ms": _HEARTBEAT_MS,
    }
    if is_full or sent != standing.changes:
        answer["assignment"] = {
            "topic_partitions": await partitions_by_topic(session, standing.assigned)
        }
    return answer


async def partitions_by_topic(
    session: KafkaSession, partitions: tuple[TopicPartition, ...], *, is_named: bool = False
) -> list[Values]:
    numbers: dict[str, list[int]] = {}
    for partition in partitions:
        numbers.setdefault(partition.topic, []).append(partition.number)
    found = []
    for layout in await session.execute(DescribeLayouts(tuple(sorted(numbers)))):
        named = {"topic_name": layout.name} if is_named else {}
        uuid = topic_uuid(layout.topic_id)
        found.append({"topic_id": uuid, **named, "partitions": numbers[layout.name]})
    return found


async def describe(session: KafkaSession, request: Values) -> Values:
    groups = []
    for name in dict.fromkeys(request["group_ids"]):
        try:
            groups.append(await _described(session, await session.execute(DescribeGroup(name))))
        except PenstockError as error:
            known = {"error_code": group_code_of(error), "error_message": str(error)}
            groups.append({"group_id": name, "group_state": _DEAD, **known})
    return {"groups": groups}


async def _described(session: KafkaSession, facts: GroupFacts) -> Values:
    if not facts.members:
        reason = "the broker does not assign the partitions of this group"
        code = Code.GROUP_ID_NOT_FOUND
        return {"group_id": facts.group, "error_code": code, "error_message": reason}
    members = []
    for one in facts.members:
        assigned = {
            "topic_partitions": await partitions_by_topic(session, one.assigned, is_named=True),
        }
        members.append(
            {
                "member_id": one.id,
                "member_epoch": facts.generation,
                "client_id": one.client,
                "subscribed_topic_names": list(one.topics),
                "assignment": assigned,
                "target_assignment": assigned,
                "member_type": 1,
            }
        )
    return {
        "group_id": facts.group,
        "group_state": "Stable",
        "group_epoch": facts.generation,
        "assignment_epoch": facts.generation,
        "assignor_name": facts.assignor,
        "members": members,
    }
