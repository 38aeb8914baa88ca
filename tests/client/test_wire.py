"""Bytes to answers, whatever the pieces; errors rebuilt; when to try again."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unasync
from penstock.client.address import Address
from penstock.client.failures import error_of
from penstock.client.retry import Breaker, RetryPolicy
from penstock.client.wire import Answer, AnswerReader
from penstock.errors import BadAnswer, NotFound, Refused, StaleReceipt, Unavailable, Unreachable


def written(status: int, body: bytes, *, is_chunked: bool) -> bytes:
    if not is_chunked:
        return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)
    half = len(body) // 2
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(one), one) for one in (body[:half], body[half:]) if one
    )
    return b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % (status, chunks)


@given(st.binary(max_size=200), st.booleans(), st.lists(st.integers(1, 40), max_size=20))
def test_an_answer_is_the_same_in_any_pieces(body, is_chunked, sizes):
    raw, reader, answer = written(200, body, is_chunked=is_chunked), AnswerReader("here"), None
    for size in [*sizes, len(raw)]:
        piece, raw = raw[:size], raw[size:]
        if piece:
            assert answer is None
            answer = reader.feed(piece)
    assert answer is not None
    assert (answer.status, answer.body) == (200, body)
    assert reader.is_idle


@pytest.mark.parametrize("sizes", [(1_000_000,), (10, 70, 300_000), (45, 1, 1), (80,)])
def test_a_large_body_is_received_into_its_own_memory(sizes):
    body = bytes(range(256)) * 4000
    raw, reader, answer = written(200, body, is_chunked=False), AnswerReader("here"), None
    for size in [*sizes, len(raw), len(raw)]:
        space = reader.space()
        piece = raw[: size if space is None else min(size, len(space))]
        raw = raw[len(piece) :]
        if not piece:
            break
        assert answer is None
        if space is None:
            answer = reader.feed(piece)
        else:
            space[: len(piece)] = piece
            answer = reader.filled(len(piece))
    assert answer is not None
    assert (answer.status, bytes(answer.body)) == (200, body)
    assert reader.is_idle
    # The same connection goes on with small ones.
    small = reader.feed(written(404, b"no", is_chunked=False))
    assert small is not None
    assert (small.status, small.body) == (404, b"no")


@pytest.mark.parametrize(
    "lines",
    [
        b"content-length: 2\r\n",
        b"CONTENT-LENGTH:2\r\nX:  a b \r\nX: c\r\n",
        b"X-Content-Length: 9\r\nContent-Length: 2\r\n",
        b"Content-Length: 2\r\nConnection: close\r\n",
        b"Connection: Keep-Alive\r\nContent-Length: 2\r\n",
        b"Content-Length: 9\r\nContent-Length: 2\r\n",
        b"Content-Length: 002\r\n",
    ],
)
def test_an_answer_in_one_piece_says_what_it_says_byte_by_byte(lines):
    raw = b"HTTP/1.1 200 OK\r\n%b\r\nok" % lines
    whole, reader = AnswerReader("here").feed(raw), AnswerReader("here")
    pieces = [reader.feed(raw[place : place + 1]) for place in range(len(raw))]
    for answer in (whole, pieces[-1]):
        assert answer.headers.number(b"content-length") == 2
        assert (answer.body, answer.is_last) == (b"ok", b"close" in lines)


@given(st.binary(min_size=8, max_size=300))
def test_garbage_is_a_bad_answer_or_not_enough(garbage):
    reader = AnswerReader("here")
    with contextlib.suppress(BadAnswer):
        answer = reader.feed(garbage)
        assert answer is None or garbage.startswith(b"HTTP/1.")


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
    ],
)
def test_answers_without_a_good_length_or_form_are_refused(raw):
    with pytest.raises(BadAnswer):
        AnswerReader("here").feed(raw)


def test_errors_come_back_as_what_they_were():
    body = b'{"error":"STALE_RECEIPT","message":"too late","status":409,"receipt":"r","self":1}'
    error = error_of(Answer(409, {}, body, False), "here")
    assert isinstance(error, StaleReceipt)
    assert (str(error), error.fields["receipt"]) == ("too late", "r")
    assert isinstance(error_of(Answer(404, {}, b'{"error":"NOT_FOUND"}', False), "x"), NotFound)
    assert isinstance(error_of(Answer(503, {}, b'{"error":"NEW"}', False), "x"), Unavailable)
    assert isinstance(error_of(Answer(502, {}, b"<html>", False), "x"), BadAnswer)


def test_only_what_does_no_harm_is_repeated():
    policy, lost = RetryPolicy(retries=2), Unreachable("x", "gone", is_sent=True)
    assert policy.wait_s(lost, 1, 0.5, is_repeatable=False) is None
    assert policy.wait_s(lost, 1, 0.0, is_repeatable=True) == pytest.approx(0.05)
    assert policy.wait_s(lost, 3, 0.0, is_repeatable=True) is None
    assert policy.wait_s(Refused("no"), 1, 0.0, is_repeatable=True) is None
    busy = Unavailable("busy", retry_after_ms=1500)
    assert policy.wait_s(busy, 1, 0.0, is_repeatable=False) == pytest.approx(1.5)


def test_breaker_opens_lets_one_try_and_closes():
    breaker = Breaker("x", failures_max=2)
    for _ in range(2):
        breaker.admit(0.0)
        breaker.failed(0.0)
    with pytest.raises(Unreachable):
        breaker.admit(0.5)
    breaker.admit(1.1)
    with pytest.raises(Unreachable):
        breaker.admit(1.1)
    breaker.succeeded()
    breaker.admit(1.2)


@pytest.mark.parametrize(
    "url", ["", "localhost:80", "ftp://x", "http://", "http://a:b", "http://a/?q"]
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(Refused, match="address"):
        Address.parse(url)


def test_the_synchronous_client_is_made_from_the_asynchronous_one():
    assert unasync.stale() == []
