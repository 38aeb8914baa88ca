"""Bytes to replies, whatever the pieces; when to try again; addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unasync
from penstock.client.address import Address
from penstock.client.replies import ReplyReader
from penstock.client.retry import Breaker, RetryPolicy
from penstock.errors import BadAnswer, Refused, Unavailable, Unreachable

from .proxies import reply_frame


def read(reader, data, sizes):
    """All replies in some bytes, received in pieces of these sizes."""
    found = []
    for size in [*sizes, *[1 << 20] * (len(data) // 1000 + 2)]:
        space = reader.buffer()
        piece, rest = data[: min(size, len(space))], data[min(size, len(space)) :]
        if not piece:
            break
        space[: len(piece)] = piece
        found += [(one, bytes(body)) for one, body in reader.received(len(piece))]
        data = rest
    return found


BODIES = st.lists(
    st.one_of(st.binary(max_size=200), st.integers(1, 200_000).map(bytes)), max_size=6
)


@given(BODIES, st.lists(st.integers(1, 70_000), max_size=20))
def test_replies_are_the_same_in_any_pieces(bodies, sizes):
    raw = b"".join(reply_frame(number, [body]) for number, body in enumerate(bodies))
    assert read(ReplyReader("here"), raw, sizes) == [*enumerate(bodies)]


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 400 Bad Request",
        b"\xff\xff\xff\xff\x00\x00\x00\x01",
        b"\x00\x00\x00\x03\x00\x00\x00\x01",
        b"SSH-2.0-OpenSSH\r\n",
    ],
)
def test_what_cannot_be_a_reply_is_refused_before_anything_is_kept_for_it(raw):
    with pytest.raises(BadAnswer):
        read(ReplyReader("here"), raw, [])


def test_a_server_of_http_is_named():
    with pytest.raises(BadAnswer, match="it speaks HTTP"):
        read(ReplyReader("here"), b"HTTP/1.1 400 Bad Request\r\n\r\n", [])


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
        breaker.failed(0.0, 0.0)
    with pytest.raises(Unreachable) as raised:
        breaker.admit(0.5)
    # Half a second, if the call has so much time left.
    policy, found = RetryPolicy(), raised.value
    assert policy.wait_s(found, 1, 0.0, is_repeatable=True, left_s=0.6) == pytest.approx(0.5)
    assert policy.wait_s(found, 1, 0.0, is_repeatable=True, left_s=0.4) is None
    breaker.admit(1.1)
    with pytest.raises(Unreachable):
        breaker.admit(1.1)
    breaker.succeeded()
    breaker.admit(1.2)
    # Requests of one connection that ended.
    for _ in range(3):
        breaker.failed(2.0, 1.9)
    breaker.admit(2.1)


@pytest.mark.parametrize(
    "url",
    ["", "localhost:80", "ftp://x", "http://a", "penstock://", "penstock://a:b", "penstock://a/?q"],
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(Refused, match="address"):
        Address.parse(url)


def test_the_synchronous_client_is_made_from_the_asynchronous_one():
    assert unasync.stale() == [], "python tools/unasync.py"
