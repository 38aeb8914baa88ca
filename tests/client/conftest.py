"""One server for all tests of the client."""

import pytest

from penstock.testing.server import running_server


@pytest.fixture(scope="session")
def url(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("server") / "data") as address:
        yield address
