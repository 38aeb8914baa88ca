"""A single publish with a key, over HTTP and over the binary port: the server's processor time, and how long it takes.

One connection, one request after the other: what a program pays that waits for each answer.
"""

import socket
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from penstock.api.frames import COMMAND, FrameSplitter, request_frame
from penstock.api.publish import Publish
from penstock.api.wire import encode_command
from penstock.model import Message

from .floors import FloorTimes, floors
from .measure import FULL, Effort
from .report import CaseResult
from .server_process import TOPIC, VALUE_BYTES, ServerProcess, broker, post

_RECEIVED_BYTES = 1 << 16
SETTINGS = {"value_bytes": VALUE_BYTES, "connections": 1, "baseline": "HTTP"}


def http_request() -> bytes:
    message = {"key": "k" * 8, "value": "v" * VALUE_BYTES}
    return post(f"/topics/{TOPIC}/messages", {"messages": [message]})


def binary_request(value_bytes: int = VALUE_BYTES) -> bytes:
    command = Publish(TOPIC, [Message(b"v" * value_bytes, b"k" * 8)])
    return b"".join(request_frame(COMMAND, 1, encode_command(command)))


def http_answer(connection: socket.socket) -> None:
    data = connection.recv(_RECEIVED_BYTES)
    assert data.startswith(b"HTTP/1.1 200"), data


def binary_answer(connection: socket.socket) -> None:
    splitter = FrameSplitter(1 << 20)
    while not (frames := splitter.feed(connection.recv(_RECEIVED_BYTES))):
        pass
    assert frames[0][4] == 0, bytes(frames[0])


def turn(
    server: ServerProcess,
    port: int,
    request: bytes,
    answer: Callable[[socket.socket], None],
    count: int,
) -> tuple[float, float]:
    """Microseconds of the server's processor a request, and of the median request from here."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        took: list[float] = []
        before = server.cpu_s()
        for _ in range(count):
            began = time.perf_counter()
            connection.sendall(request)
            answer(connection)
            took.append(time.perf_counter() - began)
    return (server.cpu_s() - before) / count * 1e6, median(took) * 1e6


def turns(
    effort: Effort,
) -> tuple[list[tuple[tuple[float, float], tuple[float, float]]], FloorTimes]:
    """Both ports and then the floors, one after the other, some times: the binary port first in each pair."""
    count = 20_000 if effort is FULL else 3_000
    with broker() as server, floors(binary_request()) as floor:
        assert server.binary_port is not None, "it is on"
        binary = partial(turn, server, server.binary_port, binary_request(), binary_answer, count)
        http = partial(turn, server, server.port, http_request(), http_answer, count)
        pairs = []
        for _ in range(3):
            pairs.append((binary(), http()))
            floor.take_turn()
        return pairs, floor.times


def measure_binary_cost(effort: Effort) -> CaseResult:
    found, _ = turns(effort)
    ours, theirs = min(one[0] for one, _ in found), min(one[0] for _, one in found)
    return CaseResult(ours, theirs, settings={**SETTINGS, "clock": "the server's cpu"})


def measure_binary_latency(effort: Effort) -> CaseResult:
    found, floor = turns(effort)
    ours, theirs = min(one[1] for one, _ in found), min(one[1] for _, one in found)
    return CaseResult(ours, theirs, settings={**SETTINGS, **floor.beside(ours)})
