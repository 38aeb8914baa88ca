"""Refusals in the audit log: enough to see which key tries what, and never so many that they fill the disk."""

from collections.abc import Callable
from itertools import islice
from typing import Any

from ..api.command import Command
from ..errors import Forbidden, TooManyRequests
from .audit import AuditLog

_WINDOW_S = 60.0
# In a window: lines, and of the same kind (a key and a command, or an address without a good key) one.
_LINES_MAX = 60
_SETTLE_S = 10.0
_TOPICS_NAMED_MAX = 3


class Refusals:
    """Writes the first refusal of each kind in a minute, up to so many, and how many there were besides."""

    def __init__(self, audit: AuditLog, now: Callable[[], float]) -> None:
        self._audit, self._now = audit, now
        self._until = 0.0
        self._settle_at = 0.0
        self._seen: set[tuple[str, str]] = set()
        self._suppressed = 0

    def note(self, name: str, what: str, where: str, client: str) -> None:
        """Count a refusal of a key, by its name, or of an address. `client` is the address in either case."""
        self._turn()
        kind = (name, what)
        if kind in self._seen or len(self._seen) >= _LINES_MAX:
            self._suppressed += 1
            return
        self._seen.add(kind)
        self._write(name, what, where, client)

    def sweep(self) -> None:
        """Now and then: tell of those that got no line, and have the lines synced."""
        self._turn()
        if self._settle_at <= self._now():
            self._settle_at = self._now() + _SETTLE_S
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

    def _write(self, name: str, what: str, where: str, client: str = "") -> None:
        try:
            self._audit.require_room()
        except TooManyRequests:
            self._suppressed += 1
            return
        # It waits for nothing: on a full disk a refusal is still a refusal.
        self._audit.submit(name, what, where, client=client, is_allowed=False)


def topics_of(command: Command[Any], error: Forbidden) -> str:
    """The topic that the refusal of a command names, or else the topics of the command, the first few."""
    named = error.fields.get("topic")
    if named:
        return str(named)
    topics = [*islice(command.topics(), _TOPICS_NAMED_MAX + 1)]
    more = ", ..." if len(topics) > _TOPICS_NAMED_MAX else ""
    return ", ".join(topics[:_TOPICS_NAMED_MAX]) + more
