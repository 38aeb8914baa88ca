"""Compression: the same body, kept only where it helps, and never more than was promised."""

import json
import random

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec import (
    HEAD_BYTES,
    Columns,
    Compression,
    encode,
    encode_messages,
    verify,
)
from penstock.codec.compression import compress, decompress
from penstock.codec.decode import open_body
from penstock.errors import MalformedBatch, TooLarge
from penstock.model import Buffer

from . import twin
from .strategies import message_lists

PACKED = [Compression.LZ4, Compression.ZSTD]


@given(message_lists(), st.sampled_from(PACKED))
def test_the_body_unpacks_to_the_body_of_the_twin(messages, compression):
    batch = encode_messages(messages, compression=compression).to_bytes()
    head, body = verify(batch), twin.write_body(messages)
    unpacked: Buffer = batch[HEAD_BYTES : HEAD_BYTES + head.stored_size]
    if head.compression is not Compression.NONE:
        unpacked = decompress(unpacked, head.compression, size=len(body))
    assert bytes(unpacked) == body
    assert len(batch) <= len(encode_messages(messages).to_bytes())


@pytest.mark.parametrize("compression", PACKED)
def test_a_body_that_does_not_shrink_is_stored_as_it_is(compression):
    noise = Columns(values=[random.Random(1).randbytes(1000)])
    assert encode(noise, compression=compression).to_bytes() == encode(noise).to_bytes()


def test_zstd_makes_json_at_least_four_times_smaller():
    rng = random.Random(7)
    values = [
        json.dumps(
            {
                "order_id": rng.randrange(10**6),
                "customer": f"customer-{rng.randrange(1000)}",
                "status": rng.choice(["created", "paid", "shipped"]),
                "amount_cents": rng.randrange(10_000),
                "currency": "EUR",
            }
        ).encode()
        for _ in range(1000)
    ]
    plain = encode(Columns(values=values)).to_bytes()
    assert len(encode(Columns(values=values), compression=Compression.ZSTD).to_bytes()) * 4 < len(
        plain
    )


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("lie", [-1, 1, -1000, 1000])
def test_a_wrong_body_size_is_malformed(kind, lie):
    _, stored = compress(bytes(2000), kind)
    with pytest.raises(MalformedBatch):
        decompress(stored, kind, size=2000 + lie)


@pytest.mark.parametrize("kind", Compression)
def test_a_size_over_the_limit_is_refused_without_unpacking(kind):
    head = encode(Columns(values=[bytes(10_000)]), compression=kind).head
    with pytest.raises(TooLarge):
        open_body(b"", head, size_max=head.body_size - 1)


@pytest.mark.parametrize("kind", PACKED)
def test_cut_or_broken_data_is_malformed(kind):
    _, stored = compress(b"some words, some words, some more words" * 10, kind)
    for size in range(len(stored)):
        with pytest.raises(MalformedBatch):
            decompress(stored[:size], kind, size=390)


def test_frames_after_the_first_do_not_count_twice():
    frame = bytes(cramjam.zstd.compress(bytes(100)))
    assert bytes(decompress(frame * 3, Compression.ZSTD, size=300)) == bytes(300)
    with pytest.raises(MalformedBatch):
        decompress(frame * 3, Compression.ZSTD, size=100)


def test_what_was_unpacked_cannot_be_changed():
    _, stored = compress(bytes(2000), Compression.ZSTD)
    assert memoryview(decompress(stored, Compression.ZSTD, size=2000)).readonly
