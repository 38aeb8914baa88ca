"""Refusals in the audit log: enough to see which key tries what, and never so many that they fill the disk."""

from collections.abc import Callable
from contextlib import suppress

from ..errors import NoSpace
from .audit import AuditLog

_WINDOW_S = 60.0
# In a window: lines, and of the same kind (a key and a command, or an address without a good key) one.
_LINES_MAX = 60
_SETTLE_S = 10.0


class Refusals:
    """Writes the first refusal of each kind in a minute, up to so many, and how many there were besides."""

    def __init__(self, audit: AuditLog, now: Callable[[], float]) -> None:
        self._audit, self._now = audit, now
        self._until = 0.0
        self._settle_at = 0.0
        self._seen: set[tuple[str, str]] = set()
        self._suppressed = 0

    def note(self, name: str, what: str, where: str) -> None:
        """Count a refusal of a key, by its name, or of an address."""
        self._turn()
        kind = (name, what)
        if kind in self._seen or len(self._seen) >= _LINES_MAX:
            self._suppressed += 1
            return
        self._seen.add(kind)
        self._write(name, what, where)

    def sweep(self) -> None:
        """Now and then: tell of those that got no line, and have the lines synced."""
        self._turn()
        if self._settle_at <= self._now():
            self._settle_at = self._now() + _SETTLE_S
            with suppress(NoSpace):
                self._audit.settle()

    def _turn(self) -> None:
        """Begin a new window if the last one is over."""
        now = self._now()
        if now < self._until:
            return
        self._until = now + _WINDOW_S
        self._seen.clear()
        if self._suppressed:
            where = (
                f"{self._suppressed} more in the last {_WINDOW_S:g} s, without lines of their own"
            )
            self._suppressed = 0
            self._write("penstock", "count refusals", where)

    def close(self) -> None:
        """The last window ends here."""
        self._until = 0.0
        self._turn()

    def _write(self, name: str, what: str, where: str) -> None:
        # On a full disk a refusal is still a refusal.
        with suppress(NoSpace):
            self._audit.write(name, what, where, is_allowed=False)
