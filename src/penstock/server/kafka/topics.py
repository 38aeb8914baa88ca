"""What administrators ask about topics: made, grown, deleted, configured, and their beginning cut off."""

from collections.abc import Sequence
from typing import Any

from ...api.topics import (
    AddPartitions,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    DescribeLayouts,
    DescribeTopic,
    TrimPartition,
)
from ...broker.authorise import authorise_command
from ...broker.topics import INTERNAL_PREFIX, PARTITIONS_MAX, config_from
from ...config import TopicConfig
from ...errors import AlreadyExists, InvalidConfig, NotFound, PenstockError, Refused
from ...model import check_name
from .configs import FIXED, read_config, written_configs
from .errors import Code, code_of, repeats
from .metadata import all_layouts, topic_uuid
from .session import KafkaSession
from .wire import Values

_TOPIC, _BROKER = 2, 4
_DEFAULT, _SET, _STATIC = 5, 1, 4
_HIGH_WATERMARK = -1
_SET_OPERATION, _DELETE_OPERATION = 0, 1


async def create_topics(session: KafkaSession, request: Values) -> Values:
    topics = []
    repeated = repeats(topic["name"] for topic in request["topics"])
    for one in _unrepeated(request["topics"], "name"):
        if one["name"] in repeated:
            topics.append(_named_twice(one["name"]))
            continue
        try:
            found = await _create(session, one, is_checked_only=request["validate_only"])
        except PenstockError as error:
            found = _refused(one["name"], error)
        topics.append(found)
    return {"topics": topics}


def _unrepeated(items: list[Values], *keys: str) -> list[Values]:
    """The items, each once by these of their fields."""
    return [*{tuple(item[key] for key in keys): item for item in items}.values()]


def _named_twice(name: str) -> Values:
    """What becomes of each topic that a request names more than once: nothing."""
    return _refused(name, Refused(f"{name} is there more than once"), Code.INVALID_REQUEST)


def _refused(name: str, error: PenstockError, code: Code | None = None) -> Values:
    return {"name": name, "error_code": code or code_of(error), "error_message": str(error)}


async def _create(session: KafkaSession, wanted: Values, *, is_checked_only: bool) -> Values:
    name, count = wanted["name"], wanted["num_partitions"]
    if assignments := wanted["assignments"]:
        count = len(assignments)
        if any(one["broker_ids"] != [session.node_id] for one in assignments):
            reason = Refused(f"there is one broker, {session.node_id}, for every partition")
            return _refused(name, reason, Code.INVALID_REPLICA_ASSIGNMENT)
    elif wanted["replication_factor"] not in (-1, 1):
        reason = Refused("there is one broker: the replication factor is 1")
        return _refused(name, reason, Code.INVALID_REPLICATION_FACTOR)
    elif count != -1 and count < 1:
        return _refused(name, Refused(f"{count} partitions"), Code.INVALID_PARTITIONS)
    settings: dict[str, Any] = {}
    defaults = _defaults(session)
    for one in wanted["configs"]:
        settings |= read_config(one["name"], one["value"], defaults)
    # 0 stands for as many as the settings of the broker say.
    command = CreateTopic(name, max(0, count), settings)
    if is_checked_only:
        authorise_command(session.principal, command)
        if check_name(name, "topic").startswith(INTERNAL_PREFIX):
            raise Refused(f"topic names that start with {INTERNAL_PREFIX!r} are internal: {name}")
        config_from({**session.service.settings.topic_defaults(), **settings})
        _check_partitions(count)
        if await session.execute(DescribeLayouts((name,))):
            raise AlreadyExists("topic", name)
        return {"name": name, "num_partitions": count, "replication_factor": 1, "configs": None}
    await session.execute(command)
    described = await session.execute(DescribeTopic(name))
    (layout,) = await session.execute(DescribeLayouts((name,)))
    return {
        "name": name,
        "topic_id": topic_uuid(layout.topic_id),
        "num_partitions": len(layout.epochs),
        "replication_factor": 1,
        "configs": [
            {"name": key, "value": value, "config_source": _SET}
            for key, value in written_configs(described.settings).items()
        ],
    }


