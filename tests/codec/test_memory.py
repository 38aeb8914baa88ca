"""The worst batches that can be forged: what they make a reader hold in memory."""

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest

from penstock.codec import COUNT_MAX, HEAD_BYTES, Compression
from penstock.codec.body import HEADERS_MAX
from penstock.config import LimitsConfig

from . import forge
from .kafka_twin import sealed, varint
from .test_parse import (
    COUNTS,
    DELTA,
    EXPIRY,
    HEADER_VALUES,
    HEADERS,
    IDEMPOTENCY,
    KEY,
    LANE,
    NAMES,
    NULLS,
    SCHEMA,
    TIME,
    U8,
    U32,
    U64,
    VALUE,
    batch_of,
    body_of,
    u64,
)
from .test_verbatim import kept as kept_verbatim

ROOT = Path(__file__).parents[2]
BATCH_BYTES_MAX = LimitsConfig().batch_bytes_max
REFUSED_MIB_MAX = 64
READ_MIB_MAX = 320


def peak_of(batch: bytes) -> tuple[str, int]:
    """How decoding ended, and how many MiB it took at most."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.codec.peak"],
        input=batch,
        capture_output=True,
        check=True,
        cwd=ROOT,
        timeout=60,
    )
    outcome, mib = found.stdout.split()
    return outcome.decode(), int(mib)


def packed(batch: bytes, kind: Compression) -> bytes:
    return forge.together(*forge.apart(batch), kind)


def lying(stored: bytes, kind: Compression, size: int) -> bytes:
    """A head that says `size` about whatever is stored."""
    fields, _ = forge.apart(batch_of(body_of({})))
    padding = -len(stored) % 8
    fields["attributes"] |= kind | padding << 11
    fields["length"] = HEAD_BYTES + len(stored) + padding
    fields["body_size"] = size
    return forge.sealed(fields, stored)


def endless_zstd(blocks: int, window_exponent: int) -> bytes:
    """A frame of blocks that each repeat one byte 128 KiB times, with the window that we like."""
    header = b"\x28\xb5\x2f\xfd\x00" + bytes([window_exponent << 3])
    size = 1 << 17
    one = (size << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (size << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return header + one * (blocks - 1) + last


def endless_lz4(size: int) -> bytes:
    """One literal byte, then a match that goes on; every 255 bytes cost one."""
    return b"\x1f\0\1\0" + b"\xff" * (size // 255) + b"\0" + b"\x50aaaaa"


REFUSED: dict[str, Callable[[], bytes]] = {
    "zstd of 8 GiB that says 1000": lambda: lying(
        endless_zstd(1 << 16, 10), Compression.ZSTD, 1000
    ),
    "zstd of 8 GiB that says 16 MiB": lambda: lying(
        endless_zstd(1 << 16, 10), Compression.ZSTD, BATCH_BYTES_MAX
    ),
    "zstd of 8 GiB that says 2 GiB": lambda: lying(
        endless_zstd(1 << 16, 10), Compression.ZSTD, 2**31 - 1
    ),
    "zstd of 16 MiB that is no body": lambda: lying(
        endless_zstd(128, 10), Compression.ZSTD, BATCH_BYTES_MAX
    ),
    "zstd with a window of 128 MiB": lambda: lying(
        endless_zstd(128, 17), Compression.ZSTD, BATCH_BYTES_MAX
    ),
    "zstd with a window of 2 TiB": lambda: lying(
        endless_zstd(128, 31), Compression.ZSTD, BATCH_BYTES_MAX
    ),
    "lz4 of 1 GiB that says 16 MiB": lambda: lying(
        endless_lz4(2**30), Compression.LZ4, BATCH_BYTES_MAX
    ),
    "lz4 of 1 GiB that says 2 GiB": lambda: lying(endless_lz4(2**30), Compression.LZ4, 2**31 - 1),
    "zstd in zstd": lambda: lying(
        bytes(cramjam.zstd.compress(endless_zstd(1 << 16, 10))), Compression.ZSTD, 2**18
    ),
    "lengths of 4 GiB each": lambda: packed(
        batch_of(body_of({VALUE: U32}, [b"\xff" * 4 * COUNT_MAX]), count=COUNT_MAX),
        Compression.ZSTD,
    ),
    "a constant length of 4 GiB": lambda: batch_of(
        body_of({VALUE: 1}, [u64(2**32 - 1)]), count=COUNT_MAX
    ),
    "2^50 headers without a byte": lambda: batch_of(
        body_of(HEADERS, [u64(2**32 - 1), u64(0), u64(0)]), count=COUNT_MAX
    ),
    "8 million headers of one byte": lambda: packed(
        batch_of(body_of(HEADERS, [u64(2**22), u64(1), u64(0)], b"n" * 2**23)), Compression.ZSTD
    ),
    "deltas that never grow": lambda: packed(
        batch_of(body_of({DELTA: U64}, [bytes(8 * COUNT_MAX)]), count=COUNT_MAX), Compression.ZSTD
    ),
}


def many_headers(messages: int, names: bytes) -> bytes:
    each = HEADERS_MAX // messages
    lengths = bytes([1]) * (HEADERS_MAX - 1) + bytes([len(names) - HEADERS_MAX + 1])
    body = body_of({**HEADERS, NAMES: U8}, [u64(each), lengths, u64(0)], names)
    return packed(batch_of(body, count=messages), Compression.ZSTD)


def every_column() -> bytes:
    """All that a message can have, for as many messages as there can be, in 16 MiB."""
    count, bits = COUNT_MAX, b"\xff" * (COUNT_MAX // 8)
    forms = {
        TIME: U64,
        KEY: U8 | NULLS,
        VALUE: U8 | NULLS,
        COUNTS: 1,
        NAMES: 1,
        HEADER_VALUES: U8,
        LANE: U8,
        EXPIRY: U64,
        IDEMPOTENCY: U8 | NULLS,
        SCHEMA: U32,
        DELTA: U32,
    }
    distinct = struct.pack(f"<{count}Q", *range(count))
    columns = [
        distinct,
        b"\3" * count,
        bits,
        b"\3" * count,
        bits,
        u64(4),
        u64(1),
        b"\0" * 4 * count,
    ]
    columns += [b"\2" * count, distinct, b"\3" * count, bits]
    columns += [struct.pack(f"<{count}I", *range(count))] * 2
    body = body_of(
        forms, columns, b"k" * 3 * count + b"v" * 3 * count + b"n" * 4 * count + b"i" * 3 * count
    )
    return packed(batch_of(body, count=count, max_timestamp=count - 1), Compression.ZSTD)


def many_records() -> bytes:
    """As many records of Kafka as there can be, with as many headers, in 16 MiB."""
    headers = (varint(11) + b"header name" + varint(0)) * (HEADERS_MAX // COUNT_MAX)
    rest = varint(-1) + varint(-1) + varint(HEADERS_MAX // COUNT_MAX) + headers
    bodies = [b"\0\0" + varint(index) + rest for index in range(COUNT_MAX)]
    raw = b"".join(varint(len(body)) + body for body in bodies)
    return kept_verbatim(sealed(raw, COUNT_MAX, (1, 1), packing=4), BATCH_BYTES_MAX).to_bytes()


READ: dict[str, Callable[[], bytes]] = {
    "the most messages, without a byte": lambda: batch_of(body_of({}), count=COUNT_MAX),
    "the most messages of 63 bytes": lambda: packed(
        batch_of(body_of({VALUE: 1}, [u64(63)], bytes(63 * COUNT_MAX)), count=COUNT_MAX),
        Compression.LZ4,
    ),
    "the most headers in two messages": lambda: many_headers(2, b"n" * HEADERS_MAX),
    "the most headers, with one wide character": lambda: many_headers(
        16, b"n" * (HEADERS_MAX - 1) + "🜁".encode()
    ),
    "the most of everything": every_column,
    "the most records of Kafka": many_records,
}


@pytest.mark.tier("test")
@pytest.mark.parametrize("name", REFUSED)
def test_a_forgery_is_refused_in_little_memory(name):
    outcome, mib = peak_of(REFUSED[name]())
    assert outcome in ("MalformedBatch", "TooLarge")
    assert mib < REFUSED_MIB_MAX


@pytest.mark.tier("test")
@pytest.mark.parametrize("name", READ)
def test_the_largest_batches_are_read_in_bounded_memory(name):
    outcome, mib = peak_of(READ[name]())
    assert outcome == "read"
    assert mib < READ_MIB_MAX
