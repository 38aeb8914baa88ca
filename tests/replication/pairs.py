"""A broker and its standby, as two processes on one machine, that are killed, promoted and started again."""

import http.client
import json
import os
import random
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE_S = 120
# Below those that a system gives to whoever asks for any.
_PORTS = (20_000, 30_000)
_CHANCE = random.SystemRandom()
_taken: set[int] = set()
TOPIC = {"name": "orders", "num_partitions": 1, "config": {"visibility_timeout_ms": 600_000}}


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    json: Any


def free_ports(count: int) -> list[int]:
    """Ports that no other program is given by the system, also not while the node that has them does not run."""
    ports: list[int] = []
    while len(ports) < count:
        port = _CHANCE.randrange(*_PORTS)
        if port not in _taken:
            _taken.add(port)
            with suppress(OSError), socket.create_server(("127.0.0.1", port)):
                ports.append(port)
    return ports


class Node:
    """One of the two. Its ports and its directory stay the same over restarts."""

    def __init__(self, number: int, directory: Path, settings: dict[str, str]) -> None:
        self.number, self.data = number, directory / f"node-{number}"
        self.http, self.binary, self.peer = free_ports(3)
        self.log = directory / f"node-{number}.log"
        self.settings, self.key = settings, ""
        self.process: subprocess.Popen[bytes] | None = None
        self.other: Node
        # All the others, where there are two.
        self.peers: list[Node] = []
        # Where it listens for clients and for its peer, and the words that begin a command on its machine.
        self.host = self.peer_host = "127.0.0.1"
        self.inside: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return f"penstock://{self.host}:{self.binary}"

    @property
    def peer_address(self) -> str:
        return f"{self.peer_host}:{self.peer}"

    def words(self) -> list[str]:
        """The settings as words of a command."""
        settings = {
            "broker.host": self.host,
            "broker.port": self.http,
            "broker.binary_port": self.binary,
            "broker.data_dir": self.data,
            "broker.node_id": self.number,
            "cluster.listen": self.peer_address,
            "cluster.peers": ",".join(one.peer_address for one in self.peers),
            "log.format": "text",
            **self.settings,
        }
        return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]

    def start(self, *words: str) -> None:
        command = [*self.inside, sys.executable, "-m", "penstock", "serve", *self.words(), *words]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, cwd=self.data.parent)
        self.until(self._is_live, "started")

    def _is_live(self) -> bool:
        assert self.is_running, self.log.read_text()[-3000:]
        return self.call("GET", "/livez").status == 200

    def until(self, is_so: Any, what: str = "") -> None:
        """Return when something is so; a node that does not answer yet is asked again."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if is_so():
                    return
            except (OSError, http.client.HTTPException):
                pass
            assert time.monotonic() < deadline, (what, self.log.read_text()[-3000:])
            time.sleep(0.05)

    def role(self) -> str:
        return str(self.call("GET", "/readyz").json.get("role"))

    def until_role(self, role: str) -> None:
        self.until(lambda: self.role() == role, role)

    def until_in_sync(self, count: int = 2) -> None:
        """This node leads, and so many nodes, it included, have everything."""
        self.until(lambda: self.call("GET", "/cluster").json.get("in_sync") == count, "in sync")

    def until_confirmed(self) -> None:
        """The other has all that was appended until now, also what no reply has waited for."""
        wanted = self.call("GET", "/cluster").json["sequence"]
        self.until(lambda: self.call("GET", "/cluster").json["committed"] >= wanted, "confirmed")

    def call(self, method: str, target: str, body: object = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection(self.host, self.http, timeout=PATIENCE_S)
        try:
            sent = None if body is None else json.dumps(body)
            kind = {"content-type": "application/json"} if body is not None else {}
            if self.key:
                kind["authorization"] = f"Bearer {self.key}"
            connection.request(method, target, body=sent, headers={**kind, **headers})
            answer = connection.getresponse()
            content = answer.read()
            found = {name.lower(): value for name, value in answer.getheaders()}
            is_json = "json" in found.get("content-type", "")
            return Reply(answer.status, found, json.loads(content) if is_json else content)
        finally:
            connection.close()

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of the CLI, with the settings of this node."""
        return self.command_without_settings(*words, *self.words())

    def command_without_settings(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.inside, sys.executable, "-m", "penstock", *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd=self.data.parent,
            env=os.environ,
            check=False,
        )

    def use_certificates(self, directory: Path, number: int = 0) -> None:
        name = f"node-{number or self.number}"
        self.settings |= {
            "cluster.ca_file": str(directory / "ca.pem"),
            "cluster.cert_file": str(directory / f"{name}.pem"),
            "cluster.key_file": str(directory / f"{name}-key.pem"),
        }

    def publish(self, *values: str, topic: str = "orders", **more: object) -> Reply:
        messages = [{"value": one, **more} for one in values]
        return self.call("POST", f"/topics/{topic}/messages", {"messages": messages, "acks": "all"})

    def values(self, topic: str = "orders") -> list[str]:
        target = f"/topics/{topic}/partitions/0/messages?offset=0&limit=10000"
        return [one["value"] for one in self.call("GET", target).json["messages"]]

    def poll(self, limit: int = 100, group: str = "g", topic: str = "orders") -> list[dict]:
        target = f"/topics/{topic}/messages?group={group}&max={limit}&timeout=0s"
        reply = self.call("GET", target)
        assert reply.status == 200, reply.json
        return reply.json["messages"]

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def until_ended(self, code: int) -> None:
        """The process has ended by itself, with this exit code."""
        self.until(lambda: not self.is_running, "ended")
        assert self.process is not None
        assert self.process.returncode == code, self.log.read_text()[-3000:]

    def promote(self, *words: str) -> None:
        done = self.command("promote", *words)
        assert done.returncode == 0, (done.stderr, self.log.read_text()[-2000:])
        self.until_role("leading")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=PATIENCE_S)


