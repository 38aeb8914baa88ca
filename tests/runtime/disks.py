"""What tests of the real disk share."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.config import StorageConfig

CONFIG = StorageConfig(open_files_max=8)


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
