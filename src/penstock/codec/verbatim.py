"""Encoding 1: a record batch of Kafka as its producer sent it, behind a head of ours.

The head says of it what it says of every batch, so a log, a broker and retention need no more than that. The body is
the record batch, from its base offset to its last record, compressed as it came; `body size` counts the header and the
records once they are unpacked. Kafka's consumers get the same bytes back, with the offset and the epoch of the log
written over those two fields, which Kafka's checksum leaves out. All other readers get columns.
"""

import struct

from ..errors import MalformedBatch, TooLarge
from ..model import Buffer, Priority
from .body import Body
from .encode import Encoded, with_head
from .head import ALIGNMENT, ENCODING_KAFKA, HEAD_BYTES, Head
from .kafka_compression import unpack
from .kafka_header import HEADER_BYTES, KafkaHeader, read_header
from .kafka_records import Records, read_records

_MS = 1_000_000
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12
# From the base offset to behind the epoch.
_PLACE_BYTES = 16
# Of a batch, without the records.
_AROUND_BYTES = HEAD_BYTES + HEADER_BYTES + ALIGNMENT


def records_of(header: KafkaHeader, batch: memoryview, *, size_max: int) -> Records:
    """Returns the records of a batch, checked. MalformedBatch. TooLarge: a batch of ours would be over `size_max`."""
    stored = batch[HEADER_BYTES:]
    data = unpack(stored, header.packing, size_max=max(0, size_max - _AROUND_BYTES))
    return read_records(data, header)


def is_faithful(header: KafkaHeader, records: Records) -> bool:
    """Whether the header says of the records what a reader takes from it: if not, they are stored as columns."""
    return header.is_plain and records.first_ms > 0 and records.last_ms == header.max_timestamp


def keep_verbatim(header: KafkaHeader, batch: Buffer, records: Records) -> Encoded:
    """Returns a faithful record batch with a head around it."""
    marks = header.marks
    return with_head(
        [batch],
        (records.first_ms * _MS, records.last_ms * _MS, header.last_delta),
        marks,
        encoding=ENCODING_KAFKA,
        sizes=(len(batch), HEADER_BYTES + len(records.data)),
        message_count=header.record_count,
        compression=header.compression,
        priorities=1 << Priority.NORMAL,
        has_idempotency_keys=False,
    )


def open_verbatim(stored: memoryview, head: Head) -> Body:
    """Returns the columns of a stored record batch. MalformedBatch."""
    header = read_header(stored)
    size = head.body_size - HEADER_BYTES
    if size < 0:
        raise MalformedBatch(f"body size {head.body_size} for a record batch")
    try:
        data = unpack(stored[HEADER_BYTES:], header.packing, size_max=size)
    except TooLarge as error:
        raise MalformedBatch(f"body size {head.body_size}: {error}") from None
    if len(data) != size:
        raise MalformedBatch(f"body size {head.body_size}, unpacked {HEADER_BYTES + len(data)}")
    records = read_records(data, header)
    _check_against_head(header, records, head)
    return records.body()


def _check_against_head(header: KafkaHeader, records: Records, head: Head) -> None:
    """MalformedBatch: the head contradicts the record batch. Fields of the head are used without opening it."""
    if not is_faithful(header, records):
        raise MalformedBatch("a record batch that should have been stored as columns")
    if (head.message_count, head.last_delta) != (header.record_count, header.last_delta):
        raise MalformedBatch(f"{head.message_count} messages, {header.record_count} records")
    if (head.base_timestamp, head.max_timestamp) != (records.first_ms * _MS, records.last_ms * _MS):
        raise MalformedBatch("the timestamps are not the head's")
    if head.marks != header.marks:
        raise MalformedBatch("the producer is not the head's")
    if head.priorities != 1 << Priority.NORMAL or head.compression is not header.compression:
        raise MalformedBatch("priorities or compression are not the head's")


def as_fetched(batch: memoryview, head: Head) -> tuple[Buffer, Buffer]:
    """Returns the record batch of a stored batch, in two pieces: its place in the log, and the rest as it is stored."""
    end = HEAD_BYTES + head.stored_size
    place = bytearray(batch[HEAD_BYTES : HEAD_BYTES + _PLACE_BYTES])
    _BASE_OFFSET.pack_into(place, 0, head.base_offset)
    _LEADER_EPOCH.pack_into(place, _LEADER_EPOCH_AT, head.epoch)
    return place, batch[HEAD_BYTES + _PLACE_BYTES : end]