def _check_partitions(count: int) -> None:
    if count > PARTITIONS_MAX:
        raise Refused(f"partitions must be in 1..{PARTITIONS_MAX}, got {count}")


def _defaults(session: KafkaSession) -> dict[str, Any]:
    """What a topic has of which nothing is said."""
    plain = {
        name: getattr(value, "value", value)
        for name in TopicConfig.__dataclass_fields__
        for value in [getattr(TopicConfig(), name)]
    }
    return {**plain, **session.service.settings.topic_defaults()}


async def delete_topics(session: KafkaSession, request: Values) -> Values:
    wanted = request["topics"] or [
        {"name": name, "topic_id": bytes(16)} for name in request["topic_names"]
    ]
    responses = []
    repeated = repeats((topic["name"], topic["topic_id"]) for topic in wanted)
    names: dict[bytes, str] = {}
    if any(topic["name"] is None for topic in wanted):
        names = {topic_uuid(layout.topic_id): layout.name for layout in await all_layouts(session)}
    for one in _unrepeated(wanted, "name", "topic_id"):
        found: Values = {"name": one["name"], "topic_id": one["topic_id"]}
        if (one["name"], one["topic_id"]) in repeated:
            responses.append({**_named_twice(one["name"]), "topic_id": one["topic_id"]})
            continue
        try:
            found["name"] = one["name"] or _name_of(one["topic_id"], names)
            await session.execute(DeleteTopic(found["name"]))
        except NotFound as error:
            by_id = one["name"] is None
            found["error_code"] = Code.UNKNOWN_TOPIC_ID if by_id else code_of(error)
            found["error_message"] = str(error)
        except PenstockError as error:
            found |= {"error_code": code_of(error), "error_message": str(error)}
        responses.append(found)
    return {"responses": responses}


def _name_of(uuid: bytes, names: dict[bytes, str]) -> str:
    if uuid not in names:
        raise NotFound("topic", uuid.hex())
    return names[uuid]


async def create_partitions(session: KafkaSession, request: Values) -> Values:
    results = []
    repeated = repeats(topic["name"] for topic in request["topics"])
    for one in _unrepeated(request["topics"], "name"):
        found: Values = {"name": one["name"]}
        if one["name"] in repeated:
            results.append(_named_twice(one["name"]))
            continue
        try:
            before = len((await session.execute(DescribeTopic(one["name"]))).partitions)
            if one["count"] <= before:
                reason = Refused(f"{one['name']} has {before} partitions already")
                results.append(_refused(one["name"], reason, Code.INVALID_PARTITIONS))
                continue
            command = AddPartitions(one["name"], one["count"])
            if request["validate_only"]:
                authorise_command(session.principal, command)
                _check_partitions(one["count"])
            else:
                await session.execute(command)
        except PenstockError as error:
            found = _refused(one["name"], error)
        results.append(found)
    return {"results": results}


async def describe_configs(session: KafkaSession, request: Values) -> Values:
    results = []
    for one in _unrepeated(request["resources"], "resource_type", "resource_name"):
        resource = {key: one[key] for key in ("resource_type", "resource_name")}
        try:
            configs = await _configs(session, one)
            wanted = one["configuration_keys"]
            if wanted:
                configs = [config for config in configs if config["name"] in wanted]
            results.append({**resource, "configs": configs})
        except PenstockError as error:
            known = {"error_code": code_of(error), "error_message": str(error)}
            results.append({**resource, **known, "configs": []})
    return {"results": results}


async def _configs(session: KafkaSession, resource: Values) -> list[Values]:
    if resource["resource_type"] == _TOPIC:
        described = await session.execute(DescribeTopic(resource["resource_name"]))
        now = written_configs(described.settings)
        usual = written_configs(_defaults(session))
        return [
            {
                "name": name,
                "value": value,
                "read_only": name in FIXED,
                "config_source": _DEFAULT if value == usual[name] else _SET,
            }
            for name, value in now.items()
        ]
    if resource["resource_type"] == _BROKER:
        broker = session.service.settings.broker
        shown = {
            "broker.id": str(broker.node_id),
            "auto.create.topics.enable": str(broker.auto_create_topics).lower(),
            "message.max.bytes": str(session.limits.batch_bytes_max),
        }
        return [
            {"name": name, "value": value, "read_only": True, "config_source": _STATIC}
            for name, value in shown.items()
        ]
    raise Refused(f"resource type {resource['resource_type']} has no settings here")


