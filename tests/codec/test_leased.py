"""Leased answers in binary: what is written is read, and what is not one is refused."""

import pytest

from penstock.codec import decode_messages, encode_messages
from penstock.codec.leased import LeaseColumns, collapsed, decode_leased, encode_leased
from penstock.errors import MalformedBatch
from penstock.model import Message

BATCH = encode_messages([Message(b"a", timestamp=1), Message(None, key=b"k", timestamp=2)])
LENT = LeaseColumns("orders", 3, 17, 255, [4, 9], [1, 2])
WRITTEN = encode_leased([(LENT, BATCH), (LeaseColumns("orders", 3, 17, 256, [5, 6], 1), BATCH)])


def test_parts_come_back_with_their_receipts():
    first, second = decode_leased(WRITTEN)
    assert first.lent.receipts() == ["orders:3:4:1:11.ff", "orders:3:9:2:11.ff"]
    assert second.lent.receipts() == ["orders:3:5:1:11.100", "orders:3:6:1:11.100"]
    assert [one.value for one in decode_messages(first.batch, first.head)] == [b"a", None]
    assert list(decode_leased(b"")) == []


def test_equal_attempts_stand_once():
    assert (collapsed([1, 1]), collapsed([1, 2])) == (1, [1, 2])


def test_whatever_is_cut_off_is_refused():
    whole = {0, len(WRITTEN) // 2, len(WRITTEN)}
    for end in range(len(WRITTEN)):
        if end not in whole:
            with pytest.raises(MalformedBatch):
                list(decode_leased(WRITTEN[:end]))


@pytest.mark.parametrize(
    "lent",
    [
        LeaseColumns("orders", 3, 17, 255, [4], 1),
        LeaseColumns("orders", 3, 17, 255, [4, 5], [1]),
        LeaseColumns("orders", 3, 17, 255, [4, "x"], 1),
    ],
)
def test_columns_that_do_not_fit_are_refused(lent):
    with pytest.raises(MalformedBatch):
        list(decode_leased(encode_leased([(lent, BATCH)])))


def test_flipped_bytes_are_refused_or_change_only_columns():
    for position in range(len(WRITTEN)):
        spoiled = bytearray(WRITTEN)
        spoiled[position] ^= 0xFF
        try:
            parts = list(decode_leased(spoiled))
        except MalformedBatch:
            continue
        assert [bytes(one.batch) for one in parts] == [BATCH.to_bytes()] * 2
