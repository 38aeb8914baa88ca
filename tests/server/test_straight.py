"""The straight way, of a publish and of a follower, asks the same as the usual one and gives the same answers."""

import gc
import weakref

import pytest

from penstock.api.principals import Role
from penstock.errors import Unavailable
from penstock.server.http.following import Follower
from penstock.server.http.straight import Straight
from penstock.server.reading_settings import read_settings

from .rigs import in_process, until
from .wires import answer_to, connected

BODY = b'{"messages":[{"value":"lamp"}],"acks":"leader"}'
AUTH = {("auth", "enabled"): True}


def publish(*lines: bytes, last: bytes = b"") -> bytes:
    """A publish; `last` is a header behind the length, so that the head is never taken for a known one."""
    head = [b"POST /topics/orders/messages HTTP/1.1", b"Host: localhost", *lines]
    head += [b"Content-Type: application/json", b"Content-Length: %d" % len(BODY)]
    return b"\r\n".join([*head, *filter(None, [last]), b"", BODY])


def read(*lines: bytes, last: bytes = b"") -> bytes:
    target = b"/topics/orders/partitions/0/messages?limit=1&offset=0" + (
        b"&max_bytes=9" * bool(last)
    )
    accept = b"Accept: application/vnd.penstock.batch"
    head = [b"GET %b HTTP/1.1" % target, b"Host: localhost", *lines, accept]
    return b"\r\n".join([*head, b"", b""])


@pytest.fixture
def taken(monkeypatch) -> list[str]:
    """Which of the straight ways were gone, in their order."""
    found: list[str] = []
    for kind, name in ((Straight, "serve"), (Follower, "begin")):
        usual = getattr(kind, name)

        def noted(self, *given, usual=usual, kind=kind):
            done = usual(self, *given)
            if done is not False:
                found.append(kind.__name__)
            return done

        monkeypatch.setattr(kind, name, noted)
    return found


class Ways:
    """The same request on a connection where its head is known by now, and on one where it never is."""

    def __init__(self, broker, request, *lines: bytes) -> None:
        self._broker, self._lines = broker, [request(*lines), request(*lines, last=b"X-Last: 1")]
        self._connections = [connected(broker), connected(broker)]

    async def answers(self) -> list[bytes]:
        return [
            await answer_to(*connection, raw)
            for connection, raw in zip(self._connections, self._lines, strict=True)
        ]

    async def agreed(self) -> bytes:
        straight, usual = await self.answers()
        assert straight == usual
        return straight.partition(b"\r\n")[0]


def bearer(key: str) -> bytes:
    return b"Authorization: Bearer " + key.encode()


@pytest.fixture(params=[publish, read], ids=["publish", "read"])
def request_of(request):
    return request.param


async def test_a_key_is_looked_at_every_time(tmp_path, request_of, taken):
    async with in_process(tmp_path, AUTH) as broker:
        keys = broker.door.gate.keys
        admin = bearer((tmp_path / "admin.key").read_text().strip()).decode()
        name, _, value = admin.partition(": ")
        made = {"name": "orders", "num_partitions": 1}
        assert (await broker.call("POST", "/topics", made, headers={name: value})).status == 201
        stored, key = keys.create("app", Role.ADMIN)
        ways = Ways(broker, request_of, bearer(key))
        for _ in range(3):
            assert await ways.agreed() == b"HTTP/1.1 200 OK"
        assert len(taken) == 2, "the first is for the parser"
        keys.revoke(stored.key_id)
        for _ in range(2):
            assert await ways.agreed() == b"HTTP/1.1 401 Unauthorized"


async def test_what_a_key_is_not_for_is_refused(tmp_path, request_of, taken):
    async with in_process(tmp_path, AUTH) as broker:
        _, key = broker.door.gate.keys.create("app", Role.READONLY, prefixes=("bills",))
        ways = Ways(broker, request_of, bearer(key))
        for _ in range(3):
            assert await ways.agreed() == b"HTTP/1.1 403 Forbidden"
        assert len(taken) == 2


