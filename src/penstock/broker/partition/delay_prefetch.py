"""Delayed messages that are kept in memory for a moment, because they lie in one batch with one that was due.

A batch of the delay log is read and opened as a whole, and what lies in it may be due at any time. So everything of it
that is due soon is kept: then each batch is read once for all of them and not once for each. How soon depends on how
much is due: no more is read ahead than fits.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...delivery.delays import Delays
from ...model import MessageColumns

# Of all partitions together, and of one of them: some 30,000 messages of 100 bytes.
_CACHE_BYTES_MAX = 32 << 20
_BYTES_MAX = 16 << 20
# What is due later than that would only take memory.
_AHEAD_NS = 120_000_000_000
# What the objects of a message cost besides its bytes.
_ROW_BYTES = 400
_HEADER_BYTES = 130

Row = tuple[Any, ...]
"""The fields of a message, in the order of Message; its first due time; its size in memory."""


class PrefetchCache:
    """What the prefetches of all partitions hold together: at most `bytes_max`, and one batch of the delay log."""

    def __init__(self, bytes_max: int = _CACHE_BYTES_MAX) -> None:
        self.bytes_max, self.size = bytes_max, 0
        self._by_use: OrderedDict[Prefetch, None] = OrderedDict()

    def share(self) -> int:
        """How many bytes each of those that hold something should hold at the most."""
        return min(_BYTES_MAX, self.bytes_max // max(1, len(self._by_use)))

    def charge(self, prefetch: "Prefetch", size: int) -> None:
        """Count what a prefetch has read. Over the limit the one that read longest ago is emptied."""
        self.size += size
        self._by_use[prefetch] = None
        self._by_use.move_to_end(prefetch)
        while self.size > self.bytes_max and len(self._by_use) > 1:
            next(iter(self._by_use)).clear()

    def release(self, prefetch: "Prefetch", size: int) -> None:
        """Count what a prefetch let go of."""
        self.size -= size
        if not prefetch.rows:
            self._by_use.pop(prefetch, None)


class Prefetch:
    """Delayed messages of one partition by id, until they fire. Whatever is due before `until_ns` is worth keeping."""

    def __init__(self, cache: PrefetchCache) -> None:
        self.rows: dict[int, Row] = {}
        self.size = self.until_ns = 0
        self._cache, self._bytes_max, self._needed_ns = cache, _BYTES_MAX, 0
        # Of those that were read lately.
        self._mean_size = 1024

    def look_ahead(self, delays: Delays, last_due_ns: int) -> None:
        """Messages to `last_due_ns` are needed: choose how far to read ahead, if that is beyond what was chosen."""
        self._needed_ns = last_due_ns + 1
        if self._needed_ns <= self.until_ns:
            return
        self._bytes_max = self._cache.share()
        horizon_ns = delays.wheel.horizon_ns(self._bytes_max // self._mean_size)
        self.until_ns = max(self._needed_ns, min(horizon_ns, last_due_ns + _AHEAD_NS))
        self.trim(delays)

    def trim(self, delays: Delays) -> None:
        """Let go of what was cancelled since, or is to come later than it was."""
        self.remove([one for one in self.rows if not delays.is_due_before(self.until_ns, one)])

    def add(self, rows: Mapping[int, Row]) -> None:
        """Keep messages by id. If they are too many with those that are there already, those go, and no more is read
        ahead of what is needed now."""
        size = sum(row[-1] for row in rows.values())
        if self.size + size > self._bytes_max:
            self.clear()
            self.until_ns = self._needed_ns
        if rows:
            self._mean_size = size // len(rows)
        self.rows.update(rows)
        self.size += size
        self._cache.charge(self, size)

    def remove(self, ids: Iterable[int]) -> None:
        """Let go of messages that fired, as far as they are still here."""
        gone = [row for one in ids if (row := self.rows.pop(one, None)) is not None]
        size = sum(row[-1] for row in gone)
        self.size -= size
        self._cache.release(self, size)

    def clear(self) -> None:
        """Let go of everything."""
        size, self.size, self.until_ns = self.size, 0, 0
        self.rows = {}
        self._cache.release(self, size)


def rows_from(columns: MessageColumns, first_dues: Sequence[int]) -> list[Row]:
    """Messages with their first due times and their sizes in memory."""
    sizes = [
        _ROW_BYTES + len(value or b"") + len(key or b"") + len(idempotency_key or b"")
        for value, key, idempotency_key in zip(
            columns.values, columns.keys, columns.idempotency_keys, strict=True
        )
    ]
    if any(columns.headers):
        of_headers = (
            sum(len(name) + len(value or b"") + _HEADER_BYTES for name, value in pairs)
            for pairs in columns.headers
        )
        sizes = [one + more for one, more in zip(sizes, of_headers, strict=True)]
    return [*zip(*columns, first_dues, sizes, strict=True)]
