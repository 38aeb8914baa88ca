"""Refuses new messages while there is still room for the state of those already there."""

from collections.abc import Callable, Sequence

from ..errors import NoSpace
from ..model import Message
from ..ports import Disk
from .partition import Now
from .partition.publishing import size_of

NEARLY_FULL = "the disk is nearly full, and new messages are refused"
# Asking the file system costs as much as a small append, so the answer is kept for a while: until it could be
# wrong by 16 MiB of our own doing, or by 100 ms of another program's (a disk writing 1 GB/s: 100 MB).
_RECHECK_BYTES = 16 << 20
_RECHECK_NS = 100 * 1_000_000
# Room that has to be there, above the minimum, before refusing ends: a sixteenth keeps one small deletion from
# opening the door for a handful of messages and closing it again.
_HYSTERESIS = 16


class DiskGuard:
    """Says no with NoSpace below `min_free_bytes` and resumes by itself when space is back.

    Reads, acks and everything else that lets messages go must not ask: they are what frees space.
    """

    def __init__(self, disk: Disk, *, min_free_bytes: int) -> None:
        self._disk, self._min_free_bytes = disk, min_free_bytes
        self._free_bytes = self._admitted_bytes = 0
        # How many bytes may be admitted before the disk is asked again.
        self._safe_bytes = 0
        self._recheck_at_ns = self._refused_bytes = 0
        # Refuses everything; `is_refusing` may also be for what is large, while smaller messages have room.
        self._is_below = False
        self.is_refusing = False
        # Called when refusing begins and when it ends, with the bytes that are free and those that have to be.
        self.on_turn: Callable[[int, int], None] | None = None

    def admit(self, messages: Sequence[Message], now: Now) -> None:
        """Count messages that are to be written, or raise NoSpace."""
        if self._min_free_bytes:
            self.admit_bytes(sum(map(size_of, messages)), now)

    def admit_bytes(self, size: int, now: Now) -> None:
        """Count bytes that are to be written, or raise NoSpace."""
        if not self._min_free_bytes:
            return
        admitted = self._admitted_bytes + size
        is_close = admitted > self._safe_bytes and not self.is_refusing
        # While refusing only time counts: a crowd that is turned away must not ask the disk each time.
        if is_close or now.monotonic_ns >= self._recheck_at_ns:
            self._recheck(now)
            admitted = size
        if self._is_below or self._free_bytes - admitted < self._min_free_bytes:
            room = self._free_bytes - admitted + size - self._min_free_bytes
            self._is_below = self._is_below or room < self._min_free_bytes // _HYSTERESIS
            self._refused_bytes = max(self._refused_bytes, size)
            self._turn(is_refusing=True)
            raise NoSpace(reason=NEARLY_FULL)
        self._admitted_bytes = admitted

    def look(self, now: Now) -> bool:
        """Whether it would refuse anything now. Another program may have filled the disk since the last message."""
        if self._min_free_bytes and now.monotonic_ns >= self._recheck_at_ns:
            self._recheck(now)
        return self._is_below

    def _recheck(self, now: Now) -> None:
        self._free_bytes, self._admitted_bytes = self._disk.free_bytes(), 0
        self._recheck_at_ns = now.monotonic_ns + _RECHECK_NS
        self._safe_bytes = min(self._free_bytes - self._min_free_bytes, _RECHECK_BYTES)
        reserve = self._min_free_bytes // _HYSTERESIS if self._is_below else 0
        room = self._free_bytes - self._min_free_bytes
        self._is_below = room < reserve
        # It is told until there is room for the largest that was refused as well: it will come again.
        self._turn(is_refusing=room < max(reserve, self._refused_bytes))

    def _turn(self, *, is_refusing: bool) -> None:
        if is_refusing is not self.is_refusing:
            self.is_refusing = is_refusing
            if not is_refusing:
                self._refused_bytes = 0
            if self.on_turn is not None:
                self.on_turn(self._free_bytes, self._min_free_bytes)
