"""One broker for the tests of the binary port that change nothing about the process itself."""

from itertools import count

import pytest

from ..rigs import served
from .raw_client import connected

_topics = count()


@pytest.fixture(scope="session")
def binary_broker(tmp_path_factory):
    with served(tmp_path_factory.mktemp("binary") / "data") as broker:
        yield broker
        assert broker.stop() == 0
        assert "Traceback" not in "".join(broker.lines)


@pytest.fixture
def client(binary_broker):
    with connected(binary_broker.binary_port) as client:
        yield client


@pytest.fixture
def topic(client):
    """A topic of one partition that no other test uses."""
    from penstock.api.topics import CreateTopic

    name = f"orders-{next(_topics)}"
    client.call(CreateTopic(name, 1))
    return name
