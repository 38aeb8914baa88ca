"""What Spark gets is what the messages say, whatever they hold and however they are cut and joined."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.codec import decode_messages, encode_messages, stamp, verify
from penstock.codec.compression import Compression
from penstock.codec.decode import open_body
from penstock.codec.kafka_header import read_header
from penstock.codec.kafka_writer import kafka_batch_of
from penstock.codec.verbatim import keep_verbatim, records_of
from penstock.model import Message
from penstock.spark.columns import COLUMNS
from penstock.spark.decoder import BYTES_MAX, BatchPart, Decoder, arrow_schema

pytestmark = pytest.mark.tier("test")
ALL = tuple(one.name for one in COLUMNS)
TRACE = "0af7651916cd43dd8448eb211c80319c"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

blobs = st.one_of(st.none(), st.binary(max_size=5))
headers = st.lists(
    st.one_of(
        st.tuples(st.text("ab", max_size=2), blobs),
        st.tuples(st.just("traceparent"), st.just(f"00-{TRACE}-b7ad6b7169203331-01".encode())),
        st.tuples(st.just("traceparent"), st.sampled_from([b"nonsense", None])),
    ),
    max_size=3,
)
messages = st.builds(
    Message,
    value=blobs,
    key=blobs,
    headers=headers,
    priority=st.integers(0, 4),
    timestamp=st.integers(1_000_000, 2_000_000_000_000_000_000),
    expires_at=st.one_of(st.none(), st.integers(1, 2_000_000_000_000_000_000)),
    schema_id=st.one_of(st.none(), st.integers(1, (1 << 32) - 1)),
)


def moment(ns: int | None) -> datetime | None:
    return None if ns is None else EPOCH + timedelta(microseconds=ns // 1000)


def trace_of(message: Message) -> str | None:
    return TRACE if any(TRACE.encode() in (value or b"") for _, value in message.headers) else None


def row_of(message: Message) -> dict[str, object]:
    return {
        "key": message.key,
        "value": message.value,
        "topic": "orders",
        "partition": 3,
        "offset": message.offset,
        "timestamp": moment(message.timestamp),
        "timestampType": 0,
        "headers": [{"key": name, "value": value} for name, value in message.headers],
        "priority": message.priority,
        "expires_at": moment(message.expires_at),
        "delay_id": None,
        "schema_id": message.schema_id,
        "trace_id": trace_of(message),
        "dead_letter": None,
    }


def kept_verbatim(batch: bytes) -> bytes:
    head = verify(batch)
    records = memoryview(kafka_batch_of(head, open_body(batch, head)))
    header = read_header(records)
    return keep_verbatim(header, records, records_of(header, records, size_max=1 << 20)).to_bytes()


@settings(max_examples=100)
@given(st.lists(st.lists(messages, min_size=1, max_size=4), min_size=1, max_size=3), st.data())
def test_rows_are_the_messages(batches, data):
    offset, stored, expected = 100, [], []
    for one in batches:
        batch = encode_messages(one).to_bytes()
        if data.draw(st.booleans()):
            # As a Kafka client sends it: without what only we can say.
            batch = kept_verbatim(batch)
        batch = bytes(stamp(verify(batch), base_offset=offset, epoch=1, append_time=5)) + bytes(
            batch[112:]
        )
        head = verify(batch)
        first = data.draw(st.integers(0, len(one)))
        last = data.draw(st.integers(first, len(one)))
        stored.append(BatchPart(head, memoryview(batch), first, last))
        expected += [row_of(found) for found in list(decode_messages(batch, head))[first:last]]
        offset += len(one)
    made = list(Decoder("orders", 3, ALL).record_batches(stored))
    assert [row for batch in made for row in batch.to_pylist()] == expected
    assert all(batch.schema.equals(arrow_schema(ALL)) for batch in made)
    for batch in made:
        batch.validate(full=True)


def test_large_messages_are_not_joined_without_end_however_well_they_are_compressed():
    batch = encode_messages([Message(bytes(1 << 20))], compression=Compression.ZSTD).to_bytes()
    one = BatchPart(verify(batch), memoryview(batch), 0, 1)
    made = [found.nbytes for found in Decoder("orders", 3, ["value"]).record_batches([one] * 40)]
    assert sum(made) > 40 << 20
    assert max(made) < BYTES_MAX + (2 << 20)


FIRST_ROWS = """
import sys, tempfile
from pathlib import Path
from penstock.codec import encode_messages, verify
from penstock.codec.arrow import decode_arrow
from penstock.model import Message
from penstock.spark.columns import DEFAULT_COLUMNS
from penstock.spark.decoder import Decoder, BatchPart
from penstock.spark.pipelines.store import DirectoryStore
from penstock.spark.pipelines.task_files import ParquetSink
from penstock.spark.pipelines.lake import Split
from penstock.spark.pipelines.rows import SCHEMA, by_time, lake_rows
from penstock.spark.pipelines.task_runner import binary_column, number_column

full = Message(b"a", key=b"k", priority=1, timestamp=1, expires_at=5, schema_id=7)
traced = Message(b"a", headers=(("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"),))
for message in (Message(b"a", timestamp=1), full, traced):
    batch = encode_messages([message]).to_bytes()
    found = BatchPart(verify(batch), memoryview(batch), 0, 1)
    (rows,) = Decoder("orders", 3, DEFAULT_COLUMNS).record_batches([found])
    rows.validate(full=True)

messages = [Message(b"a", timestamp=one, headers=(("h", b"x"),)) for one in (1, 1 << 60)]
days = encode_messages(messages).to_bytes()
rows = lake_rows(decode_arrow(days, verify(days)), 3, 7)
rows.validate(full=True)
with tempfile.TemporaryDirectory() as folder:
    sink = ParquetSink(DirectoryStore(Path(folder)), "rows.parquet", "", SCHEMA, "zstd")
    for _, part in by_time(rows, Split.DAY):
        sink.writer.write_batch(part)
    assert sink.close().rows == 2
assert binary_column(b"done").to_pylist() == [b"done"]
assert number_column(7).to_pylist() == [7]
sys.exit("pandas" in sys.modules)
"""


def test_a_worker_need_not_import_pandas():
    done = subprocess.run([sys.executable, "-c", FIRST_ROWS], timeout=1200, check=False)
    assert done.returncode == 0
