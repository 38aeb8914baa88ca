"""The schema registry. A change is durable when its reply leaves, whatever the fsync policy."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ...api.command import Command
from ...api.schemas import (
    GLOBAL,
    CheckCompatibility,
    DecodeContent,
    DecodedContent,
    DeleteSubject,
    DeleteVersion,
    DescribeCompatibility,
    DescribeMode,
    DescribeRegistry,
    DescribeSchema,
    DescribeVersion,
    FindSchema,
    Level,
    ListReferring,
    ListSubjects,
    ListUses,
    ListVersions,
    Mode,
    RegisterSchema,
    RegistryDescription,
    SchemaDescription,
    SetCompatibility,
    SetMode,
    VersionDescription,
)
from ...codec.schema_id import behind_schema_id, has_schema_id, schema_id_of
from ...errors import NotFound, Refused
from ...schemas import SchemaStored, Version
from ...schemas.protobuf import ProtobufSchema
from ...schemas.registry import guid_of
from ..partition import Now
from ..partition.changes import Handler
from ..validation import bind_again

if TYPE_CHECKING:
    from ..node import Node


def register_schema(node: "Node", command: RegisterSchema, now: Now) -> VersionDescription:
    outcome = node.schemas.register(
        command.subject,
        command.schema,
        normalize=command.normalize,
        given=(command.schema_id, command.version),
    )
    node.record_meta(outcome.records, now)
    bind_again(node, (command.subject,))
    return _described(node, outcome.reply)


def find_schema(node: "Node", command: FindSchema, _now: Now) -> VersionDescription:
    found = node.schemas.find(
        command.subject, command.schema, normalize=command.normalize, deleted=command.deleted
    )
    return _described(node, found)


def check_compatibility(node: "Node", command: CheckCompatibility, _now: Now) -> list[str]:
    return node.schemas.faults(command.subject, command.schema, number=command.version)


def list_subjects(node: "Node", command: ListSubjects, _now: Now) -> list[str]:
    return sorted(
        name
        for name, versions in node.schemas.subjects.items()
        if name.startswith(command.within or "")
        and (command.deleted or not all(one.is_deleted for one in versions.values()))
    )


def list_versions(node: "Node", command: ListVersions, _now: Now) -> list[int]:
    found = node.schemas.versions(command.subject, deleted=command.deleted)
    return [one.number for one in found]


def describe_version(node: "Node", command: DescribeVersion, _now: Now) -> VersionDescription:
    found = node.schemas.version(command.subject, command.version, deleted=command.deleted)
    return _described(node, found, is_serialized=command.serialized)


def describe_schema(node: "Node", command: DescribeSchema, _now: Now) -> SchemaDescription:
    registry = node.schemas
    guid, number = command.guid, command.schema_id
    found = registry.schema_of_guid(guid) if guid else registry.schema(number)
    _require_within(node, found.schema_id, command.within)
    return _schema(node, found, is_serialized=command.serialized)


def decode_content(node: "Node", command: DecodeContent, _now: Now) -> DecodedContent:
    content, registry = command.content, node.schemas
    named = schema_id_of(content) if has_schema_id(content) else None
    if named is None:
        raise Refused("the content does not begin with the id or the guid of a schema")
    found = registry.schema_named(named)
    _require_within(node, found.schema_id, command.within)
    schema, payload = registry.read(found.schema_id), behind_schema_id(content)
    fault = schema.fault_in(payload)
    if fault is not None:
        path, reason = fault
        raise Refused(
            f"the content does not fit schema {found.schema_id}: {path or '/'}: {reason[:300]}",
            schema_id=found.schema_id,
        )
    document = msgspec.json.encode(schema.document_of(payload)).decode()
    return DecodedContent(found.schema_id, found.language, document)


def list_uses(node: "Node", command: ListUses, _now: Now) -> list[tuple[str, int]]:
    _require_within(node, command.schema_id, command.within)
    found = node.schemas.versions_of(command.schema_id, deleted=command.deleted)
    return sorted(
        (one.subject, one.number) for one in found if one.subject.startswith(command.within or "")
    )


def _require_within(node: "Node", schema_id: int, within: tuple[str, ...]) -> None:
    """NotFound, as for no schema, for one that only subjects have which begin with none of the prefixes."""
    if within and not any(
        one.subject.startswith(within) for one in node.schemas.versions_of(schema_id, deleted=True)
    ):
        raise NotFound("schema", schema_id)


def list_referring(node: "Node", command: ListReferring, _now: Now) -> list[int]:
    return node.schemas.referring(command.subject, command.version)


def delete_version(node: "Node", command: DeleteVersion, now: Now) -> int:
    outcome = node.schemas.delete_version(
        command.subject, command.version, permanent=command.permanent
    )
    node.record_meta(outcome.records, now)
    bind_again(node, (command.subject,))
    return outcome.reply


def delete_subject(node: "Node", command: DeleteSubject, now: Now) -> list[int]:
    outcome = node.schemas.delete_subject(command.subject, permanent=command.permanent)
    node.record_meta(outcome.records, now)
    bind_again(node, (command.subject,))
    return outcome.reply


def describe_compatibility(node: "Node", command: DescribeCompatibility, _now: Now) -> Level:
    is_own = command.subject in {GLOBAL, *node.schemas.levels}
    if not is_own and not command.or_global:
        raise NotFound("compatibility level", f"of subject {command.subject}")
    return node.schemas.level(command.subject)


def set_compatibility(node: "Node", command: SetCompatibility, now: Now) -> None:
    node.record_meta(node.schemas.set_level(command.subject, command.level), now)


def describe_mode(node: "Node", command: DescribeMode, _now: Now) -> Mode:
    is_own = command.subject in {GLOBAL, *node.schemas.modes}
    if not is_own and not command.or_global:
        raise NotFound("mode", f"of subject {command.subject}")
    return node.schemas.mode(command.subject)


def set_mode(node: "Node", command: SetMode, now: Now) -> None:
    records = node.schemas.set_mode(command.subject, command.mode, force=command.force)
    node.record_meta(records, now)


def describe_registry(node: "Node", command: DescribeRegistry, _now: Now) -> RegistryDescription:
    registry, within = node.schemas, command.within
    subjects = [
        versions for name, versions in registry.subjects.items() if name.startswith(within or "")
    ]
    schemas, text_bytes = len(registry.schemas), registry.text_bytes
    if within:
        ids = {version.schema_id for versions in subjects for version in versions.values()}
        schemas = len(ids)
        text_bytes = sum(len(registry.schemas[schema_id].text) for schema_id in ids)
    return RegistryDescription(
        schemas,
        len(subjects),
        sum(map(len, subjects)),
        text_bytes,
        registry.level(GLOBAL),
        registry.mode(GLOBAL),
    )


def _described(node: "Node", found: Version, *, is_serialized: bool = False) -> VersionDescription:
    schema = _schema(node, found.schema, is_serialized=is_serialized)
    return VersionDescription(found.subject, found.number, schema, found.is_deleted)


def _schema(node: "Node", found: SchemaStored, *, is_serialized: bool) -> SchemaDescription:
    text = found.text
    if is_serialized:
        read = node.schemas.read(found.schema_id)
        text = read.serialized if isinstance(read, ProtobufSchema) else text
    ids = node.schemas.ids_of(found)
    return SchemaDescription(
        found.schema_id, guid_of(found), found.language, text, found.references, ids
    )


HANDLERS: Mapping[type[Command[Any]], Handler] = {
    RegisterSchema: register_schema,
    FindSchema: find_schema,
    CheckCompatibility: check_compatibility,
    ListSubjects: list_subjects,
    ListVersions: list_versions,
    DescribeVersion: describe_version,
    DescribeSchema: describe_schema,
    DecodeContent: decode_content,
    ListUses: list_uses,
    ListReferring: list_referring,
    DeleteVersion: delete_version,
    DeleteSubject: delete_subject,
    DescribeCompatibility: describe_compatibility,
    SetCompatibility: set_compatibility,
    DescribeMode: describe_mode,
    SetMode: set_mode,
    DescribeRegistry: describe_registry,
}
