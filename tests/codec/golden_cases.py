"""What the golden files hold, and how they were made.

python -m tests.codec.golden_cases      writes the files that are missing, and only those
"""

import gzip
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from crc32c import crc32c

from penstock.codec import (
    HEAD_BYTES,
    Columns,
    Compression,
    Marks,
    Origin,
    encode,
    encode_messages,
    read_head,
    seed_of,
    select,
    stamp,
    verify,
)
from penstock.codec.head import VERSION
from penstock.codec.kafka_header import read_header
from penstock.codec.verbatim import keep_verbatim, records_of
from penstock.model import LogId, Message

from .strategies import at

GOLDEN = Path(__file__).parent / "golden"
NOON = 1_767_268_800_000_000_000  # 2026-01-01 12:00:00 UTC
LOG_ID = LogId(0x0123_4567_89AB_CDEF)


@dataclass(frozen=True)
class Case:
    """A batch, the messages in it, and the seed of its head."""

    write: Callable[[], bytes]
    messages: list[Message]
    seed: int = 0
    is_rewritable: bool = (
        True  # Compressors may pack better one day; what they packed must still be read.
    )
    # The version of the format that is the first to have it.
    since: int = 1

    @property
    def expected(self) -> list[Message]:
        """Returns the messages as they are read: with offsets, from 0 by default."""
        return [
            at(message, index) if message.offset < 0 else message
            for index, message in enumerate(self.messages)
        ]


