"""Batches that were read lately: polls smaller than a batch, and several groups, read and open each one once."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..codec import Compression, Head, read_head
from ..codec.body import EXPIRES_AT, Body
from ..codec.decode import lists_of, open_body
from ..codec.head import BODY_BYTES_MAX
from ..codec.numbers import as_array
from ..log import Log, Run

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


@dataclass(slots=True)
class Opened:
    """A batch, opened when somebody looks inside; its lists are made when somebody wants messages."""

    head: Head
    batch: memoryview
    parsed: Body | None = None
    lists: tuple[Sequence[Any], ...] | None = None

    @property
    def body(self) -> Body:
        if self.parsed is None:
            # What was within the limits once stays so, whatever the limits are now.
            self.parsed = open_body(self.batch, self.head, size_max=BODY_BYTES_MAX)
        return self.parsed

    def unpacked(self) -> tuple[Sequence[Any], ...]:
        """Columns as lists, in the order of the fields of Message."""
        if self.lists is None:
            self.lists = lists_of(self.body, self.head)
        return self.lists

    def expired(self, now_ns: int) -> npt.NDArray[np.int64]:
        """Offsets whose time to live is over."""
        expires_at = self.body.number(EXPIRES_AT)
        if isinstance(expires_at, int) and not 0 < expires_at <= now_ns:
            return _NONE_LATE
        times = as_array(expires_at, self.body.count, np.int64)
        is_over = (times != 0) & (times <= now_ns)
        late: npt.NDArray[np.int64] = np.asarray(self.unpacked()[-1], dtype=np.int64)[is_over]
        return late


class _Stretch:
    """What one read brought."""

    def __init__(self, run: Run, seed: int) -> None:
        self.base_offset, self.next_offset = run.base_offset, run.next_offset
        self.bases: list[int] = []
        self.opened: list[Opened] = []
        self.size = position = 0
        while position < len(run.data):
            head = read_head(run.data, position, seed=seed)
            self.bases.append(head.base_offset)
            self.opened.append(Opened(head, run.data[position : position + head.length]))
            self.size += head.length
            if head.compression is not Compression.NONE:
                self.size += head.body_size
            position += head.length

    def at(self, offset: int) -> Opened:
        return self.opened[bisect_right(self.bases, offset) - 1]


class Shelf:
    """Stretches of one log, least recently used first."""

    def __init__(self, log: Log) -> None:
        self.log, self.has_lanes = log, False
        self._stretches: list[_Stretch] = []
        self._reshapes = log.reshapes

    def at(self, offset: int) -> Opened:
        """The batch whose range holds `offset`. DamagedBatch, OffsetOutOfRange: as the log says."""
        if self._reshapes != self.log.reshapes:
            self._stretches.clear()
            self._reshapes = self.log.reshapes
        for index in range(len(self._stretches) - 1, -1, -1):
            stretch = self._stretches[index]
            if stretch.base_offset <= offset < stretch.next_offset:
                if index + 1 < len(self._stretches):
                    self._stretches.append(self._stretches.pop(index))
                return stretch.at(offset)
        bytes_max = _READ_BYTES_WITH_LANES if self.has_lanes else _READ_BYTES
        stretch = _Stretch(self.log.read(offset, bytes_max=bytes_max), self.log.seed)
        self._put(stretch)
        return stretch.at(offset)

    def _put(self, stretch: _Stretch) -> None:
        self._stretches.append(stretch)
        size = sum(one.size for one in self._stretches)
        size_max = _SHELF_BYTES_WITH_LANES if self.has_lanes else _SHELF_BYTES
        while len(self._stretches) > 1 and (
            size > size_max or len(self._stretches) > _STRETCHES_MAX
        ):
            size -= self._stretches.pop(0).size
