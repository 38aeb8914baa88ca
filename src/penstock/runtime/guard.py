"""Refuses new messages while there is still room for the state of those already there."""

from ..errors import NoSpace
from ..ports import Clock, Disk

# Asking the file system costs as much as a small append, so the answer is kept for a while: until it could be
# wrong by 16 MiB of our own doing, or by 100 ms of somebody else's (a disk writing 1 GB/s: 100 MB).
RECHECK_BYTES = 16 * 1024 * 1024
RECHECK_NS = 100 * 1_000_000

# Room that has to be there, above the minimum, before refusing ends: a sixteenth keeps one small deletion from
# opening the door for a handful of messages and closing it again.
_HYSTERESIS = 16


class FreeSpaceGuard:
    """Says no with NoSpace below `min_free_bytes` and resumes by itself when space is back.

    Reads, acks and everything else that lets messages go must not ask: they are what frees space. Threads may
    share one; a race only makes the cached figure a little older.
    """

    def __init__(self, disk: Disk, clock: Clock, *, min_free_bytes: int) -> None:
        self._disk, self._clock = disk, clock
        self._min_free_bytes = min_free_bytes
        self._resume_free_bytes = min_free_bytes + min_free_bytes // _HYSTERESIS
        self._is_refusing = False
        self._plenty_bytes = 0
        self._recheck()

    @property
    def is_refusing(self) -> bool:
        """As of the last `admit`; for metrics and health."""
        return self._is_refusing

    @property
    def free_bytes(self) -> int:
        """As of the last look at the disk, less what was admitted since."""
        return self._free_bytes - self._admitted_bytes

    def admit(self, path: str, size: int) -> None:
        """Count `size` bytes that are about to be written to `path`, or raise NoSpace."""
        # On the way of every append: nearly always there is plenty, and somebody looked not long ago.
        if (
            self._admitted_bytes + size <= self._plenty_bytes
            and self._clock.monotonic_ns() - self._checked_ns < RECHECK_NS
        ):
            self._admitted_bytes += size
            return
        if self._is_due(size):
            self._recheck()
        if self._is_refusing or self.free_bytes - size < self._min_free_bytes:
            self._is_refusing, self._plenty_bytes = True, 0
            raise NoSpace(path)
        self._admitted_bytes += size

    def _is_due(self, size: int) -> bool:
        if self._clock.monotonic_ns() - self._checked_ns >= RECHECK_NS:
            return True
        # While refusing only time counts: a crowd that is turned away must not ask the disk each time.
        if self._is_refusing:
            return False
        is_close = self.free_bytes - size < self._min_free_bytes
        return is_close or self._admitted_bytes >= RECHECK_BYTES

    def _recheck(self) -> None:
        self._free_bytes = self._disk.free_bytes()
        self._admitted_bytes = 0
        self._checked_ns = self._clock.monotonic_ns()
        wanted = self._resume_free_bytes if self._is_refusing else self._min_free_bytes
        self._is_refusing = self._free_bytes < wanted
        spare_bytes = 0 if self._is_refusing else self._free_bytes - self._min_free_bytes
        self._plenty_bytes = min(spare_bytes, RECHECK_BYTES)
