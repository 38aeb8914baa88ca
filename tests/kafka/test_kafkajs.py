"""kafkajs, a client of npm, against a broker."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kafka.brokers import KafkaAddress

pytestmark = [
    pytest.mark.tier("test"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]
VERSION = "2.2.4"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kafkajs is installed, as node looks for it from the scenario's own folder."""
    folder = tmp_path_factory.mktemp("kafkajs")
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(
        [*install, f"kafkajs@{VERSION}"], cwd=folder, capture_output=True, check=False, timeout=120
    )
    if done.returncode:
        pytest.skip("kafkajs cannot be had from npm here")
    scenario = Path(__file__).with_name("kafkajs_scenario.js")
    shutil.copy(scenario, folder)
    return folder


def test_everything_that_kafkajs_does(broker: KafkaAddress, folder: Path) -> None:
    done = subprocess.run(
        ["node", "kafkajs_scenario.js", str(broker)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
