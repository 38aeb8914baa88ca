"""A connection: many requests at once, a server that does not take a request, or only drop by drop, and its end."""

import asyncio
import gc
import json
import socket
import ssl
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest
import trustme

from penstock.api.consume import Poll
from penstock.api.frames import COMMAND, HELLO
from penstock.api.topics import ListTopics
from penstock.api.wire import encode_command, encode_value
from penstock.client import AsyncClient, Client, ClientSettings, RetryPolicy
from penstock.client.address import Address
from penstock.client.asynchronous.connection import Connection as AsyncConnection
from penstock.client.synchronous.connection import Connection
from penstock.errors import (
    AnswerTimeout,
    Cancelled,
    NotFound,
    Refused,
    Unauthenticated,
    Unreachable,
)
from tests.stalls import despite_stalls

from .proxies import HELLO_REPLY, Proxy, fake, frames_of, reply_frame, reply_to, requests_of

# More than all buffers of the system hold.
LARGE = bytes(16 << 20)
SETTINGS = ClientSettings(timeout_s=0.1)
ONE_TRY = ClientSettings(retry=RetryPolicy(retries=0))


@contextmanager
def taking_drops(tls: ssl.SSLContext | None):
    """A server that says hello and then takes in a little every few milliseconds: all of it would take some seconds."""
    is_over = threading.Event()

    def take(listener: socket.socket) -> None:
        with suppress(OSError):
            stream, _ = listener.accept()
            if tls is not None:
                stream = tls.wrap_socket(stream, server_side=True)
            with stream:
                hello = next(iter(requests_of(stream)))
                stream.sendall(reply_frame(hello.correlation, encode_value(HELLO_REPLY)))
                while not is_over.wait(0.01) and stream.recv(1 << 16):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Passed on to the connections.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        server = threading.Thread(target=take, args=(listener,), daemon=True)
        server.start()
        yield listener.getsockname()[1]
        is_over.set()
        server.join(120)


def post_large(connection: Connection, body) -> None:
    with pytest.raises(AnswerTimeout, match=r"not taken within 0\.1 s") as raised:
        connection.post(COMMAND, body)
    assert raised.value.is_sent
    assert not connection.is_usable


@pytest.mark.parametrize("body", [[LARGE], [LARGE[: 1 << 10], LARGE, LARGE]], ids=["one", "pieces"])
def test_a_request_that_is_taken_drop_by_drop_is_given_up(body):
    with taking_drops(None) as port:
        address = Address.parse(f"penstock://127.0.0.1:{port}")
        post_large(Connection.open(address, None, "", SETTINGS), body)


def test_with_tls_too():
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    with taking_drops(server) as port:
        address = Address.parse(f"penstocks://localhost:{port}")
        post_large(Connection.open(address, client, "", SETTINGS), [LARGE])


async def test_asyncio_does_not_complain_of_a_request_that_was_dropped(url):
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, one: complaints.append(one))
    connection = await AsyncConnection.open(Address.parse(url), None, "", ClientSettings())
    pending = await connection.post(COMMAND, encode_command(ListTopics()))
    connection.close()
    assert await pending.is_answered(20)
    del connection, pending
    gc.collect()
    assert not complaints


def test_penstocks_for_a_server_without_tls_is_said(url):
    with (
        Client(url.replace("penstock:", "penstocks:"), settings=ONE_TRY) as client,
        pytest.raises(Unreachable, match=r"TLS|closed"),
    ):
        client.topics()


def test_an_address_for_http_is_refused_with_the_one_that_is_meant():
    with pytest.raises(Refused, match=r"penstock://shop\.example\.com:9092"):
        Client("http://shop.example.com:8080")
    with pytest.raises(Refused, match=r"penstocks://shop\.example\.com:9092"):
        Client("https://shop.example.com")


def test_without_an_address_it_is_that_of_the_environment(url, monkeypatch, tmp_path):
    monkeypatch.delenv("PENSTOCK_SERVER", raising=False)
    monkeypatch.setenv("PENSTOCK_CONTEXTS", str(tmp_path / "contexts.json"))
    assert Client().url == "penstock://127.0.0.1:9092"
    known = {"one": {"server": "penstock://one:1"}, "two": {"server": "penstock://two:2"}}
    (tmp_path / "contexts.json").write_text(json.dumps({"current": "one", "contexts": known}))
    assert Client().url == "penstock://one:1"
    assert Client(context="two").url == "penstock://two:2"
    with pytest.raises(NotFound):
        Client(context="three")
    with pytest.raises(Refused):
        Client(url, context="two")
    monkeypatch.setenv("PENSTOCK_SERVER", url)
    with Client() as client:
        assert client.url == url
        assert client.server().http.startswith("http://127.0.0.1:")


def test_threads_share_one_connection_and_wait_for_each_other_no_longer_than_they_must(url):
    """One waits for messages that come late, the others ask for something meanwhile."""
    links = set()

    class Noting(Proxy):
        def is_special(self, request):
            return request.command is not None

        def on_request(self, _request, link):
            links.add(link)
            return False

    with Noting(url) as proxy, Client(proxy.url) as client:
        client.create_topic("shared-connection", partitions=1)
        found = []
        waiting = threading.Thread(
            target=lambda: found.extend(client.poll("shared-connection", "g", timeout=600))
        )
        waiting.start()
        others = [
            threading.Thread(target=lambda: [client.topics() for _ in range(200)]) for _ in range(4)
        ]
        for one in others:
            one.start()
        for one in others:
            one.join(120)
            assert not one.is_alive()
        assert waiting.is_alive()
        client.publish("shared-connection", b"late")
        waiting.join(120)
        assert [one.value for one in found] == [b"late"]
        assert len(links) == 1


