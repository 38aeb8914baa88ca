"""The registry: schemas by id, and subjects with their versions, levels and modes. A machine in the meta journal.

`apply` changes it; the other methods decide. A version that is deleted is first deleted softly: it can still be read by
those who ask for what is deleted, and its schema by its id. What was deleted softly can be deleted for good.
"""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from ..api.schemas import GLOBAL, LATEST, Level, Mode, NewSchema, Reference
from ..errors import (
    IncompatibleSchema,
    InvalidSchema,
    NotFound,
    NotSoftDeleted,
    Refused,
    SchemaInUse,
    SchemaModeRefused,
    SchemasReadOnly,
    SoftDeleted,
)
from ..kernel import Outcome
from .checking import CLOSURE_BYTES_MAX, CLOSURE_COUNT_MAX
from .json_document import DRAFT_USUAL
from .json_schema import JsonSchema, undrafted
from .languages import Schema, read_schema
from .records import (
    CompatibilitySet,
    ModeSet,
    SchemaIdsUsed,
    SchemaRecord,
    SchemaStored,
    VersionRemoved,
    VersionStored,
)
from .subjects import check_subject

_VERSIONS_MAX = 1000
_SUBJECTS_MAX = 100_000
# Of all schemas: they are in memory, and in each snapshot of meta.
_BYTES_MAX = 256 << 20
_ID_MAX = (1 << 31) - 1
# Characters of the schemas that are remembered as read; in memory they take many times as much.
_READ_MAX = 4 << 20
# Characters that are read for one comparison with all versions: about two seconds.
_COMPARED_MAX = 8 << 20


class Version(NamedTuple):
    """A version of a subject."""

    subject: str
    number: int
    schema: SchemaStored
    is_deleted: bool


