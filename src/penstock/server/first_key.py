"""The first key of a broker: made by its first start, and left in a file for the administrator."""

from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ..api.command import Command
from ..api.keys import CreateKey, ListKeys, RotateKey
from ..api.principals import Role
from ..runtime.small_files import replace_file
from ..runtime.threads import ThreadDriver

R = TypeVar("R")
FIRST_KEY_FILE = "admin.key"
_NAME = "first-admin"
_UNFINISHED = b"The key is being made. If you read this, start the broker again.\n"


def write_first_key(directory: Path, driver: ThreadDriver) -> Path | None:
    """If there is no key at all, make one for the administrator and leave it in a file. None: there are keys.

    A crash between the two would leave a key whose text is lost. So the file is made first, and says that its key is to
    come: a start that finds it so makes another secret.
    """
    path, keys = directory / FIRST_KEY_FILE, driver.execute(ListKeys())
    if keys:
        first = next((one.key_id for one in keys if one.name == _NAME), None)
        if first is None or not _is_unfinished(path):
            return None
        new = _execute(driver, RotateKey(first, grace_ms=0))
    else:
        replace_file(path, _UNFINISHED)
        new = _execute(driver, CreateKey(_NAME, Role.ADMIN))
    replace_file(path, new.text.encode() + b"\n")
    return path


def _execute(driver: ThreadDriver, command: Command[R]) -> R:
    """With a standby the key is made before that one is there, and comes to it with everything else."""
    if driver.gate is None:
        return driver.execute(command)
    return driver.begin_change(lambda now: driver.execute_locked(command, now), is_admitted=True)[0]


def _is_unfinished(path: Path) -> bool:
    with suppress(FileNotFoundError):
        return path.read_bytes() == _UNFINISHED
    return False
