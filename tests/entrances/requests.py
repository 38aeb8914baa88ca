"""A request of each route of HTTP and each api key of Kafka that changes something, about what its scene has made."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.api.publish import LARGE_MESSAGES
from penstock.api.schemas import Level, Mode
from penstock.api.transactions import InitProducer, Stage
from penstock.model import Message
from tests.codec.kafka_twin import Record
from tests.codec.kafka_twin import batch as record_batch

from .scene import GROUP, KEY, MEMBER, PARTITIONS, SCHEMA, WRITER, Scene

_BATCH, _NDJSON = "application/vnd.penstock.batch", "application/x-ndjson"


class Sent(NamedTuple):
    target: str
    body: Any = None
    kind: str = "application/json"


Example = Callable[[Scene], Sent]


def _receipts(target: str, **more: Any) -> Example:
    return lambda scene: Sent(target, {"receipt_handles": scene.leased().receipts, **more})


def _in_session(target: str, body: Callable[[Scene], dict[str, Any]]) -> Example:
    """A request of a producer whose transaction is open."""

    def sent(scene: Scene) -> Sent:
        (producer_id, epoch), _ = scene.staged()
        return Sent(target, {"producer_id": producer_id, "epoch": epoch, **body(scene)})

    return sent


def _of_staging(path: str, body: Callable[[Scene], dict[str, Any]]) -> Example:
    return lambda scene: Sent(f"/stagings/{scene.opened().id}/{path}", body(scene))


def _staged(scene: Scene) -> Sent:
    staging = scene.opened()
    body = {"topic": staging.topic, "messages": [{"value": "a"}], "partition": 1, "sequence": 0}
    return Sent(f"/stagings/{staging.id}/messages", body)


def _named(scene: Scene) -> Sent:
    staging = scene.complete()
    refs = [{"staging": ref.staging, "messages": ref.messages} for ref in staging.refs]
    return Sent(f"/commits/{staging.name}", {"sequence": 1, "writer": WRITER, "stagings": refs})


def _by_offset(target: str) -> Example:
    def sent(scene: Scene) -> Sent:
        body = {"topic": scene.leased().topic, "partition": 1, "offset": 0, "group": GROUP}
        return Sent(target, body)

    return sent


def _of_member(path: str, **more: Any) -> Example:
    def sent(scene: Scene) -> Sent:
        group, topic = scene.joined()
        partitions = {"partitions": [f"{topic}/0"]} if path == "revoke" else {}
        return Sent(f"/groups/{group}/{path}", {"member_id": MEMBER, **partitions, **more})

    return sent


def _publishes(body: Any, kind: str = "application/json") -> Example:
    return lambda scene: Sent(f"/topics/{scene.topic()}/messages?acks=ACKS", body, kind)


def _force(scene: Scene) -> Sent:
    return Sent(f"/transactions/{scene.transaction()}/force-abort")


def _closed(scene: Scene) -> Sent:
    scene.grouped()
    return Sent(f"/groups/{GROUP}")


def _committed(scene: Scene) -> Sent:
    topic = scene.grouped()
    return Sent(f"/groups/{GROUP}/offsets", {"offsets": {topic: {"0": 1, "1": 1}}})


_SCHEMA = {"schema": SCHEMA.text}
ROUTE_EXAMPLES: Mapping[str, Sequence[Example]] = {
    "POST /topics": [lambda scene: Sent("/topics", {"name": scene.name(), "num_partitions": 2})],
    "PATCH /topics/{topic}": [
        lambda scene: Sent(f"/topics/{scene.topic()}", {"config": {"retention_hours": 1}})
    ],
    "DELETE /topics/{topic}": [lambda scene: Sent(f"/topics/{scene.topic()}")],
    "POST /admin/topics/{topic}/partitions": [
        lambda scene: Sent(f"/admin/topics/{scene.topic()}/partitions", {"count": 3})
    ],
    "POST /admin/topics/{topic}/compact": [
        lambda scene: Sent(f"/admin/topics/{scene.filled(cleanup='compact')}/compact")
    ],
    "POST /topics/{topic}/messages": [
        _publishes({"messages": [{"value": "a"}, {"value": "b"}]}),
        _publishes({"messages": [{"value": "a", "key": "k"}, {"value": "b", "partition": 1}]}),
        _publishes({"messages": [{"value": "a", "delay": "1h"}, {"value": "b"}]}),
        _publishes(b'{"value":"a"}\n{"value":"b","key":"k"}\n', _NDJSON),
        _publishes({"messages": [{"value": "a", "key": "k"}] * (LARGE_MESSAGES + 1)}),
    ],
    "POST /produce": [
        lambda scene: Sent(f"/produce?acks=ACKS&topic={scene.topic()}&value=a"),
        lambda scene: Sent(f"/produce?acks=ACKS&topic={scene.topic()}&value=a&delay=1h"),
    ],
    "POST /topics/{topic}/partitions/{partition}/batches": [
        lambda scene: Sent(
            f"/topics/{scene.topic()}/partitions/1/batches?acks=ACKS", scene.batch(), _BATCH
        )
    ],
    "POST /queries/{query}/start": [
        lambda scene: Sent(
            f"/queries/{scene.name()}/start",
            {"offsets": {f"{scene.topic()}/1": 0}, "ids": {}, "asked": "x"},
        )
    ],
    "DELETE /queries/{query}/start": [lambda scene: Sent(f"/queries/{scene.query()}/start")],
    "POST /messages/ack": [_receipts("/messages/ack")],
    "POST /messages/nack": [_receipts("/messages/nack")],
    "POST /messages/reject": [_receipts("/messages/reject", reason="poison")],
    "POST /messages/visibility": [_receipts("/messages/visibility", timeout="2h")],
    "POST /ack": [_by_offset("/ack")],
    "POST /nack": [_by_offset("/nack")],
    "POST /ack-cumulative": [_by_offset("/ack-cumulative")],
    "POST /producers/init": [
        lambda scene: Sent("/producers/init", {"transactional_id": scene.name()})
    ],
    "POST /transactions/begin": [
        lambda scene: Sent("/transactions/begin", scene.session()._asdict())
    ],
    "POST /transactions/add-partition": [
        _in_session(
            "/transactions/add-partition",
            lambda scene: {"topic": scene.topic(), "partition": 1},
        )
    ],
    "POST /transactions/publish": [
        _in_session("/transactions/publish", lambda scene: {"topic": scene.topic(), "value": "a"})
    ],
    "POST /transactions/commit": [_in_session("/transactions/commit", lambda _scene: {})],
    "POST /transactions/abort": [_in_session("/transactions/abort", lambda _scene: {})],
    "POST /transactions/{transaction}/force-abort": [_force],
    **{
        f"POST /transactions/{word}": [
            _in_session(
                f"/transactions/{word}",
                lambda scene: {"receipt_handles": scene.leased().receipts},
            )
        ]
        for word in ("ack", "nack", "reject")
    },
    "POST /transactions/offsets": [
        _in_session(
            "/transactions/offsets",
            lambda scene: {
                "group": scene.name(),
                "offsets": {scene.filled(): {"0": 1, "1": 1}},
            },
        )
    ],
    "POST /commits/{commit}/stagings": [
        lambda scene: Sent(f"/commits/{scene.name()}/stagings", {"sequence": 1, "writer": WRITER})
    ],
    "POST /stagings/{staging}/messages": [_staged],
    **{
        f"POST /stagings/{{staging}}/{word}": [
            _of_staging(word, lambda scene: {"receipt_handles": scene.leased().receipts})
        ]
        for word in ("ack", "nack", "reject")
    },
    "POST /stagings/drop": [
        lambda scene: Sent("/stagings/drop", {"stagings": [scene.complete().id]})
    ],
    "POST /commits/{commit}": [_named],
    "DELETE /commits/{commit}": [lambda scene: Sent(f"/commits/{scene.complete().name}")],
    "POST /commits/{commit}/reset": [lambda scene: Sent(f"/commits/{scene.complete().name}/reset")],
    "DELETE /topics/{topic}/delayed": [
        lambda scene: Sent(f"/topics/{scene.delayed()}/delayed?delay_key=k")
    ],
    "PATCH /topics/{topic}/delayed": [
        lambda scene: Sent(f"/topics/{scene.delayed()}/delayed?delay_key=k", {"delay": "2h"})
    ],
    "DELETE /topics/{topic}/delayed/{partition}/{offset}": [
        lambda scene: Sent(f"/topics/{scene.delayed()}/delayed/1/0")
    ],
    "PATCH /topics/{topic}/delayed/{partition}/{offset}": [
        lambda scene: Sent(f"/topics/{scene.delayed()}/delayed/1/0", {"delay": "2h"})
    ],
    "POST /topics/{topic}/schedules": [
        lambda scene: Sent(
            f"/topics/{scene.topic()}/schedules", {"key": KEY, "every": "1h", "value": "a"}
        )
    ],
    "PATCH /topics/{topic}/schedules/{schedule}": [
        lambda scene: Sent(f"/topics/{scene.recurring()}/schedules/{KEY}", {"paused": True})
    ],
    "DELETE /topics/{topic}/schedules/{schedule}": [
        lambda scene: Sent(f"/topics/{scene.recurring()}/schedules/{KEY}")
    ],
    "POST /topics/{topic}/schedules/{schedule}/run": [
        lambda scene: Sent(f"/topics/{scene.recurring()}/schedules/{KEY}/run")
    ],
    "DELETE /groups/{group}": [_closed],
    "POST /groups/{group}/offsets": [_committed],
    "POST /groups/{group}/offsets/reset": [
        lambda scene: Sent(
            f"/groups/{GROUP}/offsets/reset", {"to": "latest", "topic": scene.grouped()}
        )
    ],
    "POST /groups/{group}/inflight/release": [_receipts(f"/groups/{GROUP}/inflight/release")],
    "POST /groups/{group}/inflight/extend": [
        _receipts(f"/groups/{GROUP}/inflight/extend", timeout="2h")
    ],
    "POST /groups/{group}/inflight/dead-letter": [
        _receipts(f"/groups/{GROUP}/inflight/dead-letter", reason="poison")
    ],
    "POST /groups/{group}/join": [
        lambda scene: Sent(f"/groups/{scene.name()}/join", {"topics": [scene.filled()]})
    ],
    "POST /groups/{group}/leave": [_of_member("leave")],
    "POST /groups/{group}/revoke": [_of_member("revoke")],
    "POST /topics/{topic}/dlq/redrive": [
        lambda scene: Sent(f"/topics/{scene.dead()}/dlq/redrive", {"all": True})
    ],
    "POST /topics/{topic}/dlq/discard": [
        lambda scene: Sent(f"/topics/{scene.dead()}/dlq/discard", {"all": True})
    ],
    "POST /admin/keys": [
        lambda scene: Sent("/admin/keys", {"name": scene.name(), "role": "readonly"})
    ],
    "POST /admin/keys/{key_id}/rotate": [
        lambda scene: Sent(f"/admin/keys/{scene.key()}/rotate", {"grace": "1s"})
    ],
    "DELETE /admin/keys/{key_id}": [lambda scene: Sent(f"/admin/keys/{scene.key()}")],
    "DELETE /subjects/{subject}": [lambda scene: Sent(f"/subjects/{scene.subject()}")],
    "POST /subjects/{subject}/versions": [
        lambda scene: Sent(f"/subjects/{scene.name()}/versions", _SCHEMA)
    ],
    "DELETE /subjects/{subject}/versions/{version}": [
        lambda scene: Sent(f"/subjects/{scene.subject()}/versions/1")
    ],
    "PUT /config": [lambda _scene: Sent("/config", {"compatibility": "FULL"})],
    "DELETE /config": [lambda _scene: Sent("/config")],
    "PUT /config/{subject}": [
        lambda scene: Sent(f"/config/{scene.subject()}", {"compatibility": "FULL"})
    ],
    "DELETE /config/{subject}": [lambda scene: Sent(f"/config/{scene.subject(Level.FULL)}")],
    "PUT /mode": [lambda _scene: Sent("/mode", {"mode": "READWRITE"})],
    "DELETE /mode": [lambda _scene: Sent("/mode")],
    "PUT /mode/{subject}": [lambda scene: Sent(f"/mode/{scene.subject()}", {"mode": "READONLY"})],
    "DELETE /mode/{subject}": [lambda scene: Sent(f"/mode/{scene.subject(Mode.READONLY)}")],
}
# What they do, no restart remembers; or they ask only; or they are answered before they begin.
VOLATILE_ROUTES = frozenset(
    {
        "POST /cluster/hand-over",
        "POST /topics/{topic}/partitions/{partition}/files",
        "POST /producers/{producer_id}/heartbeat",
        "POST /groups/{group}/heartbeat",
        "PUT /pipelines/{pipeline}",
        "DELETE /pipelines/{pipeline}",
        "POST /subjects/{subject}",
        "POST /schemas/decode",
        "POST /compatibility/subjects/{subject}/versions",
        "POST /compatibility/subjects/{subject}/versions/{version}",
        # Its body is what docs/formats say of answers: of the binary port's `Answer`, and by the same handler.
        "POST /messages/answers",
    }
)


class Asked(NamedTuple):
    """A request of a Kafka client. `is_firm`: its answer waits for the disk whatever the policy says."""

    key: int
    version: int
    values: dict[str, Any]
    is_firm: bool = False


def _session(scene: Scene) -> tuple[str, dict[str, Any]]:
    name = scene.name()
    producer_id, epoch = scene.run(InitProducer(name, keeps_epoch=True))
    return name, {"producer_id": producer_id, "producer_epoch": epoch}


def _produce(acks: int) -> Callable[[Scene], Asked]:
    def asked(scene: Scene) -> Asked:
        records = record_batch([Record(1, None, b"a"), Record(1, b"k", b"b")])
        parts = [{"index": number, "records": records} for number in range(PARTITIONS)]
        topics = [{"name": scene.topic(), "partition_data": parts}]
        values = {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": topics}
        return Asked(0, 9, values, acks == -1)

    return asked


def _places(topic: str, name: str = "committed_offset") -> list[dict[str, Any]]:
    more = {"committed_metadata": None} if name == "committed_offset" else {}
    parts = [{"partition_index": number, name: 1, **more} for number in range(PARTITIONS)]
    return [{"name": topic, "partitions": parts}]


def _txn_offsets(scene: Scene) -> Asked:
    name, session = _session(scene)
    topics = _places(scene.filled())
    values = {"transactional_id": name, "group_id": scene.name(), **session, "topics": topics}
    return Asked(28, 1, values, is_firm=True)


def _added(scene: Scene) -> Asked:
    name, session = _session(scene)
    named = {"transactional_id": name, **session}
    topics = [{"name": scene.topic(), "partitions": [0, 1]}]
    values = {f"v3and_below_{field}": value for field, value in named.items()}
    return Asked(24, 2, {**values, "v3and_below_topics": topics})


def _added_offsets(scene: Scene) -> Asked:
    name, session = _session(scene)
    return Asked(25, 2, {"transactional_id": name, **session, "group_id": scene.name()})


def _ended(scene: Scene) -> Asked:
    name, session = _session(scene)
    topic = scene.topic()
    for number in range(PARTITIONS):
        scene.run(Stage(*session.values(), topic, [Message(b"v")], number))
    return Asked(26, 2, {"transactional_id": name, **session, "committed": True}, is_firm=True)


def _resource(scene: Scene, **more: Any) -> list[dict[str, Any]]:
    config = {"name": "retention.ms", "value": "3600000", **more}
    return [{"resource_type": 2, "resource_name": scene.topic(), "configs": [config]}]


def _created(scene: Scene) -> Asked:
    topic = {"name": scene.name(), "num_partitions": 2, "replication_factor": 1}
    topics = [{**topic, "assignments": [], "configs": []}]
    values = {"topics": topics, "timeout_ms": 1000, "validate_only": False}
    return Asked(19, 4, values, is_firm=True)


def _deleted_group(scene: Scene) -> Asked:
    scene.grouped()
    return Asked(42, 1, {"groups_names": [GROUP]})


KAFKA_EXAMPLES: Mapping[str, Callable[[Scene], Asked]] = {
    "Produce": _produce(-1),
    "Produce with acks of the leader": _produce(1),
    "OffsetCommit": lambda scene: Asked(
        8,
        7,
        {
            "group_id": scene.name(),
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": _places(scene.filled()),
        },
    ),
    "CreateTopics": _created,
    "DeleteTopics": lambda scene: Asked(
        20, 3, {"topic_names": [scene.topic()], "timeout_ms": 1000}, is_firm=True
    ),
    "DeleteRecords": lambda scene: Asked(
        21, 1, {"topics": _places(scene.filled(), "offset"), "timeout_ms": 1000}, is_firm=True
    ),
    "InitProducerId": lambda scene: Asked(
        22, 1, {"transactional_id": scene.name(), "transaction_timeout_ms": 60_000}
    ),
    "AddPartitionsToTxn": _added,
    "AddOffsetsToTxn": _added_offsets,
    "EndTxn": _ended,
    "TxnOffsetCommit": _txn_offsets,
    "AlterConfigs": lambda scene: Asked(
        33, 1, {"resources": _resource(scene), "validate_only": False}, is_firm=True
    ),
    "IncrementalAlterConfigs": lambda scene: Asked(
        44,
        0,
        {"resources": _resource(scene, config_operation=0), "validate_only": False},
        is_firm=True,
    ),
    "CreatePartitions": lambda scene: Asked(
        37,
        1,
        {
            "topics": [{"name": scene.topic(), "count": 3, "assignments": None}],
            "timeout_ms": 1000,
            "validate_only": False,
        },
        is_firm=True,
    ),
    "DeleteGroups": _deleted_group,
}
# Members and leases are lost with the broker, and come again; the others ask only.
VOLATILE_APIS = frozenset(
    {
        *("Fetch", "ListOffsets", "Metadata", "OffsetFetch", "FindCoordinator", "JoinGroup"),
        *("Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups", "ListGroups", "SaslHandshake"),
        *("ApiVersions", "OffsetForLeaderEpoch", "DescribeConfigs", "SaslAuthenticate"),
        *("DescribeCluster", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe"),
        *("ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge"),
    }
)
