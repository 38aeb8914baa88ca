"""Messages of transactions and of named commits as batches for the staging log, delayed ones among them.

A staged batch is one of messages or one of delayed messages, as its head says.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...api.commits import StageNamed
from ...api.publish import Delayed
from ...api.transactions import Stage
from ...codec import Encoded, Marks, Origin, encode
from ...codec.columns import columns_of
from ...codec.edit import expiring
from ...config import OFF
from ...errors import Refused
from .batches import CheckedBatch
from .delayed_messages import delay_columns, routed_as
from .partition import Now, Partition
from .publishing import Router, encode_for, routed

_MS = 1_000_000


class StagedBatch(NamedTuple):
    """What one call stages in one partition, and which of its messages these are."""

    partition: Partition
    indexes: Sequence[int]
    encoded: Encoded


def batches_to_stage(
    homes: tuple[Sequence[Partition], Router],
    command: Stage | StageNamed,
    marks_in: Callable[[Partition], Marks],
    now: Now,
) -> list[StagedBatch]:
    """One batch for each partition. Refused: messages and delayed ones, or an idempotency key."""
    messages, delayed = command.messages, command.delayed
    if messages and delayed:
        raise Refused("messages are staged at once or delayed, not both in one command")
    contents = messages or [one.message for one in delayed]
    if any(one.idempotency_key for one in contents):
        raise Refused(
            "a message of a transaction or a named commit has no idempotency key: sequences recognise a repeat"
        )
    partitions, router = homes
    chosen = routed(partitions, router, messages or [*map(routed_as, delayed)], command.partition)
    found = []
    for number, indexes in chosen.items():
        partition = partitions[number]
        marks = marks_in(partition)
        if delayed:
            encoded = _encode_delayed(partition, [delayed[one] for one in indexes], marks, now)
        else:
            columns = columns_of([messages[one] for one in indexes])
            encoded = encode_for(partition, columns, now, marks=marks)
        found.append(StagedBatch(partition, indexes, encoded))
    return found


def _encode_delayed(
    partition: Partition, delayed: Sequence[Delayed], marks: Marks, now: Now
) -> Encoded:
    return encode(
        delay_columns(partition, delayed, now),
        compression=partition.compression,
        limits=partition.limits,
        marks=marks._replace(origin=Origin.DELAY),
    )


def client_batch_to_stage(
    partition: Partition, batch: CheckedBatch, now: Now, *, marks: Marks | None = None
) -> Encoded:
    """A batch that a client encoded, with these marks, or with those that it has.

    Refused: an idempotency key, or a due time for some only.
    """
    encoded, messages, due_at = batch
    if encoded.has_idempotency_keys:
        raise Refused(
            "a message of a transaction or a named commit has no idempotency key: sequences recognise a repeat"
        )
    if due_at is not None:
        assert messages is not None, "they were read with their due times"
        delayed = [Delayed(*one) for one in zip(messages, due_at, strict=True)]
        return _encode_delayed(partition, delayed, marks or encoded.head.marks, now)
    encoded = with_time_to_live(partition, encoded, now)
    if marks is None:
        return encoded
    head = encoded.head._replace(
        producer_id=marks.producer_id,
        producer_epoch=marks.producer_epoch,
        first_sequence=marks.first_sequence,
    )
    return Encoded(head, encoded.body, has_idempotency_keys=False)


def with_time_to_live(partition: Partition, encoded: Encoded, now: Now) -> Encoded:
    """The batch, with the time to live of the topic, if it has one."""
    ttl_ms = partition.config.ttl_ms
    if ttl_ms == OFF:
        return encoded
    expires_at, size_max = now.wall_ns + ttl_ms * _MS, partition.limits.batch_bytes_max
    return expiring(encoded, expires_at, size_max=size_max)
