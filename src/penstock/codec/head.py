"""The head of a batch: 112 bytes, little-endian, everything that a log has to know and a broker may stamp.

     0  u32  magic            "PNSB"
     4  u32  length           whole batch, head and padding included; a multiple of 8
     8  u8   version          2; 1 is read, too
     9  u8   encoding         0 columnar; 1 a record batch of Kafka as it came
    10  u16  attributes       bits 0-2 compression, 3 control, 4-5 origin kind,
                              6-10 priorities present, 11-13 padding bytes at the end, 14-15 zero
    12  u32  message count    0 only where compaction left an empty range
    16  i64  base offset      first offset of the range that this batch stands for
    24  u32  last delta       last offset of the range minus base offset
    28  u32  unsynced         base offset minus the log's durable end when this batch was written
    32  u32  epoch
    36  u32  body size        bytes of the body once decompressed
    40  i64  append time      broker's wall clock in ns; never decreases inside a log
    48  i64  base timestamp   smallest message timestamp
    56  i64  max timestamp    largest message timestamp
    64  i64  producer id      -1 none
    72  i32  producer epoch   -1 none
    76  i32  first sequence   -1 none
    80  u64  transaction id   0 none
    88  u64  origin source    \\ delay: 0 and delay id; outbox: source partition, or schedule, and sequence;
    96  u64  origin sequence  /  decided at: epoch and offset of the message log's end
   104  u32  body checksum    CRC32C of the stored body, padding not included
   108  u32  head checksum    CRC32C of bytes 0..107, seeded with the log's id

`unsynced` settles what a broken batch means after a crash. If a later batch is whole and was written when the
broken one was durable already, the disk damaged it; otherwise it was torn, and no client was told that it is durable.
"""

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from ..errors import ChecksumMismatch, MalformedBatch, Refused, UnsupportedFormat
from ..model import PRODUCER_NONE, Buffer
from .checksum import SEED_IN_TRANSIT, checksum
from .compression import Compression

HEAD_BYTES = 112
ALIGNMENT = 8
MAGIC = 0x42534E50  # b"PNSB"
VERSION = 2
# What a batch of version 1 holds, one of version 2 would hold by the same bytes.
_VERSIONS = (1, 2)
ENCODING_COLUMNAR = 0
# The body is a record batch of Kafka: see verbatim.py.
ENCODING_KAFKA = 1

# Every message costs at least an entry in some decoded array: this bounds what a forged count can ask for.
COUNT_MAX = 1 << 18
# Arrow counts the bytes of a column in i32.
BODY_BYTES_MAX = (1 << 31) - 1
OFFSET_MAX = (1 << 63) - 1
UNSYNCED_MAX = (1 << 32) - 1

CONTROL = 1 << 3
COMPRESSION_MASK = 0b111
ORIGIN_SHIFT = 4
PRIORITIES_SHIFT = 6
PADDING_SHIFT = 11
PADDING_MASK = 0b111 << PADDING_SHIFT
_RESERVED_MASK = 0b11 << 14
# The bits of the attributes that say where a batch came from, and which priorities occur.
KINDS = 0b11 << ORIGIN_SHIFT | 0b11111 << PRIORITIES_SHIFT
_COMPRESSIONS = tuple(Compression)
_COMPRESSION_MAX = int(max(Compression))

_FIELDS = struct.Struct("<IIBBHIqIIIIqqqqiiQQQI")
_CHECKSUM = struct.Struct("<I")
HEAD = struct.Struct("<IIBBHIqIIIIqqqqiiQQQII")
assert HEAD.size == HEAD_BYTES
assert _FIELDS.size + _CHECKSUM.size == HEAD_BYTES


class Origin(IntEnum):
    """The origin of a batch: a producer, an outbox or a delay log."""

    NONE = 0
    DELAY = 1
    OUTBOX = 2
    DECIDED_AT = 3


# Looking one up by its number costs a tenth of calling the class.
_ORIGINS = tuple(Origin)


class Marks(NamedTuple):
    """Facts about a batch as a whole that are not in its columns."""

    control: bool = False
    producer_id: int = PRODUCER_NONE
    producer_epoch: int = -1
    first_sequence: int = -1
    transaction_id: int = 0
    origin: Origin = Origin.NONE
    origin_source: int = 0
    origin_sequence: int = 0