def record(index: int, message: Message) -> bytes:
    """A record of Kafka, all of whose numbers take one byte."""

    def blob(content: bytes | None) -> bytes:
        return b"\x01" if content is None else bytes([len(content) << 1]) + content

    fields = bytes([0, (message.timestamp - NOON) // 1_000_000 << 1, index << 1])
    headers = bytes([len(message.headers) << 1])
    for name, value in message.headers:
        headers += blob(name.encode()) + blob(value)
    fields += blob(message.key) + blob(message.value) + headers
    return bytes([len(fields) << 1]) + fields


def record_batch(*, is_packed: bool) -> bytes:
    """KAFKA as a producer of Kafka sends it: id 7, epoch 1, sequence 40."""
    records = b"".join(record(index, message) for index, message in enumerate(KAFKA))
    records = gzip.compress(records, mtime=0) if is_packed else records
    times = NOON // 1_000_000, KAFKA[-1].timestamp // 1_000_000
    checked = struct.pack(">hiqqqhii", is_packed, len(KAFKA) - 1, *times, 7, 1, 40, len(KAFKA))
    checked += records
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


def verbatim(*, is_packed: bool) -> bytes:
    batch = memoryview(record_batch(is_packed=is_packed))
    header = read_header(batch)
    return keep_verbatim(header, batch, records_of(header, batch, size_max=1 << 20)).to_bytes()


def encoded(messages: list[Message]) -> Case:
    return Case(lambda: encode_messages(messages).to_bytes(), messages)


def compacted() -> bytes:
    batch = encode_messages(
        PLAIN, marks=Marks(producer_id=9, producer_epoch=1, first_sequence=40)
    ).to_bytes()
    return select(
        batch, verify(batch), np.array([False, True, False, True]), last_offset=11
    ).to_bytes()


def emptied() -> bytes:
    batch = encode_messages(PLAIN).to_bytes()
    return select(batch, verify(batch), np.zeros(4, dtype=bool), last_offset=11).to_bytes()


def stamped() -> bytes:
    marks = Marks(True, 7, 2, 100, 55, Origin.OUTBOX, 3, 12)
    batch = encode_messages(PLAIN, marks=marks).to_bytes()
    place = {"base_offset": 1_000_000, "epoch": 3, "append_time": NOON + 500, "unsynced": 20}
    return stamp(read_head(batch), **place, seed=seed_of(LOG_ID)) + batch[HEAD_BYTES:]


def delayed() -> bytes:
    dues, keys = [NOON + 5, NOON + 3_600_000_000_000], [None, b"invoice 7"]
    return encode(Columns(values=[b"soon", b"later"], due_at=dues, delay_keys=keys)).to_bytes()


def fired() -> bytes:
    marks = Marks(origin=Origin.DELAY, origin_source=2, origin_sequence=40)
    return encode(Columns(values=[b"second", b"first"], delay_ids=[3, 0]), marks=marks).to_bytes()


PLAIN = [
    Message(b"first", b"k1", timestamp=NOON),
    Message(b"", b"k2", timestamp=NOON + 1_000_000),
    Message(b"third and longest", b"k3", timestamp=NOON + 2_000_000),
    Message(bytes(range(256)), b"k4", timestamp=NOON - 1),
]
NULLS = [Message(value, key) for key in (None, b"", b"key") for value in (None, b"", b"value")]
HEADERS = [
    Message(b"a", headers=(("trace", b"\x00\xff"), ("trace", b"again"), ("empty", b""))),
    Message(b"b"),
    Message(b"c", headers=(("naïve", b"1"), ("漢字", b"2"), ("🜁", b"3"))),
]
PRIORITIES = [Message(b"p", priority=priority) for priority in (4, 0, 2, 2, 1)]
EXTRAS = [
    Message(b"x", expires_at=NOON + 60_000_000_000, idempotency_key=b"once", schema_id=1),
    Message(b"y"),
    Message(b"z", expires_at=1, idempotency_key=b"", schema_id=2**32 - 1),
]
CONSTANT = [Message(b"same", b"key", (("n", b"v"),), 1, NOON, NOON + 1, b"id", 7)] * 3
BORDERS = [Message(None, timestamp=time) for time in (-(2**63), 0, 2**63 - 1)]
NULL_HEADERS = [
    Message(b"a", headers=(("null", None), ("empty", b""), ("", b"no name"), ("", None))),
    Message(b"b"),
    Message(b"c", headers=(("", b""),)),
]
ONLY_NULLS = [Message(b"a", headers=(("", None), ("", None)))] * 2
KAFKA = [
    Message(b"first", b"k", timestamp=NOON),
    Message(None, b"", (("null", None), ("", b"")), timestamp=NOON + 5_000_000),
    Message(b"", None, (("a", b"1"),), timestamp=NOON + 9_000_000),
]
JSON = [
    Message(
        b'{"order": %d, "status": "created", "currency": "EUR"}' % order, timestamp=NOON + order
    )
    for order in range(20)
]

CASES = {
    "plain": encoded(PLAIN),
    "nulls": encoded(NULLS),
    "headers": encoded(HEADERS),
    "priorities": encoded(PRIORITIES),
    "expiry-schema-idempotency": encoded(EXTRAS),
    "constant-columns": encoded(CONSTANT),
    "timestamp-borders": encoded(BORDERS),
    "compacted": Case(compacted, [at(PLAIN[1], 1), at(PLAIN[3], 3)]),
    "empty-range": Case(emptied, []),
    "stamped": Case(
        stamped,
        [at(message, 1_000_000 + index) for index, message in enumerate(PLAIN)],
        seed=seed_of(LOG_ID),
    ),
    "null-headers": Case(lambda: encode_messages(NULL_HEADERS).to_bytes(), NULL_HEADERS, since=2),
    "empty-headers": Case(lambda: encode_messages(ONLY_NULLS).to_bytes(), ONLY_NULLS, since=2),
    "kafka": Case(lambda: verbatim(is_packed=False), KAFKA, since=2),
    "kafka-gzip": Case(lambda: verbatim(is_packed=True), KAFKA, is_rewritable=False, since=2),
    "delayed": Case(delayed, [Message(b"soon"), Message(b"later")]),
    "fired": Case(fired, [Message(b"second"), Message(b"first")]),
    "lz4": Case(
        lambda: encode_messages(JSON, compression=Compression.LZ4).to_bytes(),
        JSON,
        is_rewritable=False,
    ),
    "zstd": Case(
        lambda: encode_messages(JSON, compression=Compression.ZSTD).to_bytes(),
        JSON,
        is_rewritable=False,
    ),
}


def path_of(name: str, version: int = VERSION) -> Path:
    return GOLDEN / str(version) / f"{name}.bin"


def main() -> None:
    for name, case in CASES.items():
        if not path_of(name).exists():
            path_of(name).write_bytes(case.write())
            sys.stdout.write(f"wrote {path_of(name)}\n")


if __name__ == "__main__":
    main()
