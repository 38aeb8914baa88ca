"""After a storm of bad requests a broker has no more memory, files and tasks than before."""

import re
import socket
from threading import Thread

from .rigs import served
from .test_bad_input import BODIES, HEAD, QUERIES, RAW, TYPE, UNKNOWN, spoken

# The whole list once more, many times over, must leave nothing behind; what is measured is the system's word.
# The allocator keeps up to 170 MB of what large bodies took and then lets go of it; kept for good, the bodies of
# 40 storms would be 280 MB.
MEMORY_BYTES_MAX = 224 << 20
# The threads of the pool come one by one, and a file of a log may be opened or closed meanwhile.
FILES_MAX, TASKS_MAX = 16, 4


class Figures:
    """What a broker says of itself."""

    def __init__(self, broker) -> None:
        text = broker.call("GET", "/metrics").body.decode()
        self.memory = figure(text, "process_resident_memory_bytes")
        self.files = figure(text, "process_open_fds")
        self.tasks = figure(text, "penstock_tasks")
        self.connections = figure(text, "penstock_http_connections")
        self.bodies = figure(text, "penstock_http_body_bytes")


def figure(text: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found is not None, f"{name} is missing"
    return float(found[1])


def storm(broker) -> None:
    """Everything of the catalogue, on connections of its own, some of them left half way."""
    head = b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: "
    requests = [*RAW.values()]
    for body in BODIES.values():
        line = b"POST /topics/empty/messages HTTP/1.1\r\n"
        requests.append(line + head + b"%d\r\n\r\n" % len(body) + body)
    targets = [one for one in (*QUERIES, *UNKNOWN) if one.isascii()]
    requests += [f"GET {one} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for one in targets]
    for raw in requests:
        answer = spoken(broker.port, raw)
        assert not answer.startswith(b"HTTP/1.1 5"), answer[:200]
    for raw in (b"GET /top", HEAD + TYPE + b"Content-Length: 100000\r\n\r\n" + b"x" * 50_000):
        with socket.create_connection(("127.0.0.1", broker.port)) as connection:
            connection.sendall(raw)


def storms(broker, count: int) -> None:
    workers = [Thread(target=storm, args=(broker,)) for _ in range(count)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()


def test_a_storm_of_bad_requests_leaves_nothing_behind(tmp_path, effort):
    with served(tmp_path / "data") as broker:
        broker.call("POST", "/topics", {"name": "empty", "num_partitions": 1})
        # The first one makes what is made once: threads, caches, room in the heap.
        storms(broker, 4)
        calm(broker)
        before = Figures(broker)
        for _ in range(effort(check=3, test=10, torture=200)):
            storms(broker, 4)
        calm(broker)
        after = Figures(broker)
        assert after.memory - before.memory < MEMORY_BYTES_MAX
        assert after.files - before.files < FILES_MAX
        assert after.tasks - before.tasks < TASKS_MAX
        assert after.bodies == 0
        assert broker.call("GET", "/topics/empty").json["total_messages"] == 0
        sent = {"messages": [{"value": "good"}]}
        assert broker.call("POST", "/topics/empty/messages", sent).status == 200
        assert broker.stop() == 0
        assert not any("Traceback" in line for line in broker.lines)


def calm(broker) -> None:
    """Return when nobody but us is connected."""
    while Figures(broker).connections > 1:
        pass