NO_MARKS = Marks()


class Head(NamedTuple):
    """The fields in the order of the bytes. `stamp` makes a changed copy."""

    magic: int
    length: int
    version: int
    encoding: int
    attributes: int
    message_count: int
    base_offset: int
    last_delta: int
    unsynced: int
    epoch: int
    body_size: int
    append_time: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    transaction_id: int
    origin_source: int
    origin_sequence: int
    body_checksum: int
    head_checksum: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_delta + 1

    @property
    def is_verbatim(self) -> bool:
        """Whether the body is a record batch of Kafka, as it came."""
        return self.encoding == ENCODING_KAFKA

    @property
    def is_dense(self) -> bool:
        """Whether every offset of the range has its message, as batches of producers have; compaction makes gaps."""
        return self.last_delta + 1 == self.message_count

    @property
    def durable_end(self) -> int:
        """The durable end of the log, as known when this batch was written."""
        return self.base_offset - self.unsynced

    @property
    def compression(self) -> Compression:
        return _COMPRESSIONS[self.attributes & COMPRESSION_MASK]

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def origin(self) -> Origin:
        return _ORIGINS[self.attributes >> ORIGIN_SHIFT & 0b11]

    @property
    def priorities(self) -> int:
        """One bit for each priority that occurs: bit 0 is CRITICAL."""
        return self.attributes >> PRIORITIES_SHIFT & 0b11111

    @property
    def marks(self) -> Marks:
        return Marks(
            self.is_control,
            self.producer_id,
            self.producer_epoch,
            self.first_sequence,
            self.transaction_id,
            self.origin,
            self.origin_source,
            self.origin_sequence,
        )

    @property
    def stored_size(self) -> int:
        """Bytes of the body as stored, without padding."""
        return self.length - HEAD_BYTES - (self.attributes >> PADDING_SHIFT & 0b111)


# A head of its fields, in their order. As `_make`, which counts them first, and is on the way of every batch.
head_of: Callable[[tuple[int, ...]], Head] = partial(tuple.__new__, Head)


def pack_head(head: Head, *, seed: int = SEED_IN_TRANSIT) -> bytes:
    """Returns the bytes of a head, with a new head checksum."""
    try:
        fields = _FIELDS.pack(*head[:-1])
    except struct.error as error:
        raise Refused(f"a number does not fit into the head of a batch: {error}") from None
    return fields + _CHECKSUM.pack(checksum(fields, seed))


def read_head(buffer: Buffer, position: int = 0, *, seed: int = SEED_IN_TRANSIT) -> Head:
    """Returns the head at `position`, checked. MalformedBatch. The body is not checked, and may be cut short."""
    raw = memoryview(buffer)[position : position + HEAD_BYTES]
    if len(raw) < HEAD_BYTES:
        raise MalformedBatch(f"a head has {HEAD_BYTES} bytes, found {len(raw)}")
    head = head_of(HEAD.unpack(raw))
    if head.magic != MAGIC:
        raise MalformedBatch(f"magic is {head.magic:#010x}, not {MAGIC:#010x}")
    expected = checksum(raw[: _FIELDS.size], seed)
    if head.head_checksum != expected:
        raise ChecksumMismatch("head", found=head.head_checksum, expected=expected)
    # The checksum does not prove these: a client that forges a field computes the checksum, too.
    if head.version not in _VERSIONS:
        raise UnsupportedFormat(f"version {head.version}, this reader knows 1 and {VERSION}")
    if head.encoding and (head.encoding != ENCODING_KAFKA or head.version != VERSION):
        raise UnsupportedFormat(f"encoding {head.encoding} in version {head.version}")
    attributes = head.attributes
    if attributes & _RESERVED_MASK:
        raise UnsupportedFormat(f"reserved attribute bits are set: {attributes:#06x}")
    if attributes & COMPRESSION_MASK > _COMPRESSION_MAX:
        raise UnsupportedFormat(f"compression {attributes & COMPRESSION_MASK}")
    padding = attributes >> PADDING_SHIFT & 0b111
    if head.length % ALIGNMENT or head.length < HEAD_BYTES + padding:
        raise MalformedBatch(f"length {head.length} with attributes {attributes:#06x}")
    if head.message_count > COUNT_MAX:
        raise MalformedBatch(f"{head.message_count} messages, the most is {COUNT_MAX}")
    if head.last_delta + 1 < head.message_count:
        raise MalformedBatch(
            f"{head.message_count} messages in a range of {head.last_delta + 1} offsets"
        )
    if head.body_size > BODY_BYTES_MAX:
        raise MalformedBatch(f"a body of {head.body_size} bytes, the most is {BODY_BYTES_MAX}")
    if head.base_timestamp > head.max_timestamp:
        raise MalformedBatch(f"timestamps {head.base_timestamp} to {head.max_timestamp}")
    if head.base_offset < 0 or head.base_offset + head.last_delta >= OFFSET_MAX:
        raise MalformedBatch(f"offsets {head.base_offset} to {head.last_offset}")
    return head


