"""What a client has to know before it asks for anything else: versions, topics, the one broker, the coordinator."""

from ...api.bounds import NAMES_MAX
from ...api.topics import PARTITIONS_DEFAULT, CreateTopic, DescribeLayouts, ListTopics, TopicLayout
from ...errors import AlreadyExists, PenstockError
from .errors import Code, code_of
from .schema import REQUESTS
from .session import KafkaSession
from .wire import Values

CLUSTER_ID = "penstock"
# Groups, and transactional producers.
_COORDINATED = (0, 1)
# Rights that Kafka would name. A client that asks for them is told that they were not looked up.
_NOT_ASKED = -2147483648
# librdkafka compresses only for a broker that lists version 0. A request in a version without a table is refused.
_PRODUCE_FIRST = 0
_PRODUCE = 0


def topic_uuid(topic_id: int) -> bytes:
    """Kafka's id of a topic from ours; never all zeros, which is none."""
    return topic_id.to_bytes(16, "big")


async def api_versions(_session: KafkaSession, _request: Values) -> Values:
    return {"api_keys": served_versions()}


def served_versions() -> list[Values]:
    return [
        {
            "api_key": key,
            "min_version": _PRODUCE_FIRST if key == _PRODUCE else one.first,
            "max_version": one.last,
        }
        for key, one in sorted(REQUESTS.items())
    ]


async def metadata(session: KafkaSession, request: Values) -> Values:
    host, port = session.address
    return {
        "brokers": [{"node_id": session.node_id, "host": host, "port": port}],
        "cluster_id": CLUSTER_ID,
        "controller_id": session.node_id,
        "topics": await _topics(session, request),
        "cluster_authorized_operations": _NOT_ASKED,
    }


async def _topics(session: KafkaSession, request: Values) -> list[Values]:
    asked = request["topics"]
    # Version 0 cannot say null, and means all by none.
    if asked is None or (not asked and request["version"] == 0):
        return [_topic(session, layout) for layout in await all_layouts(session)]
    found = []
    # A topic that is named twice is described once, as Kafka does.
    topics = dict.fromkeys((topic["name"], topic["topic_id"]) for topic in asked)
    by_id: dict[bytes, TopicLayout] = {}
    if any(name is None for name, _ in topics):
        by_id = {topic_uuid(layout.topic_id): layout for layout in await all_layouts(session)}
    for name, uuid in topics:
        if name is not None:
            is_wanted = request["allow_auto_topic_creation"]
            found.append(await _by_name(session, name, is_wanted=is_wanted))
        elif uuid in by_id:
            found.append(_topic(session, by_id[uuid]))
        else:
            found.append({"name": None, "topic_id": uuid, "error_code": Code.UNKNOWN_TOPIC_ID})
    return found


async def _by_name(session: KafkaSession, name: str, *, is_wanted: bool) -> Values:
    try:
        layouts = await session.execute(DescribeLayouts((name,)))
        if not layouts and is_wanted and session.service.settings.broker.auto_create_topics:
            await _create(session, name)
            layouts = await session.execute(DescribeLayouts((name,)))
    except PenstockError as error:
        return {"name": name, "error_code": code_of(error)}
    if not layouts:
        return {"name": name, "error_code": Code.UNKNOWN_TOPIC_OR_PARTITION}
    return _topic(session, layouts[0])


async def _create(session: KafkaSession, name: str) -> None:
    try:
        await session.execute(CreateTopic(name, PARTITIONS_DEFAULT))
    except AlreadyExists:
        return  # Another client was first.


async def all_layouts(session: KafkaSession) -> list[TopicLayout]:
    """The identity and partitions of every topic that the client may see."""
    names = await session.execute(ListTopics(session.principal.prefixes))
    layouts: list[TopicLayout] = []
    for start in range(0, len(names), NAMES_MAX):
        part = await session.execute(DescribeLayouts(names[start : start + NAMES_MAX]))
        layouts += part
    return layouts


def _topic(session: KafkaSession, layout: TopicLayout) -> Values:
    node = session.node_id
    return {
        "name": layout.name,
        "topic_id": topic_uuid(layout.topic_id),
        "partitions": [
            {
                "partition_index": number,
                "error_code": Code.KAFKA_STORAGE_ERROR if epoch < 0 else Code.NONE,
                "leader_id": node,
                "leader_epoch": epoch,
                "replica_nodes": [node],
                "isr_nodes": [node],
            }
            for number, epoch in enumerate(layout.epochs)
        ],
        "topic_authorized_operations": _NOT_ASKED,
    }


async def find_coordinator(session: KafkaSession, request: Values) -> Values:
    """This broker, for any group and any transactional producer."""
    host, port = session.address
    found = {"node_id": session.node_id, "host": host, "port": port}
    if request["key_type"] not in _COORDINATED:
        reason = f"there is no coordinator for keys of type {request['key_type']}"
        code = Code.INVALID_REQUEST
        found = {"node_id": -1, "host": "", "port": -1}
        found |= {"error_code": code, "error_message": reason}
    each = [{"key": key, **found} for key in request["coordinator_keys"] or ()]
    return {**found, "coordinators": each}


async def describe_cluster(session: KafkaSession, _request: Values) -> Values:
    host, port = session.address
    return {
        "cluster_id": CLUSTER_ID,
        "controller_id": session.node_id,
        "brokers": [{"broker_id": session.node_id, "host": host, "port": port}],
        "cluster_authorized_operations": _NOT_ASKED,
    }
