import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.kafka.brokers import KafkaAddress, running_broker

KAFKAJS = "2.2.4"


@pytest.fixture(scope="session")
def kafkajs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kafkajs is installed, with the programs that use it: node looks for it from their own folder."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("kafkajs")
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(
        [*install, f"kafkajs@{KAFKAJS}"], cwd=folder, capture_output=True, check=False, timeout=120
    )
    if done.returncode:
        pytest.skip("kafkajs cannot be had from npm here")
    for program in Path(__file__).parent.glob("kafkajs_*.js"):
        shutil.copy(program, folder)
    return folder


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaAddress]:
    """One broker for all tests of a file; each test uses topics of its own."""
    data: Path = tmp_path_factory.mktemp("kafka") / "data"
    with running_broker(data) as address:
        yield address


@pytest.fixture
def admin(broker: KafkaAddress) -> AdminClient:
    return AdminClient({"bootstrap.servers": str(broker)})
