"""What only the real disk can get wrong: locks, descriptors, and what the system does to it."""

import errno
import itertools
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.config import StorageConfig
from penstock.errors import (
    AlreadyOpen,
    DamagedFile,
    DiskFailed,
    FileMissing,
    NoSpace,
    Refused,
    SyncFailed,
)
from penstock.runtime import RealDisk

CONFIG = StorageConfig(open_files_max=8)

HOLD_UNTIL_TOLD = """
import sys
from penstock.config import StorageConfig
from penstock.runtime import RealDisk
disk = RealDisk(sys.argv[1], StorageConfig())
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def disk(tmp_path: Path):
    with RealDisk(tmp_path / "data", CONFIG) as disk:
        yield disk


@pytest.fixture
def holder(tmp_path: Path):
    """Another process that has the directory open."""
    command = [sys.executable, "-c", HOLD_UNTIL_TOLD, tmp_path / "data"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def failing(code: int, calls: list) -> Callable:
    def fail(*arguments):
        calls.append(arguments)
        raise OSError(code, os.strerror(code))

    return fail


def open_descriptors() -> list[str]:
    paths = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # The one that lists the directory.
            paths.append(str(entry.readlink()))
    return paths


def descriptors_below(root: Path) -> int:
    files = [path for path in open_descriptors() if path.startswith(f"{root}/data/")]
    return len(files) - files.count(f"{root}/data/lock")


def fill(write: Callable[[], object]) -> None:
    while True:
        write()


def test_a_second_process_is_refused_with_the_number_of_the_first(holder, tmp_path):
    with pytest.raises(AlreadyOpen, match=f"process {holder.pid}"):
        RealDisk(tmp_path / "data", CONFIG)


def test_a_directory_stays_its_owners_whatever_becomes_of_the_lock_file(holder, tmp_path):
    root = tmp_path / "data"
    lock, copy = root / "lock", root / "copy"
    copy.write_bytes(lock.read_bytes())
    for change in (lambda: copy.rename(lock), lock.unlink, lambda: lock.symlink_to("/nowhere")):
        change()
        before = sorted(root.iterdir())
        with pytest.raises(AlreadyOpen):
            RealDisk(root, CONFIG)
        assert sorted(root.iterdir()) == before


def test_a_directory_whose_lock_file_was_removed_is_free_when_its_owner_is_gone(holder, tmp_path):
    (tmp_path / "data" / "lock").unlink()
    holder.kill()
    holder.wait()
    RealDisk(tmp_path / "data", CONFIG).close()


def test_the_lock_goes_with_its_process_however_it_dies(holder, tmp_path):
    holder.kill()
    holder.wait()
    RealDisk(tmp_path / "data", CONFIG).close()


def test_a_second_disk_in_this_process_is_refused_until_the_first_is_closed(tmp_path):
    first = RealDisk(tmp_path / "data", CONFIG)
    with pytest.raises(AlreadyOpen, match="this process"):
        RealDisk(tmp_path / "data", CONFIG)
    first.close()
    first.close()
    RealDisk(tmp_path / "data", CONFIG).close()


def test_a_refused_disk_leaves_no_descriptor_behind(disk, tmp_path):
    before = len(open_descriptors())
    for _ in range(5):
        with pytest.raises(AlreadyOpen):
            RealDisk(tmp_path / "data", CONFIG)
    assert len(open_descriptors()) == before


def test_the_lock_is_not_a_file_of_the_disk(disk):
    assert disk.list("") == []
    for ask in (disk.open, disk.create, disk.remove):
        with pytest.raises(Refused):
            ask("lock")


def test_everything_is_refused_after_closing(disk):
    file = disk.create("a")
    disk.close()
    for use in (
        lambda: file.append(b"x"),
        file.size,
        file.sync,
        lambda: disk.open("a"),
        disk.free_bytes,
    ):
        with pytest.raises(Refused, match="closed"):
            use()


def test_files_are_for_their_owner_only(disk, tmp_path):
    disk.make_directories("d")
    disk.create("d/a").append(b"x")
    for path, mode in (("d", 0o700), ("d/a", 0o600), ("lock", 0o600)):
        assert stat.S_IMODE((tmp_path / "data" / path).stat().st_mode) & ~mode == 0


def test_open_descriptors_stay_within_their_limit(disk, tmp_path):
    files = [disk.create(f"file-{number}") for number in range(50)]
    for _ in range(3):
        for file in files:
            file.append(b"x")
            assert descriptors_below(tmp_path) <= CONFIG.open_files_max
    for file in files:
        file.close()
    assert descriptors_below(tmp_path) == 0


def test_files_in_use_are_evicted_last(disk, monkeypatch):
    busy = disk.create("busy")
    opened = []
    open_really = os.open

    def open_and_note(path, *arguments, **options):
        opened.append(path)
        return open_really(path, *arguments, **options)

    monkeypatch.setattr(os, "open", open_and_note)
    for number in range(50):
        busy.append(b"x")
        busy.sync()
        disk.create(f"file-{number}")
    assert len(opened) == 50
    assert "busy" not in opened


def test_an_unsynced_file_is_synced_before_its_descriptor_is_closed(disk, monkeypatch):
    for number in range(CONFIG.open_files_max):
        disk.create(f"file-{number}").append(b"x")
    synced = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    disk.create("one-more")
    assert len(synced) == 1


def test_a_truncated_file_is_synced_before_its_descriptor_is_closed(disk, monkeypatch):
    files = [disk.create(f"file-{number}") for number in range(CONFIG.open_files_max)]
    for file in files:
        file.append(b"whole")
        file.sync()
        file.truncate(1)
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    disk.create("one-more")
    assert len(synced) == 1


def test_bytes_appended_during_a_sync_are_synced_before_eviction(disk, monkeypatch):
    files = [disk.create(f"file-{number}") for number in range(CONFIG.open_files_max)]
    calls = []

    def fdatasync_while_the_owner_appends(descriptor):
        calls.append(descriptor)
        if len(calls) <= len(files):
            files[len(calls) - 1].append(b"late")

    monkeypatch.setattr(os, "fdatasync", fdatasync_while_the_owner_appends)
    for file in files:
        file.sync()
    disk.create("one-more")
    assert len(calls) == len(files) + 1


def test_a_clean_file_is_evicted_before_an_unsynced_one(disk, monkeypatch):
    files = [disk.create(f"file-{number}") for number in range(CONFIG.open_files_max)]
    for file in files:
        file.append(b"x")
    files[5].sync()
    monkeypatch.setattr(os, "fdatasync", failing(errno.EIO, []))
    disk.create("one-more")


def test_a_file_evicted_while_it_is_written_is_synced_by_the_writer(disk, monkeypatch):
    file = disk.create("a")
    calls = []

    def pwritev_while_others_open(descriptor, parts, position):
        monkeypatch.undo()
        for number in range(2 * CONFIG.open_files_max):
            disk.create(f"file-{number}")
        calls.append("write")
        written = os.pwritev(descriptor, parts, position)
        monkeypatch.setattr(os, "fdatasync", lambda number: calls.append("sync"))
        return written

    monkeypatch.setattr(os, "pwritev", pwritev_while_others_open)
    file.append(b"late")
    assert calls == ["write", "sync"]
    assert file.read(0, 10) == b"late"


def test_eviction_goes_on_under_threads_that_write_read_and_sync(disk, effort):
    files = [disk.create(f"file-{number}") for number in range(4 * CONFIG.open_files_max)]
    turns = effort(check=60, test=600, torture=6000)

    def run(work: Callable[[int], None]) -> None:
        for turn in range(turns):
            work(turn)

    def append(turn: int, first: int) -> None:
        for file in files[first::2]:
            file.append(b"%06d" % turn)

    def sync_and_read(turn: int) -> None:
        file = files[turn % len(files)]
        file.sync()
        assert len(file.read(0, 12)) in {0, 6, 12}

    works = [
        lambda turn: append(turn, 0),
        lambda turn: append(turn, 1),
        sync_and_read,
        sync_and_read,
    ]
    with ThreadPoolExecutor(len(works)) as threads:
        list(threads.map(run, works))
    expected = b"".join(b"%06d" % turn for turn in range(turns))
    assert all(file.read(0, len(expected) + 1) == expected for file in files)


def test_a_failed_sync_stops_the_disk_and_is_never_tried_again(disk, monkeypatch):
    file, other = disk.create("a"), disk.create("b")
    file.append(b"x")
    calls = []
    monkeypatch.setattr(os, "fdatasync", failing(errno.EIO, calls))
    with pytest.raises(SyncFailed, match="Input/output error"):
        file.sync()
    monkeypatch.setattr(os, "fdatasync", calls.append)
    for use in (
        file.sync,
        other.sync,
        file.size,
        lambda: other.append(b"x"),
        lambda: other.read(0, 1),
        lambda: other.truncate(0),
        lambda: disk.open("a"),
        lambda: disk.create("c"),
        lambda: disk.exists("a"),
        lambda: disk.size("a"),
        lambda: disk.list(""),
        lambda: disk.make_directories("d"),
        lambda: disk.rename("a", "c"),
        lambda: disk.remove("a"),
        lambda: disk.sync_directory(""),
        disk.free_bytes,
    ):
        with pytest.raises(SyncFailed, match="fsync of a failed"):
            use()
    assert len(calls) == 1


def test_a_failed_sync_of_a_directory_stops_the_disk(disk, monkeypatch):
    monkeypatch.setattr(os, "fsync", failing(errno.EIO, []))
    with pytest.raises(SyncFailed):
        disk.make_directories("d")
    monkeypatch.undo()
    with pytest.raises(SyncFailed):
        disk.create("a")


def test_a_failed_sync_at_eviction_stops_the_disk(disk, monkeypatch):
    files = [disk.create(f"file-{number}") for number in range(CONFIG.open_files_max)]
    for file in files:
        file.append(b"x")
    monkeypatch.setattr(os, "fdatasync", failing(errno.EIO, []))
    with pytest.raises(SyncFailed):
        disk.create("one-more")
    monkeypatch.undo()
    with pytest.raises(SyncFailed):
        files[3].append(b"x")


def test_a_write_that_fails_is_undone_and_stops_the_disk(disk, monkeypatch, tmp_path):
    file = disk.create("a")
    file.append(b"kept")
    write = os.pwritev

    def pwritev_half(descriptor, parts, position):
        monkeypatch.setattr(os, "pwritev", failing(errno.EIO, []))
        return write(descriptor, [b"".join(parts)[:3]], position)

    monkeypatch.setattr(os, "pwritev", pwritev_half)
    with pytest.raises(DiskFailed):
        file.append(b"lost bytes")
    monkeypatch.undo()
    assert (tmp_path / "data" / "a").read_bytes() == b"kept"
    with pytest.raises(DiskFailed):
        file.append(b"x")


def test_a_write_that_makes_no_progress_is_a_failure(disk, monkeypatch):
    file = disk.create("a")
    monkeypatch.setattr(os, "pwritev", lambda *arguments: 0)
    with pytest.raises(DiskFailed):
        file.append(b"x")


def test_short_writes_and_reads_are_continued(disk, monkeypatch):
    file = disk.create("a")
    write, read = os.pwritev, os.pread
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: write(fd, [b"".join(parts)[:3]], at))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: read(fd, min(size, 4), at))
    file.append(b"0123", b"", b"456789", b"ab")
    assert file.read(0, 100) == b"0123456789ab"
    assert file.read(1, 6) == b"123456"


def test_a_read_that_fails_does_not_stop_the_disk(disk, monkeypatch):
    file = disk.create("a")
    file.append(b"x")
    monkeypatch.setattr(os, "pread", failing(errno.EIO, []))
    with pytest.raises(DiskFailed):
        file.read(0, 1)
    monkeypatch.undo()
    assert file.read(0, 1) == b"x"


def test_after_a_truncation_everything_is_synced(disk, monkeypatch):
    file = disk.create("a")
    file.append(b"123")
    file.truncate(1)
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(os, "fdatasync", failing(errno.EIO, []))
    file.sync()
    assert len(synced) == 1


def test_a_sync_of_many_syncs_each_and_fails_with_any_of_them(tmp_path, monkeypatch):
    with RealDisk(tmp_path / "data", CONFIG) as disk:
        disk.make_directories("d", is_synced=False)
        files = [disk.create(f"d/{number}") for number in range(20)]
        for file in files:
            file.append(b"x")
        synced = []
        original = os.fdatasync
        monkeypatch.setattr(
            os, "fdatasync", lambda number: (synced.append(number), original(number))
        )
        disk.sync_all(files, ["d", ""])
        assert len(synced) >= 20

        def fail(number: int) -> None:
            raise OSError(errno.EIO, "gone")

        files[7].append(b"y")
        monkeypatch.setattr(os, "fdatasync", fail)
        with pytest.raises(SyncFailed):
            disk.sync_all(files, ["d"])


def test_directories_that_a_dead_process_left_are_synced_once_more(tmp_path, monkeypatch):
    (tmp_path / "data" / "d" / "e").mkdir(parents=True)
    with RealDisk(tmp_path / "data", CONFIG) as disk:
        synced = []
        monkeypatch.setattr(os, "fsync", synced.append)
        disk.make_directories("d/e")
        assert len(synced) == 2
        disk.make_directories("d/e")
        disk.make_directories("d/e/f")
        assert len(synced) == 3


def test_links_and_pipes_in_place_of_files_are_reported(disk, tmp_path):
    (tmp_path / "outside").write_bytes(b"secret")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(tmp_path / "data" / "pipe")
    for path in ("link", "pipe"):
        with pytest.raises(DamagedFile):
            disk.open(path)
    with pytest.raises(DamagedFile):
        disk.create("link")
    assert (tmp_path / "outside").read_bytes() == b"secret"


def test_a_file_that_somebody_else_changed_is_not_written_on(disk, tmp_path):
    file = disk.create("a")
    file.append(b"ours")
    file.sync()
    for number in range(20):
        disk.create(f"file-{number}")
    with (tmp_path / "data" / "a").open("ab") as stranger:
        stranger.write(b"theirs")
    with pytest.raises(DamagedFile, match="10 bytes, and we left it with 4"):
        file.append(b"x")


def test_a_reader_sees_what_the_owner_appends_and_changes_nothing(disk, tmp_path):
    disk.make_directories("d")
    file = disk.create("d/a")
    file.append(b"one")
    with RealDisk.open_read_only(tmp_path / "data") as reader:
        seen = reader.open("d/a")
        assert seen.read(0, 100) == b"one"
        file.append(b"two")
        assert seen.size() == 6
        assert seen.read(0, 100) == b"onetwo"
        for change in (
            lambda: seen.append(b"x"),
            lambda: seen.truncate(0),
            lambda: reader.create("d/a"),
            lambda: reader.create("d/b"),
            lambda: reader.rename("d/a", "d/b"),
            lambda: reader.remove("d/a"),
            lambda: reader.make_directories("x"),
            lambda: reader.sync_directory("d"),
        ):
            with pytest.raises(Refused, match="reading only"):
                change()
        assert reader.list("d") == ["a"]
        assert seen.read(0, 100) == b"onetwo"


def test_a_reader_does_not_make_what_is_missing(tmp_path):
    with pytest.raises(FileMissing):
        RealDisk.open_read_only(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.fixture
def small(tmp_path: Path):
    """A file system of 64 KiB, which is full soon."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=50", "tmpfs", place],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a tmpfs: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)  # A failed test may hold files.


