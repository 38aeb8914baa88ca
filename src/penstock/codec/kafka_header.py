"""The header of Kafka's record batch, version 2.

     0  i64  base offset        written by the broker
     8  i32  length             of what follows
    12  i32  leader epoch       written by the broker
    16  i8   magic              2
    17  u32  checksum           CRC32C of everything behind it
    21  i16  attributes         bits 0-2 compression, 3 append time, 4 transactional, 5 control
    23  i32  last offset delta
    27  i64  base timestamp     ms since 1970
    35  i64  max timestamp
    43  i64  producer id        -1 none
    51  i16  producer epoch
    53  i32  base sequence
    57  i32  record count
    61       records, compressed as a whole

All numbers are big-endian.
"""

import struct
from typing import NamedTuple

from ..errors import ChecksumMismatch, MalformedBatch, UnsupportedFormat
from .checksum import checksum
from .compression import Compression
from .head import COUNT_MAX, NO_MARKS, Marks
from .kafka_compression import GZIP, LZ4, NONE, SNAPPY, ZSTD

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
assert HEADER_BYTES == 61
MAGIC = 2
# Behind the length field: the length counts from here.
LENGTH_END = 12
CHECKED_FROM = 21
_MAGIC_AT = 16
_COMPRESSION_MASK = 0b111
_TRANSACTIONAL = 1 << 4
_CONTROL = 1 << 5
_STORED_AS = {
    NONE: Compression.NONE,
    GZIP: Compression.ZSTD,
    SNAPPY: Compression.LZ4,
    LZ4: Compression.LZ4,
    ZSTD: Compression.ZSTD,
}


class KafkaHeader(NamedTuple):
    """The fields in the order of the bytes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Returns the bytes of the whole batch."""
        return LENGTH_END + self.length

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_plain(self) -> bool:
        """Whether the attributes say nothing but how the records are compressed."""
        return not self.attributes & ~_COMPRESSION_MASK

    @property
    def packing(self) -> int:
        """Returns the number that Kafka has for the compression of the records."""
        return self.attributes & _COMPRESSION_MASK

    @property
    def compression(self) -> Compression:
        """Returns that of our compressions which costs and saves about as much as the producer's."""
        return _STORED_AS[self.packing]

    @property
    def marks(self) -> Marks:
        """Returns what our head says of the producer. Without an id the sequence means nothing: aiokafka sends 0."""
        if self.producer_id < 0:
            return NO_MARKS
        return Marks(False, self.producer_id, self.producer_epoch, self.base_sequence)


def read_header(batch: memoryview) -> KafkaHeader:
    """Returns the header of one record batch, with the checksum of the batch checked.

    MalformedBatch: it is none, or not the only one, or such as no producer can have meant. ChecksumMismatch.
    UnsupportedFormat: an older magic, or an unknown compression.
    """
    if len(batch) > _MAGIC_AT and batch[_MAGIC_AT] != MAGIC:
        raise UnsupportedFormat(f"magic {batch[_MAGIC_AT]}, this broker knows {MAGIC}")
    if len(batch) < HEADER_BYTES:
        raise MalformedBatch(
            f"a record batch has {HEADER_BYTES} bytes at least, found {len(batch)}"
        )
    header = KafkaHeader(*HEADER.unpack_from(batch))
    if header.size != len(batch):
        raise MalformedBatch(f"a record batch of {header.size} bytes in {len(batch)}")
    if not 0 < header.record_count <= COUNT_MAX:
        raise MalformedBatch(f"{header.record_count} records, not 1 to {COUNT_MAX}")
    if header.last_delta != header.record_count - 1:
        raise MalformedBatch(
            f"last offset delta {header.last_delta} with {header.record_count} records"
        )
    if header.packing not in _STORED_AS:
        raise UnsupportedFormat(f"compression {header.packing}")
    if header.attributes & _CONTROL:
        raise MalformedBatch("control batches are not a producer's to send")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise MalformedBatch("a producer that has an id has an epoch and a sequence, too")
    expected = checksum(batch[CHECKED_FROM:])
    if expected != header.checksum:
        raise ChecksumMismatch("record batch", found=header.checksum, expected=expected)
    return header
