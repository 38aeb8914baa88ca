"""Every request is asked the same questions again: its key, its rights, its rate, today's settings."""

import gc
import weakref

import pytest

from penstock.api.keys import RevokeKey
from penstock.api.principals import Role
from penstock.errors import Unavailable
from penstock.server.rate_limiter import RateLimiter
from penstock.server.settings_sources import read_settings

from .rigs import in_process
from .wires import answer_to, connected, publish, read

AUTH = {("auth", "enabled"): True}


async def status_of(connection, raw: bytes) -> bytes:
    return (await answer_to(*connection, raw)).partition(b"\r\n")[0]


def bearer(key: str) -> bytes:
    return b"Authorization: Bearer " + key.encode()


@pytest.fixture(params=[publish, read], ids=["publish", "read"])
def request_of(request):
    return request.param


async def test_a_key_is_looked_at_every_time(tmp_path, request_of):
    async with in_process(tmp_path, AUTH) as broker:
        admin = bearer((tmp_path / "admin.key").read_text().strip()).decode()
        name, _, value = admin.partition(": ")
        made = {"name": "orders", "num_partitions": 1}
        assert (await broker.call("POST", "/topics", made, headers={name: value})).status == 201
        new = broker.key("app", Role.ADMIN)
        connection, raw = connected(broker), request_of(bearer(new.text))
        for _ in range(2):
            assert await status_of(connection, raw) == b"HTTP/1.1 200 OK"
        broker.driver.execute(RevokeKey(new.key.key_id))
        assert await status_of(connection, raw) == b"HTTP/1.1 401 Unauthorized"


async def test_what_a_key_is_not_for_is_refused(tmp_path, request_of):
    async with in_process(tmp_path, AUTH) as broker:
        key = broker.key("app", Role.READONLY, "bills").text
        connection, raw = connected(broker), request_of(bearer(key))
        for _ in range(2):
            assert await status_of(connection, raw) == b"HTTP/1.1 403 Forbidden"


async def test_a_client_over_its_rate_is_told_so(tmp_path, request_of):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        # Numbers that a float says exactly.
        broker.app.rate = RateLimiter(4, lambda: 128.0)
        connection = connected(broker)
        found = [await status_of(connection, request_of()) for _ in range(8)]
        assert [one.split()[1] for one in found] == [b"200"] * 4 + [b"429"] * 4


async def test_settings_that_change_hold_from_the_next_request_on(tmp_path, request_of):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        connection = connected(broker)
        assert await status_of(connection, request_of()) == b"HTTP/1.1 200 OK"
        broker.app.configure(read_settings(flags=AUTH))
        assert await status_of(connection, request_of()) == b"HTTP/1.1 401 Unauthorized"


async def test_a_body_that_has_become_too_large_is_refused(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        connection = connected(broker)
        assert await status_of(connection, publish()) == b"HTTP/1.1 200 OK"
        small = {("http", "body_bytes_max"): 40, ("limits", "value_bytes_max"): 40}
        broker.app.configure(read_settings(flags=small))
        assert (await status_of(connection, publish())).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(("error", "status"), [(Unavailable("no"), b"503"), (KeyError(1), b"500")])
async def test_what_goes_wrong_is_told_to_all_who_came_in_one_turn(
    tmp_path, monkeypatch, error, status
):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        lines = [connected(broker) for _ in range(3)]

        def fail(*_given: object) -> None:
            raise error

        monkeypatch.setattr("penstock.server.http.publish_coalescer.PublishCoalescer._store", fail)
        for connection, _ in lines:
            connection.data_received(publish())
        for connection, wire in lines:
            assert (await answer_to(connection, wire)).split()[1] == status
        assert broker.app.room.under_way == 0


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
