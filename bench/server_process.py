"""A server as a process of its own, and load for it from another."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from . import ROOT

TOPIC = "bench"
VALUE_BYTES = 100
MANY = 100
_TICKS_PER_S = 100  # As /proc counts on Linux.


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that runs."""

    process: subprocess.Popen[str]
    port: int
    binary_port: int | None = None

    def call(self, method: str, target: str, body: object = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, target, content, {"content-type": "application/json"})
            answer = connection.getresponse().read()
        finally:
            connection.close()
        return answer

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def resident_bytes(self) -> int:
        found = re.search(
            r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text()
        )
        assert found is not None, "Linux says how much memory a process has"
        return int(found[1]) * 1024

    def syncs(self) -> int:
        found = re.search(
            r"penstock_fsync_seconds_count (\d+)", self.call("GET", "/metrics").decode()
        )
        assert found is not None, "the metric is there"
        return int(found[1])


@contextmanager
def running(*words: str) -> Iterator[ServerProcess]:
    """Runs a server from a module and its arguments until the end of the block."""
    process = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-m", *words], stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert process.stderr is not None, "it is a pipe"
        yield ServerProcess(process, *ports_of(process.stderr))
    finally:
        process.kill()
        process.communicate()


def ports_of(lines: Iterable[str]) -> tuple[int, int | None]:
    """Returns the ports that a server says it listens on. What it logs before that line is no address.

    A server that ends without the line is a RuntimeError with what it said.
    """
    said = []
    for line in lines:
        if http := re.search(r"listens on http://\S+?:(\d+)", line):
            binary = re.search(r"penstock://\S+?:(\d+)", line)
            return int(http[1]), None if binary is None else int(binary[1])
        said.append(line)
    raise RuntimeError(f"the server did not start: {''.join(said)[-500:]}")


@contextmanager
def broker(module: str = "penstock", *words: str) -> Iterator[ServerProcess]:
    """Runs a Penstock server with one topic on its own directory."""
    data = tempfile.mkdtemp(prefix="penstock-bench-")
    serve = ("serve", "--port", "0", "--binary-port", "0", "--log-level", "error", "--data-dir")
    try:
        with running(module, *(words or serve), data) as server:
            server.call("POST", "/topics", {"name": TOPIC, "num_partitions": 1})
            yield server
    finally:
        shutil.rmtree(data, ignore_errors=True)


def post(target: str, body: object) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def publish_request(count: int, *, acks: str = "leader", size: int = VALUE_BYTES) -> bytes:
    messages = [{"value": f"{number:0{size}d}"} for number in range(count)]
    return post(f"/topics/{TOPIC}/messages", {"messages": messages, "acks": acks})


def load(
    server: ServerProcess, connections: int, seconds: float, request: bytes
) -> dict[str, float]:
    """Run the load in another process. Returns how many requests were answered."""
    command = [sys.executable, "-m", "bench.server_load"]
    done = subprocess.run(  # noqa: S603 - our own words
        [*command, str(server.port), str(connections), str(seconds)],
        input=request,
        capture_output=True,
        check=True,
        cwd=ROOT,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found
