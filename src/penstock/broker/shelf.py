"""Batches that were read lately: polls smaller than a batch, and several groups, read and open each one once."""

from bisect import bisect_right
from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from ..codec import Compression, Head, batches_in
from ..codec.body import EXPIRES_AT, Body
from ..codec.decode import message_columns, open_body
from ..codec.head import BODY_BYTES_MAX
from ..codec.numbers import as_array
from ..log import Log, Run
from ..model import MessageColumns

_NONE_LATE = np.empty(0, np.int64)
_READ_BYTES = 256 * 1024
# What lies between the batches of one lane belongs to the others and is wanted soon.
_READ_BYTES_WITH_LANES = 1024 * 1024
# Some batches of the usual 1 MiB; more would only help readers that are far apart.
_SHELF_BYTES = 4 * 1024 * 1024
# Lanes are: each goes through all batches at a speed of its own.
_SHELF_BYTES_WITH_LANES = 16 * 1024 * 1024
# A look-up goes through them one by one; a group that reads at the end adds one with every batch.
_STRETCHES_MAX = 64

# What objects cost, counted with tracemalloc for batches of 1, 10 and 500 messages, with keys and headers and without;
# the sum is within a fifth. A batch of one message of 100 bytes is 240 bytes as it is stored, and 2.5 KiB here.
_BATCH_BYTES = 750
_BODY_BYTES, _BLOB_BYTES = 340, 270
_LISTS_BYTES, _MESSAGE_BYTES, _HEADER_BYTES = 600, 140, 130


class BatchCache:
    """What the shelves of all partitions hold together, and which part of it was not asked for longest."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.size = bytes_max, 0
        self.newest: _Stretch | None = None
        self._by_use: OrderedDict[_Stretch, Shelf] = OrderedDict()

    def add(self, stretch: "_Stretch", shelf: "Shelf") -> None:
        self._by_use[stretch] = shelf
        self.newest = stretch
        self.charge(stretch.cost())

    def use(self, stretch: "_Stretch") -> None:
        """This one was asked for last."""
        self._by_use.move_to_end(stretch)
        self.newest = stretch

    def charge(self, size: int) -> None:
        """Count what was made of a batch. Over the limit the oldest stretches go, but not the last one."""
        self.size += size
        while self.size > self.bytes_max and len(self._by_use) > 1:
            stretch, shelf = next(iter(self._by_use.items()))
            shelf.remove(stretch)

    def forget(self, stretch: "_Stretch") -> None:
        """A shelf let go of it."""
        del self._by_use[stretch]
        if self.newest is stretch:
            self.newest = None
        self.size -= stretch.cost()
        for one in stretch.opened:
            one.cache = None


class Opened:
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
            unpacked = 0 if head.compression is Compression.NONE else head.body_size
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
        expires_at = self.body.number(EXPIRES_AT)
        if isinstance(expires_at, int) and not 0 < expires_at <= now_ns:
            return _NONE_LATE
        times = as_array(expires_at, self.body.count, np.int64)
        is_over = (times != 0) & (times <= now_ns)
        late: npt.NDArray[np.int64] = np.asarray(self.columns().offsets, dtype=np.int64)[is_over]
        return late


class _Stretch:
    """What one read brought."""

    __slots__ = ("base_offset", "bases", "next_offset", "opened", "read_bytes", "size")

    def __init__(self, run: Run, seed: int, cache: BatchCache) -> None:
        self.base_offset, self.next_offset = run.base_offset, run.next_offset
        self.bases: list[int] = []
        self.opened: list[Opened] = []
        # The read may have ended in the middle of a batch.
        self.read_bytes = memoryview(run.data.obj).nbytes
        self.size = 0
        for head, batch in batches_in(run.data, seed=seed, is_verified=True):
            self.bases.append(head.base_offset)
            self.opened.append(Opened(head, batch, cache))
            self.size += head.length
            if head.compression is not Compression.NONE:
                self.size += head.body_size

    def cost(self) -> int:
        return self.read_bytes + sum(one.cost for one in self.opened)

    def at(self, offset: int) -> Opened:
        return self.opened[bisect_right(self.bases, offset) - 1]


class Shelf:
    """Stretches of one log, least recently used first."""

    def __init__(self, log: Log, cache: BatchCache) -> None:
        self.log, self.has_lanes = log, False
        self._cache = cache
        self._stretches: list[_Stretch] = []
        self._reshapes = log.reshapes

    def at(self, offset: int) -> Opened:
        """The batch whose range holds `offset`. DamagedBatch, OffsetOutOfRange: as the log says."""
        if self._reshapes != self.log.reshapes:
            self.clear()
            self._reshapes = self.log.reshapes
        for index in range(len(self._stretches) - 1, -1, -1):
            stretch = self._stretches[index]
            if stretch.base_offset <= offset < stretch.next_offset:
                if index + 1 < len(self._stretches):
                    self._stretches.append(self._stretches.pop(index))
                if self._cache.newest is not stretch:
                    self._cache.use(stretch)
                return stretch.at(offset)
        bytes_max = _READ_BYTES_WITH_LANES if self.has_lanes else _READ_BYTES
        run = self.log.read(offset, bytes_max=bytes_max)
        stretch = _Stretch(run, self.log.seed, self._cache)
        self._put(stretch)
        return stretch.at(offset)

    def clear(self) -> None:
        """Let go of everything."""
        for stretch in [*self._stretches]:
            self.remove(stretch)

    def remove(self, stretch: _Stretch) -> None:
        """Let go of one stretch."""
        self._stretches.remove(stretch)
        self._cache.forget(stretch)

    def _put(self, stretch: _Stretch) -> None:
        self._stretches.append(stretch)
        self._cache.add(stretch, self)
        size = sum(one.size for one in self._stretches)
        size_max = _SHELF_BYTES_WITH_LANES if self.has_lanes else _SHELF_BYTES
        while len(self._stretches) > 1 and (
            size > size_max or len(self._stretches) > _STRETCHES_MAX
        ):
            oldest = self._stretches[0]
            size -= oldest.size
            self.remove(oldest)
