"""TLS, and what SIGHUP changes in a process that runs."""

import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from penstock.errors import InvalidConfig
from penstock.server.port_settings import TlsSection
from penstock.server.tls import check_certificate, expires_at_ns

from .rigs import request, served


def write_certificate(directory, authority: trustme.CA, name: str, **dates: datetime) -> TlsSection:
    made = authority.issue_cert("localhost", common_name=name, **dates)
    cert, key = directory / "cert.pem", directory / "key.pem"
    cert.write_bytes(b"".join(one.bytes() for one in made.cert_chain_pems))
    key.write_bytes(made.private_key_pem.bytes())
    key.chmod(0o600)
    return TlsSection(cert_file=str(cert), key_file=str(key))


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def serial_of(broker, authority) -> str:
    """The certificate that a new connection is shown."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    connection = http.client.HTTPSConnection("localhost", broker.port, context=context, timeout=30)
    try:
        connection.request("GET", "/health")
        assert connection.getresponse().read()
        return connection.sock.getpeercert()["serialNumber"]
    finally:
        connection.close()


def statuses_of(broker, authority, *requests: bytes) -> list[bytes]:
    """What is answered to requests on one connection, the second and third of a kind by a shorter way."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with (
        socket.create_connection(("127.0.0.1", broker.port), 30) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as stream,
        stream.makefile("rb") as answers,
    ):
        found = []
        for one in requests:
            stream.sendall(one)
            head = [*iter(answers.readline, b"\r\n")]
            (length,) = [line for line in head if line.startswith(b"content-length: ")]
            assert answers.read(int(length.split()[1]))
            found.append(head[0].split()[1])
        return found


def said(broker, text: str) -> str:
    """The next line of the log with this text."""
    for line in broker.process.stderr:
        broker.lines.append(line)
        if text in line:
            return line
    raise AssertionError(f"never said {text!r}: {broker.lines}")


def post(path: bytes, body: bytes) -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % path
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


MAKE = post(b"/topics", b'{"name":"orders","num_partitions":1}')
PUBLISH = post(b"/topics/orders/messages", b'{"messages":[{"value":"lamp"}]}')
READ = (
    b"GET /topics/orders/partitions/0/messages?limit=9&offset=0 HTTP/1.1\r\nHost: localhost\r\n"
    b"Accept: application/vnd.penstock.batch\r\n\r\n"
)
EXPECTED = [b"201", *[b"200"] * 6]


def suites_of(broker, authority, version: ssl.TLSVersion, ciphers: str) -> str | None:
    """The suite that a client gets that knows only these; None: the server has none of them."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.minimum_version = context.maximum_version = version
    context.set_ciphers(ciphers)
    with socket.create_connection(("127.0.0.1", broker.port), 30) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as stream:
                return stream.cipher()[0]
        except (ssl.SSLError, ConnectionError):
            return None


def test_tls_has_only_suites_that_are_forward_secret_and_authenticated(tmp_path, authority):
    tls = write_certificate(tmp_path, authority, "first")
    environment = {
        "PENSTOCK_TLS__CERT_FILE": tls.cert_file,
        "PENSTOCK_TLS__KEY_FILE": tls.key_file,
    }
    old, new = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    with served(tmp_path / "data", environment=environment) as broker:
        for ciphers in ("ECDHE+AES+SHA1", "ECDHE+AES+SHA256", "ECDHE+AES+SHA384", "kRSA+AESGCM"):
            assert suites_of(broker, authority, old, ciphers) is None, ciphers
        for ciphers in ("ECDHE+AESGCM", "ECDHE+CHACHA20"):
            assert suites_of(broker, authority, old, ciphers).startswith("ECDHE-")
        assert suites_of(broker, authority, new, "DEFAULT").startswith("TLS_")


def test_certificates_are_exchanged_and_bad_ones_are_not_taken(tmp_path, authority):
    tls = write_certificate(tmp_path, authority, "first")
    file = tmp_path / "penstock.yaml"
    text = f"tls: {{cert_file: {tls.cert_file}, key_file: {tls.key_file}}}\n"
    file.write_text(text)
    with served(tmp_path / "data", "--config", str(file)) as broker:
        first = serial_of(broker, authority)
        assert statuses_of(broker, authority, MAKE, *[PUBLISH] * 3, *[READ] * 3) == EXPECTED
        write_certificate(tmp_path, authority, "second")
        broker.signal(signal.SIGHUP)
        said(broker, "reloaded; all of it")
        second = serial_of(broker, authority)
        assert second != first
        (tmp_path / "cert.pem").write_text("rubbish")
        broker.signal(signal.SIGHUP)
        said(broker, "not reloaded: tls.cert_file")
        assert serial_of(broker, authority) == second
        write_certificate(tmp_path, authority, "third")
        file.write_text(text + "broker: {id: other}\nlog: {level: debug}\n")
        broker.signal(signal.SIGHUP)
        said(broker, "restart for: broker.id")
        file.write_text(text + "broker: {idd: other}\n")
        broker.signal(signal.SIGHUP)
        said(broker, "did you mean broker.id?")
        file.write_text("{}\n")
        broker.signal(signal.SIGHUP)
        said(broker, "restart for: tls.cert_file, tls.key_file")
        assert serial_of(broker, authority)  # TLS goes on.
        assert broker.stop() == 0


def test_tls_is_not_turned_on_by_a_reload(tmp_path, authority):
    tls = write_certificate(tmp_path, authority, "first")
    file = tmp_path / "penstock.yaml"
    file.write_text("{}\n")
    with served(tmp_path / "data", "--config", str(file)) as broker:
        file.write_text(f"tls: {{cert_file: {tls.cert_file}, key_file: {tls.key_file}}}\n")
        broker.signal(signal.SIGHUP)
        said(broker, "restart for: tls.cert_file, tls.key_file")
        assert broker.call("GET", "/health").status == 200


def test_a_reload_that_is_asked_for_during_the_start_follows_it(tmp_path):
    settings = tmp_path / "penstock.yaml"
    os.mkfifo(settings)
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0"]
    words = ["--data-dir", str(tmp_path / "data"), "--config", str(settings)]
    with subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True) as process:
        try:
            # A pipe can be opened when the other side reads it: in the middle of the start.
            with settings.open("w") as given:
                process.send_signal(signal.SIGHUP)
                given.write("broker: {id: first}\n")
            assert any("data in" in line for line in process.stderr), "it has ended"
            settings.write_text("broker: {id: second}\n")
            assert any("reloaded; restart for: broker.id" in line for line in process.stderr)
        finally:
            process.kill()


def test_settings_that_are_gone_are_not_those_of_an_empty_file(tmp_path):
    settings = tmp_path / "penstock.yaml"
    settings.write_text("broker: {id: first}\n")
    with served(tmp_path / "data") as broker:
        settings.unlink()
        broker.signal(signal.SIGHUP)
        assert "penstock.yaml: No such file" in said(broker, "not reloaded")
        sections = broker.call("GET", "/admin/settings").json["sections"]
        values = {setting["name"]: setting["value"] for setting in sections["broker"]}
        assert values["id"] == "first"
        settings.write_text("broker: {id: first}\n")
        broker.signal(signal.SIGHUP)
        said(broker, "reloaded; all of it")
        assert broker.stop() == 0


def test_a_file_of_settings_that_came_later_has_to_stay(tmp_path):
    settings = tmp_path / "penstock.yaml"
    with served(tmp_path / "data") as broker:
        broker.signal(signal.SIGHUP)
        said(broker, "reloaded; all of it")
        settings.write_text("broker: {id: second}\n")
        broker.signal(signal.SIGHUP)
        said(broker, "restart for: broker.id")
        settings.unlink()
        broker.signal(signal.SIGHUP)
        assert "penstock.yaml: No such file" in said(broker, "not reloaded")
        assert broker.stop() == 0


OPENING_FOR_EVER = """
import os, signal, time
from penstock.runtime.threads import ThreadDriver
from penstock.cli import main

