"""Refusals of a server, and of values that it could never take."""

import pytest

from penstock.client import Client
from penstock.errors import PartlyPublished, Refused, TooLarge, Unavailable


@pytest.fixture(scope="module")
def client(url):
    with Client(url) as one:
        one.create_topic("refusals", partitions=1)
        yield one


def test_a_request_that_is_too_large_gets_the_limit_and_not_the_end_of_the_connection(client):
    with pytest.raises(TooLarge, match="the limit is 33554432"):
        client.publish_many("refusals", [b"x" * (9 << 20)] * 4)


def test_a_large_value_of_control_characters_fits_into_a_request(client):
    value = bytes(9 << 20)
    placed = client.publish("refusals", value)
    assert next(iter(client.fetch("refusals", 0, offset=placed.offset))).value == value


@pytest.mark.parametrize("option", ["delay", "ttl"])
def test_text_without_a_unit_is_no_duration(client, option):
    with pytest.raises(Refused, match="must look like"):
        client.publish("refusals", b"x", **{option: "30"})


def test_text_that_is_no_text_is_refused(client):
    with client.producer("refusals") as producer:
        for call in (
            lambda: client.publish("refusals", "\ud800"),
            lambda: client.publish("refusals", b"", key="\ud800"),
            lambda: producer.send("\ud800"),
            lambda: producer.send(b"", headers={"\ud800": b""}),
        ):
            with pytest.raises(Refused, match="surrogates"):
                call()


@pytest.mark.parametrize("held", [None, 7, [None]])
def test_only_messages_are_answered(client, held):
    with pytest.raises(Refused, match="an answer is for messages"):
        client.ack(held)


def test_an_error_is_no_reason(client):
    for answer in (client.nack, client.reject):
        with pytest.raises(Refused, match="a reason is text, not ValueError"):
            answer("refusals:0:0:1:1.1", ValueError("no stock"))


def test_what_was_stored_in_part_is_not_sent_again(client):
    client.create_topic("limited", partitions=1, max_backlog_messages=10)
    with pytest.raises(PartlyPublished, match="10 of 20 messages were not stored: ") as failure:
        client.publish_many("limited", [b"x"] * 20)
    refused = failure.value.results[-1]
    assert "max_backlog_messages is 10: 10 messages unread, 1 to be added" in str(refused)
    # A second try would have stored others, or told the caller that none was.
    assert [one.offset for one in failure.value.results[:10]] == [*range(10)]


@pytest.mark.tier("test")
def test_a_batch_of_a_producer_that_is_over_the_limit_waits_for_an_empty_topic(client):
    client.create_topic("batches", partitions=1, max_backlog_messages=10)
    with client.producer("batches") as producer:
        last = [producer.send(b"x") for _ in range(50)][-1]
        assert last.result(120).offset == 49
    with client.producer("batches", delivery_timeout_s=2) as producer:
        late = [producer.send(b"x") for _ in range(50)][-1]
        with pytest.raises(Unavailable, match="are let in only when nothing is unread"):
            late.result(120)
        with pytest.raises(Unavailable):
            producer.flush()
