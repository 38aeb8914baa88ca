"""Batches that were read lately: polls smaller than a batch, and several groups, read and open each one once."""

from bisect import bisect_right, insort
from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from ...codec import Head
from ...codec.body import Column
from ...codec.decode import expired_among, message_columns, open_body
from ...codec.head import BODY_BYTES_MAX, ENCODING_KAFKA
from ...log import Log, Run
from ...model import MessageColumns

_NONE_LATE = np.empty(0, np.int64)
_READ_BYTES = 256 * 1024
# What lies between the batches of one lane belongs to the others and is wanted soon.
_READ_BYTES_WITH_LANES = 1024 * 1024
# Some batches of the usual 1 MiB; more would only help readers that are far apart.
_CACHE_BYTES = 4 * 1024 * 1024
# Lanes are: each goes through all batches at a speed of its own.
_CACHE_BYTES_WITH_LANES = 16 * 1024 * 1024
# A group that reads at the end adds one with every batch, and seldom comes back to it.
_READS_MAX = 64

# What objects cost, counted with tracemalloc for batches of 1, 10 and 500 messages, with keys and headers and without;
# the sum is within a fifth. A batch of one message of 100 bytes is 240 bytes as it is stored, and 2.5 KiB here.
_BATCH_BYTES = 750
_OPENED_BYTES, _BLOB_BYTES = 940, 270
_MESSAGE_BYTES, _HEADER_BYTES = 140, 130


class BatchCache:
    """What the caches of all logs hold together, and which part of it was not asked for longest."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.size = bytes_max, 0
        self.newest: _CachedRead | None = None
        self._by_use: OrderedDict[_CachedRead, LogCache] = OrderedDict()

    def add(self, read: "_CachedRead", log_cache: "LogCache") -> None:
        self._by_use[read] = log_cache
        self.newest = read
        self.size += read.cost

    def use(self, read: "_CachedRead") -> None:
        """This one was asked for last."""
        self._by_use.move_to_end(read)
        self.newest = read

    def shrink(self) -> None:
        """Over the limit the oldest reads go, but not the newest."""
        while self.size > self.bytes_max and len(self._by_use) > 1:
            oldest, log_cache = next(iter(self._by_use.items()))
            log_cache.remove(oldest)

    def forget(self, read: "_CachedRead") -> None:
        """A log's cache let go of it."""
        if self._by_use.pop(read, None) is None:
            return
        if self.newest is read:
            self.newest = None
        self.size -= read.cost


class CachedBatch:
    """A batch that was opened; its lists are made when a reader wants messages.

    `cost` is what it takes besides its bytes as stored, with the lists, which nearly all readers want.
    """

    __slots__ = ("_lists", "body", "cost", "head")

    def __init__(self, head: Head, batch: memoryview) -> None:
        self.head = head
        # What was within the limits once stays so, whatever the limits are now.
        self.body = body = open_body(batch, head, size_max=BODY_BYTES_MAX)
        self._lists: MessageColumns | None = None
        objects = _MESSAGE_BYTES * body.count + _HEADER_BYTES * body.header_count
        # What decompressing added, or making columns of records, and the values that it is cut into.
        is_unpacked = head.encoding == ENCODING_KAFKA
        opened = head.body_size if is_unpacked else max(0, head.body_size - head.length)
        contents = opened + head.body_size
        self.cost = _OPENED_BYTES + _BLOB_BYTES * len(body.blobs) + objects + contents

    def columns(self) -> MessageColumns:
        if self._lists is None:
            self._lists = message_columns(self.body, self.head)
        return self._lists

    def expired(self, now_ns: int) -> npt.NDArray[np.int64]:
        """Offsets whose time to live is over."""
        expires_at = self.body.numbers.get(Column.EXPIRES_AT, 0)
        if isinstance(expires_at, int) and not 0 < expires_at <= now_ns:
            return _NONE_LATE
        offsets: npt.NDArray[np.int64] = np.asarray(self.columns().offsets, dtype=np.int64)
        return offsets[expired_among(self.body, now_ns)]


class _CachedRead:
    """What one read brought. A batch of it is opened when a reader asks for it."""

    __slots__ = ("bases", "cost", "next_offset", "opened", "run", "size", "starts")

    def __init__(self, run: Run) -> None:
        self.run, self.next_offset = run, run.next_offset
        # The first offset of each batch, and where it begins.
        self.bases: list[int] = []
        self.starts: list[int] = []
        start = 0
        for head in run.heads:
            self.bases.append(head.base_offset)
            self.starts.append(start)
            start += head.length
        self.opened: dict[int, CachedBatch] = {}
        # The read may have ended in the middle of a batch.
        self.size = memoryview(run.data.obj).nbytes
        self.cost = self.size + _BATCH_BYTES * len(run.heads)


class LogCache:
    """Reads of one log, by the first offset of each."""

    def __init__(self, log: Log, cache: BatchCache) -> None:
        self.log, self.has_lanes = log, False
        self._cache = cache
        # Least recently used first, and the same offsets in their order.
        self._reads: OrderedDict[int, _CachedRead] = OrderedDict()
        self._firsts: list[int] = []
        self._size = 0
        self._reshapes = log.reshapes

    def at(self, offset: int) -> CachedBatch:
        """The batch whose range holds `offset`. DamagedBatch, OffsetOutOfRange: as the log says."""
        if self._reshapes != self.log.reshapes:
            self.clear()
            self._reshapes = self.log.reshapes
        place = bisect_right(self._firsts, offset) - 1
        read = self._reads[self._firsts[place]] if place >= 0 else None
        if read is None or offset >= read.next_offset:
            bytes_max = _READ_BYTES_WITH_LANES if self.has_lanes else _READ_BYTES
            read = _CachedRead(self.log.read(offset, bytes_max=bytes_max))
            self._reads[read.bases[0]] = read
            insort(self._firsts, read.bases[0])
            self._size += read.size
            self._cache.add(read, self)
            size_max = _CACHE_BYTES_WITH_LANES if self.has_lanes else _CACHE_BYTES
            while len(self._reads) > 1 and (self._size > size_max or len(self._reads) > _READS_MAX):
                self.remove(next(iter(self._reads.values())))
        elif self._cache.newest is not read:
            self._reads.move_to_end(read.bases[0])
            self._cache.use(read)
        number = bisect_right(read.bases, offset) - 1
        opened = read.opened.get(number)
        if opened is None:
            head, start = read.run.heads[number], read.starts[number]
            opened = CachedBatch(head, read.run.data[start : start + head.length])
            read.opened[number] = opened
            read.cost += opened.cost
            self._cache.size += opened.cost
            if self._cache.size > self._cache.bytes_max:
                self._cache.shrink()
        return opened

    def clear(self) -> None:
        """Let go of everything, also of what a Ctrl-C has left half known."""
        for read in self._reads.values():
            self._cache.forget(read)
        self._reads.clear()
        self._firsts.clear()
        self._size = 0

    def remove(self, read: _CachedRead) -> None:
        """Let go of one read."""
        del self._reads[read.bases[0]]
        self._firsts.remove(read.bases[0])
        self._size -= read.size
        self._cache.forget(read)
