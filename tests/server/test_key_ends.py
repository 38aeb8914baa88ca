"""Whatever waits ends with its key, gets nothing afterwards, and gives back what it holds."""

import asyncio
import json
from contextlib import suppress

import pytest

from penstock.api.frames import HELLO, Hello, request_frame
from penstock.api.keys import CreateKey, ListKeys, RevokeKey
from penstock.api.principals import Role
from penstock.api.wire import encode_hello

from .binary.services import service_of
from .binary.transports import on_wire
from .rigs import in_process, served, until
from .test_security import AUTH, bearer
from .wires import asks, connected, is_answered

POLL = "/topics/orders/messages?group=g&timeout=20s"
WAITS = {
    "stream": "/consume?topic=orders&group=g",
    "events": "/consume?topic=orders&group=g",
    "poll": POLL,
    "member": "/groups/assigned/poll?member_id=m&timeout=20s",
    "shared member": "/groups/shared/poll?member_id=m&timeout=20s",
    "read": "/topics/orders/partitions/0/messages?offset=1&timeout=20s",
    "follower": "",
}
GROUPS = {"member": "assigned", "shared member": "shared"}
ENDS = ["rotated", "grace over", "expired"]


class Rig:
    """A topic with one message, an administrator, and a consumer's key that is to end."""

    def __init__(self, broker, data) -> None:
        self.broker = broker
        self.admin = bearer((data / "admin.key").read_text().strip())
        self.connection, self.wire = connected(broker)
        self.wire.abort = self.wire.close

    async def begin(self) -> None:
        topic = {"name": "orders", "num_partitions": 1}
        assert (await self.call("POST", "/topics", topic)).status == 201
        await self.publish("first")
        sent = {"name": "app", "role": "consumer", "expires_in": "1h"}
        made = (await self.call("POST", "/admin/keys", sent)).json
        self.key, self.key_id = made["key"], made["key_id"]

    async def call(self, method, target, body=None, **headers):
        return await self.broker.call(method, target, body, headers={**self.admin, **headers})

    async def publish(self, value: str) -> None:
        sent = {"messages": [{"value": value}]}
        assert (await self.call("POST", "/topics/orders/messages", sent)).status == 200

    def ask(self, target: str, more: str = "") -> None:
        head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {self.key}\r\n{more}\r\n"
        self.connection.data_received(head.encode())

    async def wait(self, kind: str) -> None:
        """Have a request of this kind wait; what there was before has been answered."""
        if kind in GROUPS:
            joining = {"topics": ["orders"], "member_id": "m", "client_id": "m"}
            joining["mode"] = "shared" if kind == "shared member" else "assigned"
            target = f"/groups/{GROUPS[kind]}/join"
            joined = await self.broker.call("POST", target, joining, headers=bearer(self.key))
            assert joined.status == 200
        if kind == "follower":
            more = f"X-Api-Key: {self.key}\r\nAccept: application/vnd.penstock.batch\r\n".encode()
            self.connection.data_received(asks(1, more))
        elif kind in {"poll", "member", "shared member"}:
            self.ask(WAITS[kind])
            async with asyncio.timeout(10):
                await until(lambda: b"first" in self.wire.written)
            await asyncio.sleep(0)
            self.ask(WAITS[kind])
        else:
            self.ask(WAITS[kind], "Accept: text/event-stream\r\n" if kind == "events" else "")
        async with asyncio.timeout(10):
            await until(lambda: self.broker.app.driver.waiting == 1)
        self.wire.take()

    async def end(self, how: str) -> None:
        target = f"/admin/keys/{self.key_id}"
        if how == "revoked":
            assert (await self.call("DELETE", target)).status == 204
        elif how in {"rotated", "grace over"}:
            grace = "0s" if how == "rotated" else "10m"
            rotated = await self.call("POST", f"{target}/rotate", {"grace": grace})
            assert rotated.status == 200
            if how == "grace over":
                assert self.broker.app.driver.waiting == 1, "both secrets work"
                self.broker.clock.advance("11m")
                self.broker.app.sweep()
        else:
            self.broker.clock.advance("61m")
            self.broker.app.sweep()


