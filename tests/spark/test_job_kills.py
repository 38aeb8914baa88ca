"""A driver or its JVM is killed while a stream writes into a topic and a queue is worked off beside it."""

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

from .killed_job import start_copying
from .test_work_kills import LEASE_MS, work_off

pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("spark")]
JOB = Path(__file__).parent / "killed_job.py"
MESSAGES = 1000
DEADLINE_S = 300


def wait_for_more(client, before):
    """Until both topics have more messages than before, and so both jobs are in the middle of their work."""
    while any(client.topic(name).total_messages <= count for name, count in before.items()):
        Event().wait(0.05)


@pytest.mark.parametrize("victim", ["driver", "JVM"])
def test_every_row_and_every_message_is_there_once(spark, broker, client, tmp_path, victim, effort):
    names = ("copied", "copies", "jobs", "done")
    for name in names:
        client.create_topic(name, partitions=2)
    client.configure_topic("jobs", visibility_timeout_ms=LEASE_MS, max_retries=100)
    turns = effort(check=1, test=2, torture=50)
    try:
        for turn in range(turns):
            numbers = range(turn * MESSAGES, (turn + 1) * MESSAGES)
            for name in ("copied", "jobs"):
                client.publish_many(name, [b"%d" % one for one in numbers])
            kill_in_the_middle(client, broker, tmp_path, victim)
        query = start_copying(spark, broker, str(tmp_path), is_once=True)
        assert query.awaitTermination(DEADLINE_S)
        work_off(spark, client, "jobs", "done")
        total = turns * MESSAGES
        done = Counter(int(message.value) for _, message in client.read("done"))
        assert done == Counter(range(total))
        ends = [client.topic("copied").ends(number).latest for number in range(2)]
        assert sum(ends) == total
        assert Counter(message.value.decode() for _, message in client.read("copies")) == Counter(
            f"{number}/{offset}" for number, end in enumerate(ends) for offset in range(end)
        )
    finally:
        for name in names:
            client.delete_topic(name)


def kill_in_the_middle(client, broker, folder, victim):
    before = {name: client.topic(name).total_messages for name in ("copies", "done")}
    # A session of its own, so that nothing of it is left behind.
    with subprocess.Popen(
        [sys.executable, JOB, broker, folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        jvm = int(process.stdout.readline())
        wait_for_more(client, before)
        os.kill(jvm if victim == "JVM" else process.pid, signal.SIGKILL)
        process.communicate()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
