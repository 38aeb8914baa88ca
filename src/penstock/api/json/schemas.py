"""Schemas as JSON, with the names of Confluent's registry."""

from typing import Annotated, Any

import msgspec

from ..schemas import SchemaDescription, VersionDescription

VERSION_MAX = (1 << 31) - 1
Number = Annotated[int, msgspec.Meta(ge=-1, le=VERSION_MAX)]


class SchemaReference(msgspec.Struct):
    """What the schema calls another one, and which version of which subject that is."""

    name: str
    subject: str
    version: Number


class SchemaOut(msgspec.Struct, rename="camel"):
    schema: str
    schema_type: str
    guid: str
    references: list[SchemaReference]


class SubjectVersionOut(SchemaOut, rename="camel", kw_only=True):
    subject: str
    id: int
    version: int


class CompatibleOut(msgspec.Struct, omit_defaults=True):
    """`messages` says why not, with `verbose`."""

    is_compatible: bool
    messages: list[str] | None = None


class LevelOut(msgspec.Struct, rename="camel"):
    compatibility_level: str


def schema_out(found: SchemaDescription) -> SchemaOut:
    return SchemaOut(**_fields(found))


def version_out(found: VersionDescription) -> SubjectVersionOut:
    return SubjectVersionOut(
        subject=found.subject,
        id=found.schema.schema_id,
        version=found.version,
        **_fields(found.schema),
    )


def _fields(found: SchemaDescription) -> dict[str, Any]:
    return {
        "schema": found.text,
        "schema_type": found.language,
        "guid": found.guid,
        "references": [SchemaReference(*one) for one in found.references],
    }