opened = ThreadDriver.__init__

def open_and_wait(driver, *arguments):
    opened(driver, *arguments)
    os.kill(os.getpid(), signal.{name})
    time.sleep(600)

ThreadDriver.__init__ = open_and_wait
main()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_while_the_data_is_opened_ends_the_process_in_good_order(tmp_path, name):
    data = tmp_path / "data"
    with served(data) as broker:
        assert broker.call("POST", "/topics", {"name": "orders", "num_partitions": 1}).status == 201
        sent = {"messages": [{"value": "lamp"}]}
        assert broker.call("POST", "/topics/orders/messages", sent).status == 200
        broker.kill()
    words = ["serve", "--port", "0", "--data-dir", str(data)]
    command = [sys.executable, "-c", OPENING_FOR_EVER.format(name=name), *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "stopped while the data was opened" in ended.stderr
    assert "listens on" not in ended.stderr
    with served(data) as broker:
        read = broker.call("GET", "/topics/orders/partitions/0/messages").json["messages"]
        assert [message["value"] for message in read] == ["lamp"]
        assert broker.stop() == 0


def test_one_connection_too_many_is_told_so(tmp_path):
    with served(tmp_path / "data", environment={"PENSTOCK_HTTP__CONNECTIONS_MAX": "2"}) as broker:
        first, second = broker.connect(), broker.connect()
        for one in (first, second):
            assert request(one, "GET", "/livez").status == 200
        with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as third:
            answer = third.recv(65536)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in answer
        first.close()
        second.close()


def test_bad_certificates_are_named(tmp_path, authority):
    good = write_certificate(tmp_path, authority, "good")
    check_certificate(good)
    assert expires_at_ns(good) > 0
    other = tmp_path / "other"
    other.mkdir()
    stranger = write_certificate(other, authority, "stranger")
    for bad in (
        TlsSection(cert_file=good.cert_file, key_file=stranger.key_file),
        TlsSection(cert_file=str(tmp_path / "none.pem"), key_file=good.key_file),
    ):
        with pytest.raises(InvalidConfig, match=r"tls\.cert_file"):
            check_certificate(bad)
    now = datetime.now(UTC)
    early = {"not_before": now + timedelta(days=400), "not_after": now + timedelta(days=500)}
    late = {"not_before": now - timedelta(days=500), "not_after": now - timedelta(days=400)}
    for dates, said in ((early, "valid already"), (late, "not expired")):
        named = min(dates.values(), key=lambda one: abs(one - now))
        with pytest.raises(InvalidConfig, match=rf"{said}.* {named.year} GMT"):
            check_certificate(write_certificate(other, authority, "dated", **dates))
    (tmp_path / "key.pem").chmod(0o644)
    with pytest.raises(InvalidConfig, match="closed to other users"):
        check_certificate(good)
