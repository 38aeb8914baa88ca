"""Batches that a client encoded: checked before anything of them is stored."""

from collections.abc import Sequence
from typing import NamedTuple

from ...codec import HEAD_BYTES, Encoded, Origin, verify
from ...codec.body import Body, Column
from ...codec.decode import due_times, messages_of, open_body
from ...codec.numbers import largest_of
from ...config import LimitsConfig
from ...errors import MalformedBatch, TooLarge
from ...model import Buffer, Message

# What each column of bytes is called, and which limit it has. Keys of delays are refused before.
_LIMITED = {
    Column.KEYS: ("key", "key_bytes_max"),
    Column.VALUES: ("value", "value_bytes_max"),
    Column.IDEMPOTENCY_KEYS: ("idempotency key", "key_bytes_max"),
    Column.HEADER_NAMES: ("header name", "headers_bytes_max"),
    Column.HEADER_VALUES: ("header value", "headers_bytes_max"),
}


class CheckedBatch(NamedTuple):
    """A good batch. With idempotency keys or due times its messages have to be looked at one by one."""

    encoded: Encoded
    messages: Sequence[Message] | None = None
    # Of each message, if any of them may have to wait.
    due_at: Sequence[int] | None = None


def checked_batch(batch: Buffer, limits: LimitsConfig) -> CheckedBatch:
    """A batch of a producer, read. MalformedBatch, TooLarge: nothing of it may be stored."""
    head = verify(batch)
    if len(batch) != head.length:
        raise MalformedBatch(f"{len(batch)} bytes for a batch of {head.length}")
    if head.is_control or head.origin is not Origin.NONE or head.transaction_id:
        raise MalformedBatch("control, origin and transaction marks are not a producer's to set")
    if not head.is_dense or head.message_count == 0:
        raise MalformedBatch("a producer's batch has a message for every offset")
    if (head.producer_id < 0) != (head.producer_epoch < 0) or (head.producer_id < 0) != (
        head.first_sequence < 0
    ):
        raise MalformedBatch("producer id, epoch and sequence come together or not at all")
    if head.length > limits.batch_bytes_max:
        raise TooLarge("batch in bytes", found=head.length, limit=limits.batch_bytes_max)
    body = open_body(batch, head, size_max=limits.batch_bytes_max)
    if Column.DELAY_IDS in body.numbers or Column.DELAY_KEYS in body.blobs:
        raise MalformedBatch("ids and keys of delays are not a producer's to set")
    _check_sizes(body, limits)
    has_idempotency_keys = Column.IDEMPOTENCY_KEYS in body.blobs
    encoded = Encoded(head, [memoryview(batch)[HEAD_BYTES:]], has_idempotency_keys)
    is_delayed = Column.DUE_AT in body.numbers
    if not has_idempotency_keys and not is_delayed:
        return CheckedBatch(encoded)
    messages = messages_of(batch, head, body)
    return CheckedBatch(encoded, messages, due_times(body).tolist() if is_delayed else None)


def _check_sizes(body: Body, limits: LimitsConfig) -> None:
    for column, blobs in body.blobs.items():
        found = 0 if blobs.lengths is None else largest_of(blobs.lengths)
        what, limit_name = _LIMITED[column]
        limit = getattr(limits, limit_name)
        if found > limit:
            raise TooLarge(f"{what} in bytes", found=found, limit=limit)
