"""The checkpoint of a load: what it has done, file by file.

An entry is written before the first row of a file is sent, and again when all of it is stored. In between the broker
knows the progress: the producer's identity comes from the entry and the row is its sequence, so the broker tells a load
that starts again which rows are stored.
"""

import hashlib
import os
from pathlib import Path
from secrets import token_hex

import msgspec

from ...errors import DamagedFile, Refused
from .store import sync_folder

_READ_BYTES = 1 << 20


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file and everything that decides where its rows go."""

    name: str
    sha256: str
    topic: str
    log: int
    partitions: int
    key: str
    value: str
    rows: int = 0
    is_done: bool = False


def sha256_of(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            found.update(data)
    return found.hexdigest()


def _read(path: Path) -> LedgerEntry:
    try:
        return msgspec.json.decode(path.read_bytes(), type=LedgerEntry)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedFile(str(path), str(error)[:100]) from None


class Ledger:
    """All entries, one small file each."""

    def __init__(self, root: Path) -> None:
        self.root = root / "files"

    def _path(self, name: str) -> Path:
        return self.root / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"

    def find(self, name: str) -> LedgerEntry | None:
        try:
            return _read(self._path(name))
        except FileNotFoundError:
            return None

    def write(self, entry: LedgerEntry) -> None:
        path = self._path(entry.name)
        self.root.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{token_hex(4)}")
        with draft.open("xb") as file:
            file.write(msgspec.json.encode(entry))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync_folder(self.root)

    def all(self) -> list[LedgerEntry]:
        """Returns all entries by name. DamagedFile: one cannot be read."""
        found = [_read(one) for one in self.root.glob("*.json")]
        return sorted(found, key=lambda one: one.name)

    def settle(self, wanted: LedgerEntry) -> LedgerEntry | None:
        """Returns the entry to load a file by, or None if it is loaded. Refused: file, topic or mapping has changed."""
        known = self.find(wanted.name)
        if known is None:
            self.write(wanted)
            return wanted
        if known.topic != wanted.topic or known.log != wanted.log:
            raise Refused(
                f"{self.root.parent} is the checkpoint of a load into another topic ({known.topic}"
                f"{' of before' if known.topic == wanted.topic else ''}), not into {wanted.topic}"
            )
        if known.sha256 != wanted.sha256:
            raise Refused(f"{wanted.name} has changed since it was loaded; give it another name")
        if (known.key, known.value) != (wanted.key, wanted.value):
            raise Refused(
                f"{wanted.name} was begun with key {known.key!r} and value {known.value!r}; "
                "another mapping needs another checkpoint"
            )
        return None if known.is_done else known