async def test_tasks_do_the_same(url):
    async with AsyncClient(url) as client:
        await client.create_topic("shared-async", partitions=1)
        waiting = asyncio.create_task(client.poll("shared-async", "g", timeout=600))
        await asyncio.gather(*(client.topics() for _ in range(200)))
        assert not waiting.done()
        await client.publish("shared-async", b"late")
        assert [one.value for one in await waiting] == [b"late"]


async def test_a_poll_that_is_cancelled_leaves_its_messages_to_others(url):
    async with AsyncClient(url) as client:
        await client.create_topic("cancelled-poll", partitions=1)
        waiting = asyncio.create_task(client.poll("cancelled-poll", "g", timeout=600))
        await client.topics()
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await client.publish("cancelled-poll", b"for others")
        (found,) = await client.poll("cancelled-poll", "g", timeout=60, owner="other")
        assert (found.value, found.attempts) == (b"for others", 1)


def test_cancel_ends_a_wait_from_another_thread(url):
    with Client(url) as client:
        client.create_topic("cancelled-sync", partitions=1)
        command = Poll("cancelled-sync", "g", "ann", 1)
        sent = client.connector.begin(client_call(command, 300.0))
        threading.Timer(0.1, sent.pending.cancel).start()
        with pytest.raises(Cancelled):
            client.connector.end(sent)
        assert client.topics()


@contextmanager
def switching_often():
    """Threads take turns after each few instructions."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def test_all_threads_hear_why_the_connection_ended():
    """Also one that finds it closed before its own request has failed."""
    reasons = set()

    def ask(connection, meeting):
        pending = connection.post(COMMAND, [b"?"])
        meeting.wait()
        try:
            pending.body(time.monotonic() + 600)
        except Unreachable as error:
            reasons.add((type(error), error.fields["reason"]))

    with switching_often():
        for _ in range(60):
            ours, theirs = socket.socketpair()
            connection = Connection(Address.parse("penstock://h:1"), ours, 600.0)
            meeting = threading.Barrier(13)
            threads = [threading.Thread(target=ask, args=(connection, meeting)) for _ in range(12)]
            for one in threads:
                one.start()
            meeting.wait()
            connection.close()
            for one in threads:
                one.join()
            assert ours.fileno() == -1
            theirs.close()
    assert reasons == {(Unreachable, "the client was closed")}


def client_call(command, wait_s):
    from penstock.client.calls import Call

    return Call(command, wait_s=wait_s)


def test_a_late_reply_is_not_taken_for_that_of_another_request():
    """The first request times out; its reply comes when the second one waits."""

    def story(timeout_s):
        late = []

        def first(request):
            late.append(request)
            # Something is heard, so the connection stays.
            return reply_frame(12345, [b"?"])

        def second(request):
            return reply_to(late[0], ["late"]) + reply_to(request, ["right"])

        settings = ClientSettings(timeout_s=timeout_s, retry=RetryPolicy(retries=0))
        with listening(first, second) as url, Client(url, settings=settings) as client:
            client.connector.hello()
            with pytest.raises(AnswerTimeout):
                client.topics()
            assert client.topics() == ["right"]

    despite_stalls(story, (1, 10, 30))


@contextmanager
def listening(*scripts):
    """A server that answers hello, and each command on any connection by the next script."""
    listener = socket.create_server(("127.0.0.1", 0))
    left = [*scripts]

    def serve(stream):
        with stream, suppress(OSError):
            for request in requests_of(stream):
                is_hello = request.api_key == HELLO
                hello = reply_frame(request.correlation, encode_value(HELLO_REPLY))
                if is_hello or request.api_key == COMMAND:
                    stream.sendall(hello if is_hello else left.pop(0)(request))

    def accept():
        with suppress(OSError):
            while True:
                stream, _ = listener.accept()
                threading.Thread(target=serve, args=(stream,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"penstock://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_a_connection_that_was_closed_while_idle_is_made_again_before_anything_is_sent(url):
    """A publish is not repeated, so it may not be lost to a server that was restarted meanwhile."""
    links = []

    class Noting(Proxy):
        def is_special(self, request):
            return request.command is not None

        def on_answer(self, _request, _answer, link):
            links.append(link)
            return False

    with Noting(url) as proxy, Client(proxy.url, settings=ONE_TRY) as client:
        client.create_topic("closed-idle", partitions=1)
        links[-1].end()
        assert client.publish("closed-idle", b"x").offset == 0


def test_a_server_that_asks_for_a_key_says_so_at_once():
    def refuse(listener):
        stream, _ = listener.accept()
        with stream:
            from penstock.api.wire import encode_error

            hello = next(iter(frames_of(stream)))
            correlation = int.from_bytes(hello[8:12], "big")
            error = Unauthenticated("a key is needed")
            stream.sendall(reply_frame(correlation, [encode_error(error)]))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=refuse, args=(listener,), daemon=True).start()
        url = f"penstock://127.0.0.1:{listener.getsockname()[1]}"
        with Client(url, key="pk-1.wrong") as client, pytest.raises(Unauthenticated):
            client.topics()


def test_a_server_that_says_nothing_is_no_connection():
    settings = ClientSettings(connect_timeout_s=0.2, retry=RetryPolicy(retries=0))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"penstock://127.0.0.1:{listener.getsockname()[1]}"
        with (
            Client(url, settings=settings) as client,
            pytest.raises(Unreachable, match=r"no connection within 0\.2 s"),
        ):
            client.topics()


def test_an_answer_to_nothing_is_not_looked_at():
    def script(request):
        return reply_frame(12345, [b"?"]) + reply_to(request, ["a"])

    with fake(script) as (url, _), Client(url, settings=ONE_TRY) as client:
        assert client.topics() == ["a"]
