"""The states that a power cut may leave, counted by hand, and the classic mistakes that they find."""

import random
from collections.abc import Callable

import pytest

from penstock.sim import (
    Call,
    CrashKind,
    CrashStates,
    Fault,
    Misbehaviour,
    Model,
    SimDisk,
    Tree,
    check_crashes,
)

BOTH = pytest.mark.parametrize("model", list(Model))
EXACT = [kind for kind in CrashKind if kind is not CrashKind.SUBSETS]


def start(**files: bytes) -> SimDisk:
    return SimDisk(Tree(files, frozenset()))


def write(disk: SimDisk, path: str, data: bytes, *, sync: bool = False) -> None:
    file = disk.open(path) if disk.exists(path) else disk.create(path)
    file.append(data)
    if sync:
        file.sync()
    file.close()


def left_at_the_end(disk: SimDisk, model: Model) -> list[dict[str, bytes]]:
    """What a cut after the last operation may leave, fewest files first."""
    disk.mark("end")
    states = CrashStates(disk, model, kinds=EXACT, entropy=random.Random(7))
    found = [dict(state.tree.files) for state in states if state.marks]
    return sorted(found, key=lambda files: sorted(files.items()))


@BOTH
def test_a_new_file_may_be_absent_empty_torn_zeroed_or_whole(model):
    disk = start()
    write(disk, "a", b"xyz")
    states = CrashStates(disk, model, kinds=EXACT, entropy=random.Random(7))
    found = {state.tree.files.get("a") for state in states}
    assert found == {None, b"", b"x", b"xy", b"xyz", b"\0\0\0"}
    # Nothing; nothing, empty; nothing, empty, whole, two torn, zeroed: each twice where one loss is all.
    assert states.counts.boundaries == 3
    assert states.counts.enumerated == (2 + 0) + (2 + 1) + (2 + 2 + 2 + 1)
    assert states.counts.distinct == 6


def test_a_synced_file_may_still_lose_its_name_but_not_on_ext4():
    disk = start()
    write(disk, "a", b"x", sync=True)
    assert left_at_the_end(disk, Model.STRICT) == [{}, {"a": b"x"}]
    disk = start()
    write(disk, "a", b"x", sync=True)
    assert left_at_the_end(disk, Model.EXT4) == [{"a": b"x"}]


@BOTH
def test_a_synced_directory_keeps_the_name_and_not_the_bytes(model):
    disk = start()
    write(disk, "a", b"x")
    disk.sync_directory("")
    assert left_at_the_end(disk, model) == [{"a": b""}, {"a": b"\0"}, {"a": b"x"}]


def test_unsynced_writes_of_one_file_arrive_in_any_order_but_not_on_ext4():
    def recorded() -> SimDisk:
        disk = start(a=b"")
        write(disk, "a", b"1")
        write(disk, "a", b"2")
        return disk

    whole = [b"", b"\x002", b"1", b"1\0", b"12"]
    assert [files["a"] for files in left_at_the_end(recorded(), Model.STRICT)] == whole
    # The zeros in place of "1" are the size that arrived before the bytes, not the order of the two.
    assert [files["a"] for files in left_at_the_end(recorded(), Model.EXT4)] == whole
    disk = recorded()
    states = CrashStates(disk, Model.EXT4, kinds=[CrashKind.DROP_ONE], entropy=random.Random(7))
    assert {state.tree.files["a"] for state in states} == {b"", b"1"}


def test_behind_a_torn_write_later_ones_are_lost_on_ext4_only():
    def torn(model: Model) -> list[bytes]:
        disk = start(a=b"")
        write(disk, "a", b"12")
        write(disk, "a", b"34")
        disk.mark("end")
        states = CrashStates(disk, model, kinds=[CrashKind.TORN], entropy=random.Random(7))
        return [state.tree.files["a"] for state in states if state.marks]

    assert torn(Model.STRICT) == [b"1\x0034", b"123"]
    assert torn(Model.EXT4) == [b"1", b"123"]


