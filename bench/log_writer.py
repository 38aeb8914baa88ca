"""A log that many threads append to: how the group commit is measured and tested without a broker above it."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.codec import Encoded
from penstock.errors import Fatal
from penstock.log import AppendResult, Log, SyncPlan
from penstock.ports import Clock
from penstock.runtime.commit import Committer, SyncPoint


class LogWriter:
    """Owns an open log. `append` returns when the batch is as durable as the fsync policy says."""

    def __init__(self, log: Log, committer: Committer, clock: Clock) -> None:
        self._log, self._committer, self._clock = log, committer, clock
        self._point: SyncPoint[SyncPlan] = SyncPoint(log, committer)

    def append(self, encoded: Encoded) -> AppendResult:
        """Write a verified batch. NoSpace: nothing was written, and a later call may succeed."""
        # Not `Committer.failing`: a driver does without it, because to make a generator costs as much as the lock.
        try:
            with self._point.lock:
                self._point.check()
                appended = self._log.append(encoded, now_ns=self._clock.now_ns())
                ticket = self._point.changed()
            if ticket is not None:
                ticket.wait()
        except Fatal as error:
            self._committer.fail(error)
            raise
        return appended

    def sync(self) -> None:
        """Return once everything appended so far is durable, whatever the policy."""
        with self._committer.failing():
            with self._point.lock:
                self._point.check()
                ticket = self._point.draw()
            ticket.wait()

    @contextmanager
    def maintenance(self) -> Iterator[Log]:
        """The log for retention, truncation and whatever else may not meet a sync. Writers wait."""
        with self._committer.failing(), self._point.maintenance():
            self._point.check()
            yield self._log

    def close(self) -> None:
        """Let the threads that wait finish, sync, and give the files back. Calling it again does nothing."""
        with self._committer.failing(), self._point.maintenance():
            if not self._point.is_closed:
                self._point.close()
                if self._committer.failure is None:
                    self._log.close()
