"""When delays are over: from the delay log into the message log, once.

A fired batch says which delayed messages it holds, so that one append is all there is to do: before it nothing has
happened, after it everything has, and a restart reads from the batch itself what it need not do again.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pyroaring import BitMap64

from ..codec import Columns, Head, Marks, Origin, encode, read_head
from ..codec.blobs import Bools
from ..codec.body import Body
from ..codec.decode import offsets_of, open_body
from ..codec.delays import due_times, picked
from ..codec.head import BODY_BYTES_MAX
from ..config import OnDamage
from ..delivery.delay_records import DelaysLost
from ..delivery.dues import Int64s
from ..delivery.offsets import runs_of
from ..errors import Damaged, DamagedBatch
from ..log import Log
from .forwarding import NO_LIMITS
from .partition import Now, Partition

# Bounds how long one step keeps the partition busy, and the size of a batch.
_MESSAGES_A_STEP = 4096
_BYTES_A_STEP = 4 << 20
_READ_BYTES = 1 << 18
# Neighbours closer than this, on the average, are read together.
_NEAR = 4
_LOOK_AHEAD = 64

Row = tuple[Any, ...]
"""Value, key, headers, priority, timestamp, expiry, idempotency key, schema id and first due time."""


def fire(partition: Partition, now: Now) -> int:
    """Deliver what is due, so much of it as is good to do at once. Returns how many; NoSpace: none was."""
    delays = partition.machine.delays
    ids, dues = delays.due(now.wall_ns, _MESSAGES_A_STEP)
    while len(ids):
        damaged: list[int] = []
        rows = _rows(partition, ids, damaged)
        if rows is not None:
            if damaged and partition.config.on_damage is OnDamage.SKIP:
                lost = runs_of(BitMap64(damaged))
                partition.record((DelaysLost(0, partition.delayed.epoch, lost),), now)
            delays.set_aside(
                one for one in ids.tolist() if one not in rows and one in delays.pending
            )
            _append(partition, rows, ids, dues, now)
            return len(rows)
        # Too large together. Fewer of them, the earliest; a single one always goes.
        ids, dues = ids[: max(1, len(ids) // 8)], dues[: max(1, len(dues) // 8)]
    return 0


def _append(
    partition: Partition, rows: dict[int, Row], ids: Int64s, dues: Int64s, now: Now
) -> None:
    if not rows:
        return
    pairs = [pair for pair in zip(ids.tolist(), dues.tolist(), strict=True) if pair[0] in rows]
    chosen = [(*rows[identity], due_ns) for identity, due_ns in pairs]
    values, keys, headers, priorities, timestamps, expiries, idempotency, schemas, first, due = zip(
        *chosen, strict=True
    )
    lowest = min(identity for identity, _ in pairs)
    columns = Columns(
        values=values,
        keys=_unless_all(keys, None),
        headers=_unless_all(headers, ()),
        priorities=priorities,
        timestamps=timestamps,
        expires_at=_expiries(expiries, first, due),
        idempotency_keys=_unless_all(idempotency, None),
        schema_ids=_unless_all(schemas, None),
        delay_ids=[identity - lowest for identity, _ in pairs],
    )
    marks = Marks(
        origin=Origin.DELAY, origin_source=partition.delayed.epoch, origin_sequence=lowest
    )
    encoded = encode(columns, compression=partition.compression, limits=NO_LIMITS, marks=marks)
    partition.append(encoded, now)


def _unless_all(column: Sequence[Any], nothing: object) -> Sequence[Any] | None:
    return None if column.count(nothing) == len(column) else column


def _expiries(
    expiries: Sequence[int | None], first: Sequence[int], due: Sequence[int]
) -> list[int | None] | None:
    """The time to live counts from the due time, also from one that was changed."""
    if _unless_all(expiries, None) is None:
        return None
    moved = zip(expiries, first, due, strict=True)
    return [None if at is None else max(1, at + after - before) for at, before, after in moved]


def _rows(partition: Partition, ids: Int64s, damaged: list[int]) -> dict[int, Row] | None:
    """Messages by id; None if they are too many bytes together. What cannot be read is left out.

    `damaged` is filled with those of them that lie in damaged batches.
    """
    log = partition.delayed.log
    assert log is not None, "something is pending, so there is a log"
    rows: dict[int, Row] = {}
    size = 0
    for head, batch, wanted in _batches(log, np.sort(ids), damaged):
        body = open_body(batch, head, size_max=BODY_BYTES_MAX)
        mask = _mask(body, head, wanted)
        found = picked(body, head, mask)
        size += sum(map(_size, found.values)) + sum(map(_size, found.keys or ()))
        if size > _BYTES_A_STEP and len(ids) > 1:
            return None
        columns = _lists(found)
        firsts = due_times(body)[mask].tolist()
        here = wanted if head.is_dense else _offsets(body, head)[mask]
        rows.update(zip(here.tolist(), zip(*columns, firsts, strict=True), strict=True))
    return rows


def _mask(body: Body, head: Head, wanted: Int64s) -> Bools:
    """Where the wanted ones are in a batch."""
    if not head.is_dense:
        return np.isin(_offsets(body, head), wanted, assume_unique=True)
    mask = np.zeros(body.count, np.bool_)
    mask[wanted - head.base_offset] = True
    return mask


def _offsets(body: Body, head: Head) -> Int64s:
    return np.asarray(offsets_of(body, head), dtype=np.int64)


def _lists(found: Columns) -> tuple[Any, ...]:
    return (
        found.values,
        found.keys,
        found.headers,
        found.priorities,
        found.timestamps,
        found.expires_at,
        found.idempotency_keys,
        found.schema_ids,
    )


def _size(item: bytes | None) -> int:
    return 0 if item is None else len(item)


def _batches(
    log: Log, ids: Int64s, damaged: list[int]
) -> Iterator[tuple[Head, memoryview, Int64s]]:
    """The batches that hold ids, in growing order, each with those that it may hold."""
    start = 0
    while start < len(ids):
        try:
            run = log.read(int(ids[start]), bytes_max=_bytes_to_read(ids, start))
        except DamagedBatch as error:
            if error.next_offset is None:
                return
            following = max(start + 1, int(np.searchsorted(ids, error.next_offset)))
            damaged += ids[start:following].tolist()
            start = following
            continue
        except Damaged:
            return
        position = 0
        while position < len(run.data):
            head = read_head(run.data, position, seed=log.seed)
            end = int(np.searchsorted(ids, head.next_offset))
            if end > start:
                yield head, run.data[position : position + head.length], ids[start:end]
            start, position = max(start, end), position + head.length


def _bytes_to_read(ids: Int64s, start: int) -> int:
    """Much where neighbours are wanted too, one batch where not."""
    last = min(start + _LOOK_AHEAD, len(ids) - 1)
    is_dense = last > start and int(ids[last]) - int(ids[start]) < _NEAR * (last - start)
    return _READ_BYTES if is_dense else 1
