"""Syncs, writes and reads that fail: a failed sync or write stops the disk, and is never tried again."""

import errno
import os

import pytest

from penstock.errors import (
    DiskFailed,
    SyncFailed,
)

from .disks import CONFIG, failing


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
