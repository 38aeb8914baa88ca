"""The first key of a broker: made by its first start, and left in a file for the administrator."""

from contextlib import suppress
from pathlib import Path

from ..api.keys import CreateKey, ListKeys, RotateKey
from ..api.principals import Role
from ..runtime.small_files import replace_file
from ..runtime.threads import ThreadDriver

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
        new = driver.execute(RotateKey(first, grace_ms=0))
    else:
        replace_file(path, _UNFINISHED)
        new = driver.execute(CreateKey(_NAME, Role.ADMIN))
    replace_file(path, new.text.encode() + b"\n")
    return path


def _is_unfinished(path: Path) -> bool:
    with suppress(FileNotFoundError):
        return path.read_bytes() == _UNFINISHED
    return False