async def alter_configs(session: KafkaSession, request: Values) -> Values:
    """The settings of a topic from now on; what is left out goes back to its default."""
    responses = []
    repeated = _repeated_resources(request)
    for one in _unrepeated(request["resources"], "resource_type", "resource_name"):
        if (one["resource_type"], one["resource_name"]) in repeated:
            responses.append(_resource_twice(one))
            continue
        defaults = _defaults(session)
        changes = [(config["name"], config["value"]) for config in one["configs"]]
        is_checked_only = request["validate_only"]
        responses.append(
            await _altered(session, one, changes, base=defaults, is_checked_only=is_checked_only)
        )
    return {"responses": responses}


async def incremental_alter_configs(session: KafkaSession, request: Values) -> Values:
    """Some settings of a topic."""
    responses = []
    repeated = _repeated_resources(request)
    for one in _unrepeated(request["resources"], "resource_type", "resource_name"):
        if (one["resource_type"], one["resource_name"]) in repeated:
            responses.append(_resource_twice(one))
            continue
        usual = written_configs(_defaults(session))
        changes: list[tuple[str, str | None]] = []
        for config in one["configs"]:
            operation, name, value = config["config_operation"], config["name"], config["value"]
            if operation == _DELETE_OPERATION:
                value = usual.get(name)
            elif operation != _SET_OPERATION:
                name = f"{name} (set and delete are known, append and subtract are not)"
            changes.append((name, value))
        is_checked_only = request["validate_only"]
        responses.append(
            await _altered(session, one, changes, base={}, is_checked_only=is_checked_only)
        )
    return {"responses": responses}


def _repeated_resources(request: Values) -> set[tuple[int, str]]:
    resources = request["resources"]
    return repeats((resource["resource_type"], resource["resource_name"]) for resource in resources)


def _resource_twice(resource: Values) -> Values:
    """What becomes of a resource that a request names more than once: nothing."""
    named = {key: resource[key] for key in ("resource_type", "resource_name")}
    reason = f"{resource['resource_name']} is there more than once"
    return {**named, "error_code": Code.INVALID_REQUEST, "error_message": reason}


async def _altered(
    session: KafkaSession,
    resource: Values,
    changes: Sequence[tuple[str, str | None]],
    *,
    base: dict[str, Any],
    is_checked_only: bool,
) -> Values:
    named = {key: resource[key] for key in ("resource_type", "resource_name")}
    try:
        if resource["resource_type"] != _TOPIC:
            raise InvalidConfig("resource", resource["resource_type"], "a topic")
        described = await session.execute(DescribeTopic(resource["resource_name"]))
        settings = dict(base)
        for name, value in changes:
            settings |= read_config(name, value, described.settings)
        command = ConfigureTopic(resource["resource_name"], settings)
        if is_checked_only:
            authorise_command(session.principal, command)
            config_from({**described.settings, **settings})
        elif settings:
            await session.execute(command)
    except PenstockError as error:
        return {**named, "error_code": code_of(error), "error_message": str(error)}
    return named


async def delete_records(session: KafkaSession, request: Values) -> Values:
    """Where partitions begin from now on. Of a partition that is named twice the last offset counts, as in Kafka."""
    offsets: dict[str, dict[int, int]] = {}
    for topic in request["topics"]:
        numbers = offsets.setdefault(topic["name"], {})
        numbers.update((part["partition_index"], part["offset"]) for part in topic["partitions"])
    topics = []
    for name, numbers in offsets.items():
        parts = []
        for number, offset in numbers.items():
            before = None if offset == _HIGH_WATERMARK else offset
            try:
                trim = TrimPartition(name, number, before)
                start = await session.execute(trim, is_synced=True)
                found: Values = {"low_watermark": start}
            except PenstockError as error:
                found = {"low_watermark": -1, "error_code": code_of(error)}
            parts.append({"partition_index": number, **found})
        topics.append({"name": name, "partitions": parts})
    return {"topics": topics}