async def test_whoever_comes_too_often_is_told_so(tmp_path, request_of, taken):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        # Numbers that a float says exactly.
        broker.door.rate.per_s, broker.door.rate._now = 4, lambda: 128.0
        found = []
        for last in (b"", b"X-Last: 1"):
            connection = connected(broker)
            broker.door.rate._full_at.clear()
            found.append([await answer_to(*connection, request_of(last=last)) for _ in range(8)])
        statuses = [[one.split()[1] for one in some] for some in found]
        assert statuses[0] == statuses[1] == [b"200"] * 4 + [b"429"] * 4
        assert found[0][-1] == found[1][-1]
        assert len(taken) == 7


async def test_settings_that_change_hold_from_the_next_request_on(tmp_path, request_of, taken):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        ways = Ways(broker, request_of)
        for _ in range(2):
            assert await ways.agreed() == b"HTTP/1.1 200 OK"
        broker.door.configure(read_settings(flags=AUTH))
        for _ in range(2):
            assert await ways.agreed() == b"HTTP/1.1 401 Unauthorized"
        assert taken


async def test_a_body_that_has_become_too_large_is_refused(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        ways = Ways(broker, publish)
        assert [await ways.agreed() for _ in range(2)] == [b"HTTP/1.1 200 OK"] * 2
        small = {("http", "body_bytes_max"): 40, ("limits", "value_bytes_max"): 40}
        broker.door.configure(read_settings(flags=small))
        assert (await ways.agreed()).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(("error", "status"), [(Unavailable("no"), b"503"), (KeyError(1), b"500")])
async def test_what_goes_wrong_is_told_in_the_usual_way(
    tmp_path, monkeypatch, taken, error, status
):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        ways = Ways(broker, publish)
        assert [await ways.agreed() for _ in range(2)] == [b"HTTP/1.1 200 OK"] * 2

        def fail(*_given: object) -> None:
            raise error

        for way in ("_stored", "_store_values"):
            monkeypatch.setattr(f"penstock.server.http.inlet.Inlet.{way}", fail)
        broker.driver._is_torn = False
        straight, _ = await ways.answers()
        assert straight.split()[1] == status
        assert len(taken) == 2
        assert (broker.door.room.under_way, broker.door.room.coming) == (0, 0)


async def test_a_bug_is_told_to_all_who_came_in_one_turn(tmp_path, monkeypatch):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        lines = [connected(broker) for _ in range(3)]

        def fail(*_given: object) -> None:
            raise KeyError(1)

        monkeypatch.setattr("penstock.server.http.inlet.Inlet._store", fail)
        for connection, _ in lines:
            connection.data_received(publish())
        for connection, wire in lines:
            assert (await answer_to(connection, wire)).split()[1] == b"500"


@pytest.mark.parametrize("raw", [publish(), publish().replace(b"/topics", b"/nothing"), read()])
async def test_a_connection_that_ended_needs_no_collector(tmp_path, raw):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        connection, wire = connected(broker)
        for _ in range(2):
            await answer_to(connection, wire, raw)
        wire.close()
        connection.connection_lost(None)
        gone = weakref.ref(connection)
        gc.collect()
        gc.disable()
        try:
            del connection
            assert gone() is None
        finally:
            gc.enable()


async def test_only_the_first_of_a_turn_goes_straight_and_nobody_who_waits_for_the_disk(
    tmp_path, taken
):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        lines = [connected(broker) for _ in range(3)]
        for line in lines:
            await answer_to(*line, publish())
        taken.clear()
        for connection, _ in lines:
            connection.data_received(publish())
        await until(lambda: all(wire.written for _, wire in lines))
        assert taken == ["Straight"]
    async with in_process(tmp_path, fsync="always") as broker:
        await broker.topic()
        line = connected(broker)
        for _ in range(3):
            assert b'"guarantee":"fsynced"' in await answer_to(*line, publish())
        assert taken == ["Straight"]
