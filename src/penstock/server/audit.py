"""What administrators did and who was refused: one JSON object a line, each with the hash of the line before.

A line that is changed or removed breaks the chain from there on. `audit.head` names the newest line that was synced, so
that the removal of the last lines shows, too. The head is written after the lines: a crash leaves it behind them, never
ahead. Neither file holds payloads or secrets. What an administrator changes is answered when its line is on the disk.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import NamedTuple

import msgspec

from ..errors import NoSpace
from ..runtime.failures import translated
from ..runtime.small_files import replace_file, write_all

AUDIT_FILE = "audit.jsonl"
HEAD_FILE = "audit.head"
_FIRST = "0" * 64
_WHERE_MAX = 300
# Longer than any line: all that is in one is bounded.
_LINE_BYTES_MAX = 64 * 1024
# Of a log that is read from its end, so much at a time.
_BACK_BYTES_MAX = 1024 * 1024


class Entry(msgspec.Struct, frozen=True):
    """One line. `hash` is that of the line without it."""

    at_ns: str
    who: str
    what: str
    where: str
    is_allowed: bool
    previous: str
    hash: str = ""


class Head(msgspec.Struct, frozen=True):
    """Where the log ended when it was synced last: its size in bytes and in lines, and the hash of its last line."""

    size: int = 0
    lines: int = 0
    hash: str = _FIRST


class Problem(NamedTuple):
    """Something that is wrong with the log; `line` counts from 1, and 0 is for the log as a whole."""

    line: int
    text: str


class AuditLog:
    """Open for as long as the process runs; thread-safe. Only its owner may read the files.

    `lost` says what is missing at the end since the head was written, or that the head itself is, and is empty if
    nothing is. The chain goes on from the head even then, so that the gap can be seen for ever.
    """

    def __init__(self, directory: Path, now_ns: Callable[[], int]) -> None:
        self.path, self._now_ns = directory / AUDIT_FILE, now_ns
        self._head_path = directory / HEAD_FILE
        self._lock = RLock()
        head = read_head(self._head_path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with translated(os.fspath(self.path)):
            self._descriptor = os.open(self.path, flags, 0o600)
            tail = _read_tail(self.path, head)
        self.lost = lost_since(head, tail)
        self._end = _end_of(head, tail)
        if self._end.size < tail.end:
            # A line that a crash cut in two was never answered.
            self._cut(self._end)
        self._is_settled = head == self._end

    def write(self, who: str, what: str, where: str, *, is_allowed: bool = True) -> None:
        """Add a line. What changed something is synced; what was refused waits for `settle`. NoSpace: no line."""
        with self._lock:
            self._append(who, what, where, is_allowed=is_allowed)
            if is_allowed:
                self.settle()

    @contextmanager
    def noted(self, who: str, what: str, where: str) -> Iterator[None]:
        """Inside, the line is on the disk; if what it tells of fails there, the line goes again."""
        with self._lock:
            before = self._end
            self._append(who, what, where, is_allowed=True)
            try:
                self._sync()
                yield
            except BaseException:
                self._cut(before)
                raise
            self.settle()

    def settle(self) -> None:
        """Sync what was written, and have the head name it. Without room for it, the head stays behind for now."""
        with self._lock:
            if self._is_settled:
                return
            self._sync()
            with suppress(NoSpace):
                replace_file(self._head_path, msgspec.json.encode(self._end) + b"\n")
                self._is_settled = True

    def close(self) -> None:
        with suppress(NoSpace):
            self.settle()
        os.close(self._descriptor)

    def _append(self, who: str, what: str, where: str, *, is_allowed: bool) -> None:
        end = self._end
        entry = _sealed(
            Entry(str(self._now_ns()), who, what, where[:_WHERE_MAX], is_allowed, end.hash)
        )
        line = msgspec.json.encode(entry) + b"\n"
        with translated(os.fspath(self.path)):
            try:
                write_all(self._descriptor, line)
            except OSError:
                self._cut(end)
                raise
        self._end = Head(end.size + len(line), end.lines + 1, entry.hash)
        self._is_settled = False

    def _sync(self) -> None:
        with translated(os.fspath(self.path)):
            os.fsync(self._descriptor)

    def _cut(self, end: Head) -> None:
        with translated(os.fspath(self.path)):
            os.ftruncate(self._descriptor, end.size)
        self._end = end


def _sealed(entry: Entry) -> Entry:
    plain = msgspec.structs.replace(entry, hash="")
    return msgspec.structs.replace(
        entry, hash=hashlib.sha256(msgspec.json.encode(plain)).hexdigest()
    )


def _read(line: bytes) -> Entry | None:
    try:
        return msgspec.json.decode(line, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_head(path: Path) -> Head | None:
    """The head of a log; None if there is none, or it cannot be read."""
    with suppress(FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(path.read_bytes(), type=Head)
    return None


class _Tail(NamedTuple):
    """The bytes of a log from `start` on, and where they end."""

    start: int
    content: bytes
    end: int


def _read_tail(path: Path, head: Head | None) -> _Tail:
    """From before the line that the head names; all of the log without one."""
    start = 0 if head is None else max(0, head.size - _LINE_BYTES_MAX)
    with path.open("rb") as file:
        file.seek(start)
        content = file.read()
        return _Tail(start, content, file.seek(0, os.SEEK_END))


def _end_of(head: Head | None, tail: _Tail) -> Head:
    """Where the chain goes on: behind the last line that can be read, or from the head if lines were lost."""
    size = max(tail.content.rfind(b"\n") + 1 + tail.start, 0) if tail.content else tail.end
    if head is not None and lost_since(head, tail):
        return msgspec.structs.replace(head, size=size)
    known = head or Head()
    lines = tail.content[known.size - tail.start :].split(b"\n")[:-1]
    entries = (entry for line in reversed(lines) if (entry := _read(line)) is not None)
    last = next(entries, None)
    return Head(size, known.lines + len(lines), known.hash if last is None else last.hash)


def lost_since(head: Head | None, tail: _Tail) -> str:
    """What a log lacks that its head names, or that there is no head to say so; empty if nothing is wrong."""
    if head is None:
        text = f"{HEAD_FILE} is missing or damaged: lines removed at the end would not show"
        return text if tail.content else ""
    if tail.end < head.size:
        return f"it ends at byte {tail.end}, and {HEAD_FILE} names line {head.lines} up to byte {head.size}"
    line_end = head.size - tail.start
    start = tail.content.rfind(b"\n", 0, max(0, line_end - 1)) + 1
    entry = _read(tail.content[start:line_end])
    if head.size and (entry is None or entry.hash != head.hash):
        return f"line {head.lines} is not the one that {HEAD_FILE} names"
    return ""


def verify(path: Path) -> list[Problem]:
    """Where the chain of a log is broken, and what its head knows that is not there. Nothing is changed."""
    # The head first: a broker that runs writes the log before it.
    head = read_head(path.with_name(HEAD_FILE))
    tail = _read_tail(path, None) if path.exists() else _Tail(0, b"", 0)
    problems, previous = [], _FIRST
    # What follows the last line end was cut off by a crash before it was answered.
    for number, line in enumerate(tail.content.split(b"\n")[:-1], 1):
        entry = _read(line)
        if entry is None:
            problems.append(Problem(number, "it cannot be read"))
            continue
        if entry.previous != previous:
            problems.append(Problem(number, "the line before it was changed or removed"))
        elif _sealed(entry).hash != entry.hash:
            problems.append(Problem(number, "it was changed"))
        previous = entry.hash
    if lost := lost_since(head, tail):
        problems.append(Problem(0, lost))
    return problems


def read_back(path: Path, end: int | None, limit: int) -> tuple[list[Entry], int]:
    """At most `limit` lines before byte `end`, or before the end of the log, newest first, and where the oldest of
    them begins. A line that cannot be read is left out.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        end = size if end is None else min(end, size)
        start = max(0, end - _BACK_BYTES_MAX)
        file.seek(start)
        content = file.read(end - start)
    # The line that is being written, and the rest of one that begins before.
    content = content[: content.rfind(b"\n") + 1]
    skipped = content.find(b"\n") + 1 if start else 0
    lines = content[skipped:].splitlines(keepends=True)[-limit:]
    before = start + len(content) - sum(map(len, lines))
    entries = [entry for line in reversed(lines) if (entry := _read(line)) is not None]
    return entries, before
