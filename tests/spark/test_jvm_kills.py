"""The JVM is killed in the middle of a stream into a topic and of work from a queue: everything is there once.

Python drivers that are killed, and all other processes, are in `test_sink_kills` and `test_work_kills`.
"""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from .test_stream_sink import Load, values
from .test_work_kills import publish, queues, work_off

pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("spark")]
VICTIM = Path(__file__).parent / "jvm_victim.py"
DEADLINE_S = 1200


@pytest.mark.parametrize("point", ["in their tasks", "at their commits"])
def test_everything_is_there_once_though_the_jvm_dies(
    spark, broker, client, topic, tmp_path, point, effort
):
    load, meeting = Load(spark, broker, topic, tmp_path), tmp_path / "meeting"
    queue, done = queues(client, f"{topic}.queue")
    for turn in range(effort(check=1, test=1, torture=50)):
        meeting.mkdir()
        load.fill(10 * turn, 10 * turn + 10)
        publish(client, queue, turn)
        words = [sys.executable, VICTIM, broker, topic, tmp_path, point]
        victim = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S)
        assert victim.returncode == 0, victim.stderr[-3000:]
        assert len(victim.stdout.splitlines()) == 1, "the driver said that Spark is gone"
        shutil.rmtree(meeting)
        # The session of the tests goes on with the checkpoint and with the queue.
        load.run()
        work_off(spark, client, queue, done)
        everything = Counter(range(10 * turn + 10))
        assert values(client, topic) == everything
        assert values(client, done) == everything
