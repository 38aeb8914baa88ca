"""Batches that would unpack to more than the limit: unpacked once at most, and not at all where they say how much."""

import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest

from penstock.api.publish import PublishBatch
from penstock.api.topics import CreateTopic
from penstock.codec import Columns, encode
from penstock.codec.compression import Compression
from penstock.errors import MalformedBatch, PenstockError, TooLarge
from tests.codec.kafka_twin import sealed
from tests.codec.test_memory import endless_lz4, endless_zstd, lying
from tests.kafka.in_process import KafkaRig
from tests.server.rigs import in_process

LIMIT = 1 << 20
LIMITS = {("limits", "batch_bytes_max"): LIMIT, ("limits", "value_bytes_max"): LIMIT}
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
TOO_LARGE, INVALID_RECORD = 10, 87
TIMES = (1_767_268_800_123,) * 2
LARGE = bytes(5 * LIMIT)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which decompressors were called, in their order."""
    called: list[str] = []

    def watch(module: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(module, name)

        def counted(*given: Any, **more: Any) -> Any:
            called.append(name)
            return real(*given, **more)

        monkeypatch.setattr(module, name, counted)

    for module in (cramjam.zstd, cramjam.lz4):
        for name in ("decompress", "decompress_into"):
            watch(module, name)
    watch(cramjam.lz4, "decompress_block_into")
    watch(cramjam.snappy, "decompress_raw")
    watch(zlib, "decompressobj")
    return called


def streamed_zstd(data: bytes) -> bytes:
    """A frame that does not say what it unpacks to, as Java's producers write it."""
    compressor = cramjam.zstd.Compressor()
    compressor.compress(data)
    return bytes(compressor.finish())


def xerial(data: bytes) -> bytes:
    blocks = [
        bytes(cramjam.snappy.compress_raw(data[at : at + LIMIT // 2]))
        for at in range(0, len(data), LIMIT // 2)
    ]
    framed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed


def stating_lz4(data: bytes) -> bytes:
    """A frame with the size of its content. The checksum of its header is wrong: nothing reads as far as that."""
    stored = bytes(cramjam.lz4.compress(data))
    flags = bytes([stored[4] | 1 << 3])
    return stored[:4] + flags + stored[5:6] + struct.pack("<Q", len(data)) + stored[6:]


def modest_gzip(data: bytes) -> bytes:
    """One that says at its end that it is small."""
    return gzip.compress(data, mtime=0)[:-4] + struct.pack("<I", 100)


# A bomb, how it is compressed, the code that it is answered with, and how often a decompressor may be asked.
BOMBS = {
    "gzip": (gzip.compress, GZIP, TOO_LARGE, 0),
    "gzip that says less": (modest_gzip, GZIP, TOO_LARGE, 1),
    "snappy": (lambda data: bytes(cramjam.snappy.compress_raw(data)), SNAPPY, TOO_LARGE, 0),
    "snappy of Java": (xerial, SNAPPY, TOO_LARGE, 0),
    "lz4": (lambda data: bytes(cramjam.lz4.compress(data)), LZ4, TOO_LARGE, 1),
    "lz4 that says how much": (stating_lz4, LZ4, TOO_LARGE, 0),
    "zstd": (lambda data: bytes(cramjam.zstd.compress(data)), ZSTD, TOO_LARGE, 0),
    "zstd of a stream": (streamed_zstd, ZSTD, TOO_LARGE, 1),
    "zstd that is cut": (lambda data: streamed_zstd(data[:100])[:-3], ZSTD, INVALID_RECORD, 1),
    "lz4 that is none": (lambda data: data[:1000], LZ4, INVALID_RECORD, 1),
    "gzip that is cut": (lambda _data: gzip.compress(bytes(100))[:-12], GZIP, INVALID_RECORD, 1),
}


@pytest.mark.parametrize(("pack", "kind", "code", "most"), BOMBS.values(), ids=BOMBS)
async def test_a_bomb_is_unpacked_once_at_most(
    tmp_path: Path,
    calls: list[str],
    pack: Callable[[bytes], bytes],
    kind: int,
    code: int,
    most: int,
) -> None:
    records = sealed(pack(LARGE), 1, TIMES, attributes=kind)
    async with in_process(tmp_path, LIMITS) as broker:
        broker.driver.execute(CreateTopic("orders", 1))
        part = {"index": 0, "records": records}
        topics = [{"name": "orders", "partition_data": [part]}]
        calls.clear()
        answer = (
            await KafkaRig(broker)
            .client()
            .ask(0, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=topics)
        )
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == code
        assert len(calls) <= most


def batch_of(kind: Compression, **more: Any) -> bytes:
    return encode(Columns(values=[bytes(1000)] * 3, **more), compression=kind).to_bytes()


LIES: dict[str, tuple[Callable[[], bytes], type[PenstockError] | None, int]] = {
    "over the limit": (lambda: lying(b"", Compression.ZSTD, 2 * LIMIT), TooLarge, 0),
    "zstd that says more than its head": (
        lambda: lying(bytes(cramjam.zstd.compress(LARGE)), Compression.ZSTD, LIMIT - 100),
        MalformedBatch,
        0,
    ),
    "zstd that says nothing": (
        lambda: lying(endless_zstd(100, 10), Compression.ZSTD, LIMIT - 100),
        MalformedBatch,
        1,
    ),
    "lz4 that cannot be so large": (
        lambda: lying(endless_lz4(1000), Compression.LZ4, LIMIT - 100),
        MalformedBatch,
        0,
    ),
    "lz4 that is larger": (
        lambda: lying(endless_lz4(2 * LIMIT), Compression.LZ4, LIMIT - 100),
        MalformedBatch,
        1,
    ),
    "good, with keys that are compared": (
        lambda: batch_of(Compression.ZSTD, idempotency_keys=[b"a", b"b", b"c"]),
        None,
        1,
    ),
}


@pytest.mark.parametrize(("make", "error", "most"), LIES.values(), ids=LIES)
async def test_a_batch_of_ours_is_unpacked_once_at_most(
    tmp_path: Path,
    calls: list[str],
    make: Callable[[], bytes],
    error: type[PenstockError] | None,
    most: int,
) -> None:
    batch, found = make(), None
    async with in_process(tmp_path, LIMITS) as broker:
        broker.driver.execute(CreateTopic("orders", 1))
        calls.clear()
        try:
            broker.driver.execute(PublishBatch("orders", 0, batch))
        except PenstockError as refused:
            found = type(refused)
        assert (found, len(calls) <= most) == (error, True)
