"""Work from queues, when a process dies in the middle of a round: every message is in the results once.

The JVM lives on in all of them; that it dies is in `test_jvm_kills`.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, suppress
from itertools import cycle, islice
from pathlib import Path
from threading import Event, Thread

import pytest
from pyspark import cloudpickle

from penstock.client import Client
from penstock.errors import Unavailable
from penstock.spark import work

from .pipelines import killing
from .pipelines.killing import checked, die_once
from .pipelines.test_kills import serving
from .pipelines.victims import gateway_of

pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("spark")]
VICTIM = Path(__file__).parent / "work_victim.py"
BEFORE_COMMIT = "between staging and commit"
DRIVER_POINTS = (
    "after the lease ahead",
    "while the job runs",
    "after the job",
    BEFORE_COMMIT,
    "after the commit",
)
# Only where a message fails by itself.
AFTER_NACK = "after a nack"
DEATHS = 2
# What a driver takes for a round is leased for longer.
LEASE_MS = 3000
PAUSE_S = 0.3


def queues(client, topic):
    """Two topics, the second for the results of the first."""
    if topic not in client.topics():
        client.create_topic(topic, partitions=2)
    client.configure_topic(topic, visibility_timeout_ms=LEASE_MS, max_retries=0)
    client.create_topic(f"{topic}.done", partitions=2, exist_ok=True)
    return topic, f"{topic}.done"


def work_off(spark, client, topic, to, transform=lambda rows: rows.select("value")):
    """Work until nothing is left, also of what a dead driver had leased."""
    while True:
        with suppress(Unavailable):
            work(spark, topic, "g", transform, to=to, url=client.url, once=True)
            if not sum(one.lag for one in client.lag("g").partitions if one.topic == topic):
                return
        Event().wait(PAUSE_S)


def values(client, topic):
    return Counter(int(message.value) for _, message in client.read(topic))


def publish(client, topic, turn):
    client.publish_many(topic, [b"%d" % one for one in range(10 * turn, 10 * turn + 10)])


@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_every_message_is_done_once_though_the_driver_dies(spark, client, topic, point, effort):
    topic, to = queues(client, topic)
    gateway = gateway_of(spark)
    ways = [str(gateway["gateway_port"]), gateway["gateway_secret"]]
    # The gate kills a driver twice between staging and commit, and once at each of the other points.
    for turn in range(effort(check=1, test=2 if point == BEFORE_COMMIT else 1, torture=50)):
        publish(client, topic, turn)
        # Half of what there is, so that the driver holds another round at its death.
        words = [sys.executable, VICTIM, client.url, topic, to, point, *ways, "5"]
        # Each of them gets the messages of the one before, and no attempt counts: there is only one.
        for _ in range(1 if point == "after the commit" else DEATHS):
            assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
        work_off(spark, client, topic, to)
        assert values(client, to) == Counter(range(10 * turn + 10))
        assert client.dead_letters(topic) == []


def test_of_a_queue_whose_drivers_die_exactly_the_poison_is_dead(spark, client, topic, effort):
    """Messages have one attempt: a death that counted as one would show."""
    topic, to = queues(client, topic)
    count = effort(check=100, test=400, torture=200_000)
    # Rounds are small beside the queue: a driver that finds none to work on would wait.
    points = [AFTER_NACK, *islice(cycle(DRIVER_POINTS), effort(check=0, test=5, torture=29))]
    poison = {1, count // 2, count - 1}
    client.configure_topic(topic, max_in_flight=count, max_in_flight_per_consumer=count)
    client.publish_many(topic, [b"%d" % one for one in range(count)])
    gateway, text = gateway_of(spark), ", ".join(map(str, sorted(poison)))
    more = [str(gateway["gateway_port"]), gateway["gateway_secret"], str(count // 10), text]
    for point in points:
        words = [sys.executable, VICTIM, client.url, topic, to, point, *more]
        assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    work_off(spark, client, topic, to, checked(text))
    assert {int(one.value) for one in client.dead_letters(topic)} == poison
    assert values(client, to) == Counter({*range(count)} - poison)


def dying_rows(mark, victim=0):
    """A transform in whose tasks the first process dies, or kills the broker."""

    def dying(batches):
        for batch in batches:
            yield batch
            die_once(mark, victim)

    return lambda rows: rows.select("value").mapInArrow(dying, "value binary")


def test_every_message_is_done_once_though_a_task_dies(spark, client, topic, tmp_path, effort):
    cloudpickle.register_pickle_by_value(killing)
    topic, to = queues(client, topic)
    for turn in range(effort(check=1, test=2, torture=50)):
        publish(client, topic, turn)
        mark = tmp_path / f"mark-{turn}"
        work_off(spark, client, topic, to, dying_rows(str(mark)))
        assert mark.exists(), "a process died"
        assert values(client, to) == Counter(range(10 * turn + 10))


def test_every_message_is_done_once_though_the_broker_dies(spark, tmp_path, effort):
    cloudpickle.register_pickle_by_value(killing)
    port = 0
    for turn in range(effort(check=1, test=2, torture=50)):
        with ExitStack() as stack:
            process, port = stack.enter_context(serving(tmp_path / "data", port))

            def start_again(process=process, stack=stack, port=port):
                process.wait()
                stack.enter_context(serving(tmp_path / "data", port))

            with Client(f"penstock://127.0.0.1:{port}") as client:
                topic, to = queues(client, "jobs")
                publish(client, topic, turn)
                back = Thread(target=start_again)
                back.start()
                mark = tmp_path / f"mark-{turn}"
                try:
                    work_off(spark, client, topic, to, dying_rows(str(mark), process.pid))
                finally:
                    if process.poll() is None:
                        os.kill(process.pid, signal.SIGKILL)
                    back.join()
                assert mark.exists(), "the broker died"
                assert values(client, to) == Counter(range(10 * turn + 10))
