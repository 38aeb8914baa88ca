"""A log that many threads append to."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from ..codec import Encoded
from ..errors import Fatal, PenstockError, Unavailable
from ..log import Appended, Log, SyncPlan
from ..log.segment import Segment
from ..model import Offset
from ..ports import Clock
from .commit import Committer, SyncPoint
from .guard import FreeSpaceGuard


class LogWriter:
    """Owns an open log. `append` returns when the batch is as durable as the fsync policy says."""

    def __init__(self, log: Log, committer: Committer, guard: FreeSpaceGuard, clock: Clock) -> None:
        self._log, self._committer, self._guard, self._clock = log, committer, guard, clock
        self._point: SyncPoint[SyncPlan] = SyncPoint(
            log, committer, unsynced_bytes_max=log.config.segment_size_bytes
        )
        self._is_broken = False

    def append(self, encoded: Encoded) -> Appended:
        """Write a verified batch. NoSpace: nothing was written, and a later call may succeed.

        Any other error leaves open whether the batch will be there after a restart.
        """
        log, point, head = self._log, self._point, encoded.head
        try:
            with point.lock:
                if self._committer.failure or point.is_closed or self._is_broken:
                    self._refuse()
                self._guard.admit(log.directory, head.length)
                active, end_offset, append_time = log.segments[-1], log.end_offset, log.append_time
                size = active.size
                try:
                    appended = log.append(encoded, now_ns=self._clock.now_ns())
                    ticket = point.changed(head.length)
                except PenstockError:
                    raise
                except BaseException:
                    self._undo(active, size, end_offset, append_time)
                    raise
        except Fatal as error:
            self._committer.fail(error)
            raise
        if ticket is not None:
            ticket.wait()
        return appended

    def sync(self) -> None:
        """Return once everything appended so far is durable, whatever the policy."""
        with self._committer.failing():
            with self._point.lock:
                self._check()
                ticket = self._point.draw()
            ticket.wait()

    @contextmanager
    def locked(self) -> Iterator[Log]:
        """The log between two appends, for reading. Be quick: writers wait."""
        with self._point.lock:
            self._check()
            yield self._log

    @contextmanager
    def maintenance(self) -> Iterator[Log]:
        """The log for retention, truncation and whatever else may not meet a sync. Writers wait."""
        with self._committer.failing(), self._point.maintenance():
            self._check()
            try:
                yield self._log
            except PenstockError:
                raise
            except BaseException:
                self._is_broken = True
                raise

    def close(self) -> None:
        """Let those who wait finish, sync, and give the files back. Calling it again does nothing."""
        with self._committer.failing(), self._point.maintenance():
            if self._point.is_closed:
                return
            self._point.close()
            if not self._is_broken and self._committer.failure is None:
                self._log.close()

    def _check(self) -> None:
        if self._committer.failure or self._point.is_closed or self._is_broken:
            self._refuse()

    def _refuse(self) -> NoReturn:
        self._point.check()
        raise Unavailable("a change of the log was interrupted; open it again")

    def _undo(self, active: Segment, size: int, end_offset: Offset, append_time: int) -> None:
        """Take an interrupted append back: a Ctrl-C may have come between any two steps of it."""
        # Stays so if the next Ctrl-C comes before we are done.
        self._is_broken = True
        log = self._log
        last = log.segments[-1]
        last.size = min(last.size, size if last is active else 0)
        last.loaded = None
        last.file.truncate(last.size)
        log.end_offset, log.append_time = end_offset, append_time
        log.changed_directory()
        self._point.changed(0)
        self._is_broken = False
