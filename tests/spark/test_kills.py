"""A stream whose driver is killed again and again has in the end read, or written, every message once."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from penstock.codec import Columns, encode

pytestmark = [pytest.mark.tier("torture"), pytest.mark.xdist_group("spark")]
JOBS = Path(__file__).parent
KILLS = 8
MESSAGES_A_ROUND = 20_000


def start(job: str, broker: str, folder: Path) -> "subprocess.Popen[str]":
    # A session of its own, so that its JVM goes with it.
    return subprocess.Popen(
        [sys.executable, JOBS / job, broker, folder],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill(process: "subprocess.Popen[str]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def killed_again_and_again(client, topic: str, job: str, broker: str, folder: Path) -> str:
    """Publish into three partitions of a topic, and kill the job that reads it; what its last run says at its end."""
    client.create_topic(topic, partitions=3)
    batch, chance = bytes(encode(Columns(values=[b"x"] * 1000, timestamps=1)).to_bytes()), Random(7)
    for _ in range(KILLS):
        for number in range(MESSAGES_A_ROUND // 1000):
            client.append_batch(topic, number % 3, batch)
        process = start(job, broker, folder)
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        try:
            process.wait(chance.uniform(0, 8))
        except subprocess.TimeoutExpired:
            kill(process)
    said, _ = start(job, broker, folder).communicate(timeout=1200)
    return said.splitlines()[-1]


def test_every_message_arrives_once_whenever_the_driver_dies(broker, client, tmp_path):
    total = KILLS * MESSAGES_A_ROUND
    said = killed_again_and_again(client, "killed", "stream_job.py", broker, tmp_path)
    assert said == f"{total} {total}"


def test_every_row_is_published_once_whenever_the_driver_dies(broker, client, tmp_path):
    client.create_topic("copies", partitions=2)
    said = killed_again_and_again(client, "copied", "sink_job.py", broker, tmp_path)
    assert said == "done"
    ends = {number: client.topic("copied").ends(number).latest for number in range(3)}
    assert sum(ends.values()) == KILLS * MESSAGES_A_ROUND
    assert Counter(message.value.decode() for _, message in client.read("copies")) == Counter(
        f"{number}/{offset}" for number, end in ends.items() for offset in range(end)
    )
