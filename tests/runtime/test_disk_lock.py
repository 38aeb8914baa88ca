"""One process has a data directory, and it is free again when that process is gone."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import (
    AlreadyOpen,
    Refused,
)
from penstock.runtime import RealDisk

from .disks import CONFIG, open_descriptors

HOLD_UNTIL_TOLD = """
import sys
from penstock.config import StorageConfig
from penstock.runtime import RealDisk
disk = RealDisk(sys.argv[1], StorageConfig())
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path):
    """Another process that has the directory open."""
    command = [sys.executable, "-c", HOLD_UNTIL_TOLD, tmp_path / "data"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


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
