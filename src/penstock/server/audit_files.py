"""Files of the audit log, and what readers find in them: one JSON object a line, each with the hash of the line before.

<data>/audit.jsonl                  the newest lines
<data>/audit-000000000123.jsonl     older ones, from line 123 of the log on; complete
<data>/audit.head                   the newest line that was synced, and the last one that was removed with its file

The chain goes from file to file, so a line or a file that is changed or removed breaks it. The head is written after
the lines: a crash leaves it behind them, never ahead. None of the files holds payloads or secrets.
"""

import hashlib
import re
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import NamedTuple

import msgspec

from ..errors import FileMissing
from ..log.layout import read_file
from ..ports import Disk

AUDIT_FILE = "audit.jsonl"
HEAD_FILE = "audit.head"
FIRST_HASH = "0" * 64
# Longer than any line: all that is in a line is bounded.
LINE_BYTES_MAX = 64 * 1024
_COMPLETE = re.compile(r"audit-(\d{12})\.jsonl", re.ASCII)
# Of a log that is read from its end, so much of a file and so many files at a time.
_BACK_BYTES_MAX = 1024 * 1024
_BACK_FILES_MAX = 8
# A verification begins anew when files begin or go meanwhile.
_TRIES_MAX = 5


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. `hash` is that of the line with an empty one; `client` is an address, where one is known."""

    at_ns: str
    who: str
    what: str
    where: str
    client: str = ""
    is_allowed: bool
    previous: str
    hash: str


class Head(msgspec.Struct, frozen=True):
    """Where the log ended when it was synced last.

    `size` is that of the newest file in bytes, which begins with line `first`; `lines` counts those of all files, and
    `hash` is that of the last one. `removed_lines` were removed with their files, and `removed_hash` is of the last.
    """

    size: int = 0
    lines: int = 0
    hash: str = FIRST_HASH
    first: int = 1
    removed_lines: int = 0
    removed_hash: str = FIRST_HASH


class Problem(NamedTuple):
    """Something that is wrong with the log; `line` counts from 1 in its file, and 0 is for a file as a whole."""

    file: str
    line: int
    text: str


class CompleteFile(NamedTuple):
    """A file that gets no more lines. `first` is the number of its first line in the log."""

    first: int
    path: str


class LogEnd(NamedTuple):
    """Where the chain goes on. `lost` says what is missing since the head was written; empty if nothing is."""

    head: Head
    lost: str
    is_settled: bool


def sealed(entry: Entry) -> Entry:
    """The entry with its hash."""
    plain = msgspec.structs.replace(entry, hash="")
    return msgspec.structs.replace(
        entry, hash=hashlib.sha256(msgspec.json.encode(plain)).hexdigest()
    )


def complete_path(first: int) -> str:
    return f"audit-{first:012d}.jsonl"


def complete_files(disk: Disk) -> list[CompleteFile]:
    """Files that get no more lines, oldest first."""
    names = ((name, _COMPLETE.fullmatch(name)) for name in disk.list(""))
    return sorted(CompleteFile(int(match[1]), name) for name, match in names if match)


def read_head(disk: Disk) -> Head | None:
    """The head of a log; None if there is none, or it cannot be read."""
    with suppress(FileMissing, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(read_file(disk, HEAD_FILE), type=Head)
    return None


def read_entry(line: bytes) -> Entry | None:
    """The entry in a line; None if it cannot be read."""
    try:
        return msgspec.json.decode(line, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def began_ns(disk: Disk) -> int:
    """The wall time of the first line of the newest file; 0 if there is none that can be read."""
    line, end, _ = _read(disk, AUDIT_FILE, 0, LINE_BYTES_MAX).partition(b"\n")
    entry = read_entry(line) if end else None
    return int(entry.at_ns) if entry is not None and entry.at_ns.isdecimal() else 0


def last_hash(disk: Disk, path: str) -> str:
    """The hash of the last line of a file that can be read."""
    size = _size(disk, path)
    start = max(0, size - 2 * LINE_BYTES_MAX)
    lines = _read(disk, path, start, size - start).split(b"\n")[:-1]
    entries = (entry for line in reversed(lines) if (entry := read_entry(line)) is not None)
    return next((entry.hash for entry in entries), FIRST_HASH)


class _Tail(NamedTuple):
    """The bytes of a file from `start` on, and where they end."""

    start: int
    content: bytes
    end: int


def find_end(disk: Disk) -> LogEnd:
    """Where the chain goes on: behind the last line that can be read, or from the head if lines were lost."""
    head, complete = read_head(disk), complete_files(disk)
    known, end, lost = head, head or Head(), ""
    complete = complete[-1:] if head is None else [f for f in complete if f.first >= head.first]
    if complete and (head is None or complete[0].first > head.first):
        # Without a head that is of any use: only the names say how many lines there were before.
        known, first = None, complete[0].first
        end = msgspec.structs.replace(end, size=0, lines=first - 1, first=first)
    for path in [*(file.path for file in complete), AUDIT_FILE]:
        tail = _read_tail(disk, path, known)
        missing = lost_since(known, tail)
        if known is None:
            end = _last_readable(end, tail)
        elif missing:
            end = msgspec.structs.replace(end, size=_line_end(tail))
        else:
            end = _last_linked(end, tail)
            missing = _unlinked(end, tail)
        lost = lost or missing
        if path != AUDIT_FILE:
            end = known = msgspec.structs.replace(end, size=0, first=end.lines + 1)
    return LogEnd(end, lost, is_settled=head == end)


def _line_end(tail: _Tail) -> int:
    """Where the last complete line of a file ends."""
    return tail.content.rfind(b"\n") + 1 + tail.start if tail.content else tail.end


def _last_readable(end: Head, tail: _Tail) -> Head:
    """The end behind the last line of a file of which nothing is known."""
    lines = tail.content.split(b"\n")[:-1]
    entries = (entry for line in reversed(lines) if (entry := read_entry(line)) is not None)
    last = next(entries, None)
    return msgspec.structs.replace(
        end,
        size=_line_end(tail),
        lines=end.lines + len(lines),
        hash=end.hash if last is None else last.hash,
    )


def _last_linked(end: Head, tail: _Tail) -> Head:
    """The end behind the last of the lines that go on with the chain: a power cut may have left others in pieces."""
    size, count, previous = end.size, end.lines, end.hash
    for line in tail.content[size - tail.start :].split(b"\n")[:-1]:
        entry = read_entry(line)
        if entry is None or entry.previous != previous or sealed(entry).hash != entry.hash:
            break
        size, count, previous = size + len(line) + 1, count + 1, entry.hash
    return msgspec.structs.replace(end, size=size, lines=count, hash=previous)


def _unlinked(end: Head, tail: _Tail) -> str:
    """What is behind the end: empty, or a line that a crash cut in two, is nothing to tell of."""
    behind = _line_end(tail) - end.size
    return f"{behind} bytes behind line {end.lines} do not go on with it" if behind > 0 else ""


def lost_since(head: Head | None, tail: _Tail) -> str:
    """What a file lacks that the head names, or that there is no head to say so; empty if nothing is wrong."""
    if head is None:
        text = f"{HEAD_FILE} is missing or damaged: lines removed at the end would not show"
        return text if tail.content else ""
    if tail.end < head.size:
        return f"it ends at byte {tail.end}, and {HEAD_FILE} names line {head.lines} up to byte {head.size}"
    line_end = head.size - tail.start
    start = tail.content.rfind(b"\n", 0, max(0, line_end - 1)) + 1
    entry = read_entry(tail.content[start:line_end])
    if head.size and (entry is None or entry.hash != head.hash):
        return f"line {head.lines} is not the one that {HEAD_FILE} names"
    return ""


def _read_tail(disk: Disk, path: str, head: Head | None) -> _Tail:
    """From before the line that the head names; all of the file without one."""
    start = 0 if head is None else max(0, head.size - LINE_BYTES_MAX)
    size = _size(disk, path)
    content = _read(disk, path, start, size - start)
    return _Tail(start, content, start + len(content) if size > start else size)


def _size(disk: Disk, path: str) -> int:
    """The size of a file, 0 if it is missing."""
    with suppress(FileMissing):
        return disk.size(path)
    return 0


def _read(disk: Disk, path: str, start: int, size: int) -> bytes:
    """Bytes of a file; none if it is missing."""
    if size <= 0:
        return b""
    with suppress(FileMissing), closing(disk.open(path)) as file:
        return file.read(start, size)
    return b""


def verify(disk: Disk, *, files_max: int | None = None) -> list[Problem]:
    """Where the chain is broken, and what the head knows that is not there. Nothing is changed.

    `files_max`: only so many of the newest complete files are read. The log may be written meanwhile.
    """
    problems: list[Problem] = []
    for _ in range(_TRIES_MAX):
        # The head first: a broker that runs writes the log before it.
        head, files = read_head(disk), complete_files(disk)
        problems = _Verification(disk, head, files).run(files_max)
        if complete_files(disk) == files:
            break
    return problems


class _Verification:
    """One walk along the chain, from the oldest file to the newest."""

    def __init__(self, disk: Disk, head: Head | None, files: list[CompleteFile]) -> None:
        self._disk, self._head, self._files = disk, head, files
        self._problems: list[Problem] = []
        # Of the last line that was passed: its number, and its hash, None where that is not known.
        self._number = 0
        self._previous: str | None = FIRST_HASH

    def run(self, files_max: int | None) -> list[Problem]:
        files, head = self._files, self._head
        if files_max is not None and len(files) > files_max:
            files = files[-files_max:]
            self._number, self._previous = files[0].first - 1, None
        else:
            self._begin()
        for file in files:
            self._require_next(file.first, file.path)
            self._walk(file.path)
        newest = AUDIT_FILE
        if head is not None and head.first not in {file.first for file in files}:
            self._require_next(head.first, newest)
        self._walk(newest)
        path = newest
        if head is not None and head.first in {file.first for file in files}:
            path = complete_path(head.first)
        if lost := lost_since(head, _read_tail(self._disk, path, head)):
            self._problems.append(Problem(path, 0, lost))
        return self._problems

    def _begin(self) -> None:
        """The chain begins with line 1, or behind the lines that the head says were removed with their files."""
        head = self._head or Head()
        first = self._files[0].first if self._files else head.first
        if first > head.removed_lines:
            self._number, self._previous = head.removed_lines, head.removed_hash
        elif first > 1:
            # Between the head and the last of the removals that it names.
            self._number, self._previous = first - 1, None

    def _require_next(self, first: int, path: str) -> None:
        expected = self._number + 1
        removed = self._head or Head()
        if expected < first <= removed.removed_lines + 1:
            # A crash during a removal leaves some of the files.
            is_last = first == removed.removed_lines + 1
            self._previous = removed.removed_hash if is_last else None
        elif first > expected:
            self._problems.append(
                Problem(path, 0, f"lines {expected} to {first - 1}, which come before, are missing")
            )
        elif first < expected:
            self._problems.append(Problem(path, 0, f"it should begin with line {expected}"))
        self._number = first - 1

    def _walk(self, path: str) -> None:
        removed = self._head or Head()
        content = _read(self._disk, path, 0, _size(self._disk, path))
        # What follows the last line end was cut off by a crash before it was answered.
        for line_number, line in enumerate(content.split(b"\n")[:-1], 1):
            self._number += 1
            entry = read_entry(line)
            if entry is None:
                self._add(path, line_number, "it cannot be read")
                continue
            is_linked = self._previous is None or entry.previous == self._previous
            if not is_linked:
                self._add(path, line_number, "the line before it was changed or removed")
            elif sealed(entry).hash != entry.hash:
                self._add(path, line_number, "it was changed")
            elif self._number == removed.removed_lines and entry.hash != removed.removed_hash:
                self._add(path, line_number, f"it is not the one that {HEAD_FILE} says was removed")
            self._previous = entry.hash

    def _add(self, path: str, line: int, text: str) -> None:
        self._problems.append(Problem(path, line, text))


class Place(NamedTuple):
    """A byte of a file, by the number of the file's first line: a name that stays when the file is complete."""

    first: int
    position: int | None = None