def verify(buffer: Buffer, position: int = 0, *, seed: int = SEED_IN_TRANSIT) -> Head:
    """Returns the head of the batch at `position`, with all of it checked. MalformedBatch, ChecksumMismatch."""
    head = read_head(buffer, position, seed=seed)
    verify_body(memoryview(buffer)[position : position + head.length], head)
    return head


def verify_body(batch: memoryview, head: Head) -> None:
    """Check that all of a batch is there, and the checksum of its body. MalformedBatch, ChecksumMismatch."""
    if len(batch) < head.length:
        raise MalformedBatch(f"length {head.length}, found {len(batch)} bytes")
    body_end = head.length - (head.attributes >> PADDING_SHIFT & 0b111)
    expected = checksum(batch[HEAD_BYTES:body_end])
    if head.body_checksum != expected:
        raise ChecksumMismatch("body", found=head.body_checksum, expected=expected)
    if any(batch[body_end:]):
        raise MalformedBatch("padding is not zero")


def batches_in(
    data: Buffer, *, seed: int = SEED_IN_TRANSIT, is_verified: bool = False, is_cut: bool = False
) -> Iterator[tuple[Head, memoryview]]:
    """Yields consecutive batches, each with its head. MalformedBatch: the next bytes are no whole batch.

    `is_verified`: the bodies were checked before, and only heads are checked here. `is_cut`: the data may end inside of
    a batch, which is left out, unless it is the first.
    """
    view, position = memoryview(data), 0
    while position < len(view):
        if is_cut and position and position + HEAD_BYTES > len(view):
            return
        head = read_head(view, position, seed=seed)
        batch = view[position : position + head.length]
        if is_cut and position and len(batch) < head.length:
            return
        if not is_verified:
            verify_body(batch, head)
        yield head, batch
        position += head.length


def place(
    head: Head, *, base_offset: int, epoch: int, append_time: int, unsynced: int = UNSYNCED_MAX
) -> Head:
    """Returns the head for a position in a log, with the old head checksum."""
    # Four times as fast as _replace, and on the way of every append.
    return head_of(
        (
            *head[:6],
            base_offset,
            head.last_delta,
            min(unsynced, UNSYNCED_MAX),
            epoch,
            head.body_size,
            append_time,
            *head[12:],
        )
    )


def with_transaction(head: Head, transaction_id: int) -> Head:
    """Returns the head as one of a transaction, with the old head checksum."""
    return head_of((*head[:17], transaction_id, *head[18:]))


def with_origin(head: Head, source: int, sequence: int) -> Head:
    """Returns the head with this origin, of the same kind, and with the old head checksum."""
    return head_of((*head[:18], source, sequence, *head[20:]))


def stamp(
    head: Head,
    *,
    base_offset: int,
    epoch: int,
    append_time: int,
    unsynced: int = UNSYNCED_MAX,
    seed: int = SEED_IN_TRANSIT,
) -> bytes:
    """Returns the bytes of the head for a position in a log. The body is not changed."""
    placed = place(
        head, base_offset=base_offset, epoch=epoch, append_time=append_time, unsynced=unsynced
    )
    return pack_head(placed, seed=seed)
