"""Answers in columns: what is written is read, and what is not one is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.answers import MESSAGES_MAX, Kind, LeaseAnswer, decode_answers
from penstock.errors import MalformedBatch, TooLarge
from tests.api.answer_bytes import encode_answers

ANSWERS = [
    LeaseAnswer(Kind.ACK, "orders", 3, 17, 255, [4, 9]),
    LeaseAnswer(Kind.NACK, "orders", 3, 17, 256, [5], "no luck", 1000),
]


def test_answers_come_back():
    assert decode_answers(encode_answers(ANSWERS)) == ANSWERS
    assert decode_answers(encode_answers([])) == []
    # Fields at the end may be left out, and may be more.
    short = b"PAN1" + msgspec.msgpack.encode([["ack", "t", 0, 1, 2, [3]]])
    long = b"PAN1" + msgspec.msgpack.encode([["ack", "t", 0, 1, 2, [3], "", None, None, "more"]])
    assert decode_answers(short) == decode_answers(long)


def test_whatever_is_cut_off_is_refused():
    whole = encode_answers(ANSWERS)
    for end in range(len(whole)):
        with pytest.raises(MalformedBatch):
            decode_answers(whole[:end])


@pytest.mark.parametrize(
    "row",
    [
        ["say", "t", 0, 1, 2, [3]],
        ["ack", "t", 0, 1, 2, ["x"]],
        ["ack", "t", 0, 1, 2],
        ["ack", 7, 0, 1, 2, [3]],
        ["nack", "t", 0, 1, 2, [3], "", "soon"],
    ],
)
def test_what_does_not_fit_is_refused(row):
    with pytest.raises(MalformedBatch):
        decode_answers(b"PAN1" + msgspec.msgpack.encode([row]))


def test_too_many_messages_are_refused():
    answer = LeaseAnswer(Kind.ACK, "t", 0, 1, 2, [0] * (MESSAGES_MAX + 1))
    with pytest.raises(TooLarge, match=str(MESSAGES_MAX)):
        decode_answers(encode_answers([answer]))


@given(st.binary(max_size=100))
def test_no_bytes_do_more_than_be_refused(raw):
    for data in (raw, b"PAN1" + raw):
        try:
            decode_answers(data)
        except (MalformedBatch, TooLarge):
            continue
