"""A file system that is full: whole appends are refused, and it goes on when there is room."""

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import (
    NoSpace,
)
from penstock.runtime import RealDisk

from .disks import CONFIG


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


def fill(write: Callable[[], object]) -> None:
    while True:
        write()


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