class Registry:
    """The machine."""

    def __init__(self) -> None:
        self.schemas: dict[int, SchemaStored] = {}
        self.subjects: dict[str, dict[int, VersionStored]] = {}
        self.levels: dict[str, Level] = {}
        self.modes: dict[str, Mode] = {}
        self.next_id = 1
        # The ids of a schema, the first one first: an import may name a second one.
        self._by_fingerprint: dict[bytes, list[int]] = {}
        # How many versions, deleted ones included, have a schema.
        self._uses: dict[int, int] = {}
        # Which schemas refer to a version.
        self._referring: dict[tuple[str, int], set[int]] = {}
        self.text_bytes = 0
        self._read: dict[int, Schema] = {}
        self._read_characters = 0

    def apply(self, record: SchemaRecord) -> None:
        match record:
            case SchemaStored():
                self._add(record)
            case VersionStored():
                versions = self.subjects.setdefault(record.subject, {})
                if record.version not in versions:
                    self._uses[record.schema_id] = self._uses.get(record.schema_id, 0) + 1
                versions[record.version] = record
            case VersionRemoved():
                self._remove(record)
            case CompatibilitySet():
                self.levels.pop(record.subject, None)
                if record.level:
                    self.levels[record.subject] = Level(record.level)
            case ModeSet():
                self.modes.pop(record.subject, None)
                if record.mode:
                    self.modes[record.subject] = Mode(record.mode)
            case SchemaIdsUsed():
                self.next_id = max(self.next_id, record.next_id)

    def snapshot(self) -> Iterable[SchemaRecord]:
        yield SchemaIdsUsed(self.next_id)
        yield from self.schemas.values()
        yield from chain.from_iterable(one.values() for one in self.subjects.values())
        for subject, level in self.levels.items():
            yield CompatibilitySet(subject, level.value)
        for subject, mode in self.modes.items():
            yield ModeSet(subject, mode.value)

    def _add(self, record: SchemaStored) -> None:
        self.schemas[record.schema_id] = record
        self.next_id = max(self.next_id, record.schema_id + 1)
        ids = self._by_fingerprint.setdefault(record.fingerprint, [])
        if record.schema_id not in ids:
            ids.append(record.schema_id)
        self.text_bytes += len(record.text)
        for one in record.references:
            self._referring.setdefault((one.subject, one.version), set()).add(record.schema_id)

    def _remove(self, record: VersionRemoved) -> None:
        versions = self.subjects[record.subject]
        schema_id = versions.pop(record.version).schema_id
        if not versions:
            del self.subjects[record.subject]
        self._uses[schema_id] -= 1
        if self._uses[schema_id]:
            return
        schema = self.schemas.pop(schema_id)
        del self._uses[schema_id]
        ids = self._by_fingerprint[schema.fingerprint]
        ids.remove(schema_id)
        if not ids:
            del self._by_fingerprint[schema.fingerprint]
        self._read.pop(schema_id, None)
        self.text_bytes -= len(schema.text)
        for one in schema.references:
            users = self._referring[one.subject, one.version]
            users.discard(schema_id)
            if not users:
                del self._referring[one.subject, one.version]

    # What there is.

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject, oldest first. NotFound if there are none."""
        known = self.subjects.get(subject, {})
        found = [
            Version(subject, one.version, self.schemas[one.schema_id], one.is_deleted)
            for one in known.values()
            if deleted or not one.is_deleted
        ]
        if not found:
            raise SoftDeleted("subject", subject) if known else NotFound("subject", subject)
        return sorted(found, key=lambda one: one.number)

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        """A version of a subject; `LATEST` is the newest that is not deleted. NotFound, SoftDeleted."""
        by_number = self.subjects.get(subject, {})
        known = by_number.get(number)
        if number == LATEST and by_number:
            # What is deleted only if there is nothing else. A thousand references may ask for the same.
            known = max(by_number.values(), key=lambda one: (not one.is_deleted, one.version))
        if known is not None and (deleted or not known.is_deleted):
            schema = self.schemas[known.schema_id]
            return Version(subject, known.version, schema, known.is_deleted)
        # A subject whose versions are all deleted has none for those who do not ask for what is deleted.
        self.versions(subject, deleted=deleted)
        raise NotFound("version", number)

    def schema(self, schema_id: int) -> SchemaStored:
        """A schema by its id, deleted softly or not. NotFound."""
        found = self.schemas.get(schema_id)
        if found is None:
            raise NotFound("schema", schema_id)
        return found

    def schema_of_guid(self, guid: str) -> SchemaStored:
        """A schema by its guid, with or without hyphens. NotFound."""
        try:
            ids = self._by_fingerprint.get(bytes.fromhex(guid.replace("-", "")))
        except ValueError:
            ids = None
        if ids is None:
            raise NotFound("schema", guid[:60])
        return self.schemas[ids[0]]

    def ids_of(self, schema: SchemaStored) -> tuple[int, ...]:
        """All ids that a schema has."""
        return tuple(self._by_fingerprint[schema.fingerprint])

    def schema_named(self, named: int | bytes) -> SchemaStored:
        """A schema by what contents begin with: its id, or its guid in bytes. NotFound."""
        return self.schema(named) if isinstance(named, int) else self.schema_of_guid(named.hex())

    def versions_of(self, schema_id: int, *, deleted: bool = False) -> list[Version]:
        """Which versions of which subjects have a schema."""
        schema = self.schema(schema_id)
        return [
            Version(one.subject, one.version, schema, one.is_deleted)
            for versions in self.subjects.values()
            for one in versions.values()
            if one.schema_id == schema_id and (deleted or not one.is_deleted)
        ]

    def referring(self, subject: str, number: int) -> list[int]:
        """Ids of the schemas that refer to a version. NotFound if there is no such version."""
        found = self.version(subject, number, deleted=True)
        return sorted(self._referring.get((subject, found.number), ()))

    def level(self, subject: str) -> Level:
        return self.levels.get(subject) or self.levels.get(GLOBAL, Level.BACKWARD)

    def mode(self, subject: str) -> Mode:
        return self.modes.get(subject) or self.modes.get(GLOBAL, Mode.READWRITE)

    # Schemas that are read.

    def read(self, schema_id: int) -> Schema:
        """A stored schema, read; those of late are remembered."""
        found = self._read.get(schema_id)
        if found is None:
            one = self.schemas[schema_id]
            found = self._parsed(NewSchema(one.language, one.text, one.references))
            document = undrafted(found)
            if document is not None:
                document.read_as(one.draft)
            self._read_characters += len(one.text)
            if self._read_characters > _READ_MAX:
                self._read.clear()
                self._read_characters = len(one.text)
            self._read[schema_id] = found
        return found

    def parse(self, subject: str, new: NewSchema) -> Schema:
        """A new schema of a subject, read. InvalidSchema, also for a reference to what is not registered."""
        schema = self._parsed(new)
        document = undrafted(schema)
        if document is not None:
            document.read_as(self._draft(subject, _fingerprint(new, schema)))
        # What cannot be compiled is refused now, and not when the first message comes.
        schema.is_valid(b"{}")
        return schema

    def _draft(self, subject: str, fingerprint: bytes) -> str:
        """How a JSON Schema is read that names no draft: as before, if it is there or its subject has such a one."""
        ids = self._by_fingerprint.get(fingerprint)
        if ids:
            return self.schemas[ids[0]].draft
        versions = self.subjects.get(subject, {}).values()
        newest = max((one for one in versions if not one.is_deleted), key=_number, default=None)
        document = undrafted(self.read(newest.schema_id)) if newest else None
        return DRAFT_USUAL if document is None else document.draft

    def _parsed(self, new: NewSchema) -> Schema:
        referenced = self._closure(new)
        if sum(len(stored.text) for _, stored in referenced) > CLOSURE_BYTES_MAX:
            raise InvalidSchema(f"what it refers to has more than {CLOSURE_BYTES_MAX} characters")
        texts = [(name, stored.text) for name, stored in referenced]
        schema = read_schema(new.language, new.text, texts)
        if isinstance(schema, JsonSchema):
            for name, stored in referenced:
                schema.root.others[name].read_as(stored.draft)
        return schema

    def _closure(self, new: NewSchema) -> list[tuple[str, SchemaStored]]:
        """What a schema refers to, and what that refers to, each once, with nothing before what it refers to."""
        found: dict[tuple[str, int, str], tuple[str, SchemaStored]] = {}
        on_way: set[tuple[str, int, str]] = set()
        waiting: list[tuple[Reference, bool]] = [(one, False) for one in reversed(new.references)]
        while waiting:
            one, is_over = waiting.pop()
            stored = self._referenced(one, new.language)
            key = stored.subject, stored.number, one.name
            if key in found:
                continue
            if is_over:
                found[key] = one.name, stored.schema
            elif key not in on_way:
                on_way.add(key)
                waiting.append((one, True))
                waiting += [(inner, False) for inner in reversed(stored.schema.references)]
            if len(on_way) > CLOSURE_COUNT_MAX:
                raise InvalidSchema(f"it refers to more than {CLOSURE_COUNT_MAX} schemas")
        return [*found.values()]

    def _referenced(self, one: Reference, language: str) -> Version:
        try:
            found = self.version(one.subject, one.version, deleted=True)
        except NotFound as error:
            raise InvalidSchema(f"reference {one.name[:200]}: {error}") from None
        if found.schema.language != language:
            raise InvalidSchema(f"reference {one.name[:200]} is {found.schema.language}")
        return found

    # Decisions.

    def register(
        self,
        subject: str,
        new: NewSchema,
        *,
        normalize: bool = False,
        given: tuple[int, int] = (0, 0),
    ) -> Outcome[SchemaRecord, Version]:
        """A version of a subject, unless it has this schema already; replies with the version.

        `given` are an id and a version that the client names, in mode IMPORT. InvalidSchema, IncompatibleSchema,
        SchemasReadOnly, Refused.
        """
        if subject not in self.subjects:
            check_subject(subject)
        mode = self.mode(subject)
        if mode is Mode.READONLY:
            raise SchemasReadOnly(subject)
        if any(given) != (mode is Mode.IMPORT):
            raise SchemaModeRefused(
                f"subject {subject} is in mode {mode.value}: ids are named in IMPORT only"
            )
        new = self._pinned(new)
        schema = self.parse(subject, new)
        known = self._same(subject, new, schema, normalize=normalize)
        if known is not None and not any(given):
            return Outcome(known)
        if not any(given):
            faults = self.faults(subject, new, schema=schema)
            if faults:
                raise IncompatibleSchema(subject, self.level(subject).value, faults)
        return self._stored(subject, new, schema, given)

    def _pinned(self, new: NewSchema) -> NewSchema:
        """With numbers in place of "the latest": what is registered never changes. InvalidSchema."""
        if len(new.references) > CLOSURE_COUNT_MAX:
            raise InvalidSchema(f"it refers to more than {CLOSURE_COUNT_MAX} schemas")
        return new._replace(
            references=tuple(
                one._replace(version=self._referenced(one, new.language).number)
                for one in new.references
            )
        )

    def _stored(
        self, subject: str, new: NewSchema, schema: Schema, given: tuple[int, int]
    ) -> Outcome[SchemaRecord, Version]:
        fingerprint = _fingerprint(new, schema)
        numbers = self.subjects.get(subject, {})
        records: list[SchemaRecord] = []
        schema_id = given[0] or self._by_fingerprint.get(fingerprint, (0,))[0]
        stored = self.schemas.get(schema_id)
        if not 0 <= schema_id <= _ID_MAX or (stored and stored.fingerprint != fingerprint):
            raise SchemaModeRefused(f"id {schema_id} is another schema's, or above {_ID_MAX}")
        if stored is None:
            schema_id = schema_id or self.next_id
            document = undrafted(schema)
            draft = "" if document is None else document.draft
            stored = SchemaStored(
                schema_id, new.language, new.text, new.references, fingerprint, draft
            )
            records.append(stored)
        self._require_room(subject, len(new.text) if records else 0)
        number = given[1] or max(numbers, default=0) + 1
        before = numbers.get(number)
        if not 0 < number <= _ID_MAX or (before is not None and before.schema_id != schema_id):
            raise SchemaModeRefused(f"version {number} of subject {subject} is another schema")
        records.append(VersionStored(subject, number, schema_id))
        return Outcome(Version(subject, number, stored, is_deleted=False), tuple(records))

    def _require_room(self, subject: str, size: int) -> None:
        known = self.subjects.get(subject, {})
        if len(known) >= _VERSIONS_MAX:
            raise Refused(f"subject {subject} has {_VERSIONS_MAX} versions; delete some for good")
        if not known and len(self.subjects) >= _SUBJECTS_MAX:
            raise Refused(f"there are {_SUBJECTS_MAX} subjects; delete some for good")
        if self.text_bytes + size > _BYTES_MAX:
            raise Refused(f"all schemas have {_BYTES_MAX >> 20} MiB; delete some for good")

    def find(
        self, subject: str, new: NewSchema, *, normalize: bool = False, deleted: bool = False
    ) -> Version:
        """The version of a subject that has this schema. NotFound if it has none, InvalidSchema."""
        self.versions(subject, deleted=deleted)
        new = self._pinned(new)
        found = self._same(
            subject, new, self.parse(subject, new), normalize=normalize, deleted=deleted
        )
        if found is None:
            raise NotFound("schema", f"of this kind in subject {subject}")
        return found

    def _same(
        self,
        subject: str,
        new: NewSchema,
        schema: Schema,
        *,
        normalize: bool,
        deleted: bool = False,
    ) -> Version | None:
        fingerprint = _fingerprint(new, schema)
        for one in self.subjects.get(subject, {}).values():
            stored = self.schemas[one.schema_id]
            if one.is_deleted and not deleted:
                continue
            is_same = stored.fingerprint == fingerprint or (
                normalize
                and (stored.language, stored.references) == (new.language, new.references)
                and self.read(one.schema_id).normalized == schema.normalized
            )
            if is_same:
                return Version(subject, one.version, stored, one.is_deleted)
        return None

    def faults(
        self, subject: str, new: NewSchema, *, number: int = 0, schema: Schema | None = None
    ) -> list[str]:
        """Why a subject's level does not allow a schema; with `number`, against this version only."""
        schema = schema or self.parse(subject, self._pinned(new))
        level = self.level(subject)
        found: list[str] = []
        characters = 0
        for one in self._compared(subject, level, number):
            before = NewSchema(one.schema.language, one.schema.text, one.schema.references)
            characters += len(before.text)
            characters += sum(len(other.text) for _, other in self._closure(before))
            if characters > _COMPARED_MAX:
                raise InvalidSchema(
                    f"the versions to compare it with have more than {_COMPARED_MAX >> 20} MiB"
                )
            if one.schema.language != new.language:
                found.append(f"version {one.number}: it is {one.schema.language}")
                continue
            stored = self.read(one.schema.schema_id)
            if level.is_backward:
                faults = schema.faults_reading(stored)
                found += [f"version {one.number}, backward: {said}" for said in faults]
            if level.is_forward:
                faults = stored.faults_reading(schema)
                found += [f"version {one.number}, forward: {said}" for said in faults]
        return found

    def _compared(self, subject: str, level: Level, number: int) -> Iterator[Version]:
        """The versions that a new one is compared with, the newest first."""
        versions = self.subjects.get(subject, {}).values()
        live = sorted((one.version for one in versions if not one.is_deleted), reverse=True)
        if number > 0:
            # Also at level NONE: a version that is not there is told.
            live = [self.version(subject, number).number]
        elif number == LATEST or not level.is_transitive:
            live = live[:1]
        if level is not Level.NONE:
            for known in live:
                yield self.version(subject, known)

    def delete_version(
        self, subject: str, number: int, *, permanent: bool
    ) -> Outcome[SchemaRecord, int]:
        """Delete a version, softly, or for good if it was deleted softly before; replies with its number.

        NotFound, SoftDeleted, NotSoftDeleted, SchemaInUse, SchemasReadOnly.
        """
        self._require_writable(subject)
        one = self.version(subject, number, deleted=True)
        return Outcome(one.number, (self._deletion(one, permanent=permanent),))

    def delete_subject(self, subject: str, *, permanent: bool) -> Outcome[SchemaRecord, list[int]]:
        """Delete all versions, softly, or for good if all were deleted softly before; replies with their numbers.

        NotFound, SoftDeleted, NotSoftDeleted, SchemaInUse, SchemasReadOnly.
        """
        self._require_writable(subject)
        found = self.versions(subject, deleted=permanent)
        if permanent and not all(one.is_deleted for one in found):
            raise NotSoftDeleted("subject", subject)
        records = [self._deletion(one, permanent=permanent) for one in found]
        own: list[SchemaRecord] = []
        if permanent and subject in self.levels:
            own.append(CompatibilitySet(subject, ""))
        if permanent and subject in self.modes:
            own.append(ModeSet(subject, ""))
        return Outcome([one.number for one in found], (*records, *own))

    def _require_writable(self, subject: str) -> None:
        if self.mode(subject) is Mode.READONLY:
            raise SchemasReadOnly(subject)

    def _deletion(self, one: Version, *, permanent: bool) -> SchemaRecord:
        users = self.referring(one.subject, one.number)
        if users:
            raise SchemaInUse(one.subject, one.number, users)
        if permanent and not one.is_deleted:
            raise NotSoftDeleted("version", one.number)
        if permanent:
            return VersionRemoved(one.subject, one.number)
        if one.is_deleted:
            raise SoftDeleted("version", one.number)
        return VersionStored(one.subject, one.number, one.schema.schema_id, is_deleted=True)

    def set_level(self, subject: str, level: Level | None) -> tuple[SchemaRecord, ...]:
        """Give a subject, or all that have none, a level; None takes it away. NotFound: there is none to take away.

        SchemasReadOnly.
        """
        self._check_setting(subject)
        self._require_writable(subject)
        if level is None and subject not in self.levels and subject != GLOBAL:
            raise NotFound("compatibility level", f"of subject {subject}")
        return (CompatibilitySet(subject, level.value if level else ""),)

    def set_mode(self, subject: str, mode: Mode | None, *, force: bool) -> tuple[SchemaRecord, ...]:
        """Give a subject, or all that have none, a mode; None takes it away. NotFound: there is none to take away.

        Refused: IMPORT is for what has no schemas yet, unless the client insists.
        """
        self._check_setting(subject)
        if mode is None and subject not in self.modes and subject != GLOBAL:
            raise NotFound("mode", f"of subject {subject}")
        is_used = bool(self.subjects) if subject == GLOBAL else subject in self.subjects
        if mode is Mode.IMPORT and is_used and not force:
            raise SchemaModeRefused("IMPORT is for what has no schemas yet: repeat with force=true")
        return (ModeSet(subject, mode.value if mode else ""),)

    def _check_setting(self, subject: str) -> None:
        """InvalidSubject. What was stored under a name that is refused today can still be configured."""
        if subject != GLOBAL and subject not in self.subjects:
            check_subject(subject)


def _number(version: VersionStored) -> int:
    return version.version


def _fingerprint(new: NewSchema, schema: Schema) -> bytes:
    """16 bytes, so that it is a guid, too."""
    parts = [new.language, schema.canonical]
    parts += [f"{one.name}\n{one.subject}\n{one.version}" for one in new.references]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()[:16]


def guid_of(schema: SchemaStored) -> str:
    """The fingerprint as clients read it."""
    text = schema.fingerprint.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
