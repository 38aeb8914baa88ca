"""Fixtures for pytest: `pytest_plugins = ["penstock.testing.fixtures"]`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..embedded.broker import Broker
from ..embedded.open_queue import open_queue
from ..embedded.queue import Queue
from .clock import VirtualClock


@pytest.fixture
def penstock_clock() -> VirtualClock:
    """A clock that moves when the test says so."""
    return VirtualClock()


@pytest.fixture
def penstock_broker(penstock_clock: VirtualClock) -> Iterator[Broker]:
    """A broker in memory on `penstock_clock`."""
    with Broker(clock=penstock_clock) as broker:
        yield broker


@pytest.fixture
def penstock_queue(penstock_clock: VirtualClock, tmp_path: Path) -> Iterator[Queue]:
    """A work queue (`auto_ack=False`) in a directory of the test's own, on `penstock_clock`."""
    with open_queue(tmp_path / "queue", auto_ack=False, clock=penstock_clock) as queue:
        yield queue


@pytest.fixture
def penstock_server(tmp_path: Path) -> Iterator[str]:
    """The address of a broker process of the test's own, for `penstock.client`."""
    from .server import running_server

    with running_server(tmp_path / "penstock-data") as address:
        yield address
