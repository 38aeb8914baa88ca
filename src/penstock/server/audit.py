"""What administrators did: one JSON object a line, each with the hash of the line before.

Whoever changes or removes a line breaks the chain from there on, which `verify` finds. It holds no payloads and no
secrets. Lines are fsynced: an action that is not on the disk has not been answered.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

AUDIT_FILE = "audit.jsonl"
_FIRST = "0" * 64
_TAIL_BYTES = 64 * 1024


class Entry(msgspec.Struct, frozen=True):
    """One line. `hash` is that of the line without it."""

    at_ns: str
    who: str
    what: str
    where: str
    is_allowed: bool
    previous: str
    hash: str = ""


class AuditLog:
    """Open for as long as the process runs. Only its owner may read the file."""

    def __init__(self, directory: Path, now_ns: Callable[[], int]) -> None:
        self.path, self._now_ns = directory / AUDIT_FILE, now_ns
        self._last = _last_hash(self.path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o600)

    def write(self, who: str, what: str, where: str, *, is_allowed: bool = True) -> None:
        entry = _sealed(Entry(str(self._now_ns()), who, what, where[:300], is_allowed, self._last))
        os.write(self._descriptor, msgspec.json.encode(entry) + b"\n")
        if is_allowed:
            # Only what changed something: a crowd that is turned away must not make the disk work.
            os.fsync(self._descriptor)
        self._last = entry.hash

    def close(self) -> None:
        os.close(self._descriptor)


def _sealed(entry: Entry) -> Entry:
    plain = msgspec.structs.replace(entry, hash="")
    return msgspec.structs.replace(
        entry, hash=hashlib.sha256(msgspec.json.encode(plain)).hexdigest()
    )


def _last_hash(path: Path) -> str:
    """Where the chain goes on. A line that a crash cut in two is closed off, so that the next one begins a line."""
    if not path.exists():
        return _FIRST
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().split(b"\n")
        if lines[-1]:
            file.write(b"\n")
    for line in reversed(lines):
        entry = _read(line)
        if entry is not None:
            return entry.hash
    return _FIRST


def _read(line: bytes) -> Entry | None:
    try:
        return msgspec.json.decode(line, type=Entry)
    except msgspec.DecodeError:
        return None


def verify(path: Path) -> list[int]:
    """Numbers of the lines, from 1, at which the chain is broken."""
    broken, previous = [], _FIRST
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        entry = _read(line)
        if entry is None:
            broken.append(number)
            continue
        if entry.previous != previous or _sealed(entry).hash != entry.hash:
            broken.append(number)
        previous = entry.hash
    return broken
