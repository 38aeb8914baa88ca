"""A real disk in a directory of its own."""

from pathlib import Path

import pytest

from penstock.runtime import RealDisk

from .disks import CONFIG


@pytest.fixture
def disk(tmp_path: Path):
    with RealDisk(tmp_path / "data", CONFIG) as disk:
        yield disk
