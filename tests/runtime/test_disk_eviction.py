"""Few descriptors for many files: what is closed for another one was synced before."""

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .disks import CONFIG, failing, open_descriptors


def descriptors_below(root: Path) -> int:
    files = [path for path in open_descriptors() if path.startswith(f"{root}/data/")]
    return len(files) - files.count(f"{root}/data/lock")


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
    turns = effort(check=60, test=200, torture=6000)

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
