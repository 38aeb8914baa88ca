"""The registry: subjects, versions, ids, references, levels, modes, and both kinds of deletion."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from penstock.api.schemas import GLOBAL, LATEST, Level, Mode, NewSchema, Reference
from penstock.errors import (
    IncompatibleSchema,
    InvalidSchema,
    InvalidSubject,
    NotFound,
    NotSoftDeleted,
    Refused,
    SchemaInUse,
    SchemaModeRefused,
    SchemasReadOnly,
    SoftDeleted,
)
from penstock.schemas import Registry
from penstock.schemas.records import SchemaStored, VersionStored
from penstock.schemas.registry import guid_of

INT, LONG, TEXT = (NewSchema("AVRO", f'"{one}"') for one in ("int", "long", "string"))


class Rig:
    """A registry whose decisions are applied at once, and which a snapshot rebuilds after each of them."""

    def __init__(self) -> None:
        self.registry = Registry()

    def keep(self, outcome: Any) -> Any:
        records, reply = getattr(outcome, "records", outcome), getattr(outcome, "reply", None)
        for one in records:
            self.registry.apply(one)
        again = Registry()
        for one in self.registry.snapshot():
            again.apply(one)
        assert [*again.snapshot()] == [*self.registry.snapshot()]
        assert again.text_bytes == self.registry.text_bytes
        return reply

    def register(self, subject: str, new: NewSchema, **more: Any) -> int:
        found = self.keep(self.registry.register(subject, new, **more))
        assert found == self.registry.version(subject, found.number)
        return int(found.schema.schema_id)

    def delete(self, subject: str, *, permanent: bool = False) -> list[int]:
        found: list[int] = self.keep(self.registry.delete_subject(subject, permanent=permanent))
        return found

    def delete_version(self, subject: str, number: int, *, permanent: bool = False) -> int:
        outcome = self.registry.delete_version(subject, number, permanent=permanent)
        found: int = self.keep(outcome)
        return found


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_same_schema_has_the_same_id_everywhere(rig: Rig) -> None:
    first = rig.register("a", INT)
    assert rig.register("a", INT) == first
    assert rig.register("b", NewSchema("AVRO", ' "int" ')) == first
    assert rig.register("b", LONG) == first + 1
    assert [one.number for one in rig.registry.versions("b")] == [1, 2]
    assert {one.subject for one in rig.registry.versions_of(first)} == {"a", "b"}
    assert rig.registry.schema_of_guid(guid_of(rig.registry.schema(first))).schema_id == first
    with pytest.raises(NotFound):
        rig.registry.schema_of_guid("nothing")


@pytest.mark.parametrize(
    ("level", "versions", "new", "is_allowed"),
    [
        (Level.NONE, (INT,), TEXT, True),
        (Level.BACKWARD, (INT,), LONG, True),
        (Level.BACKWARD, (LONG,), INT, False),
        (Level.FORWARD, (LONG,), INT, True),
        (Level.FORWARD, (INT,), LONG, False),
        (Level.FULL, (INT,), LONG, False),
        (Level.FULL, (TEXT,), NewSchema("AVRO", '"bytes"'), True),
        (Level.BACKWARD, (TEXT, INT), LONG, True),
        (Level.BACKWARD_TRANSITIVE, (TEXT, INT), LONG, False),
        (Level.FORWARD_TRANSITIVE, (TEXT, LONG), INT, False),
        (Level.FULL_TRANSITIVE, (INT, TEXT), NewSchema("AVRO", '"bytes"'), False),
    ],
)
def test_levels(rig: Rig, level: Level, versions: Any, new: NewSchema, is_allowed: bool) -> None:
    rig.keep(rig.registry.set_level("a", Level.NONE))
    for one in versions:
        rig.register("a", one)
    rig.keep(rig.registry.set_level("a", level))
    if is_allowed:
        rig.register("a", new)
    else:
        with pytest.raises(IncompatibleSchema, match=f"version {len(versions)}|version 1"):
            rig.register("a", new)


def test_a_subject_without_a_level_has_that_of_all(rig: Rig) -> None:
    assert rig.registry.level("a") is Level.BACKWARD
    rig.keep(rig.registry.set_level(GLOBAL, Level.NONE))
    rig.keep(rig.registry.set_level("a", Level.FULL))
    assert (rig.registry.level("a"), rig.registry.level("b")) == (Level.FULL, Level.NONE)
    rig.keep(rig.registry.set_level("a", None))
    assert rig.registry.level("a") is Level.NONE
    with pytest.raises(NotFound):
        rig.registry.set_level("a", None)


def test_another_language_is_incompatible(rig: Rig) -> None:
    rig.register("a", INT)
    with pytest.raises(IncompatibleSchema, match="it is AVRO"):
        rig.register("a", NewSchema("JSON", "{}"))


def test_deleted_softly_then_for_good(rig: Rig) -> None:
    first = rig.register("a", INT)
    rig.register("a", LONG)
    with pytest.raises(NotSoftDeleted):
        rig.delete_version("a", 1, permanent=True)
    assert rig.delete_version("a", 1) == 1
    with pytest.raises(SoftDeleted):
        rig.delete_version("a", 1)
    with pytest.raises(NotFound):
        rig.registry.version("a", 1)
    assert rig.registry.version("a", 1, deleted=True).is_deleted
    assert rig.registry.schema(first).text == INT.text
    with pytest.raises(NotSoftDeleted):
        rig.delete("a", permanent=True)
    assert rig.delete("a") == [2]
    with pytest.raises(SoftDeleted):
        rig.registry.versions("a")
    # What was deleted counts for nothing, but its number is not given again.
    assert rig.register("a", TEXT) == 3
    assert rig.registry.version("a", LATEST).number == 3
    rig.delete("a")
    assert rig.delete("a", permanent=True) == [1, 2, 3]
    with pytest.raises(NotFound):
        rig.registry.schema(first)
    assert not rig.registry.subjects
    # An id is never given again.
    assert rig.register("a", INT) == 4


def test_what_others_refer_to_stays(rig: Rig) -> None:
    address = {"type": "record", "name": "Address", "fields": []}
    rig.register("address", NewSchema("AVRO", json.dumps(address)))
    person = {"type": "record", "name": "P", "fields": [{"name": "a", "type": "Address"}]}
    refers = NewSchema("AVRO", json.dumps(person), (Reference("Address", "address", LATEST),))
    with pytest.raises(InvalidSchema, match="Address"):
        rig.register("person", refers._replace(references=()))
    found = rig.register("person", refers)
    # "The latest" is that of the moment.
    assert rig.registry.schema(found).references == (Reference("Address", "address", 1),)
    assert rig.registry.referring("address", 1) == [found]
    with pytest.raises(SchemaInUse):
        rig.delete("address")
    with pytest.raises(InvalidSchema, match="no subject nothing"):
        rig.register("q", refers._replace(references=(Reference("Address", "nothing", 1),)))
    rig.delete("person")
    rig.delete("person", permanent=True)
    assert rig.delete("address") == [1]


def test_an_equal_schema_is_found_in_another_order_if_asked_for(rig: Rig) -> None:
    one = NewSchema("JSON", '{"type": "object", "title": "a"}')
    other = NewSchema("JSON", '{"title": "a", "type": "object"}')
    first = rig.register("a", one)
    with pytest.raises(NotFound):
        rig.registry.find("a", other)
    assert rig.registry.find("a", other, normalize=True).number == 1
    assert rig.register("a", other, normalize=True) == first
    assert rig.register("a", other) != first


def test_modes(rig: Rig) -> None:
    rig.register("a", INT)
    rig.keep(rig.registry.set_mode("a", Mode.READONLY, force=False))
    for refused in (lambda: rig.register("a", LONG), lambda: rig.delete("a")):
        with pytest.raises(SchemasReadOnly):
            refused()
    rig.keep(rig.registry.set_mode("a", None, force=False))
    with pytest.raises(Refused, match="force"):
        rig.registry.set_mode("a", Mode.IMPORT, force=False)
    rig.keep(rig.registry.set_mode("b", Mode.IMPORT, force=False))
    with pytest.raises(Refused, match="IMPORT"):
        rig.register("b", TEXT)
    assert rig.register("b", TEXT, given=(70, 5)) == 70
    assert rig.registry.version("b", LATEST).number == 5
    with pytest.raises(SchemaModeRefused):
        rig.register("b", LONG, given=(70, 6))
    assert rig.register("a", LONG) == 71


def test_an_import_may_give_a_schema_a_second_id(rig: Rig) -> None:
    assert rig.register("a", TEXT) == 1
    rig.keep(rig.registry.set_mode("b", Mode.IMPORT, force=False))
    assert rig.register("b", TEXT, given=(70, 5)) == 70
    first, second = rig.registry.schema(1), rig.registry.schema(70)
    assert guid_of(first) == guid_of(second)
    assert rig.registry.ids_of(second) == (1, 70)
    assert rig.registry.schema_of_guid(guid_of(first)) == first
    assert rig.register("c", TEXT) == 1
    for subject in ("a", "c"):
        rig.delete(subject)
        rig.delete(subject, permanent=True)
    assert rig.registry.ids_of(second) == (70,)
    assert rig.registry.schema_of_guid(guid_of(first)) == second
    assert rig.register("d", TEXT) == 70


@pytest.mark.parametrize("subject", [":.other:a", ":*:a", ":.:a"])
def test_a_context_is_no_part_of_a_name(rig: Rig, subject: str) -> None:
    with pytest.raises(InvalidSubject):
        rig.register(subject, TEXT)
    with pytest.raises(InvalidSubject):
        rig.registry.set_level(subject, Level.NONE)
    # As it was stored before names of contexts were refused.
    rig.register("a", TEXT)
    rig.keep((VersionStored(subject, 1, 1),))
    assert rig.register(subject, TEXT) == 1
    rig.keep(rig.registry.set_level(subject, Level.NONE))


def reread(rig: Rig, change: Callable[[SchemaStored], SchemaStored]) -> Rig:
    """The same registry from a snapshot whose schemas are changed."""
    again = Rig()
    for record in rig.registry.snapshot():
        again.registry.apply(change(record) if isinstance(record, SchemaStored) else record)
    return again


TUPLE = NewSchema("JSON", '{"type": "array", "items": [{"type": "string"}]}')
WIDER = NewSchema("JSON", '{"type": "array", "items": [{"type": ["string", "null"]}]}')
PREFIXED = NewSchema("JSON", '{"type": "array", "prefixItems": [{"type": "string"}]}')


def test_json_without_a_draft_is_draft_7(rig: Rig) -> None:
    schema_id = rig.register("a", TUPLE)
    assert rig.registry.read(schema_id).is_valid(b'["x"]')
    assert not rig.registry.read(schema_id).is_valid(b"[1]")
    rig.register("a", WIDER)
    with pytest.raises(IncompatibleSchema):
        rig.register("a", TUPLE._replace(text=TUPLE.text.replace("string", "integer")))
    # References are read as they were registered.
    refers = NewSchema("JSON", '{"$ref": "t.json"}', (Reference("t.json", "a", 1),))
    assert not rig.registry.read(rig.register("b", refers)).is_valid(b"[1]")


def test_what_was_registered_as_draft_2020_stays_so(rig: Rig) -> None:
    # A record of a version before this one: it says nothing of drafts.
    old = rig.register("other", PREFIXED)
    rig = reread(rig, lambda record: msgspec.structs.replace(record, draft=""))
    for subject in ("other", "new"):
        # A producer that registers it again finds it, and it means what it meant.
        assert rig.register(subject, PREFIXED) == old
        assert not rig.registry.read(old).is_valid(b"[1]")
    # The next version of such a subject is read as the one before.
    wider = PREFIXED._replace(text=PREFIXED.text.replace('"string"', '["string", "null"]'))
    assert not rig.registry.read(rig.register("other", wider)).is_valid(b"[1]")
    assert rig.registry.read(rig.register("third", TUPLE)).is_valid(b"[]")


def test_what_is_read_only_keeps_its_level(rig: Rig) -> None:
    rig.keep(rig.registry.set_mode("a", Mode.READONLY, force=False))
    with pytest.raises(SchemasReadOnly):
        rig.registry.set_level("a", Level.NONE)
    rig.keep(rig.registry.set_level("b", Level.NONE))
    rig.keep(rig.registry.set_mode(GLOBAL, Mode.READONLY, force=False))
    with pytest.raises(SchemasReadOnly):
        rig.registry.set_level("b", None)


@pytest.mark.parametrize("subject", ["", "a" * 256, "a\nb", "\0"])
def test_names_of_subjects_are_checked(rig: Rig, subject: str) -> None:
    with pytest.raises(Refused):
        rig.register(subject, INT)


def test_an_unknown_language_is_refused(rig: Rig) -> None:
    with pytest.raises(InvalidSchema, match="THRIFT"):
        rig.register("a", NewSchema("THRIFT", "x"))


def test_any_order_of_changes_is_that_of_a_naive_registry(effort) -> None:
    """The twin is a dict of subjects, each with a dict of versions: an id, and whether it is deleted."""
    for seed in range(effort(check=30, test=100, torture=10_000)):
        chance, rig = Random(seed), Rig()
        rig.keep(rig.registry.set_level(GLOBAL, Level.NONE))
        twin: dict[str, dict[int, tuple[int, bool]]] = {}
        ids: dict[str, int] = {}
        next_id = 1
        for _ in range(40):
            subject = chance.choice("abc")
            versions = twin.get(subject, {})
            live = {number: one for number, one in versions.items() if not one[1]}
            match chance.randrange(5):
                case 0 | 1:
                    new = chance.choice((INT, LONG, TEXT))
                    known = [one for one in live.values() if one[0] == ids.get(new.text)]
                    if not known:
                        if new.text not in ids:
                            ids[new.text], next_id = next_id, next_id + 1
                        number = max(versions, default=0) + 1
                        twin.setdefault(subject, {})[number] = ids[new.text], False
                    assert rig.register(subject, new) == ids[new.text]
                case 2 if live:
                    assert rig.delete(subject) == sorted(live)
                    twin[subject] = {number: (one, True) for number, (one, _) in versions.items()}
                case 3 if live:
                    number = chance.choice([*live])
                    rig.delete_version(subject, number)
                    versions[number] = versions[number][0], True
                case 4 if versions and not live:
                    assert rig.delete(subject, permanent=True) == sorted(versions)
                    del twin[subject]
                    used = {one for every in twin.values() for one, _ in every.values()}
                    ids = {text: one for text, one in ids.items() if one in used}
            found = {
                name: {one.version: (one.schema_id, one.is_deleted) for one in every.values()}
                for name, every in rig.registry.subjects.items()
            }
            assert found == twin
            assert set(rig.registry.schemas) == set(ids.values())
