"""Two brokers, of which one is killed: everything that was acknowledged is on the other.

    python examples/standby.py

Starts a broker and its standby as processes on this machine, publishes, kills the first with SIGKILL, promotes the
second, starts the first again, which is the standby now, and reads. Real machines need certificates:
docs/replication.md.
"""

import random
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from penstock.client import Client, ClientSettings, RetryPolicy
from penstock.errors import PenstockError

PENSTOCK = [sys.executable, "-m", "penstock"]
PATIENT = ClientSettings(retry=RetryPolicy(retries=100, backoff_ms=50, backoff_ms_max=60_000))


def free_ports(count: int) -> list[int]:
    """Below those that the system gives to other programs: a node gets the same again when it is back."""
    ports: list[int] = []
    for port in random.sample(range(20_000, 30_000), 1000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
        if len(ports) == count:
            break
    return ports


def settings(number: int, directory: Path, binary: int, own: int, other: int) -> list[str]:
    found = {
        "broker.node_id": number,
        "broker.port": 0,
        "broker.binary_port": binary,
        "broker.data_dir": directory / f"node-{number}",
        "cluster.listen": f"127.0.0.1:{own}",
        "cluster.peers": f"127.0.0.1:{other}",
        "log.format": "text",
    }
    return [word for name, value in found.items() for word in ("--set", f"{name}={value}")]


def main() -> None:
    first_port, second_port, first_peer, second_peer = free_ports(4)
    directory = Path(tempfile.mkdtemp(prefix="penstock-standby-"))
    first_words = settings(1, directory, first_port, first_peer, second_peer)
    second_words = settings(2, directory, second_port, second_peer, first_peer)
    follow = ["--follow", f"127.0.0.1:{first_peer}"]
    first = subprocess.Popen([*PENSTOCK, "serve", *first_words])  # noqa: S603 - our own program
    second = subprocess.Popen([*PENSTOCK, "serve", *second_words, *follow])  # noqa: S603 - our own program
    try:
        with Client(
            f"penstock://127.0.0.1:{first_port},127.0.0.1:{second_port}", settings=PATIENT
        ) as client:
            while True:
                try:
                    client.create_topic("orders", partitions=1)
                    break
                except PenstockError as error:
                    print(f"not yet: {error}")
                    time.sleep(0.1)
            for number in range(10):
                client.publish("orders", f"order {number}", acks="all")
            print("10 orders are acknowledged: on two disks")
            first.kill()
            first.wait()
            print("the leader is killed; the standby is promoted")
            subprocess.run([*PENSTOCK, "promote", *second_words], check=True)  # noqa: S603 - our own program
            first = subprocess.Popen([*PENSTOCK, "serve", *first_words])  # noqa: S603 - our own program
            client.publish("orders", "order 10", acks="all")
            found = [message.value for _, message in client.read("orders")]
            print(f"{len(found)} orders are on both")
    finally:
        for process in (first, second):
            process.kill()


if __name__ == "__main__":
    main()
