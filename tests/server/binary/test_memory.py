"""Memory for requests that are being received: none without a key, a share for each key, and given back."""

import pytest

from penstock.api.frames import COMMAND, HELLO, Hello, request_frame
from penstock.api.principals import Role
from penstock.api.topics import ListTopics
from penstock.api.wire import decode_reply, encode_hello
from penstock.errors import PenstockError, TooManyRequests, Unauthenticated
from penstock.server.binary.commands import Commands
from penstock.server.binary.connection import Connection

from ..rigs import in_process
from .services import service_of
from .transports import Wire, on_wire


def of_size(size, api_key=COMMAND):
    """A request of so many bytes, as if its body were a command."""
    return b"".join(request_frame(api_key, 2, [bytes(size)]))


LITTLE_MEMORY = {
    ("auth", "enabled"): True,
    ("http", "bodies_bytes_max"): 300_000,
    ("http", "client_bodies_bytes_max"): 200_000,
}


def refusal(wire):
    """What the second request on a connection was refused with, which is what ended it."""
    assert wire.is_over
    with pytest.raises(PenstockError) as caught:
        decode_reply(ListTopics, wire.replies.pop(2))
    assert not wire.replies
    return caught.value


async def test_connections_without_a_key_take_no_memory_from_those_with_one(tmp_path):
    async with in_process(tmp_path, LITTLE_MEMORY) as broker:
        service = service_of(broker)
        for _ in range(4):
            connection, wire = on_wire(service)
            connection.data_received(of_size(1 << 20)[:100_000])
            assert isinstance(refusal(wire), Unauthenticated)
        connection, wire = on_wire(service, broker.key("good", Role.ADMIN))
        frame = of_size(1 << 20)
        connection.data_received(frame[:190_000])
        assert not wire.is_over
        # A key that comes with the start of a large request counts for it.
        early, early_wire = Connection(service, Commands(service)), Wire()
        early.connection_made(early_wire)
        key = broker.key("early", Role.ADMIN).text
        hello = request_frame(HELLO, 1, encode_hello(Hello("test", key)))
        early.data_received(b"".join(hello) + frame[:100_000])
        assert list(early_wire.replies) == [1]
        assert not early_wire.is_over


async def test_requests_of_one_key_leave_room_for_those_of_other_keys(tmp_path):
    """On both ports together; it is given back when a request is whole, and when its connection is lost."""
    async with in_process(tmp_path, LITTLE_MEMORY) as broker:
        service, one, other = service_of(broker), *(broker.key(n, Role.ADMIN) for n in "ab")
        frame = of_size(150_000)
        first, first_wire = on_wire(service, one)
        first.data_received(frame[:120_000])
        second, second_wire = on_wire(service, one)
        second.data_received(frame[:120_000])
        error = refusal(second_wire)
        assert (type(error), error.fields["limit"]) == (TooManyRequests, 200_000)
        second.connection_lost(None)
        third, third_wire = on_wire(service, other)
        third.data_received(frame[:120_000])
        assert (first_wire.is_over, third_wire.is_over) == (False, False)
        assert broker.app.memory.used == 240_000
        fourth, fourth_wire = on_wire(service, broker.key("c", Role.ADMIN))
        fourth.data_received(frame[:120_000])
        assert refusal(fourth_wire).fields["limit"] == 300_000
        first.data_received(frame[120_000:])
        third.connection_lost(None)
        assert broker.app.memory.used == 0


async def test_a_kafka_request_for_which_there_is_no_memory_just_ends_its_connection(tmp_path):
    """Its client would read an error of ours as a reply to what it asked."""
    async with in_process(tmp_path, LITTLE_MEMORY) as broker:
        service, produce = service_of(broker), 0
        for key in (None, broker.key("good", Role.ADMIN)):
            connection, wire = on_wire(service, key)
            connection.data_received(of_size(1 << 20, produce)[:250_000])
            assert wire.is_over
            assert wire.replies == {}
