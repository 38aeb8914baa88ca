"""Commands in this process, with what they print; stores that speak the protocol of S3."""

import urllib.request

import pytest

from penstock.cli.exits import Exit, run
from penstock.cli.root import root

SECRET = "a-secret-that-stands-nowhere"


@pytest.fixture
def said(capfd):
    def call(*words, code=Exit.OK):
        assert run(root, list(words)) == code
        found = capfd.readouterr()
        return found.out + found.err

    return call


@pytest.fixture
def lasting(spark, monkeypatch):
    """The session of the tests stays when a command that uses it is done."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)


@pytest.fixture(scope="module")
def stores():
    """Starts servers of S3, each with an empty bucket, and returns their addresses."""
    pytest.importorskip("obstore")
    moto = pytest.importorskip("moto.server")
    servers = []

    def start():
        server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        servers.append(server)
        address = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
        urllib.request.urlopen(urllib.request.Request(f"{address}/bucket", method="PUT")).close()
        return server, address

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def one_store(stores):
    return stores()[1]


def use_store(monkeypatch, address):
    found = {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
    }
    for name, value in found.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def bucket(one_store, monkeypatch, request):
    use_store(monkeypatch, one_store)
    return f"s3://bucket/{request.node.name[:40]}"
