"""Frames of the binary port: however the bytes are cut, the same frames come out."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.frames import (
    COMMAND,
    FrameSplitter,
    RequestHeader,
    key_and_correlation,
    read_header,
    reply_head,
    request_frame,
)
from penstock.errors import BadRequest, TooLarge

LIMIT = 1000


def framed(body):
    return len(body).to_bytes(4, "big") + body


@given(st.lists(st.binary(min_size=8, max_size=60)), st.lists(st.integers(0, 400)))
def test_any_cut_of_the_bytes_gives_the_same_frames(bodies, cuts):
    data = b"".join(map(framed, bodies))
    edges = [0, *sorted(min(one, len(data)) for one in cuts), len(data)]
    splitter, found = FrameSplitter(LIMIT), []
    for start, end in pairwise(edges):
        found += map(bytes, splitter.feed(data[start:end]))
    assert found == bodies
    assert splitter.error is None
    assert splitter.held_bytes == 0


def test_byte_by_byte():
    splitter, found = FrameSplitter(LIMIT), []
    for byte in framed(b"a" * 20) + framed(b"b" * 8):
        found += map(bytes, splitter.feed(bytes([byte])))
    assert found == [b"a" * 20, b"b" * 8]


@given(st.integers(LIMIT + 1, (1 << 31) - 1), st.integers(1, 4))
def test_a_length_above_the_limit_is_refused_before_anything_is_kept(length, cut):
    splitter = FrameSplitter(LIMIT)
    head = length.to_bytes(4, "big")
    good = splitter.feed(framed(b"12345678") + head[:cut])
    splitter.feed(head[cut:] + b"x" * 500)
    assert [*map(bytes, good)] == [b"12345678"]
    assert isinstance(splitter.error, TooLarge)
    assert splitter.held_bytes <= 4
    assert splitter.feed(b"more") == []


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 7])
def test_a_length_that_cannot_hold_a_header_is_refused(length):
    splitter = FrameSplitter(LIMIT)
    assert splitter.feed(length.to_bytes(4, "big", signed=True) + b"12345678") == []
    assert isinstance(splitter.error, BadRequest)


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=50), st.text(max_size=20))
def test_headers_round_trip(correlation, body, client):
    frame = b"".join(request_frame(COMMAND, correlation, [body], client.encode()))
    (whole,) = FrameSplitter(LIMIT).feed(frame)
    header, found = read_header(whole)
    assert header == RequestHeader(COMMAND, 0, correlation, client)
    assert bytes(found) == body
    assert key_and_correlation(whole) == (COMMAND, correlation)


@given(st.binary(min_size=8, max_size=40))
def test_any_bytes_are_a_header_or_refused(frame):
    try:
        header, body = read_header(memoryview(frame))
    except BadRequest:
        return
    assert len(body) <= len(frame) - 10
    assert isinstance(header.client_id, str)


def test_replies_round_trip():
    (frame,) = FrameSplitter(LIMIT).feed(reply_head(-7, 5) + b"hello")
    assert bytes(frame) == b"\xff\xff\xff\xf9hello"
