"""Large batches, which are received straight into their place: whole, in pieces, cut off, too slow."""

import json
import socket

import pytest

from penstock.codec import Columns, encode

from .test_bad_input import late_answer

COUNT = 3000
BATCH = "application/vnd.penstock.batch"


def batch_of(count=COUNT, **columns):
    values = [b"%0100d" % number for number in range(count)]
    return encode(Columns(values=values, timestamps=5, **columns)).to_bytes()


def head_of(topic, body, *more):
    lines = [
        f"POST /topics/{topic}/partitions/0/batches HTTP/1.1",
        "Host: localhost",
        f"Content-Type: {BATCH}",
        f"Content-Length: {len(body)}",
        *more,
    ]
    return "\r\n".join((*lines, "", "")).encode()


def answer_of(file):
    """Status and JSON of the next answer."""
    status, length = int(file.readline().split()[1]), 0
    while (line := file.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    return status, json.loads(file.read(length))


@pytest.fixture
def place(shared_broker, request):
    """A topic of our own, and a connection."""
    topic = f"large-{abs(hash(request.node.name))}"
    shared_broker.call("POST", "/topics", {"name": topic, "num_partitions": 1})
    with (
        socket.create_connection(("127.0.0.1", shared_broker.port), 30) as stream,
        stream.makefile("rb") as answers,
    ):
        yield topic, stream, answers


def test_pieces_of_any_size_make_the_same_batch_and_the_next_request_is_read(place):
    topic, stream, answers = place
    body = batch_of()
    whole = head_of(topic, body) + body
    # The second follows at once: none of it may end in the first.
    second = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for sizes in ((len(whole),), (200, 100_000, 7, 150_000), (1, 130_000)):
        place_in = 0
        for size in sizes:
            stream.sendall(whole[place_in : place_in + size])
            place_in += size
        stream.sendall(whole[place_in:] + second)
        status, stored = answer_of(answers)
        assert (status, stored["count"], stored["partitions"]) == (200, COUNT, 1)
        assert answer_of(answers)[0] == 200
    assert stored["next_offset"] == 3 * COUNT


def test_idempotency_keys_of_a_large_batch_count(place):
    topic, stream, answers = place
    body = batch_of(idempotency_keys=[b"key %d" % number for number in range(COUNT)])
    for is_repeat in (False, True):
        stream.sendall(head_of(topic, body) + body)
        status, stored = answer_of(answers)
        assert (status, stored["duplicate"], stored["base_offset"]) == (200, is_repeat, 0)


def test_a_client_that_leaves_in_the_middle_stores_nothing(place, shared_broker):
    topic, stream, answers = place
    body = batch_of()
    stream.sendall(head_of(topic, body) + body[:200_000])
    stream.shutdown(socket.SHUT_RDWR)
    assert answers.read() == b""
    assert shared_broker.call("GET", f"/topics/{topic}").json["total_messages"] == 0


@pytest.mark.tier("test")
def test_a_large_body_that_does_not_come_is_not_waited_for(hasty_broker):
    body = batch_of()
    said = b""
    for _ in range(10):
        said = said or late_answer(hasty_broker.port, head_of("empty", body) + body[:200_000])
    assert said.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in said.lower(), "the rest of the body would be read as a request"


def test_a_damaged_batch_is_refused_and_the_connection_goes_on(place):
    topic, stream, answers = place
    body = batch_of()
    damaged = body[:100_000] + b"?" + body[100_001:]
    stream.sendall(head_of(topic, damaged) + damaged)
    assert answer_of(answers)[0] == 400
    stream.sendall(head_of(topic, body) + body)
    assert answer_of(answers)[0] == 200


def test_whoever_waits_to_be_told_to_go_on_is_told(place):
    topic, stream, answers = place
    body = batch_of()
    stream.sendall(head_of(topic, body, "Expect: 100-continue"))
    assert answers.readline().startswith(b"HTTP/1.1 100")
    assert answers.readline() == b"\r\n"
    stream.sendall(body)
    assert answer_of(answers)[0] == 200


def test_a_batch_over_the_limit_is_refused_by_its_length(shared_broker):
    connection = shared_broker.connect()
    target = "/topics/empty/partitions/0/batches"
    connection.putrequest("POST", target)
    connection.putheader("content-type", BATCH)
    connection.putheader("content-length", str(17 << 20))
    connection.endheaders(b"x")
    assert connection.getresponse().status == 413
    connection.close()