def test_a_lost_truncation_leaves_old_bytes_behind_new_ones_but_not_on_ext4():
    def recorded() -> SimDisk:
        disk = start(a=b"AAAABBBB")
        file = disk.open("a")
        file.truncate(4)
        file.append(b"CC")
        return disk

    strict = [files["a"] for files in left_at_the_end(recorded(), Model.STRICT)]
    assert strict == [b"AAAA", b"AAAA\0\0", b"AAAABBBB", b"AAAAC", b"AAAACC", b"AAAACCBB"]
    ext4 = [files["a"] for files in left_at_the_end(recorded(), Model.EXT4)]
    assert ext4 == [b"AAAA", b"AAAA\0\0", b"AAAABBBB", b"AAAAC", b"AAAACC"]


def test_a_rename_over_a_file_waits_for_the_bytes_on_ext4_only():
    def recorded() -> SimDisk:
        disk = start(a=b"old")
        write(disk, "b", b"n")
        disk.rename("b", "a")
        return disk

    strict = left_at_the_end(recorded(), Model.STRICT)
    assert {"a": b""} in strict
    assert {"a": b"\0"} in strict
    assert left_at_the_end(recorded(), Model.EXT4) == [
        {"a": b"n"},
        {"a": b"old"},
        {"a": b"old", "b": b""},
        {"a": b"old", "b": b"\0"},
        {"a": b"old", "b": b"n"},
    ]


def test_a_journal_with_the_rename_keeps_the_bytes_before_it_and_not_those_after():
    disk = start(a=b"old")
    write(disk, "b", b"n")
    disk.rename("b", "a")
    write(disk, "a", b"m")
    disk.sync_directory("")
    assert left_at_the_end(disk, Model.EXT4) == [{"a": b"n"}, {"a": b"n\0"}, {"a": b"nm"}]


@BOTH
def test_a_rename_to_a_new_name_does_not_wait_for_the_bytes(model):
    disk = start()
    write(disk, "b", b"n")
    disk.rename("b", "a")
    assert {"a": b""} in left_at_the_end(disk, model)


@BOTH
def test_a_lost_removal_leaves_the_file_with_its_bytes(model):
    disk = start(a=b"x", b=b"y")
    disk.remove("a")
    assert left_at_the_end(disk, model) == [{"a": b"x", "b": b"y"}, {"b": b"y"}]


@BOTH
def test_a_directory_that_is_gone_takes_along_what_lost_removals_left_in_it(model):
    def gone() -> SimDisk:
        disk = SimDisk(Tree({"d/a": b"x"}, frozenset({"d"})))
        disk.remove("d/a")
        disk.remove_directory("d")
        return disk

    assert {"d/a": b"x"} in left_at_the_end(gone(), model)
    disk = gone()
    disk.sync_directory("")
    assert left_at_the_end(disk, model) == [{}]
    disk = gone()
    # Which syncs the root: the old directory is gone before the new one is there.
    disk.make_directories("d")
    assert left_at_the_end(disk, model) == [{}]


def test_names_are_lost_one_by_one_and_on_ext4_only_from_the_end():
    def recorded() -> SimDisk:
        disk = start(a=b"", b=b"")
        disk.remove("a")
        disk.remove("b")
        return disk

    def drop_one(model: Model) -> list[set[str]]:
        states = CrashStates(
            recorded(), model, kinds=[CrashKind.DROP_ONE], entropy=random.Random(7)
        )
        return [set(state.tree.files) for state in states if state.boundary == 2]

    assert drop_one(Model.STRICT) == [{"a"}, {"b"}]
    assert drop_one(Model.EXT4) == [{"b"}]


def test_a_move_between_directories_needs_both_of_them_synced():
    disk = SimDisk(Tree({"d/a": b"x"}, frozenset({"d", "e"})))
    disk.rename("d/a", "e/a")
    disk.sync_directory("e")
    assert {"d/a": b"x"} in left_at_the_end(disk, Model.STRICT)
    disk.sync_directory("d")
    disk.mark("synced")
    states = CrashStates(disk, Model.STRICT, entropy=random.Random(7))
    assert [state.tree.files for state in states if "synced" in state.marks] == [{"e/a": b"x"}]


