"""Classic groups: members join, their leader assigns, all of them sync; and what an administrator asks about groups."""

from ...api.classic import (
    AwaitJoin,
    ClassicGroupFacts,
    DescribeClassic,
    HeartbeatClassic,
    JoinClassic,
    JoinedClassic,
    LeaveClassic,
    ListClassic,
    Pending,
    SyncClassic,
)
from ...api.groups import CloseGroup
from ...errors import BadRequest, PenstockError
from ...runtime.waits import GroupChanges
from .errors import Code, group_code_of
from .session import KafkaSession
from .wire import Reader, Values

# From here on a client without an id is given one, and is a member only when it comes back with it.
_ID_FIRST_SINCE = 4
_CONSUMER = "consumer"
_DEAD = "Dead"
# The broker's own timers end a round; this only ends the wait of a client whose group changes no more.
_WAIT_NS = 30_000_000_000
_TOPICS_MAX = 10_000


async def join_group(session: KafkaSession, request: Values) -> Values:
    group, member = request["group_id"], request["member_id"]
    session_ms = request["session_timeout_ms"]
    rebalance_ms = request["rebalance_timeout_ms"]
    try:
        protocols = tuple((one["name"], one["metadata"]) for one in request["protocols"])
        command = JoinClassic(
            group,
            member,
            protocol_type=request["protocol_type"],
            protocols=protocols,
            topic_names=_topics(request["protocol_type"], protocols),
            instance=request["group_instance_id"] or "",
            client=session.client_id,
            host=f"/{session.connection.client}",
            session_ms=session_ms,
            rebalance_ms=session_ms if rebalance_ms < 0 else rebalance_ms,
            needs_id=request["version"] >= _ID_FIRST_SINCE,
        )
        ticket = await session.execute(command)
        member = ticket.member
        if not ticket.is_member:
            return {"error_code": Code.MEMBER_ID_REQUIRED, "member_id": member}
        joined = await _joined(session, group, member)
    except PenstockError as error:
        return {"error_code": group_code_of(error), "member_id": member, "protocol_name": ""}
    return {
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol,
        "leader": joined.leader,
        "member_id": member,
        "members": [
            {
                "member_id": one.id,
                "group_instance_id": one.instance or None,
                "metadata": one.metadata,
            }
            for one in joined.members
        ],
    }


async def _joined(session: KafkaSession, group: str, member: str) -> JoinedClassic:
    while True:
        found = await session.execute(AwaitJoin(group, member))
        if not isinstance(found, Pending):
            return found
        await session.driver.until(GroupChanges(group), found.changes, _WAIT_NS)


def _topics(protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> tuple[str, ...]:
    """The topics that a consumer subscribes to, which all its protocols say alike: version, count, names."""
    if protocol_type != _CONSUMER or not protocols:
        return ()
    reader = Reader(protocols[0][1])
    reader.take(2)
    count = int.from_bytes(reader.take(4), "big", signed=True)
    if not 0 <= count <= _TOPICS_MAX:
        raise BadRequest(f"a subscription to {count} topics")
    names = []
    for _ in range(count):
        size = int.from_bytes(reader.take(2), "big", signed=True)
        try:
            names.append(str(reader.take(size), "utf-8"))
        except UnicodeDecodeError:
            raise BadRequest("a topic that is not text in UTF-8") from None
    return tuple(names)


async def sync_group(session: KafkaSession, request: Values) -> Values:
    group, member = request["group_id"], request["member_id"]
    command = SyncClassic(
        group,
        member,
        generation=request["generation_id"],
        instance=request["group_instance_id"] or "",
        assignments={one["member_id"]: one["assignment"] for one in request["assignments"]},
        protocol_type=request["protocol_type"],
        protocol=request["protocol_name"],
    )
    try:
        while True:
            found = await session.execute(command)
            if not isinstance(found, Pending):
                break
            await session.driver.until(GroupChanges(group), found.changes, _WAIT_NS)
    except PenstockError as error:
        return {"error_code": group_code_of(error)}
    return {
        "protocol_type": request["protocol_type"],
        "protocol_name": request["protocol_name"],
        "assignment": found,
    }


async def heartbeat(session: KafkaSession, request: Values) -> Values:
    command = HeartbeatClassic(
        request["group_id"],
        request["member_id"],
        generation=request["generation_id"],
        instance=request["group_instance_id"] or "",
    )
    try:
        await session.execute(command)
    except PenstockError as error:
        return {"error_code": group_code_of(error)}
    return {}


async def leave_group(session: KafkaSession, request: Values) -> Values:
    """Since version 3 several members at once, each with its own error; before, one."""
    gone = request["members"] or [{"member_id": request["member_id"], "group_instance_id": None}]
    found = []
    for one in gone:
        code = Code.NONE
        instance = one["group_instance_id"]
        command = LeaveClassic(request["group_id"], one["member_id"], instance=instance or "")
        try:
            await session.execute(command)
        except PenstockError as error:
            code = group_code_of(error)
        known = {"member_id": one["member_id"], "group_instance_id": instance}
        found.append({**known, "error_code": code})
    if request["members"]:
        return {"members": found}
    return {"error_code": found[0]["error_code"]}


async def describe_groups(session: KafkaSession, request: Values) -> Values:
    groups = []
    for name in dict.fromkeys(request["groups"]):
        try:
            groups.append(_described(await session.execute(DescribeClassic(group=name))))
        except PenstockError as error:
            code = group_code_of(error)
            # A group that is not there is dead, which is no error.
            code = Code.NONE if code is Code.GROUP_ID_NOT_FOUND else code
            groups.append({"group_id": name, "error_code": code, "group_state": _DEAD})
    return {"groups": groups}


def _described(facts: ClassicGroupFacts) -> Values:
    return {
        "group_id": facts.group,
        "group_state": facts.state,
        "protocol_type": facts.protocol_type,
        "protocol_data": facts.protocol,
        "members": [
            {
                "member_id": one.id,
                "group_instance_id": one.instance or None,
                "client_id": one.client,
                "client_host": one.host,
                "member_metadata": one.metadata,
                "member_assignment": one.assignment,
            }
            for one in facts.members
        ],
    }


async def list_groups(session: KafkaSession, request: Values) -> Values:
    wanted = {state.lower() for state in request["states_filter"]}
    try:
        found = await session.execute(ListClassic())
    except PenstockError as error:
        return {"error_code": group_code_of(error)}
    return {
        "groups": [
            {
                "group_id": one.group,
                "protocol_type": one.protocol_type or _CONSUMER,
                "group_state": one.state,
            }
            for one in found
            if not wanted or one.state.lower() in wanted
        ]
    }


async def delete_groups(session: KafkaSession, request: Values) -> Values:
    results = []
    for name in dict.fromkeys(request["groups_names"]):
        code = Code.NONE
        try:
            await session.execute(CloseGroup(name))
        except PenstockError as error:
            code = group_code_of(error)
        results.append({"group_id": name, "error_code": code})
    return {"results": results}