class Page(NamedTuple):
    """Lines, newest first, and where the ones before them end; None: there are none."""

    entries: list[Entry]
    before: Place | None


def read_back(disk: Disk, newest: int, place: Place, limit: int) -> Page:
    """At most `limit` lines before a place, newest first. A line that cannot be read is left out.

    `newest` is the number of the first line of the newest file. Of a file that is gone there are no lines.
    """
    entries: list[Entry] = []
    before: Place | None = place
    for _ in range(_BACK_FILES_MAX):
        if before is None or len(entries) >= limit:
            break
        lines, start = _lines_before(disk, newest, before, limit - len(entries))
        entries += [entry for line in reversed(lines) if (entry := read_entry(line)) is not None]
        if start:
            before = Place(before.first, start)
        else:
            first = before.first
            older = [file.first for file in complete_files(disk) if file.first < first]
            before = Place(older[-1]) if older else None
    return Page(entries, before)


def _lines_before(disk: Disk, newest: int, place: Place, limit: int) -> tuple[Sequence[bytes], int]:
    """At most `limit` lines of one file, and the byte at which they begin."""
    path = complete_path(place.first)
    # What is looked for in the newest file may be complete by now.
    is_newest = place.first == newest and not disk.exists(path)
    path = AUDIT_FILE if is_newest else path
    size = _size(disk, path)
    end = size if place.position is None else min(place.position, size)
    start = max(0, end - _BACK_BYTES_MAX)
    content = _read(disk, path, start, end - start)
    if is_newest and disk.exists(complete_path(place.first)):
        # It was completed between the two looks, and what was read may be of the file after it.
        return _lines_before(disk, newest, place, limit)
    # The line that is being written, and the rest of one that begins before.
    content = content[: content.rfind(b"\n") + 1]
    skipped = content.find(b"\n") + 1 if start else 0
    lines = content[skipped:].splitlines(keepends=True)[-limit:]
    return lines, start + len(content) - sum(map(len, lines))
