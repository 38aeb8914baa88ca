"""A stream whose driver is killed again and again has in the end read every message once."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from penstock.codec import Columns, encode

pytestmark = [pytest.mark.tier("torture"), pytest.mark.xdist_group("spark")]
JOB = Path(__file__).parent / "stream_job.py"
KILLS = 8
MESSAGES_A_ROUND = 20_000


def start(broker: str, folder: Path) -> "subprocess.Popen[str]":
    # A session of its own, so that its JVM goes with it.
    return subprocess.Popen(
        [sys.executable, JOB, broker, folder],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill(process: "subprocess.Popen[str]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_every_message_arrives_once_whenever_the_driver_dies(broker, client, tmp_path):
    client.create_topic("killed", partitions=3)
    batch, chance = bytes(encode(Columns(values=[b"x"] * 1000, timestamps=1)).to_bytes()), Random(7)
    total = 0
    for _ in range(KILLS):
        for number in range(MESSAGES_A_ROUND // 1000):
            client.append_batch("killed", number % 3, batch)
        total += MESSAGES_A_ROUND
        process = start(broker, tmp_path)
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        try:
            process.wait(chance.uniform(0, 8))
        except subprocess.TimeoutExpired:
            kill(process)
    process = start(broker, tmp_path)
    said, _ = process.communicate(timeout=600)
    assert said.splitlines()[-1] == f"{total} {total}"
