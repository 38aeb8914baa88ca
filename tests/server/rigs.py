"""A broker behind its HTTP app: in this process without a socket, or as a process of its own."""

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from logging import getLogger
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from penstock.api.keys import CreateKey, NewKey
from penstock.api.principals import Role
from penstock.config import StorageConfig
from penstock.observability.activity import Activity
from penstock.runtime import RealDisk
from penstock.runtime.asynchronous import AsyncDriver
from penstock.runtime.commit_gate import CommitGate
from penstock.runtime.threads import ThreadDriver
from penstock.runtime.world import World
from penstock.server.http.routing import Route
from penstock.server.serving import make_app
from penstock.server.settings_sources import read_settings
from penstock.sim import SimDisk
from penstock.testing import VirtualClock

from .wires import connected, is_answered, until

JSON = {"content-type": "application/json"}


EXAMPLES = {
    "topic": "orders",
    "group": "g",
    "partition": "0",
    "offset": "0",
    "key_id": "nobody",
    "pipeline": "p",
    "query": "q",
    "producer_id": "1",
    "commit": "c",
    "schedule": "s",
}


def example_path(route: Route) -> str:
    """The path of a route with a name or a number in each place that has an example; others stay as they are."""
    path = route.path
    for name, example in EXAMPLES.items():
        path = path.replace(f"{{{name}}}", example)
    return path


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class InProcess:
    """The application, on connections without sockets. Time stands still until `clock` is told otherwise."""

    def __init__(
        self,
        data: Path,
        settings: dict[tuple[str, str], Any],
        fsync: str,
        disk: SimDisk | None = None,
        gate: CommitGate | None = None,
    ) -> None:
        self.clock = VirtualClock()
        self.disk = disk or SimDisk()
        self.settings = read_settings(flags={("storage", "fsync"): fsync, **settings})
        activity = Activity()
        world = World(
            clock=self.clock,
            entropy=Random(1),
            logger=getLogger("test"),
            on_fatal=_raise,
            limits=self.settings.limits.limits_config(),
            config=self.settings.node_config(),
            observer=activity.observe,
            gate=gate,
        )
        # Free space counts only where a test says so.
        min_free_bytes = settings.get(("storage", "min_free_bytes"), 0)
        storage = StorageConfig(fsync=self.settings.storage.fsync, min_free_bytes=min_free_bytes)
        self.driver = ThreadDriver(self.disk, storage, world)
        loop = asyncio.get_running_loop()
        driver = AsyncDriver(self.driver, loop)
        data.mkdir(exist_ok=True)
        # The audit log is real, beside the files that are made without the node.
        self.audit_disk = RealDisk(data, StorageConfig())
        self.app = make_app(
            self.settings, driver, self.audit_disk, data, getLogger("test"), activity=activity
        )

    async def call(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        headers: dict[str, str] | None = None,
        pieces: list[bytes] | None = None,
    ) -> Reply:
        """One request. A body that is not bytes goes as JSON; `pieces` are the chunks of one without a length."""
        sent = {"host": "localhost", **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body, sent = json.dumps(body).encode(), {**JSON, **sent}
        if body and "content-length" not in sent:
            sent["content-length"] = str(len(body))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {one}" for name, one in sent.items())]
        parts = [b"%x\r\n%b\r\n" % (len(one), one) for one in pieces or ()] + [b"0\r\n\r\n"]
        connection, wire = connected(self)
        connection.data_received("\r\n".join([*lines, "", ""]).encode())
        for part in [body] if pieces is None else parts:
            if part:
                connection.data_received(part)
        await until(lambda: wire.written and is_answered(connection))
        connection.connection_lost(None)
        return reply_of(wire.written)

    def key(self, name: str, role: Role, *prefixes: str) -> NewKey:
        return self.driver.execute(CreateKey(name, role, prefixes))

    async def topic(self, name: str = "orders", **more: Any) -> None:
        config = {"name": name, "num_partitions": more.pop("partitions", 1), "config": more}
        assert (await self.call("POST", "/topics", config)).status == 201

    async def publish(self, *values: str, topic: str = "orders") -> None:
        messages = {"messages": [{"value": one} for one in values]}
        assert (await self.call("POST", f"/topics/{topic}/messages", messages)).status == 200

    async def poll(self, query: str = "", topic: str = "orders", group: str = "g") -> list[Any]:
        reply = await self.call("GET", f"/topics/{topic}/messages?group={group}{query}")
        assert reply.status == 200, reply.body
        return reply.json["messages"]

    def settle(self) -> None:
        """Let dead letters arrive."""
        self.driver.settle()

    def close(self) -> None:
        self.driver.close()
        self.app.auth.audit.close()
        self.audit_disk.close()


def _raise(error: BaseException) -> None:
    raise error


def reply_of(written: bytes) -> Reply:
    """The answer that stands in these bytes."""
    head, _, body = written.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    found = {name: value for name, _, value in pairs}
    if found.get("transfer-encoding") == "chunked":
        body = b"".join(body.split(b"\r\n")[1::2])
    return Reply(int(status.split()[1]), found, body)


@asynccontextmanager
async def in_process(
    data: Path,
    settings: dict[tuple[str, str], Any] | None = None,
    *,
    fsync: str = "interval",
    disk: SimDisk | None = None,
):
    broker = InProcess(data, settings or {}, fsync, disk)
    try:
        yield broker
    finally:
        broker.close()


class Served:
    """`penstock serve` as a process."""

    def __init__(self, data: Path, *words: str, environment: dict[str, str] | None = None) -> None:
        self.data = data
        command = [
            sys.executable,
            "-m",
            "penstock",
            "serve",
            "--port",
            "0",
            "--data-dir",
            str(data),
        ]
        self.process = subprocess.Popen(
            [*command, *words],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
            cwd=data.parent,
        )
        self.lines: list[str] = []
        self.address = self._address()
        self.start_line = self.lines[-1]

    def _address(self) -> str:
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"listens on (https?://\S+)", line):
                return found[1]
        self.wait()
        raise AssertionError(f"it did not start: {self.lines}")

    @property
    def port(self) -> int:
        return urlsplit(self.address).port

    @property
    def binary_address(self) -> str:
        return re.search(r"penstocks?://\S+", self.start_line)[0]

    @property
    def binary_port(self) -> int:
        return urlsplit(self.binary_address).port

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def call(self, method: str, target: str, body: object = None, **headers: str) -> Reply:
        connection = self.connect()
        try:
            return request(connection, method, target, body, **headers)
        finally:
            connection.close()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        _, rest = self.process.communicate(timeout=120)
        self.lines += rest.splitlines(keepends=True)
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.wait()


def request(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: object = None,
    **headers: str,
) -> Reply:
    """One request on a connection that stays open."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None and not isinstance(body, bytes):
        body, sent = json.dumps(body), {**JSON, **sent}
    connection.request(method, target, body=body, headers=sent)
    answer = connection.getresponse()
    found = {name.lower(): value for name, value in answer.getheaders()}
    return Reply(answer.status, found, answer.read())


@contextmanager
def served(data: Path, *words: str, kind: type[Served] = Served, **more: Any):
    server = kind(data, *words, **more)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()
        server.process.stderr.close()
