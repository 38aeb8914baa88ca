"""A broker and its standby as processes on this machine, that talk over TLS, for benches."""

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec

from penstock.client import Client, ClientSettings
from penstock.server.cluster_settings import ClusterSection
from penstock.server.standby.certificates import make_certificates

PATIENCE_S = 120


class Node:
    """A process of `penstock serve`."""

    def __init__(self, directory: Path, number: int, ports: list[int]) -> None:
        self.directory, self.number = directory, number
        self.http, self.binary, self.peer = ports
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> None:
        command = [sys.executable, "-m", "penstock", "serve", "--port", str(self.http)]
        command += ["--binary-port", str(self.binary), "--fsync", "always", *words]
        command += ["--data-dir", str(self.directory / f"node-{self.number}")]
        command += ["--set", f"broker.node_id={self.number}", "--log-level", "error"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603 - our own program
        self.until(lambda: self.get("/livez") is not None)

    def get(self, target: str) -> Any:
        connection = HTTPConnection("127.0.0.1", self.http, timeout=PATIENCE_S)
        try:
            connection.request("GET", target)
            return msgspec.json.decode(connection.getresponse().read())
        finally:
            connection.close()

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            try:
                if is_so():
                    return
            except OSError:
                pass
            time.sleep(0.01)
        raise TimeoutError(f"node {self.number} is not as it should be")

    def promote(self, words: list[str]) -> None:
        """Have the leader hand over to this node."""
        command = [sys.executable, "-m", "penstock", "promote", *words]
        command += ["--set", f"broker.node_id={self.number}"]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own program

    def until_in_sync(self) -> None:
        self.until(lambda: self.get("/cluster").get("in_sync") == 2)

    def client(self, settings: ClientSettings | None = None) -> Client:
        return Client(f"penstock://127.0.0.1:{self.binary}", settings=settings)

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        self.process = None

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(PATIENCE_S)
            self.process = None


@contextmanager
def nodes() -> Iterator[tuple[Node, Node, Path]]:
    """Two nodes that do not run yet, and their directory, with certificates."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    make_certificates(directory / "certs", "bench", [1, 2], 1)
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(6)]
        ports = [one.getsockname()[1] for one in sockets]
    pair = Node(directory, 1, ports[:3]), Node(directory, 2, ports[3:])
    try:
        yield *pair, directory
    finally:
        for one in pair:
            one.stop()
        shutil.rmtree(directory, ignore_errors=True)


def cluster_section(own: Node, other: Node, min_isr: int) -> ClusterSection:
    certs = own.directory / "certs"
    return ClusterSection(
        name="bench",
        listen=f"127.0.0.1:{own.peer}",
        peers=(f"127.0.0.1:{other.peer}",),
        ca_file=str(certs / "ca.pem"),
        cert_file=str(certs / f"node-{own.number}.pem"),
        key_file=str(certs / f"node-{own.number}-key.pem"),
        min_isr=min_isr,
        catch_up_bytes_per_s=-1,
    )


def cluster_words(own: Node, other: Node, min_isr: int) -> list[str]:
    """The section as words of a command."""
    section = cluster_section(own, other, min_isr)
    names = (
        "name",
        "listen",
        "ca_file",
        "cert_file",
        "key_file",
        "min_isr",
        "catch_up_bytes_per_s",
    )
    settings = {name: getattr(section, name) for name in names} | {"peers": section.peers[0]}
    return [
        word for name, value in settings.items() for word in ("--set", f"cluster.{name}={value}")
    ]


def start_pair(first: Node, second: Node) -> None:
    first.start(*cluster_words(first, second, 2))
    second.start(*cluster_words(second, first, 2), "--follow", f"127.0.0.1:{first.peer}")
    first.until_in_sync()
