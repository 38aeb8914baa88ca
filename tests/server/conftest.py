"""One broker process for all tests that change nothing about the process itself."""

import pytest

from .rigs import served


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory):
    """Patient for half a second only. Tests use topics of their own; `empty` stays empty."""
    data = tmp_path_factory.mktemp("server") / "data"
    file = data.parent / "penstock.yaml"
    file.write_text("http: {header_timeout_ms: 500, body_timeout_ms: 500, write_timeout_ms: 500}\n")
    with served(data, "--config", str(file)) as broker:
        broker.call("POST", "/topics", {"name": "empty", "num_partitions": 1})
        yield broker
        assert broker.stop() == 0
