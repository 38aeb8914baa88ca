"""The audit log of a process that runs: what administrators did and who was refused.

One thread writes. All lines that wait when it looks are written and synced together, and then their commands are
answered. When a file is large or old enough it gets the number of its first line as its name, and a new one begins.
`audit_files` has the files.
"""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Condition, Event, Thread

import msgspec

from ..errors import Internal, NoSpace, PenstockError, TooManyRequests, Unavailable
from ..log.layout import remove_if_there, replace_file
from ..ports import Disk, File
from ..runtime.fatal import exit_process
from .audit_files import (
    AUDIT_FILE,
    HEAD_FILE,
    Entry,
    began_ns,
    complete_files,
    complete_path,
    find_end,
    last_hash,
    sealed,
)
from .audit_settings import AuditSection

LINES_WAITING_MAX = 10_000
_WHERE_MAX = 300
_HOUR_NS = 3_600_000_000_000
_RETRY_MS = 100
_LOGGER = logging.getLogger("penstock")


class _Line:
    """A line that waits for the writer."""

    def __init__(self, who: str, what: str, where: str, client: str, *, is_allowed: bool) -> None:
        self.who, self.what, self.where, self.client = who, what, where[:_WHERE_MAX], client
        self.is_allowed = is_allowed
        # What the command waits for: the sync, or for a refusal only that the line is written.
        self.written: Future[None] = Future()
        # A request that is cancelled does not cancel its line: the command is done.
        self.written.set_running_or_notify_cancel()


class _HeldLine(_Line):
    """A line that comes before its command: the writer waits until the command is done, and knows whether it was."""

    def __init__(self, who: str, what: str, where: str, client: str) -> None:
        super().__init__(who, what, where, client, is_allowed=True)
        self.over = Event()
        self.is_kept = False
        self.settled: Future[None] = Future()

    def end(self, *, is_kept: bool) -> None:
        """Let the writer go on, and wait until a line that is not kept is gone."""
        self.is_kept = is_kept
        self.over.set()
        self.settled.result()


