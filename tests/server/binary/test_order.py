"""Who waits for a message hears of it before who sent it, and of a crowd only the first does."""

import asyncio

import pytest

from penstock.api.consume import Poll
from penstock.api.fetch import Fetch
from penstock.api.frames import COMMAND, request_frame
from penstock.api.publish import PublishValues
from penstock.api.start import Start
from penstock.api.topics import CreateTopic
from penstock.api.wire import encode_command
from penstock.server.binary.commands import Commands
from penstock.server.binary.connection import Connection

from ..rigs import InProcess
from .services import service_of

PUBLISH = PublishValues("orders", [b"lamp"])


class Wire:
    """A transport that notes whose bytes were sent, in the list that all share."""

    def __init__(self, name, sent):
        self.name, self.sent, self.is_over = name, sent, False

    def is_closing(self):
        return self.is_over

    def get_extra_info(self, name):
        return ("127.0.0.1", 1) if name in {"peername", "sockname"} else None

    def write(self, _data):
        self.sent.append(self.name)


class Port:
    """The binary port of a broker in this process. `sent` are the names of connections, as they were answered."""

    def __init__(self, broker):
        self.service = service_of(broker)
        self._commands, self.sent = Commands(self.service), []

    def ask(self, name, command, wait_ms=0):
        connection = Connection(self.service, self._commands)
        connection.connection_made(Wire(name, self.sent))
        body = encode_command(command, wait_ms=wait_ms)
        connection.data_received(b"".join(request_frame(COMMAND, 1, body)))
        return connection


@pytest.fixture
def in_port(tmp_path):
    """Runs a scenario with a port whose broker has the topic `orders`."""

    def run(scenario):
        async def with_port():
            broker = InProcess(tmp_path, {}, "interval")
            try:
                broker.driver.execute(CreateTopic("orders", 1))
                await scenario(Port(broker))
            finally:
                await asyncio.get_running_loop().shutdown_default_executor()
                broker.close()

        asyncio.run(with_port())

    return run


@pytest.mark.parametrize(
    "waiting", [Fetch("orders", 0, Start.at_offset(0)), Poll("orders", "g", "m", 10)]
)
def test_who_waits_hears_before_who_sent(in_port, waiting):
    async def scenario(port):
        port.ask("reader", waiting, wait_ms=60_000)
        port.ask("sender", PUBLISH)
        assert port.sent == ["reader", "sender"]

    in_port(scenario)


def test_a_sender_does_not_wait_for_a_crowd(in_port):
    async def scenario(port):
        for name in ("first", "second", "third"):
            port.ask(name, Fetch("orders", 0, Start.at_offset(0)), wait_ms=60_000)
        port.ask("sender", PUBLISH)
        assert len(port.sent) == 2
        assert port.sent[1] == "sender"
        await asyncio.sleep(0)
        assert sorted(port.sent) == ["first", "second", "sender", "third"]

    in_port(scenario)


def test_who_has_just_left_holds_nothing(in_port):
    """Its end was noticed in this turn of the loop, and the connection is not told before the next one."""

    async def scenario(port):
        gone = port.ask("gone", Poll("orders", "g", "gone", 10), wait_ms=60_000)
        gone.transport.is_over = True
        port.ask("sender", PUBLISH)
        gone.connection_lost(None)
        port.ask("other", Poll("orders", "g", "other", 10), wait_ms=60_000)
        assert port.sent == ["sender", "other"]
        assert gone.parked == {}

    in_port(scenario)
