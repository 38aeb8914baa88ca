"""What only the real disk can get wrong, and what the system or another program does to it."""

import errno
import os
import stat

import pytest

from penstock.errors import (
    DamagedFile,
    FileMissing,
    Refused,
    SyncFailed,
)
from penstock.runtime import RealDisk

from .disks import CONFIG, failing


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
