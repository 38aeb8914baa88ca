"""What is wrong with a call is said in words that name it, with one client as with the other."""

import pytest

from penstock.client import Client
from penstock.errors import Refused, TooLarge


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
    with pytest.raises(Refused, match="has a unit"):
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
