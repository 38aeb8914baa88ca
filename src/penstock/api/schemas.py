"""Schemas: subjects with versions, found by number or by id, checked, registered and deleted.

A principal with prefixes reaches the subjects that begin with one of them, as it does with topics. `within` of a
command are prefixes: schemas that no subject within them has are not there for it. Such a principal names its own.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Annotated, ClassVar, NamedTuple, TypeVar

import msgspec

from .bounds import Names, items
from .command import EVERY_TOPIC, Command
from .principals import Action

LATEST = -1
"""In place of the number of a version: the newest that is not deleted."""
GLOBAL = ""
"""In place of a subject: what holds for all subjects that have none of their own."""

SCHEMA_CHARACTERS_MAX = 1 << 20
REFERENCES_MAX = 1000

R = TypeVar("R")


class Level(Enum):
    """What a new version of a subject has to be able to do with the one before, or with all of them."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")

    @property
    def is_backward(self) -> bool:
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        return self.value.startswith(("FORWARD", "FULL"))


class Mode(Enum):
    """Whether schemas may be registered: with ids of ours, not at all, or only with ids that the client names."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    IMPORT = "IMPORT"


class Reference(NamedTuple):
    """What a schema calls another one, and which version of which subject that is."""

    name: str
    subject: str
    version: int


class NewSchema(NamedTuple):
    """A schema as a client sends it. The language is AVRO, JSON or PROTOBUF."""

    language: str
    text: Annotated[str, items(SCHEMA_CHARACTERS_MAX)]
    references: Annotated[tuple[Reference, ...], items(REFERENCES_MAX)] = ()


class SchemaDescription(msgspec.Struct, frozen=True):
    """A schema that is registered."""

    schema_id: int
    guid: str
    language: str
    text: str
    references: tuple[Reference, ...]
    # All that it has, the first one first: an import may name a second one.
    ids: tuple[int, ...] = ()


class VersionDescription(msgspec.Struct, frozen=True):
    """A version of a subject."""

    subject: str
    version: int
    schema: SchemaDescription
    is_deleted: bool


class RegistryDescription(msgspec.Struct, frozen=True):
    """How much there is in the registry, and what holds for all subjects."""

    schemas: int
    subjects: int
    versions: int
    text_bytes: int
    level: Level
    mode: Mode


class _OfSubject(Command[R], frozen=True):
    subject: str

    def topics(self) -> Iterable[str]:
        return (self.subject,)


class _WithSchema(_OfSubject[R], frozen=True):
    schema: NewSchema

    def topics(self) -> Iterable[str]:
        return (self.subject, *(one.subject for one in self.schema.references))


class _OfSubjectOrAll(Command[R], frozen=True):
    """`GLOBAL` as subject is for principals that reach everything, unless it only looks."""

    subject: str = GLOBAL

    def topics(self) -> Iterable[str]:
        if self.subject == GLOBAL:
            return () if self.is_query else EVERY_TOPIC
        return (self.subject,)

    @property
    def whose(self) -> str:
        """Of what it is, in words."""
        return self.subject or "all subjects"


class _Within(Command[R], frozen=True, kw_only=True):
    scope_field: ClassVar[str] = "within"
    within: Names = ()

    def topics(self) -> Iterable[str]:
        return self.within or EVERY_TOPIC


class RegisterSchema(_WithSchema[VersionDescription], frozen=True):
    """A new version of a subject, unless it has this schema already. In mode IMPORT the client names id and version.

    InvalidSchema, InvalidSubject, IncompatibleSchema, SchemaModeRefused.
    """

    action: ClassVar[Action] = Action.REGISTER_SCHEMA
    is_structural: ClassVar[bool] = True
    audit_line: ClassVar[str] = (
        "{command.subject}: version {reply.version}, id {reply.schema.schema_id}"
    )
    normalize: bool = False
    schema_id: int = 0
    version: int = 0


class FindSchema(_WithSchema[VersionDescription], frozen=True):
    """The version of a subject that has this schema. NotFound, InvalidSchema."""

    action: ClassVar[Action] = Action.SEE_SCHEMAS
    is_query: ClassVar[bool] = True
    is_long: ClassVar[bool] = True
    normalize: bool = False
    deleted: bool = False


class CheckCompatibility(_WithSchema[list[str]], frozen=True):
    """Why a subject would refuse a schema; nothing if it would not. With `version` it is compared with that one only.

    NotFound: there is no such version; a subject without versions refuses nothing. InvalidSchema.
    """

    action: ClassVar[Action] = Action.SEE_SCHEMAS
    is_query: ClassVar[bool] = True
    is_long: ClassVar[bool] = True
    version: int = 0


class ListSubjects(_Within[list[str]], frozen=True, kw_only=True):
    """Subjects by name; with `deleted` also those that are deleted softly."""

    action: ClassVar[Action] = Action.SEE_SCHEMAS
    is_query: ClassVar[bool] = True
    deleted: bool = False


class ListVersions(_OfSubject[list[int]], frozen=True):
    """Numbers of the versions of a subject. NotFound."""

    action: ClassVar[Action] = Action.SEE_SCHEMAS
    is_query: ClassVar[bool] = True
    deleted: bool = False


class DescribeVersion(_OfSubject[VersionDescription], frozen=True):
    """A version of a subject. With `serialized` Protobuf is a base64 FileDescriptorProto, however it was sent.

    NotFound.
    """

    action: ClassVar[Action] = Action.SEE_SCHEMAS
    is_query: ClassVar[bool] = True
    version: int = LATEST
    deleted: bool = False
    serialized: bool = False


class DescribeSchema(_Within[SchemaDescription], frozen=True, kw_only=True):
    """A schema by its id or its guid. `serialized` is as in `DescribeVersion`. NotFound."""

    action: ClassVar[Action] = Action.SEE_SCHEMAS
    is_query: ClassVar[bool] = True
    schema_id: int = 0
    guid: str = ""
    serialized: bool = False


class DecodedContent(msgspec.Struct, frozen=True):
    """A key or a value as JSON text, and the schema that it was written with."""

    schema_id: int
    language: str
    json: str


class DecodeContent(_Within[DecodedContent], frozen=True, kw_only=True):
    """A key or a value that begins with the id or the guid of its schema, as JSON.

    NotFound: there is no such schema. Refused: the content names none, or does not fit it.
    """

    action: ClassVar[Action] = Action.SEE_SCHEMAS
    packed_bytes_max: ClassVar[int | None] = None
    is_query: ClassVar[bool] = True
    is_long: ClassVar[bool] = True
    content: bytes


class ListUses(_Within[list[tuple[str, int]]], frozen=True, kw_only=True):
    """Which versions of which subjects have a schema. NotFound."""

    action: ClassVar[Action] = Action.SEE_SCHEMAS
    is_query: ClassVar[bool] = True
    schema_id: int
    deleted: bool = False


class ListReferring(_OfSubject[list[int]], frozen=True):
    """Ids of the schemas that refer to a version. NotFound."""

    action: ClassVar[Action] = Action.SEE_SCHEMAS
    is_query: ClassVar[bool] = True
    version: int


class _Deleting(_OfSubject[R], frozen=True, kw_only=True):
    permanent: bool = False

    @property
    def for_good(self) -> str:
        """Whether it is the last of it, in words."""
        return " permanently" if self.permanent else ""


class DeleteVersion(_Deleting[int], frozen=True):
    """Delete a version softly, or one that is for good; its number.

    NotFound, SoftDeleted, NotSoftDeleted, SchemaInUse, SchemasReadOnly.
    """

    action: ClassVar[Action] = Action.CHANGE_SCHEMAS
    is_structural: ClassVar[bool] = True
    audit_line: ClassVar[str] = "{command.subject}: version {reply} deleted{command.for_good}"
    version: int


class DeleteSubject(_Deleting[list[int]], frozen=True):
    """Delete all versions of a subject softly, or for good if they are; their numbers.

    NotFound, SoftDeleted, NotSoftDeleted, SchemaInUse, SchemasReadOnly.
    """

    action: ClassVar[Action] = Action.CHANGE_SCHEMAS
    is_structural: ClassVar[bool] = True
    audit_line: ClassVar[str] = "{command.subject} deleted{command.for_good}"


class DescribeCompatibility(_OfSubjectOrAll[Level], frozen=True):
    """The level of a subject. NotFound if it has none of its own, unless that of all is good, too."""

    action: ClassVar[Action] = Action.SEE_SCHEMAS
    is_query: ClassVar[bool] = True
    or_global: bool = False


class SetCompatibility(_OfSubjectOrAll[None], frozen=True):
    """Give a subject a level, or take it away (None). NotFound: there is none to take away. SchemasReadOnly."""

    action: ClassVar[Action] = Action.CHANGE_SCHEMAS
    is_structural: ClassVar[bool] = True
    audit_line: ClassVar[str] = "{command.whose}: compatibility {command.setting}"
    level: Level | None = None

    @property
    def setting(self) -> str:
        """The level, in words."""
        return self.level.value if self.level else "as usual"


class DescribeMode(_OfSubjectOrAll[Mode], frozen=True):
    """The mode of a subject. NotFound if it has none of its own, unless that of all is good, too."""

    action: ClassVar[Action] = Action.SEE_SCHEMAS
    is_query: ClassVar[bool] = True
    or_global: bool = False


class SetMode(_OfSubjectOrAll[None], frozen=True):
    """Give a subject a mode, or take it away (None). NotFound: there is none to take away.

    SchemaModeRefused: IMPORT is for what has no schemas yet, unless with `force`.
    """

    action: ClassVar[Action] = Action.CHANGE_SCHEMAS
    is_structural: ClassVar[bool] = True
    audit_line: ClassVar[str] = "{command.whose}: mode {command.setting}"
    mode: Mode | None = None
    force: bool = False

    @property
    def setting(self) -> str:
        """The mode, in words."""
        return self.mode.value if self.mode else "as usual"


class DescribeRegistry(_Within[RegistryDescription], frozen=True, kw_only=True):
    """How much there is in the registry, or in the subjects within some prefixes, and what holds for all subjects."""

    action: ClassVar[Action] = Action.SEE_SCHEMAS
    is_query: ClassVar[bool] = True
