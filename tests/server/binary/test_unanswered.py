"""A mistake of the server: the request is answered INTERNAL, the log has the traceback, the connection goes on."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from penstock.api.members import PollMember
from penstock.api.principals import LOCAL
from penstock.api.publish import Acks
from penstock.api.wire import encode_command
from penstock.config import LimitsConfig
from penstock.errors import Internal
from penstock.server.binary.commands import Commands
from penstock.server.settings import Settings
from penstock.server.shared_members import SharedMembers
from penstock.server.traffic import BinaryTraffic


class Replies:
    """The side of a connection that commands see; what is replied is kept."""

    def __init__(self):
        self.principal, self.credential, self.is_tls = LOCAL, None, False
        self.parked, self.sent = {}, {}

    def check_parking(self, _correlation):
        pass

    def park(self, correlation, waiting):
        self.parked[correlation] = waiting

    def unpark(self, correlation):
        self.parked.pop(correlation, None)

    def reply(self, correlation, pieces):
        self.sent[correlation] = b"".join(pieces)

    def fail(self, correlation, error):
        self.sent[correlation] = error


class BrokenDriver:
    """Polls fail with what is no error of ours: at once, or after a wait."""

    def __init__(self, *, waits):
        self.loop, self.driver, self.is_draining = asyncio.get_running_loop(), self, False
        self._waits = waits

    async def poll(self, _polls, _principal, _timeout_ns):
        if self._waits:
            await asyncio.sleep(0)
        raise ZeroDivisionError("a mistake")


@pytest.mark.parametrize("waits", [True, False])
def test_a_poll_of_several_topics_is_answered_whatever_happens(waits, caplog):
    async def scenario():
        driver, shared = BrokenDriver(waits=waits), SharedMembers(lambda: 0.0)
        service = SimpleNamespace(
            driver=driver,
            loop=driver.loop,
            shared=shared,
            traffic=BinaryTraffic(),
            settings=Settings(),
            under_way=0,
            requests_max=1,
            is_draining=False,
            rate=SimpleNamespace(limit=0),
            budget=SimpleNamespace(require_room=lambda: None),
            logger=logging.getLogger("test"),
        )
        member = shared.join("g", "m", "c", ["a", "b"], 10, by=LOCAL, limits=LimitsConfig())
        connection, commands = Replies(), Commands(service)
        command = PollMember("g", "m", 0, 10)
        commands.begin(connection, 5, b"".join(encode_command(command, Acks.LEADER, 1000)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert isinstance(connection.sent[5], Internal)
        assert connection.parked == {}
        assert member.polls == 0
        assert service.traffic.requests == {("PollMember", "INTERNAL"): 1}

    asyncio.run(scenario())
    assert "ZeroDivisionError" in caplog.text