class Pair(NamedTuple):
    first: Node
    second: Node

    @property
    def addresses(self) -> str:
        return f"{self.first.address},{self.second.host}:{self.second.binary}"

    def in_sync(self) -> "Pair":
        """The one that leads first, and then the other, which has everything."""
        for one in self:
            if not one.is_running:
                one.start()
        roles = {one: one.role() for one in self}
        leader = next((one for one in self if roles[one] == "leading"), None)
        if leader is None:
            leader = self.first
            leader.until(lambda: "leading" in (leader.role(), leader.other.role()), "a leader")
            leader = leader if leader.role() == "leading" else leader.other
        leader.until_in_sync()
        return Pair(leader, leader.other)

    def remake_topic(self) -> None:
        """The first leads: it has the topic, with nothing in it. Refused while its standby is late, it asks again."""

        def is_done(method: str, target: str, body: object, expected: tuple[int, ...]) -> bool:
            reply = self.first.call(method, target, body)
            assert reply.status in (*expected, 503, 504), reply.json
            return reply.status in expected

        # Not there, or there already: what was refused for being late may have been done.
        self.first.until(lambda: is_done("DELETE", "/topics/orders", None, (204, 404)), "deleted")
        self.first.until(lambda: is_done("POST", "/topics", TOPIC, (201, 409)), "made")


@contextmanager
def pair(directory: Path, *, is_started: bool = True, **settings: str):
    """Node 1 leads and node 2 follows it; `settings` are of both, with __ for the dot."""
    known = {name.replace("__", "."): value for name, value in settings.items()}
    first, second = (Node(number, directory, dict(known)) for number in (1, 2))
    first.other, second.other = second, first
    first.peers, second.peers = [second], [first]
    try:
        if is_started:
            first.start()
            second.start("--follow", first.peer_address)
            first.until_in_sync()
        yield Pair(first, second)
    finally:
        for one in (first, second):
            if one.is_running:
                one.kill()


@contextmanager
def three(directory: Path, **settings: str):
    """Node 1 leads, and nodes 2 and 3 follow it."""
    known = {name.replace("__", "."): value for name, value in settings.items()}
    nodes = [Node(number, directory, dict(known)) for number in (1, 2, 3)]
    for one in nodes:
        one.peers = [other for other in nodes if other is not one]
    try:
        nodes[0].start()
        for one in nodes[1:]:
            one.start("--follow", nodes[0].peer_address)
        nodes[0].until_in_sync(3)
        yield nodes
    finally:
        for one in nodes:
            if one.is_running:
                one.kill()
