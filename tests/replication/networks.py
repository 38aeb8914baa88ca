"""Two network namespaces, joined by a line that is cut in one direction or both, loses packets or is slow.

The nodes talk to each other over that line and nothing else. Clients come in from the namespace of the tests, over a
line of their own to each node, which is never cut.
"""

import os
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .pairs import Node, Pair, pair

# Of networks for measurements (RFC 2544): no machine that the tests run on is in it.
_CLIENTS = 198 << 24 | 18 << 16
_CLIENTS_BLOCKS = 1 << 14
_PEERS = {1: "10.77.0.1", 2: "10.77.0.2"}
# A hardware address that no interface has: frames to it are lost without a word.
_NO_INTERFACE = "02:00:00:00:00:99"
LINE = "peers"


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


def why_not() -> str:
    """Why there can be no namespaces here; empty: there can be."""
    name = f"penstock-{os.getpid()}-try"
    try:
        run("ip", "netns", "add", name)
        run("ip", "netns", "delete", name)
    except FileNotFoundError:
        return "network namespaces need the command ip"
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made: {error.stderr.strip()}"
    return ""


class Network:
    """The namespaces of two nodes, 1 and 2, and the line between them."""

    def __init__(self) -> None:
        self._names = {number: f"penstock-{os.getpid()}-{number}" for number in (1, 2)}
        first = _CLIENTS + os.getpid() % _CLIENTS_BLOCKS * 8
        self._here = {1: _text(first + 1), 2: _text(first + 5)}
        self.hosts = {1: _text(first + 2), 2: _text(first + 6)}

    def make(self) -> None:
        for number, name in self._names.items():
            run("ip", "netns", "add", name)
            self._ip(number, "link", "set", "lo", "up")
            outside = f"pst{os.getpid()}-{number}"
            inside = ("peer", "name", "clients", "netns", name)
            run("ip", "link", "add", outside, "type", "veth", *inside)
            run("ip", "address", "add", f"{self._here[number]}/30", "dev", outside)
            run("ip", "link", "set", outside, "up")
            self._ip(number, "address", "add", f"{self.hosts[number]}/30", "dev", "clients")
            self._ip(number, "link", "set", "clients", "up")
        other = ("peer", "name", LINE, "netns", self._names[2])
        self._ip(1, "link", "add", LINE, "type", "veth", *other)
        for number, address in _PEERS.items():
            self._ip(number, "address", "add", f"{address}/24", "dev", LINE)
            self._ip(number, "link", "set", LINE, "up")

    def remove(self) -> None:
        for number, name in self._names.items():
            for words in (("link", "delete", f"pst{os.getpid()}-{number}"), ("netns", "del", name)):
                subprocess.run(["ip", *words], check=False, capture_output=True)

    def _ip(self, number: int, *words: str) -> None:
        run("ip", "-n", self._names[number], *words)

    def settle(self, node: Node) -> None:
        """A node, which does not run yet, is on its machine from now on."""
        node.host, node.peer_host = self.hosts[node.number], _PEERS[node.number]
        node.settings["http.allowed_hosts"] = node.host
        node.inside = ("ip", "netns", "exec", self._names[node.number])

    def cut(self, *senders: int) -> None:
        """What these nodes send to the other is lost. Connections stand: neither side is told."""
        for sender in senders:
            self._ip(sender, "neighbour", "replace", *_to_other(sender, _NO_INTERFACE))

    def heal(self, *senders: int) -> None:
        for sender in senders or (1, 2):
            # What is known of the other is found out again with the next packet.
            words = ["ip", "-n", self._names[sender], "neighbour", "delete", *_to_other(sender)]
            subprocess.run(words, check=False, capture_output=True)

    @contextmanager
    def slow(self, *senders: int, rate: str = "200kbit") -> Iterator[None]:
        """What these nodes send goes through a narrow line: it waits in a queue, and some of it is dropped."""
        words = ("dev", LINE, "root")
        shape = ("tbf", "rate", rate, "burst", "5kb", "latency", "500ms")
        for sender in senders:
            run("tc", "-n", self._names[sender], "qdisc", "add", *words, *shape)
        try:
            yield
        finally:
            for sender in senders:
                run("tc", "-n", self._names[sender], "qdisc", "delete", *words)

    @contextmanager
    def flapping(self, chance: random.Random) -> Iterator[None]:
        """Now and then packets of either side are lost, for less long than a node is missed."""
        is_over = threading.Event()

        def flap() -> None:
            while not is_over.wait(chance.uniform(0.02, 0.3)):
                sender = chance.randint(1, 2)
                self.cut(sender)
                is_over.wait(chance.uniform(0.01, 0.4))
                self.heal(sender)

        thread = threading.Thread(target=flap)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


def _to_other(sender: int, hardware: str = "") -> tuple[str, ...]:
    known = ("lladdr", hardware, "nud", "permanent") if hardware else ()
    return (_PEERS[3 - sender], *known, "dev", LINE)


def _text(address: int) -> str:
    return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))


@contextmanager
def networked_pair(directory: Path, **settings: str) -> Iterator[tuple[Network, Pair]]:
    """Node 1 leads and node 2 follows it, each in a namespace of its own, with certificates; clients need no key."""
    network = Network()
    try:
        network.make()
        known = {"auth__insecure": "true", "cluster__name": "orders", **settings}
        with pair(directory, is_started=False, **known) as nodes:
            words = ("certs", "--directory", str(directory / "certs"), "--name", "orders")
            nodes.first.command_without_settings(*words, "--node", "1", "--node", "2")
            for node in nodes:
                network.settle(node)
                node.use_certificates(directory / "certs")
            nodes.first.start()
            nodes.second.start("--follow", nodes.first.peer_address)
            nodes.first.until_in_sync()
            yield network, nodes
    finally:
        network.remove()
