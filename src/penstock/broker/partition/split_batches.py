"""Batches of a producer of which some messages wait for their time, or repeat an idempotency key.

The batch keeps its whole range of offsets in the message log, as the producer numbered it, and holds the messages
that are stored now; the others leave gaps there. So one append moves the producer's sequence by all of them, and is
the point from which the delayed ones count.
"""

from collections.abc import Sequence

import numpy as np

from ...api.publish import Delayed, Published
from ...codec import Origin
from ...codec.columns import columns_of
from ...codec.edit import select
from .backlog import require_room
from .batches import CheckedBatch
from .delayed_messages import delay_columns
from .partition import Now, Partition
from .publishing import Router, encode_for, without_repeats


def publish_split(
    partition: Partition, batch: CheckedBatch, now: Now, homes: tuple[Sequence[Partition], Router]
) -> Published:
    """Store a batch, all of it or nothing; its first offset.

    OutOfSequence; BacklogFull; TooLarge; NoSpace: nothing was stored.
    """
    (head, messages), due_at = (batch.encoded.head, batch.messages), batch.due_at
    assert messages is not None, "a batch without keys and due times is appended as it is"
    repeat = partition.machine.producers.repeat_of(head)
    if repeat is not None:
        end = repeat.base_offset + repeat.message_count
        return Published(partition.number, repeat.base_offset, True, end)
    fresh = without_repeats(partition, messages, now, homes).fresh
    later = [] if due_at is None else [one for one in fresh if due_at[one] > now.wall_ns]
    is_stored = np.zeros(len(messages), dtype=np.bool_)
    is_stored[list(fresh)] = True
    is_stored[later] = False
    marks, delayed = head.marks, None
    if later and due_at is not None:
        waiting = [Delayed(messages[one], due_at[one]) for one in later]
        delayed = delay_columns(partition, waiting, now)
        partition.make_delay_log(now)
        marks = marks._replace(
            origin=Origin.DECIDED_AT,
            origin_source=partition.delayed.begin_epoch(),
            origin_sequence=partition.delayed.end_offset,
        )
    encoded = encode_for(partition, columns_of(messages), now, limits=partition.limits, marks=marks)
    if not is_stored.all():
        last = encoded.head.last_offset
        encoded = select(encoded.to_bytes(), encoded.head, is_stored, last_offset=last)
    if partition.has_backlog_limit:
        require_room(partition, len(messages), encoded.head.length, is_callers_choice=False)
    if delayed is None:
        return partition.append(encoded, now)
    return partition.append_with_delays(encoded, delayed, now)
