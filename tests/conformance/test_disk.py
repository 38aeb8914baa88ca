"""What any Disk promises, asked of the real one and of the simulated one."""

import errno
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, multiple, rule

from penstock.config import StorageConfig
from penstock.errors import FileMissing, NoSpace, PenstockError, Refused
from penstock.ports import Disk
from penstock.runtime import RealDisk
from penstock.sim import SimDisk

FEW = StorageConfig(open_files_max=8)
PWRITEV = os.pwritev


@dataclass
class Subject:
    disk: Disk
    leave_room: Callable[[int], None]
    """Let so many more bytes be written, and then no more."""


@pytest.fixture(params=["real", "sim"])
def subject(request, tmp_path: Path, monkeypatch) -> Iterator[Subject]:
    if request.param == "sim":
        disk = SimDisk(entropy=random.Random(1))
        yield Subject(disk, lambda size: leave_room_in_sim(disk, size))
    else:
        with RealDisk(tmp_path / "data", FEW) as real:
            yield Subject(real, lambda size: leave_room_at_the_border(monkeypatch, size))


@pytest.fixture
def disk(subject: Subject) -> Disk:
    return subject.disk


def leave_room_in_sim(disk: SimDisk, size: int) -> None:
    used = sum(map(len, disk.tree().files.values()))
    disk.capacity_bytes = used + size


def leave_room_at_the_border(monkeypatch, size: int) -> None:
    """As a full file system does it: a short write, and only the next one fails."""
    room = size

    def pwritev(descriptor, parts, position):
        nonlocal room
        data = b"".join(parts)[:room]
        if not data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room -= len(data)
        return PWRITEV(descriptor, [data], position)

    monkeypatch.setattr(os, "pwritev", pwritev)


