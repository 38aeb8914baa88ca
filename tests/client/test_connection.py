"""A server that does not take a request, or only drop by drop: a call ends when its time is over."""

import asyncio
import gc
import socket
import ssl
import threading
import time
from contextlib import contextmanager, suppress

import pytest
import trustme

from penstock.client import ClientSettings
from penstock.client.address import Address
from penstock.client.asynchronous.io import Connection as AsyncConnection
from penstock.client.synchronous.io import Connection
from penstock.errors import AnswerTimeout, Unreachable

HEAD = b"POST / HTTP/1.1\r\n\r\n"
# More than all buffers of the system hold.
LARGE = bytes(16 << 20)
SETTINGS = ClientSettings(timeout_s=0.1)


@contextmanager
def taking_drops(tls: ssl.SSLContext | None):
    """A server that takes in a little every few milliseconds, with which all of it would take some seconds."""
    is_over = threading.Event()

    def take(listener: socket.socket) -> None:
        with suppress(OSError):
            stream, _ = listener.accept()
            if tls is not None:
                stream = tls.wrap_socket(stream, server_side=True)
            with stream:
                while not is_over.wait(0.01) and stream.recv(1 << 16):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Passed on to the connections.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        server = threading.Thread(target=take, args=(listener,), daemon=True)
        server.start()
        yield listener.getsockname()[1]
        is_over.set()
        server.join(20)


def post_large(connection: Connection, body) -> None:
    with pytest.raises(AnswerTimeout, match=r"not taken within 0\.1 s") as raised:
        connection.post(HEAD, body)
    assert raised.value.is_sent
    assert not connection.is_usable


def test_a_request_that_the_server_does_not_take_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address.parse(f"http://127.0.0.1:{listener.getsockname()[1]}")
        post_large(Connection.open(address, None, SETTINGS), LARGE)


@pytest.mark.parametrize("body", [LARGE, (LARGE[: 1 << 10], LARGE, LARGE)], ids=["one", "pieces"])
def test_a_request_that_is_taken_drop_by_drop_is_given_up(body):
    with taking_drops(None) as port:
        address = Address.parse(f"http://127.0.0.1:{port}")
        post_large(Connection.open(address, None, SETTINGS), body)


def test_with_tls_too():
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    with taking_drops(server) as port:
        address = Address.parse(f"https://localhost:{port}")
        post_large(Connection.open(address, client, SETTINGS), LARGE)


def test_what_it_took_to_send_is_taken_from_the_time_of_the_answer(monkeypatch):
    now_s, given = [100.0], []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address.parse(f"http://127.0.0.1:{listener.getsockname()[1]}")
        connection = Connection.open(address, None, SETTINGS)
        monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

        class Slow:
            """Every request takes 70 ms."""

            def send(self, data):
                now_s[0] += 0.07
                return len(data)

            def recv(self, size):
                raise TimeoutError

            def close(self):
                connection_stream.close()

        connection_stream, connection._stream = connection._stream, Slow()
        monkeypatch.setattr(connection, "_wait_at_most", given.append)
        connection.post(HEAD, b"")
        with pytest.raises(AnswerTimeout, match=r"nothing within 0\.1 s"):
            connection.collect(0.1)
    assert given == [pytest.approx(0.03)]


async def test_asyncio_does_not_complain_of_a_request_that_was_dropped():
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, one: complaints.append(one))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address.parse(f"http://127.0.0.1:{listener.getsockname()[1]}")
        connection = await AsyncConnection.open(address, None, ClientSettings())
        await connection.post(HEAD, b"")
        connection.close()
        assert await connection.is_answered(20)
    del connection
    gc.collect()
    assert not complaints


def test_https_for_a_server_without_tls_is_said():
    def answer(listener: socket.socket) -> None:
        stream, _ = listener.accept()
        with stream:
            stream.recv(4096)
            stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        address = Address.parse(f"https://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(Unreachable, match="does not speak TLS"):
            Connection.open(address, ssl.create_default_context(), ClientSettings())
