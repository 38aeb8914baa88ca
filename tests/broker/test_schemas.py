"""The schema registry in the meta journal: what a power cut leaves of it, and what its snapshots hold."""

from penstock.api.schemas import (
    CheckCompatibility,
    DeleteSubject,
    DeleteVersion,
    DescribeRegistry,
    DescribeSchema,
    Level,
    ListSubjects,
    ListUses,
    ListVersions,
    NewSchema,
    RegisterSchema,
    SetCompatibility,
)
from penstock.broker import catalogue
from penstock.sim import SimDisk

from .world import World, pull_the_plug

INT, LONG = NewSchema("AVRO", '"int"'), NewSchema("AVRO", '"long"')


def test_what_was_answered_survives_a_power_cut(effort) -> None:
    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.execute(RegisterSchema("s", INT))
        disk.mark("first")
        world.execute(RegisterSchema("s", LONG))
        disk.mark("second")
        world.execute(DeleteVersion("s", 1))
        disk.mark("deleted")
        world.execute(SetCompatibility("s", Level.NONE))
        disk.mark("level")
        world.execute(DeleteSubject("s"))
        world.execute(DeleteSubject("s", permanent=True))
        disk.mark("gone")

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        found = world.node.schemas
        if "gone" in marks:
            assert not found.subjects
            assert not found.levels
        elif "deleted" in marks:
            assert len(found.subjects.get("s", ())) in {0, 2}
        elif "second" in marks:
            assert world.execute(ListVersions("s", deleted=True)) == [1, 2]
        elif "first" in marks:
            assert world.execute(DescribeSchema(schema_id=1)).text == INT.text
        # An id that was answered is never given to another schema.
        new = world.execute(RegisterSchema("other", NewSchema("AVRO", '"bytes"')))
        assert new.schema.schema_id > ("first" in marks) + ("second" in marks)

    assert pull_the_plug(scenario, check, effort) > 20


def test_a_key_with_prefixes_is_told_its_own_subjects_of_a_schema_that_others_have_too() -> None:
    world = World()
    for subject in ("mine.t-value", "foreign.t-value"):
        schema_id = world.execute(RegisterSchema(subject, INT)).schema.schema_id
    assert world.execute(ListUses(schema_id=schema_id, within=("mine.",))) == [("mine.t-value", 1)]
    assert len(world.execute(ListUses(schema_id=schema_id))) == 2


def test_many_large_schemas_fit_into_a_snapshot(monkeypatch) -> None:
    monkeypatch.setattr(catalogue, "_RECORDS_A_SNAPSHOT", 200)
    world = World()
    for number in range(110):
        text = '{"type": "string", "title": "' + str(number) + "x" * 200_000 + '"}'
        world.execute(RegisterSchema(f"s{number}", NewSchema("JSON", text)))
    before = world.execute(DescribeRegistry())
    assert before.text_bytes > 20 << 20
    world.kill()
    assert world.execute(DescribeRegistry()) == before
    assert len(world.execute(ListSubjects())) == 110
    assert world.execute(CheckCompatibility("s7", NewSchema("JSON", "true"))) == []