class AuditLog:
    """Open for as long as the process runs; thread-safe. Only its owner may read the files.

    `lost` says what is missing at the end since the head was written, or that the head itself is, and is empty if
    nothing is. The chain goes on from the head even then, so that the gap can be seen for ever.
    """

    def __init__(
        self,
        disk: Disk,
        now_ns: Callable[[], int],
        section: AuditSection | None = None,
        *,
        on_fatal: Callable[[BaseException], None] = exit_process,
    ) -> None:
        """`on_fatal` is called, in the writer's thread, when the disk fails; the log is of no use after that."""
        self.disk, self._now_ns, self._section = disk, now_ns, section or AuditSection()
        self._on_fatal = on_fatal
        self._waiting: list[_Line] = []
        self._is_head_due = self._is_closing = False
        self._changed = Condition()
        self._thread: Thread | None = None
        self._end, self.lost, self._is_settled = find_end(disk)
        # None: it is made with its first line.
        self._file: File | None = disk.open(AUDIT_FILE) if disk.exists(AUDIT_FILE) else None
        self._is_synced, self._can_rotate = self._file is None, True
        if self._file is not None and self._end.size < self._file.size():
            # A line that a crash cut in two was never answered.
            self._file.truncate(self._end.size)
        # Wall time of the first line of the newest file.
        self._began_ns = began_ns(disk)

    @property
    def newest(self) -> int:
        """The number of the first line of the newest file."""
        return self._end.first

    def require_room(self) -> None:
        """TooManyRequests: so many lines wait for the disk that a command which causes one more is refused."""
        if len(self._waiting) >= LINES_WAITING_MAX:
            raise TooManyRequests(
                "lines of the audit log that wait",
                limit=LINES_WAITING_MAX,
                retry_after_ms=_RETRY_MS,
            )

    def submit(
        self, who: str, what: str, where: str, *, client: str = "", is_allowed: bool = True
    ) -> "Future[None]":
        """Have a line written, at any time: commands that are done are never left without theirs.

        The future is done when the line is synced, or for a refusal (not `is_allowed`) when it is written. NoSpace:
        there is no line.
        """
        line = _Line(who, what, where, client, is_allowed=is_allowed)
        self._put(line)
        return line.written

    def write(self, who: str, what: str, where: str, *, client: str = "") -> None:
        """Add a line, and wait until it is synced. NoSpace: there is no line."""
        self.submit(who, what, where, client=client).result()

    def note(self, who: str, what: str, where: str) -> None:
        """Add a line, and wait for nothing. If there is no room for it, the log of the process has it."""

        def tell(written: "Future[None]") -> None:
            if (error := written.exception()) is not None:
                _LOGGER.error(
                    "no line of the audit log for %s, %s, %s: %s", who, what, where, error
                )

        self.submit(who, what, where).add_done_callback(tell)

    @contextmanager
    def noted(self, who: str, what: str, where: str, *, client: str = "") -> Iterator[None]:
        """Inside, the line is on the disk; if what it tells of fails there, it goes again. No other line is written."""
        line = _HeldLine(who, what, where, client)
        self._put(line)
        line.written.result()
        try:
            yield
        except BaseException:
            line.end(is_kept=False)
            raise
        line.end(is_kept=True)

    def settle(self) -> None:
        """Have everything that was written synced soon, and the head name it."""
        with self._changed:
            if self._thread is not None:
                self._is_head_due = True
                self._changed.notify()

    def close(self) -> None:
        """Return when all lines and the head are on the disk, or the disk has no room for them."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        if self._file is not None:
            self._file.close()

    def _put(self, line: _Line) -> None:
        with self._changed:
            if self._is_closing:
                raise Unavailable("the audit log is closed")
            self._waiting.append(line)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="penstock-audit", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        """The writer's thread, until the log is closed."""
        try:
            self._remove_old()
            while self._take_and_write():
                pass
        except BaseException as error:  # No caller is above, and all that wait would wait for ever.
            self._refuse_all(error)
            self._on_fatal(error)

    def _take_and_write(self) -> bool:
        """Write what waits; False when the log is closed and everything is on the disk."""
        with self._changed:
            while not (self._waiting or self._is_head_due or self._is_closing):
                self._changed.wait()
            is_last, self._is_head_due = self._is_closing, False
            # Counted as waiting until they are synced.
            lines = list(self._waiting)
        unsynced: list[_Line] = []
        for line in lines:
            if isinstance(line, _HeldLine):
                self._finish(unsynced)
                self._write_held(line)
            else:
                self._write(line, unsynced)
        self._finish(unsynced)
        with self._changed:
            del self._waiting[: len(lines)]
        if is_last or not lines or any(line.is_allowed for line in lines):
            self._write_head()
        return not is_last or bool(self._waiting)

    def _write(self, line: _Line, unsynced: list[_Line]) -> None:
        try:
            self._rotate_if_due()
            self._append(line)
        except NoSpace as error:
            line.written.set_exception(error.fresh())
        else:
            unsynced.append(line)

    def _finish(self, lines: list[_Line]) -> None:
        """Sync, if one of these lines waits for it, and let their commands go on."""
        if any(line.is_allowed for line in lines):
            self._sync()
        for line in lines:
            line.written.set_result(None)
        lines.clear()

    def _write_held(self, line: _HeldLine) -> None:
        try:
            self._rotate_if_due()
            before = self._end
            self._append(line)
        except NoSpace as error:
            line.written.set_exception(error.fresh())
            return
        self._sync()
        line.written.set_result(None)
        line.over.wait()
        if not line.is_kept:
            self._opened().truncate(before.size)
            self._end, self._is_synced = before, False
        line.settled.set_result(None)

    def _append(self, line: _Line) -> None:
        """Write a line to the newest file. NoSpace: there is none."""
        now_ns, end = self._now_ns(), self._end
        entry = sealed(
            Entry(
                at_ns=str(now_ns),
                who=line.who,
                what=line.what,
                where=line.where,
                client=line.client,
                is_allowed=line.is_allowed,
                previous=end.hash,
                hash="",
            )
        )
        content = msgspec.json.encode(entry) + b"\n"
        self._opened().append(content)
        if not end.size:
            self._began_ns = now_ns
        self._end = msgspec.structs.replace(
            end, size=end.size + len(content), lines=end.lines + 1, hash=entry.hash
        )
        self._is_settled = self._is_synced = False

    def _opened(self) -> File:
        """The newest file. NoSpace: it is missing, and there is no room for it."""
        if self._file is None:
            self._file = self.disk.create(AUDIT_FILE)
            self.disk.sync_directory("")
            # Before the first line: what a power cut leaves of lines that no head knows could be anything.
            self._write_head(is_due=True)
        return self._file

    def _sync(self) -> None:
        if not self._is_synced:
            self._opened().sync()
            self._is_synced = True

    def _rotate_if_due(self) -> None:
        section, end = self._section, self._end
        is_old = section.rotate_hours > 0 and (
            self._now_ns() - self._began_ns >= section.rotate_hours * _HOUR_NS
        )
        if end.size and self._can_rotate and (end.size >= section.rotate_bytes or is_old):
            self._rotate()

    def _rotate(self) -> None:
        """Give the newest file its number, and begin another. NoSpace: the next line tries again."""
        path = complete_path(self._end.first)
        if self.disk.exists(path):
            _LOGGER.error("the audit log begins no new file: there is a %s already", path)
            self._can_rotate = False
            return
        # The head names the last line of this file before there is another.
        self._write_head()
        self.disk.rename(AUDIT_FILE, path)
        # Both names in the directory at once could leave the new file in the place of the old one.
        self.disk.sync_directory("")
        self._opened().close()
        self._file = None
        self._end = msgspec.structs.replace(self._end, size=0, first=self._end.lines + 1)
        self._opened()
        self._remove_old()

    def _remove_old(self) -> None:
        """Remove the oldest files beyond those that are kept. A line says so, and the head knows where they ended."""
        keep, files = self._section.keep_files, complete_files(self.disk)
        if keep < 0 or len(files) <= keep:
            return
        old = files[: len(files) - keep]
        ends = [file.first - 1 for file in files[1:]] + [self._end.first - 1]
        removed = ends[len(old) - 1]
        with suppress(NoSpace):
            if removed > self._end.removed_lines:
                removed_hash = last_hash(self.disk, old[-1].path)
                where = f"lines {old[0].first} to {removed}; the hash of the last is {removed_hash}"
                self._note_removal(where, removed, removed_hash)
            for file in old:
                remove_if_there(self.disk, file.path)
            self.disk.sync_directory("")

    def _note_removal(self, where: str, removed: int, removed_hash: str) -> None:
        """NoSpace: the files have to stay."""
        self._append(_Line("penstock", "remove audit files", where, "", is_allowed=True))
        self._sync()
        end = msgspec.structs.replace(self._end, removed_lines=removed, removed_hash=removed_hash)
        replace_file(self.disk, "", HEAD_FILE, msgspec.json.encode(end) + b"\n")
        self._end, self._is_settled = end, True

    def _write_head(self, *, is_due: bool = False) -> None:
        """Sync what was written, and have the head name it. Without room for it, the head stays behind for now."""
        if self._is_settled and not is_due:
            return
        self._sync()
        with suppress(NoSpace):
            replace_file(self.disk, "", HEAD_FILE, msgspec.json.encode(self._end) + b"\n")
            self._is_settled = True

    def _refuse_all(self, error: BaseException) -> None:
        """Let the commands of all lines go on: each gets an error of its own."""
        with self._changed:
            lines, self._waiting, self._is_closing = self._waiting, [], True
        for line in lines:
            ends = [line.written, line.settled] if isinstance(line, _HeldLine) else [line.written]
            for end in ends:
                if not end.done():
                    end.set_exception(
                        error.fresh() if isinstance(error, PenstockError) else Internal()
                    )