@pytest.mark.parametrize(
    ("kind", "how"), [*((one, "revoked") for one in WAITS), *(("stream", one) for one in ENDS)]
)
async def test_what_waits_ends_with_its_key(tmp_path, caplog, kind, how):
    async with in_process(tmp_path, AUTH) as broker:
        rig = Rig(broker, tmp_path)
        await rig.begin()
        await rig.wait(kind)
        await rig.end(how)
        async with asyncio.timeout(10):
            await until(lambda: not broker.app.driver.waiting and is_answered(rig.connection))
        told = rig.wire.take()
        if kind in {"stream", "events"}:
            assert (told, rig.wire.is_closing()) == (b"", True)
        else:
            assert told.startswith(b"HTTP/1.1 401"), told
            assert b"has ended" in told
        await rig.publish("late")
        await asyncio.sleep(0)
        assert rig.wire.written == b""
        group = GROUPS.get(kind, "g")
        if group != "assigned":
            found = (await rig.call("GET", f"/topics/orders/messages?group={group}")).json
            came = {one["value"]: one["delivery_count"] for one in found["messages"]}
            assert came["late"] == 1
            if kind in {"stream", "events"}:
                assert "first" in came, "its lease has returned"
    assert [one for one in caplog.messages if "admin.key" not in one] == []


async def test_a_body_that_is_complete_after_its_key_has_ended_changes_nothing(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        rig = Rig(broker, tmp_path)
        await rig.begin()
        sent = {"name": "leaving", "role": "admin"}
        made = (await rig.call("POST", "/admin/keys", sent)).json
        rig.key_id = made["key_id"]
        body = json.dumps({"name": "staying", "role": "admin"}).encode()
        head = f"POST /admin/keys HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {made['key']}\r\n"
        more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        rig.connection.data_received((head + more).encode() + body[:-1])
        await asyncio.sleep(0)
        await rig.end("revoked")
        rig.connection.data_received(body[-1:])
        async with asyncio.timeout(10):
            await until(lambda: rig.wire.written)
        assert rig.wire.take().startswith(b"HTTP/1.1 401")
        assert "staying" not in [one.name for one in broker.driver.execute(ListKeys())]


async def test_a_wait_with_another_key_goes_on(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        rig = Rig(broker, tmp_path)
        await rig.begin()
        target = "/topics/orders/messages?group=other&timeout=20s"
        assert len((await rig.call("GET", target)).json["messages"]) == 1
        poll = asyncio.create_task(rig.call("GET", target))
        async with asyncio.timeout(10):
            await until(lambda: broker.app.driver.waiting == 1)
            await rig.end("revoked")
            await rig.publish("second")
            assert [one["value"] for one in (await poll).json["messages"]] == ["second"]


async def test_a_connection_that_has_shown_another_key_ends_with_that_one_alone(tmp_path):
    async with in_process(tmp_path, AUTH) as broker:
        made = [broker.driver.execute(CreateKey(name, Role.CONSUMER)) for name in ("one", "two")]
        connection, wire = on_wire(service_of(broker), made[0])
        hello = request_frame(HELLO, 1, encode_hello(Hello("test", made[1].text)))
        connection.data_received(b"".join(hello))
        for new, is_over in zip(made, (False, True), strict=True):
            broker.driver.execute(RevokeKey(new.key.key_id))
            broker.app.auth.ends.look()
            assert wire.is_over is is_over


@pytest.mark.tier("test")
def test_an_open_stream_of_a_server_ends_with_its_key(tmp_path):
    """Over a socket, and with a key that ends by itself."""
    with served(tmp_path / "data", environment={"PENSTOCK_AUTH__ENABLED": "true"}) as broker:
        admin = {"x_api_key": (tmp_path / "data" / "admin.key").read_text().strip()}
        topic = {"name": "orders", "num_partitions": 1}
        assert broker.call("POST", "/topics", topic, **admin).status == 201
        publish = "/topics/orders/messages"
        broker.call("POST", publish, {"messages": [{"value": "first"}]}, **admin)
        for seconds in (2, 8, 32):
            sent = {"name": f"app-{seconds}", "role": "consumer", "expires_in": f"{seconds}s"}
            key = broker.call("POST", "/admin/keys", sent, **admin).json["key"]
            connection = broker.connect()
            held = f"{WAITS['stream']}&lease_ms=600000"
            connection.request("GET", held, headers={"x-api-key": key})
            answer = connection.getresponse()
            if answer.status == 200:
                break
            connection.close()
        assert json.loads(answer.readline())["value"] == "first"
        with suppress(ConnectionError):
            assert answer.readline() == b""
        connection.close()
        # The client may see the end of its connection before the broker has seen to the lease.
        late = broker.call("GET", f"{publish}?group=g&timeout=30s", **admin).json["messages"]
        assert [one["value"] for one in late] == ["first"], "its lease has returned"
        assert broker.stop() == 0
