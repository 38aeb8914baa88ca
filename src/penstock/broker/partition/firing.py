"""When delays are over: from the delay log into the message log, once.

A fired batch says which delayed messages it holds, so that one append is all there is to do: before it nothing has
happened, after it everything has, and a restart reads from the batch itself what it need not do again.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from pyroaring import BitMap64

from ...codec import Marks, Origin, batches_in, encode
from ...codec.columns import without_empty
from ...codec.decode import due_times, message_rows, offsets_of, open_body
from ...codec.head import BODY_BYTES_MAX
from ...config import OnDamage
from ...delivery.delay_records import DelaysLost
from ...delivery.offsets import runs_of
from ...errors import Damaged, DamagedBatch
from ...log import Log, Run
from ...model import MessageColumns
from .delay_prefetch import Row, rows_from
from .forwarding import NO_LIMITS
from .partition import Now, Partition

# These three bound how long one step keeps the partition busy, and the size of a batch.
_MESSAGES_A_STEP = 4096
_BYTES_A_STEP = 4 << 20
_BYTES_READ_A_STEP = 32 << 20
# Behind a message that is due the log is read on while the next one is due soon too: first a little, then more.
_READ_ON_BYTES = 1 << 12
_READ_BYTES = 1 << 18


class _Due(NamedTuple):
    """A message that is due, as it was read."""

    id: int
    due_ns: int
    row: Row


def fire(partition: Partition, now: Now) -> int:
    """Deliver what is due, so much of it as is good to do at once. Returns how many; NoSpace: none was."""
    delays, prefetch = partition.machine.delays, partition.prefetch
    ids, dues = delays.due(now.wall_ns, _MESSAGES_A_STEP)
    if not len(ids):
        return 0
    prefetch.look_ahead(delays, int(dues[-1]))
    found: list[_Due] = []
    unreadable: list[int] = []
    damaged, filled = BitMap64(), BitMap64()
    size = size_read = 0
    for identity, due_ns in zip(ids.tolist(), dues.tolist(), strict=True):
        if identity not in prefetch.rows and identity not in damaged:
            if size_read > _BYTES_READ_A_STEP:
                break
            try:
                size_read += _read(partition, identity)
            except DamagedBatch as error:
                if error.next_offset is not None:
                    first = identity if error.offset is None else min(identity, error.offset)
                    damaged.add_range(first, max(identity + 1, error.next_offset))
            except Damaged:
                pass
            else:
                if identity not in prefetch.rows and _is_filled(partition, identity):
                    filled.add(identity)
        row = prefetch.rows.get(identity)
        if row is None:
            unreadable.append(identity)
            continue
        size += row[-1]
        if size > _BYTES_A_STEP and found:
            break
        found.append(_Due(identity, due_ns, row))
    lost = filled
    if partition.config.on_damage is OnDamage.SKIP:
        lost |= damaged & BitMap64(unreadable)
    if lost:
        partition.record((DelaysLost(0, partition.delayed.epoch, runs_of(lost)),), now)
    delays.set_aside(one for one in unreadable if one in delays.pending)
    if found:
        _append(partition, found, now)
        prefetch.remove(one.id for one in found)
    return len(found)


def _append(partition: Partition, due: Sequence[_Due], now: Now) -> None:
    """Append messages as one batch that says which delayed messages they were."""
    *columns, firsts, _ = zip(*(one.row for one in due), strict=True)
    found = MessageColumns(*columns)
    # The time to live counts from the due time, also from one that was changed.
    times = zip(found.expires_at, firsts, (one.due_ns for one in due), strict=True)
    moved = [None if at is None else max(1, at + after - before) for at, before, after in times]
    lowest = min(one.id for one in due)
    fired = replace(
        without_empty(found._replace(expires_at=moved)),
        delay_ids=[one.id - lowest for one in due],
    )
    marks = Marks(
        origin=Origin.DELAY, origin_source=partition.delayed.epoch, origin_sequence=lowest
    )
    encoded = encode(fired, compression=partition.compression, limits=NO_LIMITS, marks=marks)
    partition.append(encoded, now)


def _read(partition: Partition, identity: int) -> int:
    """Prefetch a message, and with it what lies in its batch, or behind it, and is due soon too.

    Returns how many bytes were read. Damaged: the message could not be.
    """
    log, delays, prefetch = partition.delayed.log, partition.machine.delays, partition.prefetch
    assert log is not None, "something is pending, so there is a log"
    run = log.read(identity, bytes_max=1)
    rows, size, bytes_max = _rows(partition, log, run), len(run.data), _READ_ON_BYTES
    with suppress(Damaged):
        while size < _READ_BYTES and delays.is_due_before(prefetch.until_ns, run.next_offset):
            run = log.read(run.next_offset, bytes_max=bytes_max)
            rows |= _rows(partition, log, run)
            size, bytes_max = size + len(run.data), bytes_max * 4
    prefetch.add(rows)
    return size


def _is_filled(partition: Partition, identity: int) -> bool:
    """Whether the batch at the place of a pending message is whole and does not have it.

    Clearing keeps what is pending, so a repair has put an empty range there, and told that it is lost.
    """
    log = partition.delayed.log
    assert log is not None, "something is pending, so there is a log"
    run = log.read(identity, bytes_max=1)
    for head, batch in batches_in(run.data, seed=log.seed):
        if head.base_offset <= identity < head.next_offset:
            body = open_body(batch, head, size_max=BODY_BYTES_MAX)
            return not head.message_count or identity not in offsets_of(body, head)
    return False


def _rows(partition: Partition, log: Log, run: Run) -> dict[int, Row]:
    """The messages of batches that are due soon and were not prefetched before, by id."""
    delays, prefetch = partition.machine.delays, partition.prefetch
    rows: dict[int, Row] = {}
    for head, batch in batches_in(run.data, seed=log.seed):
        due = delays.due_before(prefetch.until_ns, head.base_offset, head.next_offset)
        wanted = np.array([one for one in due if one not in prefetch.rows], np.int64)
        if not len(wanted):
            continue
        body = open_body(batch, head, size_max=BODY_BYTES_MAX)
        places = wanted - head.base_offset
        if not head.is_dense:
            places = np.flatnonzero(np.isin(offsets_of(body, head), wanted, assume_unique=True))
        columns = message_rows(body, head, places)
        first_dues = due_times(body)[places].tolist()
        rows.update(zip(columns.offsets, rows_from(columns, first_dues), strict=True))
    return rows