def content(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    data = file.read(0, file.size())
    file.close()
    return data


def put(disk: Disk, path: str, data: bytes) -> None:
    file = disk.create(path)
    file.append(data)
    file.close()


def test_a_new_file_is_empty(disk):
    file = disk.create("a")
    assert file.size() == 0
    assert file.read(0, 10) == b""
    assert disk.exists("a")


def test_appends_follow_each_other_and_are_read_back_at_once(disk):
    file = disk.create("a")
    file.append(b"one", bytearray(b"two"), memoryview(b"three"))
    file.append(b"four")
    assert file.read(0, 100) == b"onetwothreefour"
    assert file.size() == disk.size("a") == 15


def test_an_append_of_nothing_changes_nothing(disk):
    file = disk.create("a")
    file.append()
    file.append(b"", b"")
    assert file.size() == 0


def test_wide_elements_are_written_whole(disk):
    file = disk.create("a")
    file.append(memoryview(b"12345678").cast("I"), b"9")
    assert file.read(0, 20) == b"123456789"


def test_more_parts_than_the_system_takes_at_once_are_all_written(disk):
    parts = [bytes([number % 251]) * (number % 5) for number in range(3000)]
    file = disk.create("a")
    file.append(b"start")
    file.append(*parts)
    assert file.read(0, 1 << 20) == b"start" + b"".join(parts)


def test_reads_give_the_bytes_asked_for_and_fewer_only_at_the_end(disk):
    put(disk, "a", b"0123456789")
    file = disk.open("a")
    assert file.read(3, 4) == b"3456"
    assert file.read(8, 4) == b"89"
    assert file.read(10, 4) == b""
    assert file.read(1 << 40, 4) == b""
    assert file.read(3, 0) == b""
    assert file.read(3, 1 << 40) == b"3456789"


def test_what_is_lent_stays_open_whatever_becomes_of_the_file(disk):
    file = disk.create("a")
    file.append(b"one")
    lent = file.lend()
    assert (lent is None) == isinstance(disk, SimDisk)
    disk.remove("a")
    for number in range(2 * FEW.open_files_max):
        put(disk, str(number), b"another")
    assert lent is None or os.pread(lent.number, 10, 0) == b"one"
    with pytest.raises(FileMissing):
        file.lend()


def test_truncating_keeps_the_start_and_appends_go_on_there(disk):
    put(disk, "a", b"0123456789")
    file = disk.open("a")
    file.truncate(4)
    assert file.size() == 4
    file.append(b"x")
    assert content(disk, "a") == b"0123x"


def test_truncating_never_grows_a_file(disk):
    file = disk.create("a")
    with pytest.raises(AssertionError):
        file.truncate(1)


def test_creating_empties_a_file_that_is_there(disk):
    put(disk, "a", b"old")
    earlier = disk.open("a")
    file = disk.create("a")
    file.append(b"n")
    assert content(disk, "a") == b"n"
    assert earlier.read(0, 10) == b"n"


def test_handles_of_one_file_see_and_follow_each_other(disk):
    first = disk.create("a")
    second = disk.open("a")
    first.append(b"1")
    second.append(b"2")
    first.append(b"3")
    assert first.size() == second.size() == 3
    assert second.read(0, 10) == b"123"


def test_a_missing_file_is_missing_however_it_is_asked_for(disk):
    disk.make_directories("d")
    for ask in (disk.open, disk.size, disk.remove, lambda path: disk.rename(path, "new")):
        with pytest.raises(FileMissing):
            ask("d/none")
    assert not disk.exists("d/none")
    assert not disk.exists("new")


def test_a_file_needs_its_directory(disk):
    put(disk, "a", b"x")
    for do in (disk.create, lambda path: disk.rename("a", path)):
        with pytest.raises(FileMissing):
            do("none/a")
    with pytest.raises(FileMissing):
        disk.sync_directory("none")
    assert content(disk, "a") == b"x"


def test_a_directory_is_not_a_file(disk):
    disk.make_directories("d")
    put(disk, "a", b"x")
    for ask in (disk.open, disk.create, disk.size, disk.remove):
        with pytest.raises(Refused):
            ask("d")
    for old, new in (("d", "e"), ("a", "d")):
        with pytest.raises(Refused):
            disk.rename(old, new)
    with pytest.raises(Refused):
        disk.make_directories("a")
    assert disk.list("") == ["a", "d"]


def test_an_empty_directory_can_be_removed_and_made_again(disk):
    disk.make_directories("d/e")
    put(disk, "d/e/a", b"x")
    put(disk, "f", b"x")
    for stays in ("d", "d/e", "f", "f/g"):
        with pytest.raises(Refused):
            disk.remove_directory(stays)
    disk.remove("d/e/a")
    disk.remove_directory("d/e")
    disk.remove_directory("d")
    with pytest.raises(FileMissing):
        disk.remove_directory("d")
    assert disk.list("") == ["f"]
    disk.make_directories("d/e")
    assert disk.list("d/e") == []
    put(disk, "d/e/a", b"y")
    assert content(disk, "d/e/a") == b"y"


@pytest.mark.parametrize("path", ["/a", "../a", "d/../../a", "a/", "d//a", "./a", "", "a\0b"])
def test_paths_stay_below_the_root(disk, path):
    disk.make_directories("d")
    put(disk, "a", b"x")
    for ask in (disk.open, disk.create, disk.exists, disk.size, disk.remove, disk.remove_directory):
        with pytest.raises(Refused):
            ask(path)
    with pytest.raises(Refused):
        disk.rename("a", path)
    with pytest.raises(Refused):
        disk.rename(path, "b")
    assert disk.list("") == ["a", "d"]


def test_listing_gives_sorted_names_of_one_level(disk):
    disk.make_directories("d/e/f")
    for name in ("d/b", "d/a", "d/e/c"):
        put(disk, name, b"")
    assert disk.list("d") == ["a", "b", "e"]
    assert disk.list("") == ["d"]
    assert disk.list("none") == []
    assert disk.list("d/a") == []


def test_making_directories_again_is_no_error(disk):
    disk.make_directories("d/e")
    put(disk, "d/e/a", b"x")
    disk.make_directories("d/e")
    disk.make_directories("d")
    disk.make_directories("")
    assert content(disk, "d/e/a") == b"x"


def test_many_files_and_directories_are_synced_with_one_call(disk):
    directories = [f"d/{number}" for number in range(20)]
    files = []
    for directory in directories:
        disk.make_directories(directory, is_synced=False)
        files.append(disk.create(f"{directory}/a"))
        files[-1].append(b"x")
    disk.sync_all(files, [*directories, "d", ""])
    assert [content(disk, f"{directory}/a") for directory in directories] == [b"x"] * 20
    disk.sync_all([], [])
    with pytest.raises(FileMissing):
        disk.sync_all([], ["d", "none"])


def test_renaming_replaces_and_an_open_handle_follows(disk):
    disk.make_directories("d")
    put(disk, "d/b", b"old")
    file = disk.create("a")
    file.append(b"new")
    disk.rename("a", "d/b")
    assert not disk.exists("a")
    assert file.path == "d/b"
    file.append(b"er")
    assert content(disk, "d/b") == b"newer"


def test_renaming_to_the_same_name_changes_nothing(disk):
    file = disk.create("a")
    file.append(b"x")
    disk.rename("a", "a")
    file.append(b"y")
    assert content(disk, "a") == b"xy"


def test_moving_takes_a_directory_with_all_that_is_in_it(disk):
    disk.make_directories("d/e")
    disk.make_directories("other")
    put(disk, "d/e/a", b"x")
    put(disk, "b", b"y")
    disk.move("d", "other/d")
    disk.move("b", "other/b")
    assert disk.list("") == ["other"]
    assert content(disk, "other/d/e/a") == b"x"
    assert content(disk, "other/b") == b"y"
    disk.make_directories("d/e")
    put(disk, "d/e/new", b"z")
    assert disk.list("d/e") == ["new"]
    for old, new in (("d", "other/d"), ("d", "other/b"), ("d", "d/e/f"), ("d", "d"), ("d", "../d")):
        with pytest.raises(Refused):
            disk.move(old, new)
    for old, new in (("none", "n"), ("d", "none/d")):
        with pytest.raises(FileMissing):
            disk.move(old, new)
    assert content(disk, "d/e/new") == b"z"


def test_handles_of_a_file_that_is_gone_say_so(disk):
    removed, replaced = disk.create("a"), disk.create("b")
    put(disk, "c", b"c")
    disk.remove("a")
    disk.rename("c", "b")
    for file in (removed, replaced):
        for use in (
            file.size,
            file.sync,
            lambda f=file: f.append(b"x"),
            lambda f=file: f.read(0, 1),
        ):
            with pytest.raises(FileMissing):
                use()
        file.close()
    assert content(disk, "b") == b"c"


def test_a_file_that_comes_again_is_another_file(disk):
    old = disk.create("a")
    old.append(b"old")
    disk.remove("a")
    new = disk.create("a")
    assert new.size() == 0
    with pytest.raises(FileMissing):
        old.append(b"x")
    assert new.size() == 0


def test_a_closed_handle_refuses_and_closing_again_is_no_error(disk):
    file = disk.create("a")
    other = disk.open("a")
    file.close()
    file.close()
    for use in (file.size, file.sync, lambda: file.append(b"x"), lambda: file.read(0, 1)):
        with pytest.raises(Refused):
            use()
    other.append(b"still there")
    assert other.size() == 11


def test_a_full_disk_leaves_the_file_as_long_as_it_was(subject):
    disk = subject.disk
    file = disk.create("a")
    file.append(b"kept")
    subject.leave_room(5)
    with pytest.raises(NoSpace):
        file.append(b"123", b"456")
    assert file.size() == disk.size("a") == 4
    assert file.read(0, 100) == b"kept"


def test_appending_resumes_when_there_is_room_again(subject):
    file = subject.disk.create("a")
    subject.leave_room(2)
    with pytest.raises(NoSpace):
        file.append(b"123")
    subject.leave_room(1000)
    file.append(b"456")
    file.sync()
    assert content(subject.disk, "a") == b"456"


def test_more_files_than_descriptors_keep_their_handles_and_bytes(disk):
    files = [disk.create(f"file-{number}") for number in range(40)]
    for turn in range(5):
        for number, file in enumerate(files):
            file.append(b"%d-%d;" % (number, turn))
            if number % 3 == 0:
                file.sync()
    for number, file in enumerate(files):
        expected = b"".join(b"%d-%d;" % (number, turn) for turn in range(5))
        assert file.size() == len(expected)
        assert file.read(0, 1000) == content(disk, file.path) == expected


def test_renaming_a_file_without_a_descriptor_keeps_its_handle(disk):
    first = disk.create("first")
    first.append(b"1")
    for number in range(20):
        disk.create(f"file-{number}").append(b"x")
    disk.rename("first", "moved")
    first.append(b"2")
    assert content(disk, "moved") == b"12"


PATHS = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a", "none/a", "d", "d/e"])
DIRECTORIES = st.sampled_from(["d", "d/e", "x/y/z", "a", "none", "a/b"])


class Twins(RuleBasedStateMachine):
    """Both disks, asked the same: they answer the same, and hold the same in the end."""

    files = Bundle("files")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.real, self.sim = RealDisk(self.folder.name, FEW), SimDisk()
        for disk in (self.real, self.sim):
            disk.make_directories("d")

    def answers(self, real, sim, method: str, *arguments):
        found = []
        for twin in (real, sim):
            try:
                found.append(getattr(twin, method)(*arguments))
            except (PenstockError, AssertionError) as error:
                found.append(type(error))
        return found

    def same(self, real, sim, method: str, *arguments):
        found = self.answers(real, sim, method, *arguments)
        assert found[0] == found[1], (method, arguments, found)
        return found[0]

    @rule(target=files, method=st.sampled_from(["create", "create", "open"]), path=PATHS)
    def get(self, method, path):
        found = self.answers(self.real, self.sim, method, path)
        if isinstance(found[1], type):
            assert found[0] is found[1], (method, path, found)
            return multiple()
        return tuple(found)

    @rule(pair=files, parts=st.lists(st.binary(max_size=20), max_size=3))
    def append(self, pair, parts):
        self.same(*pair, "append", *parts)
        self.same(*pair, "size")

    @rule(pair=files, position=st.integers(0, 60), size=st.integers(0, 60))
    def read(self, pair, position, size):
        self.same(*pair, "read", position, size)

    @rule(pair=files, size=st.integers(0, 40))
    def truncate(self, pair, size):
        self.same(*pair, "truncate", size)

    @rule(pair=files)
    def sync(self, pair):
        self.same(*pair, "sync")
        assert pair[0].path == pair[1].path

    @rule(pair=consumes(files))
    def close(self, pair):
        self.same(*pair, "close")
        self.same(*pair, "size")

    @rule(old=PATHS, new=PATHS)
    def rename(self, old, new):
        self.same(self.real, self.sim, "rename", old, new)

    @rule(path=PATHS, method=st.sampled_from(["remove", "size", "exists"]))
    def about_a_path(self, path, method):
        self.same(self.real, self.sim, method, path)

    @rule(
        directory=DIRECTORIES,
        method=st.sampled_from(["make_directories", "remove_directory", "sync_directory", "list"]),
    )
    def about_a_directory(self, directory, method):
        self.same(self.real, self.sim, method, directory)

    @rule(count=st.integers(5, 10))
    def push_others_out(self, count):
        """Opens enough other files that those held lose their descriptors."""
        others = [(self.real.create(f"o{n}"), self.sim.create(f"o{n}")) for n in range(count)]
        for pair in others:
            self.same(*pair, "append", b"o")
            self.same(*pair, "close")

    def teardown(self) -> None:
        try:
            self.compare()
        finally:
            self.real.close()
            self.folder.cleanup()

    def compare(self) -> None:
        tree = self.sim.tree()
        found = {path: content(self.real, path) for path in tree.files}
        assert found == dict(tree.files)
        for directory in ("", *tree.directories):
            assert self.real.list(directory) == self.sim.list(directory)


TestTwins = Twins.TestCase
