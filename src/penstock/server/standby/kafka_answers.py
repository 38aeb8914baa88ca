"""What Kafka's clients are told by a node that does not lead: where the leader is, and that this node is not it."""

from urllib.parse import urlsplit

from ...api.frames import RequestHeader
from ...errors import PenstockError
from ..kafka.errors import Code
from ..kafka.metadata import CLUSTER_ID, served_versions
from ..kafka.port import without_tags
from ..kafka.schema import REQUESTS
from ..kafka.wire import Values, decode_request, encode_response
from .promotion import Peer

_PRODUCE, _FETCH, _LIST_OFFSETS, _METADATA = 0, 1, 2, 3
_FIND_COORDINATOR, _API_VERSIONS, _DESCRIBE_CLUSTER = 10, 18, 60
_NO_NODE = {"node_id": -1, "host": "", "port": -1}
_NOT_ASKED = -2147483648
_NO_TAGS = b"\0"


def kafka_answer(
    header: RequestHeader, body: memoryview, refusal: PenstockError, leader: Peer | None
) -> bytes | None:
    """The response behind its correlation; None: such a request can only be answered by a leader. BadRequest."""
    key, version = header.api_key, header.version
    schema = REQUESTS.get(key)
    if schema is None:
        return None
    if key == _API_VERSIONS:
        told: Values = {"api_keys": served_versions()}
        if not schema.first <= version <= schema.last:
            told["error_code"], version = Code.UNSUPPORTED_VERSION, 0
        return b"".join(map(bytes, encode_response(key, version, told)))
    if not schema.first <= version <= schema.last:
        return None
    request = decode_request(key, version, without_tags(schema, version, body))
    values = _values(key, request, str(refusal), _node(leader))
    if values is None:
        return None
    tags = _NO_TAGS if version >= schema.flexible else b""
    return tags + b"".join(map(bytes, encode_response(key, version, values)))


def _node(leader: Peer | None) -> Values:
    parts = urlsplit(leader.binary) if leader is not None else None
    if leader is None or parts is None or parts.port is None:
        return _NO_NODE
    return {"node_id": leader.node, "host": parts.hostname or "", "port": parts.port}


def _values(key: int, request: Values, reason: str, node: Values) -> Values | None:
    if key == _METADATA:
        return _metadata(request, node)
    if key == _DESCRIBE_CLUSTER:
        brokers = [{**node, "broker_id": node["node_id"]}] if node is not _NO_NODE else []
        return {
            "cluster_id": CLUSTER_ID,
            "controller_id": node["node_id"],
            "brokers": brokers,
            "cluster_authorized_operations": _NOT_ASKED,
        }
    if key == _FIND_COORDINATOR:
        code = Code.NONE if node is not _NO_NODE else Code.COORDINATOR_NOT_AVAILABLE
        found = {**node, "error_code": code, "error_message": reason if code else None}
        each = [{"key": one, **found} for one in request.get("coordinator_keys") or ()]
        return {**found, "coordinators": each}
    return _refused(key, request, reason)


def _metadata(request: Values, node: Values) -> Values:
    """The leader as the one broker. Topics are known there: a client asks it next."""
    asked = [
        {"name": one["name"], "error_code": Code.LEADER_NOT_AVAILABLE}
        for one in request["topics"] or ()
        if one["name"] is not None
    ]
    return {
        "brokers": [node] if node is not _NO_NODE else [],
        "cluster_id": CLUSTER_ID,
        "controller_id": node["node_id"],
        "topics": asked,
        "cluster_authorized_operations": _NOT_ASKED,
    }


def _refused(key: int, request: Values, reason: str) -> Values | None:
    """NOT_LEADER_OR_FOLLOWER for each partition of a request that reads or writes."""
    code = Code.NOT_LEADER_OR_FOLLOWER
    if key == _PRODUCE and request["acks"]:
        refused = {"error_code": code, "base_offset": -1, "error_message": reason}
        return {
            "responses": [
                {
                    "name": topic["name"],
                    "partition_responses": [
                        {"index": part["index"], **refused} for part in topic["partition_data"]
                    ],
                }
                for topic in request["topic_data"]
            ]
        }
    if key == _FETCH:
        return {
            "responses": [
                {
                    "topic": topic["topic"],
                    "partitions": [
                        {"partition_index": one["partition"], "error_code": code}
                        for one in topic["partitions"]
                    ],
                }
                for topic in request["topics"]
            ]
        }
    if key == _LIST_OFFSETS:
        return {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        {"partition_index": one["partition_index"], "error_code": code}
                        for one in topic["partitions"]
                    ],
                }
                for topic in request["topics"]
            ]
        }
    return None
