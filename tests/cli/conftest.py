"""One server for all tests of commands, and the commands themselves, called in this process."""

import io
import sys
from typing import NamedTuple

import pytest

from penstock.cli import exits
from penstock.cli.root import root
from penstock.client import Client
from penstock.testing.server import running_server


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def url(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("server") / "data") as address:
        yield address


@pytest.fixture
def client(url):
    with Client(url) as one:
        yield one


@pytest.fixture
def surroundings(tmp_path, monkeypatch):
    """No server, key or context of the user that runs the tests."""
    for name in ("PENSTOCK_SERVER", "PENSTOCK_CONTEXT", "PENSTOCK_KEY", "PENSTOCK_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PENSTOCK_CONTEXTS", str(tmp_path / "contexts.json"))
    return monkeypatch


@pytest.fixture
def run(surroundings, capsys):
    """A command in this process: words in, code and text out."""

    def run(*words: str, stdin: bytes = b"") -> Done:
        surroundings.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = exits.run(root, list(words))
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture
def call(url, run, surroundings):
    """The same, with the server of these tests."""
    surroundings.setenv("PENSTOCK_SERVER", url)
    return run
