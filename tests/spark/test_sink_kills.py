"""The sink of a stream, when a process dies in the middle of a micro-batch: every row is published once.

A driver that is killed with its JVM is in `test_kills`, a JVM alone in `test_jvm_kills`.
"""

import os
import signal
from collections import Counter
from contextlib import ExitStack
from threading import Thread

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException

from penstock.client import Client
from penstock.spark.sink import StreamWriter
from penstock.spark.source import PenstockSource

from .pipelines import killing
from .pipelines.killing import die_once
from .pipelines.test_kills import serving
from .test_stream_sink import Load, values

pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("spark")]
POINTS = ("task", "planner", "commit process before the decision", "commit process after it")
TRIES_MAX = 5


def dying_sink(point, mark, broker=0):
    """The sink, in which the first process at a point dies, or kills the broker, and no other one."""

    class DyingWriter(StreamWriter):
        def write(self, iterator):
            def dying():
                yield from iterator
                # Rows are staged, and the handle is not on its way to the driver yet.
                if point in {"task", "broker"}:
                    die_once(mark, broker)

            return super().write(dying())

        def commit(self, messages, batch_id):
            if point == "commit process before the decision":
                die_once(mark)
            super().commit(messages, batch_id)
            if point == "commit process after it":
                die_once(mark)

    class DyingSink(PenstockSource):
        @classmethod
        def name(cls):
            return "penstock_dying"

        def streamWriter(self, schema, overwrite):  # noqa: N802  # As Spark calls it.
            if point == "planner":
                die_once(mark)
            return DyingWriter(super().streamWriter(schema, overwrite).asked)

    return DyingSink


def run_until_done(load):
    """Start the query again, as an operator would, while a process of it dies."""
    for _ in range(TRIES_MAX - 1):
        try:
            return load.run(sink="penstock_dying")
        except StreamingQueryException:
            continue
    return load.run(sink="penstock_dying")


@pytest.mark.parametrize("point", POINTS)
def test_every_row_is_published_once_whichever_process_dies(
    spark, broker, client, topic, tmp_path, point, effort
):
    # Workers cannot import what only the tests have.
    cloudpickle.register_pickle_by_value(killing)
    load = Load(spark, broker, topic, tmp_path)
    turns = effort(check=1, test=1, torture=50)
    for turn in range(turns):
        mark = tmp_path / f"mark-{turn}"
        spark.dataSource.register(dying_sink(point, str(mark)))
        load.fill(10 * turn, 10 * turn + 10)
        run_until_done(load)
        assert mark.exists(), "a process died"
        assert values(client, topic) == Counter(range(10 * turn + 10))


def test_every_row_is_published_once_though_the_broker_dies(spark, tmp_path, effort):
    cloudpickle.register_pickle_by_value(killing)
    port, load = 0, None
    for turn in range(effort(check=1, test=1, torture=50)):
        with ExitStack() as stack:
            process, port = stack.enter_context(serving(tmp_path / "data", port))
            url = f"penstock://127.0.0.1:{port}"
            if load is None:
                with Client(url) as client:
                    client.create_topic("published", partitions=2)
                load = Load(spark, url, "published", tmp_path)

            def start_again(process=process, stack=stack, port=port):
                process.wait()
                stack.enter_context(serving(tmp_path / "data", port))

            back = Thread(target=start_again)
            back.start()
            mark = tmp_path / f"mark-{turn}"
            spark.dataSource.register(dying_sink("broker", str(mark), process.pid))
            load.fill(10 * turn, 10 * turn + 10)
            try:
                run_until_done(load)
            finally:
                if process.poll() is None:
                    os.kill(process.pid, signal.SIGKILL)
                back.join()
            assert mark.exists(), "the broker died"
            with Client(url) as client:
                assert values(client, "published") == Counter(range(10 * turn + 10))
