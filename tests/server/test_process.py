"""`penstock serve` as a process: it starts, answers, stops in good order, and comes back after a kill."""

import json
import signal
import socket
import subprocess
import sys
from http.client import HTTPException
from itertools import count
from threading import Thread

import pytest

import penstock

from .rigs import request, served


def test_publish_poll_ack_over_a_socket(shared_broker):
    assert shared_broker.call("POST", "/topics", {"name": "letters"}).status == 201
    sent = {"messages": [{"key": "a", "value": "hello"}], "acks": "all"}
    (result,) = shared_broker.call("POST", "/topics/letters/messages", sent).json["results"]
    assert result["guarantee"] == "fsynced"
    target = "/v1/topics/letters/messages?group=g&timeout=5s"
    (message,) = shared_broker.call("GET", target).json["messages"]
    assert (message["key"], message["value"]) == ("a", "hello")
    receipt = {"receipt_handle": message["receipt_handle"]}
    assert shared_broker.call("POST", "/messages/ack", receipt).json["success"] is True


@pytest.mark.tier("test")
def test_sigterm_ends_polls_and_streams_and_gives_leases_back(tmp_path):
    with served(tmp_path / "data") as broker:
        broker.call("POST", "/topics", {"name": "orders", "num_partitions": 1})
        broker.call("POST", "/produce?topic=orders&value=1")
        stream = broker.connect()
        stream.request("GET", "/consume?topic=orders&group=g&lease_ms=600000")
        answer = stream.getresponse()
        assert json.loads(answer.readline())["value"] == "1"
        poll = broker.connect()
        request(poll, "GET", "/topics/orders/messages?group=other&max=1")
        poll.request("GET", "/topics/orders/messages?group=other&timeout=60s")
        # The stream waits as well. A request that comes after the signal is not answered.
        while "penstock_http_waiting 2\n" not in broker.call("GET", "/metrics").body.decode():
            pass
        assert broker.stop() == 0
        assert json.loads(poll.getresponse().read()) == {"messages": []}
        assert answer.read() == b""
        poll.close()
        stream.close()
    with served(tmp_path / "data") as broker:
        found = broker.call("GET", "/topics/orders/messages?group=g").json["messages"]
        assert [one["value"] for one in found] == ["1"]
        # Ctrl-C asks for the same.
        broker.signal(signal.SIGINT)
        assert broker.wait() == 0


def test_a_second_server_is_refused_also_when_the_lock_file_was_removed(tmp_path):
    with penstock.Broker(tmp_path / "data"):
        (tmp_path / "data" / "lock").unlink()
        command = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--data-dir"]
        second = subprocess.run(
            [*command, str(tmp_path / "data")], capture_output=True, text=True, timeout=120
        )
        assert second.returncode != 0
        assert "already open" in second.stderr
        assert "Traceback" not in second.stderr


