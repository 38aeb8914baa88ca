from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.brokers import KafkaAddress, running_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaAddress]:
    """One broker for all tests of a file; each test uses topics of its own."""
    data: Path = tmp_path_factory.mktemp("kafka") / "data"
    with running_broker(data) as address:
        yield address


@pytest.fixture
def admin(broker: KafkaAddress) -> AdminClient:
    return AdminClient({"bootstrap.servers": str(broker)})