@BOTH
def test_what_was_made_without_a_sync_is_there_for_good_after_one_call(model):
    disk = start()
    disk.make_directories("d/e", is_synced=False)
    file = disk.create("d/e/a")
    file.append(b"x")
    disk.mark("written")
    disk.sync_all([file], ["d/e", "d", ""])
    disk.mark("synced")
    states = [*CrashStates(disk, model, entropy=random.Random(7))]
    assert {} in [state.tree.files for state in states if state.marks[-1:] == ("written",)]
    assert all(state.tree.files == {"d/e/a": b"x"} for state in states if "synced" in state.marks)


@BOTH
def test_what_is_in_a_lost_directory_is_lost(model):
    disk = start()
    disk.inject(Fault(call=Call.SYNC_DIRECTORY, does=Misbehaviour.LIE))
    disk.make_directories("d")
    write(disk, "d/a", b"x")
    disk.mark("end")
    states = CrashStates(disk, model, entropy=random.Random(7))
    trees = [state.tree for state in states if state.marks]
    assert any(not tree.directories for tree in trees)
    assert all(tree.directories or not tree.files for tree in trees)


def test_long_writes_are_torn_and_zeroed_where_sectors_end():
    disk = start(a=b"." * 500)
    data = bytes(range(1, 251)) * 8
    write(disk, "a", data)

    def left(kind: CrashKind) -> list[bytes]:
        states = CrashStates(disk, Model.STRICT, kinds=[kind], entropy=random.Random(1))
        return [state.tree.files["a"][500:] for state in states]

    # Sectors end at 512, 1024, 1536 and 2048 of the file, which are 12, 524, 1036 and 1548 of the write.
    assert list(map(len, left(CrashKind.TORN))) == [1, 12, 1000, 1036, 1548, 1999]
    assert left(CrashKind.ZEROED) == [
        bytes(2000),
        bytes(1036) + data[1036:],
        data[:1036] + bytes(964),
    ]


@BOTH
def test_subsets_come_from_the_seed(model):
    def subsets(seed: int) -> list[int]:
        disk = start(a=b"", b=b"", c=b"")
        for path in "abcabc":
            write(disk, path, b"12345678")
        states = CrashStates(
            disk, model, kinds=[CrashKind.SUBSETS], subsets=20, entropy=random.Random(seed)
        )
        return [state.tree.fingerprint() for state in states]

    assert subsets(1) == subsets(1) != subsets(2)
    assert len(subsets(1)) > 40


def test_the_same_bytes_count_again_after_a_promise():
    disk = start(a=b"")
    disk.mark("first")
    write(disk, "a", b"x")
    disk.mark("second")
    states = CrashStates(disk, Model.STRICT, kinds=EXACT, entropy=random.Random(7))
    found = {(state.tree.files["a"], state.marks) for state in states}
    assert found == {
        (b"", ("first",)),
        (b"", ("first", "second")),
        (b"x", ("first", "second")),
        (b"\0", ("first", "second")),
    }


def test_a_state_gives_a_disk_of_its_own_that_is_durable():
    disk = start(a=b"x")
    write(disk, "a", b"y")
    *_, state = CrashStates(disk, Model.STRICT, kinds=[CrashKind.ALL], entropy=random.Random(7))
    first = state.disk()
    first.open("a").append(b"z")
    assert state.disk().tree().files == {"a": b"xy"}
    assert left_at_the_end(state.disk(), Model.STRICT) == [{"a": b"xy"}]


# Three protocols, each with a mistake that can be made in it. A version is promised once it is marked.


def replace_settings(*, sync_file: bool, sync_directory: bool) -> Callable[[SimDisk], None]:
    def scenario(disk: SimDisk) -> None:
        for version in range(1, 4):
            file = disk.create("settings.tmp")
            file.append(b"version ", b"%d;" % version)
            if sync_file:
                file.sync()
            file.close()
            disk.rename("settings.tmp", "settings")
            if sync_directory:
                disk.sync_directory("")
            disk.mark(version)

    return scenario


def check_settings(disk: SimDisk, marks: tuple) -> None:
    promised = max(marks, default=0)
    if not disk.exists("settings"):
        assert promised == 0, "the settings are gone"
        return
    file = disk.open("settings")
    text = file.read(0, file.size()).decode()
    assert text.startswith("version "), f"settings are {text!r}"
    assert text.endswith(";"), f"settings are {text!r}"
    assert int(text[8:-1]) >= promised, f"{text} was left, {promised} was promised"