def test_a_stream_that_dies_gives_its_leases_back_at_once(shared_broker):
    shared_broker.call("POST", "/topics", {"name": "streamed", "num_partitions": 1})
    shared_broker.call("POST", "/produce?topic=streamed&value=1")
    stream = socket.create_connection(("127.0.0.1", shared_broker.port))
    stream.sendall(
        b"GET /consume?topic=streamed&group=g&lease_ms=600000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    said = b""
    while b'"value":"1"' not in said:
        piece = stream.recv(65536)
        assert piece, said
        said += piece
    stream.close()
    target = "/topics/streamed/messages?group=g&timeout=30s"
    found = shared_broker.call("GET", target).json["messages"]
    assert [(one["value"], one["attempts"]) for one in found] == [("1", 2)]


def test_a_long_poll_whose_client_left_takes_nothing(shared_broker):
    shared_broker.call("POST", "/topics", {"name": "polled", "num_partitions": 1})
    waiting = "penstock_http_waiting"
    poll = socket.create_connection(("127.0.0.1", shared_broker.port))
    poll.sendall(
        b"GET /topics/polled/messages?group=g&timeout=60s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    while f"{waiting} 1\n" not in shared_broker.call("GET", "/metrics").body.decode():
        pass
    poll.close()
    while f"{waiting} 0\n" not in shared_broker.call("GET", "/metrics").body.decode():
        pass
    shared_broker.call("POST", "/produce?topic=polled&value=1")
    (found,) = shared_broker.call("GET", "/topics/polled/messages?group=g").json["messages"]
    assert found["attempts"] == 1


class Producer(Thread):
    """Publishes until the broker is gone. `acked` were answered; `doubtful` was sent and never answered."""

    def __init__(self, broker, name: str) -> None:
        super().__init__()
        self.broker, self.prefix = broker, name
        self.acked: list[dict[str, str]] = []
        self.doubtful: dict[str, str] = {}

    def run(self) -> None:
        connection = self.broker.connect()
        for number in count():
            text = f"{self.prefix}-{number}"
            self.doubtful = {"value": text, "idempotency_key": text}
            # A kill takes the process and not the page cache, so both levels have to hold.
            sent = {"messages": [self.doubtful], "acks": "all" if number % 2 else "leader"}
            try:
                request(connection, "POST", "/topics/orders/messages", sent)
            except (OSError, HTTPException):
                break
            self.acked.append(self.doubtful)
        connection.close()


def test_what_was_acknowledged_survives_kill_9_under_load(tmp_path, effort):
    data, wanted = tmp_path / "data", []
    with served(data) as broker:
        broker.call("POST", "/topics", {"name": "orders", "num_partitions": 2})
        assert any(f"data in {data}: a new directory" in line for line in broker.lines)
        producers = kill_under_load(broker, "0")
    for round_ in range(1, effort(check=1, test=6, torture=500) + 1):
        with served(data) as broker:
            assert any(f"data in {data}: 1 topics, 2 partitions" in line for line in broker.lines)
            # Whoever got no answer tries again, and so does somebody who forgot that he had one.
            again = [one for each in producers for one in (each.doubtful, each.acked[-1])]
            sent = {"messages": again, "acks": "all"}
            results = broker.call("POST", "/topics/orders/messages", sent).json["results"]
            assert all(one["duplicate"] for one in results[1::2])
            wanted += [one["value"] for each in producers for one in (*each.acked, each.doubtful)]
            assert sorted(stored_values(broker)) == sorted(wanted)
            producers = kill_under_load(broker, str(round_))


def kill_under_load(broker, name: str) -> list[Producer]:
    producers = [Producer(broker, f"{name}-{one}") for one in range(4)]
    for one in producers:
        one.start()
    while min(len(one.acked) for one in producers) < 5:
        broker.call("GET", "/livez")
    broker.kill()
    for one in producers:
        one.join()
    return producers


def stored_values(broker) -> list[str]:
    """Everything that is in the topic."""
    values: list[str] = []
    for partition in range(2):
        offset = 0
        while True:
            target = f"/topics/orders/partitions/{partition}/messages?limit=10000&offset={offset}"
            found = broker.call("GET", target).json
            values += [one["value"] for one in found["messages"]]
            offset = found["next_offset"]
            if offset == found["latest"]:
                break
    return values


@pytest.mark.tier("test")
def test_port_in_use_and_directory_in_use_are_said_in_one_line(shared_broker, tmp_path):
    command = [sys.executable, "-m", "penstock", "serve", "--data-dir"]
    taken = subprocess.run(
        [*command, str(tmp_path / "other"), "--port", str(shared_broker.port)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert taken.returncode == 4
    assert "cannot listen on 127.0.0.1" in taken.stderr
    locked = subprocess.run(
        [*command, str(shared_broker.data), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert locked.returncode == 3
    assert f"already open in process {shared_broker.process.pid}" in locked.stderr
