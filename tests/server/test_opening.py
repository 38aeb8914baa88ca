"""While the data is opened, the ports say how far that is."""

import json
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection

OPENING_FOR_LONG = """
import time
from penstock.runtime.threads import ThreadDriver
from penstock.cli import main

opened = ThreadDriver.__init__

def open_slowly(driver, *arguments):
    opened(driver, *arguments)
    time.sleep(600)

ThreadDriver.__init__ = open_slowly
main()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def asked(port: int, path: str) -> tuple[int, bytes]:
    """The answer, once there is one."""
    deadline_s = time.monotonic() + 60
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        except OSError:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        finally:
            connection.close()


def test_ports_answer_while_the_data_is_opened_and_a_signal_ends_the_process(tmp_path):
    port = free_port()
    words = ["serve", "--port", str(port), "--binary-port", "0", "--data-dir", str(tmp_path / "d")]
    with subprocess.Popen(
        [sys.executable, "-c", OPENING_FOR_LONG, *words], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            status, body = asked(port, "/livez")
            assert (status, json.loads(body)["status"]) == (200, "pass")
            status, body = asked(port, "/readyz")
            assert (status, json.loads(body)["opening"]) == (503, {"opened": 0, "partitions": 0})
            assert asked(port, "/leader")[0] == 503
            assert b"penstock_opening_partitions 0\n" in asked(port, "/metrics")[1]
            status, body = asked(port, "/topics")
            assert (status, json.loads(body)["error"]) == (503, "UNAVAILABLE")
        finally:
            process.terminate()
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert "stopped while the data was opened" in said
