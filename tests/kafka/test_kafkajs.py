"""kafkajs, a client of npm, against a broker."""

import subprocess
from pathlib import Path

import pytest

from tests.kafka.brokers import KafkaAddress

pytestmark = pytest.mark.tier("test")


def test_everything_that_kafkajs_does(broker: KafkaAddress, kafkajs: Path) -> None:
    done = subprocess.run(
        ["node", "kafkajs_scenario.js", str(broker)],
        cwd=kafkajs,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
