"""Kafka's record batch a second time: one record after the other, nothing clever, no numpy.

Written from Kafka's description of the format. It refuses what is not a batch with ValueError.
"""

import gzip
import struct
from collections.abc import Sequence
from typing import NamedTuple

import cramjam
from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
PACK = {
    0: bytes,
    1: lambda data: gzip.compress(data, mtime=0),
    2: cramjam.snappy.compress_raw,
    3: cramjam.lz4.compress,
    4: cramjam.zstd.compress,
}
UNPACK = {
    0: bytes,
    1: gzip.decompress,
    2: cramjam.snappy.decompress_raw,
    3: cramjam.lz4.decompress,
    4: cramjam.zstd.decompress,
}


class Record(NamedTuple):
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Producer(NamedTuple):
    id: int = -1
    epoch: int = -1
    sequence: int = -1


NO_PRODUCER = Producer()


def varint(number: int) -> bytes:
    left, found = (number << 1) ^ (number >> 63), bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def blob(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def record(one: Record, index: int, base_ms: int) -> bytes:
    body = b"\0" + varint(one.time_ms - base_ms) + varint(index)
    body += blob(one.key) + blob(one.value) + varint(len(one.headers))
    for name, value in one.headers:
        body += blob(name.encode()) + blob(value)
    return varint(len(body)) + body


def sealed(records: bytes, number: int, times: tuple[int, int], **more: int) -> bytes:
    """A batch of records, packed by `packing`, with the fields of a header that `more` changes."""
    packing = more.get("packing", 0)
    stored = bytes(PACK[packing](records))
    producer = Producer(*(more.get(name, -1) for name in ("producer_id", "epoch", "sequence")))
    checked = struct.pack(
        ">hiqqqhii",
        more.get("attributes", packing),
        more.get("last_delta", number - 1),
        *times,
        *producer,
        more.get("count", number),
    )
    checked += stored
    checksum = more.get("checksum", crc32c(checked))
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, checksum) + checked


def batch(sent: Sequence[Record], **more: int) -> bytes:
    base = sent[0].time_ms
    records = b"".join(record(one, index, base) for index, one in enumerate(sent))
    return sealed(records, len(sent), (base, max(one.time_ms for one in sent)), **more)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise ValueError("cut short")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        found = 0
        for place in range(10):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                if found >= 1 << 64:
                    raise ValueError("too large")
                return found >> 1 ^ -(found & 1)
        raise ValueError("too long")

    def blob(self) -> bytes | None:
        size = self.varint()
        return None if size == -1 else self.take(size)


def read(data: bytes) -> list[Record]:
    """The records of a batch whose header is good. ValueError."""
    fields = HEADER.unpack_from(data)
    attributes, base_ms, count = fields[5], fields[7], fields[12]
    reader = _Reader(bytes(UNPACK[attributes & 7](data[HEADER.size :])))
    found = []
    for index in range(count):
        one = _Reader(reader.take(reader.varint()))
        one.take(1)
        time_ms, offset = base_ms + one.varint(), one.varint()
        key, value, headers = one.blob(), one.blob(), []
        header_count = one.varint()
        if offset != index or header_count < 0:
            raise ValueError("an offset or a count that lies")
        for _ in range(header_count):
            name = one.blob()
            if name is None:
                raise ValueError("a name that is null")
            headers.append((name.decode(), one.blob()))
        if one.at != len(one.data):
            raise ValueError("bytes left in a record")
        found.append(Record(time_ms, key, value, headers))
    if reader.at != len(reader.data):
        raise ValueError("bytes left")
    return found
