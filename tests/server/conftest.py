"""One broker process for all tests that change nothing about the process itself."""

import pytest

from .rigs import served


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory):
    """Tests use topics of their own; `empty` stays empty."""
    with served(tmp_path_factory.mktemp("server") / "data") as broker:
        broker.call("POST", "/topics", {"name": "empty", "num_partitions": 1})
        yield broker
        assert broker.stop() == 0


@pytest.fixture(scope="session")
def hasty_broker(tmp_path_factory):
    """Patient for half a second only: for tests whose client is late or silent on purpose."""
    names = ("HEADER_TIMEOUT_MS", "BODY_TIMEOUT_MS", "WRITE_TIMEOUT_MS")
    environment = {f"PENSTOCK_HTTP__{name}": "500" for name in names}
    with served(tmp_path_factory.mktemp("hasty") / "data", environment=environment) as broker:
        broker.call("POST", "/topics", {"name": "empty", "num_partitions": 1})
        yield broker
        assert broker.stop() == 0
