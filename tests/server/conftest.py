"""One broker process for all tests that change nothing about the process itself."""

from contextlib import suppress
from http.client import HTTPException

import pytest

from .rigs import Reply, Served, served


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory):
    """Tests use topics of their own; `empty` stays empty."""
    with served(tmp_path_factory.mktemp("server") / "data") as broker:
        broker.call("POST", "/topics", {"name": "empty", "num_partitions": 1})
        yield broker
        assert broker.stop() == 0


class Hasty(Served):
    """A request that the machine keeps from coming in time is sent again."""

    def call(self, method: str, target: str, body: object = None, **headers: str) -> Reply:
        for _ in range(20):
            with suppress(OSError, HTTPException):
                reply = super().call(method, target, body, **headers)
                if reply.status != 408:
                    return reply
        raise AssertionError("no request came in time")


@pytest.fixture(scope="session")
def hasty_broker(tmp_path_factory):
    """Patient for half a second only: for tests whose client is late or silent on purpose."""
    names = ("HEADER_TIMEOUT_MS", "BODY_TIMEOUT_MS", "WRITE_TIMEOUT_MS")
    environment = {f"PENSTOCK_HTTP__{name}": "500" for name in names}
    with served(
        tmp_path_factory.mktemp("hasty") / "data", kind=Hasty, environment=environment
    ) as broker:
        broker.call("POST", "/topics", {"name": "empty", "num_partitions": 1})
        yield broker
        assert broker.stop() == 0
