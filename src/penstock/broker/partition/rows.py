"""The messages of a poll in columns: parts of one batch, or of one lane."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import compress
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np
from pyroaring import BitMap64

from ...api.leased import joined_columns
from ...codec import Head, Origin
from ...codec.body import Body, Column
from ...codec.decode import delay_ids, message_rows, offsets_of
from ...delivery.lanes import NORMAL
from ...delivery.offsets import next_of
from ...model import MessageColumns
from .batch_cache import CachedBatch

_MIXED = -1
_priority_of = attrgetter("priority")


class Rows(NamedTuple):
    """Messages in columns, and their priority, _MIXED if it is not one; the rest: see LeasedPart."""

    priority: int
    columns: MessageColumns
    is_bare: bool = False
    delay_ids: Mapping[int, int] = {}


def rows_of(seen: list[CachedBatch], offsets: BitMap64, *, has_delays: bool) -> list[Rows]:
    # Whole batches: passing each message through a generator costs a fifth of the poll.
    found: list[Rows] = []
    for opened in seen:
        head, body = opened.head, opened.body
        count = offsets.range_cardinality(head.base_offset, head.base_offset + head.last_delta + 1)
        if not count:
            continue
        if count == head.message_count == head.last_delta + 1:
            columns = opened.columns()  # All of it: nothing is copied.
        else:
            columns = _some_rows(opened, offsets, count)
        priority = body.numbers.get(Column.PRIORITIES, NORMAL)
        ids = ids_of(body, head) if has_delays else {}
        lane = priority if isinstance(priority, int) else _MIXED
        found.append(Rows(lane, columns, body.is_bare, ids))
    return found


def _some_rows(opened: CachedBatch, offsets: BitMap64, count: int) -> MessageColumns:
    """The rows of a batch whose offsets are wanted, which are so many."""
    head = opened.head
    base, end = head.base_offset, head.base_offset + head.last_delta + 1
    is_dense = head.message_count == end - base
    first = next_of(offsets, base)
    # Neighbours, as most are: no set has to be made for them.
    if is_dense and offsets.contains_range(first, first + count):
        return opened.columns().rows(first - base, first - base + count)
    mine = BitMap64(range(base, end)) & offsets
    if is_dense:
        positions = np.frombuffer(mine.to_array(), dtype=np.int64) - base
        return message_rows(opened.body, opened.head, positions)
    columns = opened.columns()
    mask = [offset in mine for offset in columns.offsets]
    return columns.each(lambda column: list(compress(column, mask)))


def by_priority(found: list[Rows]) -> list[Rows]:
    """The most urgent ones first, each part with one priority; in a lane they stay in their order."""
    if _MIXED not in map(_priority_of, found):
        return sorted(found, key=_priority_of)
    columns = joined_columns([rows.columns for rows in found])
    order = sorted(range(len(columns.offsets)), key=columns.priorities.__getitem__)
    if len(order) > 1:
        columns = columns.each(itemgetter(*order))
    ids = {offset: one for rows in found for offset, one in rows.delay_ids.items()}
    parts, start = [], 0
    while start < len(order):
        lane = columns.priorities[start]
        stop = bisect_right(columns.priorities, lane, start)
        parts.append(Rows(lane, columns.rows(start, stop), delay_ids=ids))
        start = stop
    return parts


def ids_of(body: Body, head: Head) -> dict[int, int]:
    """The ids of the messages of a batch, by offset; nothing unless they come out of the delay log."""
    if head.origin is not Origin.DELAY or not head.message_count:
        return {}
    ids: list[int] = delay_ids(body, head).tolist()
    return dict(zip(offsets_of(body, head), ids, strict=True))