def test_a_full_file_system_refuses_whole_appends_and_resumes(small):
    with RealDisk(small / "data", CONFIG) as disk:
        file, filler = disk.create("a"), disk.create("filler")
        file.append(b"k" * 100)
        with pytest.raises(NoSpace):
            fill(lambda: filler.append(b"f" * 3000))
        with pytest.raises(NoSpace):
            file.append(b"x" * 3000, b"y" * 9000)
        assert file.size() == disk.size("a") == 100
        assert filler.size() % 3000 == 0
        assert file.read(0, 200) == b"k" * 100
        free = disk.free_bytes()
        disk.remove("filler")
        assert disk.free_bytes() > free
        file.append(b"x" * 3000, b"y" * 9000)
        file.sync()
        assert file.size() == 12100


def test_a_full_file_system_can_still_be_opened(small):
    (small / "data").mkdir()
    with (
        (small / "data" / "filler").open("wb", buffering=0) as filler,
        pytest.raises(OSError, match="No space"),
    ):
        fill(lambda: filler.write(bytes(1000)))
    with RealDisk(small / "data", CONFIG) as disk:
        disk.remove("filler")
        disk.create("a").append(b"x")


def test_a_file_system_out_of_inodes_says_no_space(small):
    with RealDisk(small / "data", CONFIG) as disk:
        numbers = itertools.count()
        with pytest.raises(NoSpace):
            fill(lambda: disk.create(f"file-{next(numbers)}"))
        disk.remove("file-0")
        disk.create("file-0")
