"""Arrow: the same messages, without copies."""

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given

from penstock.codec import (
    COUNT_MAX,
    Columns,
    Compression,
    decode_arrow,
    encode,
    encode_messages,
    verify,
)
from penstock.codec.arrow import ARROW_COLUMNS, REMEMBERED_COUNT_MAX
from penstock.errors import Refused, TooLarge
from penstock.model import Message, Priority

from . import twin
from .strategies import NOW, message_lists, placed_batches
from .test_decode import seed_for

NUMBERS = ("timestamp", "expires_at")


def messages_of(table: pa.RecordBatch) -> list[Message]:
    columns = {
        name: (table.column(name).cast(pa.int64()) if name in NUMBERS else table.column(name))
        for name in ARROW_COLUMNS
    }
    rows = zip(*(columns[name].to_pylist() for name in ARROW_COLUMNS), strict=True)
    return [
        Message(
            value=value,
            key=key,
            headers=tuple((pair["name"], pair["value"]) for pair in headers),
            priority=priority,
            timestamp=timestamp,
            expires_at=expires_at,
            idempotency_key=idempotency_key,
            schema_id=schema_id,
            offset=offset,
        )
        for (
            offset,
            timestamp,
            key,
            value,
            headers,
            priority,
            expires_at,
            idempotency_key,
            schema_id,
        ) in rows
    ]


@given(placed_batches())
def test_arrow_holds_what_the_twin_reads(placed):
    messages, place, marks = placed
    batch = twin.encode(messages, marks=marks, place=place)
    table = decode_arrow(batch, verify(batch, seed=seed_for(place)))
    table.validate(full=True)
    assert messages_of(table) == messages


@given(message_lists())
def test_every_compression_gives_the_same_arrow(messages):
    plain = encode_messages(messages).to_bytes()
    expected = decode_arrow(plain, verify(plain))
    for compression in Compression:
        batch = encode_messages(messages, compression=compression).to_bytes()
        table = decode_arrow(batch, verify(batch))
        table.validate(full=True)
        assert table.equals(expected)


@given(message_lists(max_size=4))
def test_asking_for_columns_gives_them_in_that_order(messages):
    batch = encode_messages(messages).to_bytes()
    whole = decode_arrow(batch, verify(batch))
    for names in (ARROW_COLUMNS[::-1], ("value",), ("key", "offset"), ()):
        table = decode_arrow(batch, verify(batch), columns=names)
        assert tuple(table.schema.names) == names
        assert all(table.column(name).equals(whole.column(name)) for name in names)


def test_an_unknown_column_is_refused_with_the_known_ones():
    batch = encode(Columns(values=[b""])).to_bytes()
    with pytest.raises(Refused, match="idempotency_key"):
        decode_arrow(batch, verify(batch), columns=("valeu",))


def test_keys_and_values_point_into_the_batch():
    batch = bytearray(encode(Columns(values=[b"old", b"older"], keys=[b"k", b"k"])).to_bytes())
    table = decode_arrow(batch, verify(batch))
    position = bytes(batch).index(b"oldolder")
    batch[position : position + 8] = b"newnewer"
    assert table.column("value").to_pylist() == [b"new", b"newer"]


def test_arrow_keeps_the_batch_alive():
    table = decode_arrow(*_made_elsewhere())
    assert table.column("value").to_pylist() == [bytes([index]) * 50 for index in range(100)]


def _made_elsewhere():
    batch = encode(Columns(values=[bytes([index]) * 50 for index in range(100)])).to_bytes()
    return batch, verify(batch)


@pytest.mark.parametrize("shift", range(1, 8))
def test_a_batch_at_an_odd_address_gives_aligned_numbers(shift):
    columns = Columns(
        values=[b"a", b"b"],
        timestamps=[NOW, NOW + 1],
        expires_at=[1, 2**40],
        schema_ids=[1, 2**31],
        priorities=[0, 1],
    )
    shifted = memoryview(bytes(shift) + encode(columns).to_bytes())[shift:]
    table = decode_arrow(shifted, verify(shifted))
    table.validate(full=True)
    assert table.column("schema_id").to_pylist() == [1, 2**31]
    for name, width in (("offset", 8), ("timestamp", 8), ("expires_at", 8), ("schema_id", 4)):
        assert table.column(name).buffers()[1].address % width == 0


def test_arrays_that_are_remembered_fit_every_count():
    most = REMEMBERED_COUNT_MAX
    for count in (1, 2, 4096, 4097, 3, most - 1, most, most + 1, COUNT_MAX, 4096):
        batch = encode(Columns(values=[b"four"] * count)).to_bytes()
        table = decode_arrow(batch, verify(batch))
        table.validate(full=True)
        assert table.num_rows == count
        assert table.column("key").null_count == count
        assert table.column("value")[count - 1].as_py() == b"four"
        assert table.column("expires_at").null_count == count
        assert table.column("priority")[count - 1].as_py() == Priority.NORMAL
        assert table.column("headers")[count - 1].as_py() == []


def test_equal_values_that_are_long_start_where_they_start():
    for size in (65535, 65536, 100_000, 1_500_000):
        batch = encode(Columns(values=[b"%0*d" % (size, one) for one in range(3)])).to_bytes()
        table = decode_arrow(batch, verify(batch))
        table.validate(full=True)
        assert [one[-9:] for one in table.column("value").to_pylist()] == [
            b"%09d" % one for one in range(3)
        ]


def test_a_body_over_the_limit_is_refused():
    batch = encode(Columns(values=[bytes(1000)]), compression=Compression.ZSTD).to_bytes()
    with pytest.raises(TooLarge):
        decode_arrow(batch, verify(batch), size_max=1000)


def test_pyarrow_is_imported_only_when_asked_for():
    probe = (
        "import sys, penstock.codec as codec; before = 'pyarrow' in sys.modules;"
        "codec.decode_arrow; print(before, 'pyarrow' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["False", "True"]
