"""Measures the codec: time for each message, and bytes.

100-byte distinct values, 10-byte keys, increasing timestamps, batches of 1,000. Every figure includes all
that a caller pays: encoding starts from lists, decoding from bytes that are not checked yet.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import cramjam
import msgspec
from crc32c import crc32c

from penstock.codec import (
    HEAD_BYTES,
    Columns,
    Compression,
    decode_arrow,
    decode_messages,
    encode,
    stamp,
    verify,
)
from penstock.codec.compression import ZSTD_LEVEL
from penstock.model import Message

from .measure import Effort, best_ns
from .report import Case, CaseResult, Unit, on_value

VALUE_BYTES = 100
KEY_BYTES = 10
BATCH_MESSAGES = 1000
# 0.9 MB of batches. The goals are for warm ones, which is how a consumer that keeps up meets them.
BATCHES = 8
TIME_NS = 1_700_000_000_000_000_000
SETTINGS = {
    "value_bytes": VALUE_BYTES,
    "key_bytes": KEY_BYTES,
    "batch_messages": BATCH_MESSAGES,
    "clock": "cpu",
}


@dataclass(frozen=True, slots=True)
class Workload:
    """The messages of a case in every form that a contender starts from."""

    columns: Sequence[Columns]
    batches: Sequence[bytes]


@cache
def workload() -> Workload:
    entropy = random.Random(7)  # noqa: S311 - payloads, and the same ones in every run
    columns = [make_columns(entropy) for _ in range(BATCHES)]
    return Workload(columns, [encode(each).to_bytes() for each in columns])


def make_columns(entropy: random.Random) -> Columns:
    return Columns(
        values=[entropy.randbytes(VALUE_BYTES) for _ in range(BATCH_MESSAGES)],
        keys=[b"%0*d" % (KEY_BYTES, entropy.randrange(10**9)) for _ in range(BATCH_MESSAGES)],
        timestamps=[TIME_NS + i * 1000 + entropy.randrange(1000) for i in range(BATCH_MESSAGES)],
    )


def compare(
    effort: Effort, ours: Callable[[], object], baseline: Callable[[], object]
) -> CaseResult:
    """Returns nanoseconds a message of two contenders that each process the workload once."""
    best = best_ns({"ours": ours, "baseline": baseline}, effort)
    messages = BATCHES * BATCH_MESSAGES
    return CaseResult(best["ours"] / messages, best["baseline"] / messages, settings=SETTINGS)


def measure_encode(effort: Effort) -> CaseResult:
    columns = workload().columns
    pack = msgspec.msgpack.Encoder().encode

    def ours() -> None:
        for each in columns:
            encode(each).to_bytes()

    def rows() -> None:
        for each in columns:
            assert each.keys is not None
            pack(list(zip(each.timestamps, each.keys, each.values, strict=True)))  # type: ignore[arg-type]  # Lists, as made above.

    return compare(effort, ours, rows)


def measure_scan(effort: Effort) -> CaseResult:
    batches = workload().batches
    bodies = [memoryview(batch)[HEAD_BYTES:] for batch in batches]

    def ours() -> None:
        for batch in batches:
            verify(batch)

    def checksum_alone() -> None:
        for body in bodies:
            crc32c(body)

    return compare(effort, ours, checksum_alone)


def measure_decode_arrow(effort: Effort) -> CaseResult:
    if find_spec("pyarrow") is None:
        return CaseResult(None, missing=("pyarrow",), settings=SETTINGS)
    import pyarrow as pa

    work = workload()

    def ours() -> None:
        for batch in work.batches:
            decode_arrow(batch, verify(batch))

    def from_lists() -> None:
        for each in work.columns:
            pa.record_batch([each.timestamps, each.keys, each.values], names=["t", "k", "v"])

    return compare(effort, ours, from_lists)


def measure_decode_messages(effort: Effort) -> CaseResult:
    batches = workload().batches
    rows = [msgspec.msgpack.encode(list(decode_messages(each, verify(each)))) for each in batches]
    unpack = msgspec.msgpack.Decoder(list[Message]).decode

    def ours() -> None:
        for batch in batches:
            touch(decode_messages(batch, verify(batch)))

    def structs() -> None:
        for row in rows:
            touch(unpack(row))

    return compare(effort, ours, structs)


def touch(messages: Sequence[Message]) -> None:
    """Read every field once, as a consumer that uses all of them would."""
    for message in messages:
        _ = message.offset, message.timestamp, message.key, message.value, message.headers
        _ = message.priority, message.expires_at, message.idempotency_key, message.schema_id


def measure_stamp(effort: Effort) -> CaseResult:
    batches = workload().batches
    heads = [verify(batch) for batch in batches]

    def ours() -> None:
        for head in heads:
            stamp(head, base_offset=1_000_000, epoch=7, append_time=TIME_NS, seed=12345)

    def copies() -> None:
        for batch in batches:
            bytearray(batch)

    best = best_ns({"ours": ours, "baseline": copies}, effort)
    return CaseResult(
        best["ours"] / BATCHES / 1000, best["baseline"] / BATCHES / 1000, settings=SETTINGS
    )


def measure_bytes(_effort: Effort) -> CaseResult:
    stored = sum(map(len, workload().batches)) / BATCHES / BATCH_MESSAGES
    return CaseResult(stored, VALUE_BYTES + KEY_BYTES, settings=SETTINGS)


def measure_batch_of_one(_effort: Effort) -> CaseResult:
    first = workload().columns[0]
    assert first.keys is not None
    batch = encode(
        Columns(values=first.values[:1], keys=first.keys[:1], timestamps=TIME_NS)
    ).to_bytes()
    settings = {**SETTINGS, "batch_messages": 1}
    return CaseResult(len(batch), VALUE_BYTES + KEY_BYTES, settings=settings)


def measure_zstd_json(_effort: Effort) -> CaseResult:
    entropy = random.Random(7)  # noqa: S311 - payloads, and the same ones in every run
    values = [make_json(entropy, index) for index in range(BATCH_MESSAGES)]
    columns = Columns(
        values=values, keys=workload().columns[0].keys, timestamps=workload().columns[0].timestamps
    )
    lines = b"\n".join(values)
    ours = len(encode(columns).to_bytes()) / len(
        encode(columns, compression=Compression.ZSTD).to_bytes()
    )
    bare = len(lines) / len(cramjam.zstd.compress(lines, ZSTD_LEVEL))
    settings = {**SETTINGS, "value_bytes": round(len(lines) / BATCH_MESSAGES)}
    return CaseResult(ours, bare, settings=settings)


def make_json(entropy: random.Random, index: int) -> bytes:
    """An order as a web shop would publish it; no two are equal."""
    return msgspec.json.encode(
        {
            "order_id": 500_000 + index,
            "customer": f"customer-{entropy.randrange(5000)}",
            "status": entropy.choice(["created", "paid", "shipped", "delivered", "returned"]),
            "currency": entropy.choice(["EUR", "USD", "GBP"]),
            "total_cents": entropy.randrange(100, 50_000),
            "items": entropy.randrange(1, 9),
            "is_gift": entropy.random() < 0.1,
            "warehouse": entropy.choice(["north", "south", "east", "west"]),
        }
    )


CASES = (
    Case(
        name="encode",
        unit=Unit.NS,
        measure=measure_encode,
        goal=on_value("<=200"),
        baseline="msgspec msgpack rows",
    ),
    Case(
        name="scan",
        unit=Unit.NS,
        measure=measure_scan,
        goal=on_value("<=20"),
        baseline="crc32c of the body alone",
    ),
    Case(
        name="decode_arrow",
        unit=Unit.NS,
        measure=measure_decode_arrow,
        goal=on_value("<=40"),
        baseline="pyarrow from lists",
    ),
    Case(
        name="decode_messages",
        unit=Unit.NS,
        measure=measure_decode_messages,
        goal=on_value("<=900"),
        baseline="msgspec msgpack structs",
    ),
    Case(
        name="stamp",
        unit=Unit.US,
        measure=measure_stamp,
        goal=on_value("<5"),
        baseline="copy of the batch",
    ),
    Case(
        name="bytes_per_message",
        unit=Unit.BYTES,
        measure=measure_bytes,
        goal=on_value("<=125"),
        baseline="key and value alone",
    ),
    Case(
        name="bytes_batch_of_one",
        unit=Unit.BYTES,
        measure=measure_batch_of_one,
        goal=on_value("<=260"),
        baseline="key and value alone",
    ),
    Case(
        name="zstd_json",
        unit=Unit.TIMES,
        measure=measure_zstd_json,
        goal=on_value(">=4"),
        baseline="zstd of the bare values",
    ),
)
