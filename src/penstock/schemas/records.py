"""Records of the schema registry, in the meta journal (docs/formats/meta.md)."""

import msgspec

from ..api.schemas import Reference


class SchemaStored(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=32):
    """A schema and its id. `fingerprint` is equal for equal schemas of one language with equal references.

    `draft` is how a JSON Schema is read that names no draft itself; empty of other schemas, and of those that were
    stored before records had it: they are draft 2020-12.
    """

    schema_id: int
    language: str
    text: str
    references: tuple[Reference, ...]
    fingerprint: bytes
    draft: str = ""


class VersionStored(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=33):
    """A version of a subject as it is from now on: new, or (soft) deleted."""

    subject: str
    version: int
    schema_id: int
    is_deleted: bool = False


class VersionRemoved(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=34):
    """A version is no more. A schema whose last version this was goes with it."""

    subject: str
    version: int


class CompatibilitySet(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=35):
    """The compatibility level of a subject, or of all that have none ("" as subject). "" as level takes it away."""

    subject: str
    level: str


class ModeSet(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=36):
    """The mode of a subject, or of all that have none ("" as subject). "" as mode takes it away."""

    subject: str
    mode: str


class SchemaIdsUsed(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=37):
    """The next id that a schema may be given."""

    next_id: int


SchemaRecord = (
    SchemaStored | VersionStored | VersionRemoved | CompatibilitySet | ModeSet | SchemaIdsUsed
)
