"""Batches that were read lately: polls smaller than a batch, and several groups, read and open each one once."""

from bisect import bisect_right
from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from ...codec import Compression, Head
from ...codec.body import Body, Column
from ...codec.decode import expired_among, message_columns, open_body
from ...codec.head import BODY_BYTES_MAX
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
# A look-up goes through them one by one; a group that reads at the end adds one with every batch.
_READS_MAX = 64

# What objects cost, counted with tracemalloc for batches of 1, 10 and 500 messages, with keys and headers and without;
# the sum is within a fifth. A batch of one message of 100 bytes is 240 bytes as it is stored, and 2.5 KiB here.
_BATCH_BYTES = 750
_BODY_BYTES, _BLOB_BYTES = 340, 270
_LISTS_BYTES, _MESSAGE_BYTES, _HEADER_BYTES = 600, 140, 130


class BatchCache:
    """What the caches of all logs hold together, and which part of it was not asked for longest."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.size = bytes_max, 0
        self.newest: _CachedRead | None = None
        self._by_use: OrderedDict[_CachedRead, LogCache] = OrderedDict()

    def add(self, read: "_CachedRead", log_cache: "LogCache") -> None:
        self._by_use[read] = log_cache
        self.newest = read
        self.charge(read.cost())

    def use(self, read: "_CachedRead") -> None:
        """This one was asked for last."""
        self._by_use.move_to_end(read)
        self.newest = read

    def charge(self, size: int) -> None:
        """Count what was made of a batch. Over the limit the oldest reads go, but not the last one."""
        self.size += size
        while self.size > self.bytes_max and len(self._by_use) > 1:
            read, log_cache = next(iter(self._by_use.items()))
            log_cache.remove(read)

    def forget(self, read: "_CachedRead") -> None:
        """A log's cache let go of it."""
        del self._by_use[read]
        if self.newest is read:
            self.newest = None
        self.size -= read.cost()
        for one in read.opened:
            one.cache = None


class CachedBatch:
    """A batch, opened when a reader looks inside; its lists are made when a reader wants messages.

    `cost` is what it takes besides its bytes, and `cache` the one that counts it; None once it is let go.
    """

    __slots__ = ("batch", "cache", "cost", "head", "lists", "parsed")

    def __init__(self, head: Head, batch: memoryview, cache: BatchCache | None = None) -> None:
        self.head, self.batch, self.cache = head, batch, cache
        self.parsed: Body | None = None
        self.lists: MessageColumns | None = None
        self.cost = _BATCH_BYTES

    @property
    def body(self) -> Body:
        if self.parsed is None:
            head = self.head
            # What was within the limits once stays so, whatever the limits are now.
            self.parsed = open_body(self.batch, head, size_max=BODY_BYTES_MAX)
            # Columns of a body that is neither compressed nor Kafka's point into the batch.
            is_plain = head.compression is Compression.NONE and not head.is_verbatim
            unpacked = 0 if is_plain else head.body_size
            self._charge(unpacked + _BODY_BYTES + _BLOB_BYTES * len(self.parsed.blobs))
        return self.parsed

    def columns(self) -> MessageColumns:
        if self.lists is None:
            body = self.body
            self.lists = message_columns(body, self.head)
            objects = _MESSAGE_BYTES * body.count + _HEADER_BYTES * body.header_count
            self._charge(_LISTS_BYTES + self.head.body_size + objects)
        return self.lists

    def _charge(self, size: int) -> None:
        self.cost += size
        if self.cache is not None:
            self.cache.charge(size)

    def expired(self, now_ns: int) -> npt.NDArray[np.int64]:
        """Offsets whose time to live is over."""
        expires_at = self.body.numbers.get(Column.EXPIRES_AT, 0)
        if isinstance(expires_at, int) and not 0 < expires_at <= now_ns:
            return _NONE_LATE
        offsets: npt.NDArray[np.int64] = np.asarray(self.columns().offsets, dtype=np.int64)
        return offsets[expired_among(self.body, now_ns)]


class _CachedRead:
    """What one read brought."""

    __slots__ = ("base_offset", "bases", "next_offset", "opened", "read_bytes", "size")

    def __init__(self, run: Run, cache: BatchCache) -> None:
        self.base_offset, self.next_offset = run.base_offset, run.next_offset
        self.bases: list[int] = []
        self.opened: list[CachedBatch] = []
        # The read may have ended in the middle of a batch.
        self.read_bytes = memoryview(run.data.obj).nbytes
        self.size = 0
        position = 0
        for head in run.heads:
            self.bases.append(head.base_offset)
            batch = run.data[position : position + head.length]
            position += head.length
            self.opened.append(CachedBatch(head, batch, cache))
            self.size += head.length
            if head.compression is not Compression.NONE:
                self.size += head.body_size

    def cost(self) -> int:
        """What it takes in memory, as far as its batches were opened."""
        return self.read_bytes + sum([one.cost for one in self.opened])

    def at(self, offset: int) -> CachedBatch:
        return self.opened[bisect_right(self.bases, offset) - 1]


class LogCache:
    """Reads of one log, least recently used first."""

    def __init__(self, log: Log, cache: BatchCache) -> None:
        self.log, self.has_lanes = log, False
        self._cache = cache
        self._reads: list[_CachedRead] = []
        self._size = 0
        self._reshapes = log.reshapes

    def at(self, offset: int) -> CachedBatch:
        """The batch whose range holds `offset`. DamagedBatch, OffsetOutOfRange: as the log says."""
        if self._reshapes != self.log.reshapes:
            self.clear()
            self._reshapes = self.log.reshapes
        for index in range(len(self._reads) - 1, -1, -1):
            read = self._reads[index]
            if read.base_offset <= offset < read.next_offset:
                if index + 1 < len(self._reads):
                    self._reads.append(self._reads.pop(index))
                if self._cache.newest is not read:
                    self._cache.use(read)
                return read.at(offset)
        bytes_max = _READ_BYTES_WITH_LANES if self.has_lanes else _READ_BYTES
        run = self.log.read(offset, bytes_max=bytes_max)
        read = _CachedRead(run, self._cache)
        self._put(read)
        return read.at(offset)

    def clear(self) -> None:
        """Let go of everything."""
        for read in [*self._reads]:
            self.remove(read)

    def remove(self, read: _CachedRead) -> None:
        """Let go of one read."""
        self._reads.remove(read)
        self._size -= read.size
        self._cache.forget(read)

    def _put(self, read: _CachedRead) -> None:
        self._reads.append(read)
        self._size += read.size
        self._cache.add(read, self)
        size_max = _CACHE_BYTES_WITH_LANES if self.has_lanes else _CACHE_BYTES
        while len(self._reads) > 1 and (self._size > size_max or len(self._reads) > _READS_MAX):
            self.remove(self._reads[0])