def append_records(*, sync_first: bool, sync_directory: bool = True) -> Callable[[SimDisk], None]:
    def scenario(disk: SimDisk) -> None:
        disk.make_directories("log")
        file = disk.create("log/records")
        if sync_directory:
            disk.sync_directory("log")
        for number in range(6):
            file.append(b"%04d" % number, b"%04d;" % number)
            if number % 2:
                if sync_first:
                    file.sync()
                disk.mark(number)
                file.sync()

    return scenario


def check_records(disk: SimDisk, marks: tuple) -> None:
    promised = max(marks, default=-1)
    data = b""
    if disk.exists("log/records"):
        file = disk.open("log/records")
        data = file.read(0, file.size())
    whole = 0
    while data[9 * whole :][:9] == b"%04d%04d;" % (whole, whole):
        whole += 1
    assert whole > promised, f"{whole} records were left, number {promised} was promised"


@BOTH
def test_the_right_protocols_survive_every_cut(model):
    for scenario, check in (
        (replace_settings(sync_file=True, sync_directory=True), check_settings),
        (append_records(sync_first=True), check_records),
    ):
        counts = check_crashes(scenario, check, models=[model], entropy=random.Random(3))
        assert counts.boundaries >= 15
        assert counts.enumerated > counts.distinct > 20


MISTAKES = {
    "rename without syncing the file": (
        replace_settings(sync_file=False, sync_directory=True),
        check_settings,
        {Model.STRICT, Model.EXT4},
    ),
    "rename without syncing the directory": (
        replace_settings(sync_file=True, sync_directory=False),
        check_settings,
        {Model.STRICT, Model.EXT4},
    ),
    "new file without syncing the directory": (
        append_records(sync_first=True, sync_directory=False),
        check_records,
        {Model.STRICT},
    ),
    "promise before the sync": (
        append_records(sync_first=False),
        check_records,
        {Model.STRICT, Model.EXT4},
    ),
}


@BOTH
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_classic_mistakes_are_found_where_they_matter(mistake, model):
    scenario, check, models = MISTAKES[mistake]
    if model not in models:
        check_crashes(scenario, check, models=[model], entropy=random.Random(3))
        return
    with pytest.raises(AssertionError, match=f"{model.value} model"):
        check_crashes(scenario, check, models=[model], entropy=random.Random(3))


def test_a_failed_check_says_where_the_plug_was_pulled():
    scenario, check, _ = MISTAKES["promise before the sync"]
    with pytest.raises(AssertionError) as caught:
        check_crashes(scenario, check, kinds=[CrashKind.DROP_ONE], entropy=random.Random(3))
    lines = str(caught.value).splitlines()
    assert lines[0] == "AssertionError: 0 records were left, number 1 was promised"
    assert lines[lines.index("strict model, drop one, after 6 operations") :] == [
        "strict model, drop one, after 6 operations",
        "lost: #4 write log/records [0:9]",
        "  #1 sync directory .",
        "  #2 create log/records",
        "  #3 sync directory log",
        "  #4 write log/records [0:9]",
        "  #5 write log/records [9:18]",
        "  #6 mark 1",
        "  -- power cut --",
        "  #7 sync log/records",
        "  #8 write log/records [18:27]",
        "  #9 write log/records [27:36]",
        "  #10 mark 3",
        "  #11 sync log/records",
        "  #12 write log/records [36:45]",
    ]


def test_recovery_that_breaks_is_a_finding_too():
    def recover(disk: SimDisk, marks: tuple) -> None:
        disk.open("a")

    with pytest.raises(AssertionError, match="FileMissing: a does not exist"):
        check_crashes(lambda disk: write(disk, "a", b"x"), recover, entropy=random.Random(3))


def test_a_mistake_in_the_recovery_itself_keeps_its_type_and_says_where():
    def recover(disk: SimDisk, marks: tuple) -> None:
        assert disk.list("")[0] == "a"

    with pytest.raises(IndexError) as caught:
        check_crashes(lambda disk: write(disk, "a", b"x"), recover, entropy=random.Random(3))
    assert "strict model, all, after 0 operations" in caught.value.__notes__[0]
