"""One Spark session and one broker for all tests that need them: a session takes longer to start than most tests."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client import Client
from penstock.testing.server import running_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Tests are over before a JVM's best compiler would have paid for itself.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    from penstock.spark import session

    # Three attempts: a task that fails once is tried again, as on a cluster.
    config = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
    }
    found = session("penstock tests", master="local[2,3]", config=config)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker") / "data"


@pytest.fixture(scope="session")
def broker(data_dir: Path) -> Iterator[str]:
    """The address of a broker that all tests share; each makes topics of its own."""
    with running_server(data_dir) as address:
        yield address


@pytest.fixture
def client(broker: str) -> Iterator[Client]:
    with Client(broker) as found:
        yield found


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions with the name of the test."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", request.node.name.removeprefix("test_"))[:200]
    client.create_topic(name, partitions=2)
    return str(name)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
