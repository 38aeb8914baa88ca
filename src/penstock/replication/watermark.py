"""How far the appends of a node are committed: in their order, and for each log."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ..model import Offset


class _Append(NamedTuple):
    sequence: int
    path: str
    next_offset: Offset


class Watermark:
    """Appends that are not committed yet, and the committed ends of logs.

    `sequence` is that of the last append, `committed` that of the last one that no change of leader can take back.
    """

    def __init__(self) -> None:
        self.sequence = self.committed = 0
        self.ends: dict[str, Offset] = {}
        self._pending: deque[_Append] = deque()

    def appended(self, sequence: int, path: str, next_offset: int) -> None:
        """Note an append, or with the sequence of the last one an end that is committed together with it."""
        assert sequence >= self.sequence, "in their order"
        self.sequence = sequence
        self._pending.append(_Append(sequence, path, Offset(next_offset)))

    def advance(self, limit: int, is_durable: Callable[[str, Offset], bool]) -> bool:
        """Commit appends up to `limit` as long as they are durable here. True: something was committed."""
        before, pending = self.committed, self._pending
        while pending and pending[0].sequence <= limit:
            sequence, path, next_offset = pending[0]
            if not is_durable(path, next_offset):
                # Everything before it is committed, and of its own sequence nothing more.
                self.committed = max(before, min(self.committed, sequence - 1))
                return self.committed > before
            pending.popleft()
            self.committed = sequence
            self.ends[path] = max(self.ends.get(path, Offset(0)), next_offset)
        if not pending:
            self.committed = max(self.committed, min(limit, self.sequence))
        return self.committed > before

    def forget(self, path: str) -> None:
        """A log was removed."""
        self.ends.pop(path, None)
        self._pending = deque(one for one in self._pending if one.path != path)
