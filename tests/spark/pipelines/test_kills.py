"""Exactly once into the lake, whichever process is killed, and whenever: multiset equality by offset."""

import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from threading import Thread

import pytest

from penstock.errors import Unreachable
from penstock.spark.pipelines.lake import LakeReader
from penstock.spark.pipelines.verify import verify

from . import killing
from .rigs import archived, here, places, publish, visible
from .victims import gateway_of, victims

pytestmark = pytest.mark.tier("test")
# As many turns go into one lake: each proof reads the whole of it, so that a longer one costs squares.
TURNS_A_LAKE = 10


@pytest.fixture(scope="module")
def driver():
    with victims() as found:
        yield found


def topic_and_lake(client, folder, name, turn):
    """A topic with 400 more messages, and the lake that it goes into."""
    topic = f"{name}-{turn // TURNS_A_LAKE}"
    if turn % TURNS_A_LAKE == 0:
        client.create_topic(topic, partitions=2)
    publish(client, topic, 400, first=400 * turn)
    return topic, folder / topic


def require_whole(client, root, topic):
    assert places(root) == visible(client, topic)
    report = verify(LakeReader(root), client, is_content_read=True)
    assert report.problems == []
    # A reader of the directory without the manifests sees the same.
    seen = sum(1 for one in root.rglob("*.parquet") if "_penstock" not in one.parts)
    assert seen == report.files
    assert client.lag(f"{topic}-lake").total == 0


@pytest.mark.parametrize("point", killing.DRIVER_POINTS)
def test_a_driver_that_is_killed_leaves_nothing_out_and_nothing_twice(
    client, tmp_path, point, effort, driver
):
    for turn in range(effort(check=1, test=1, torture=50)):
        topic, lake = topic_and_lake(
            client, tmp_path, f"driver-{killing.DRIVER_POINTS.index(point)}", turn
        )
        for _ in range(effort(check=1, test=1, torture=2)):
            driver.kill(client.url, lake, topic, point, runner="here")
        archived(lake, client.url, topic, group=f"{topic}-lake", commit_messages_max=150)
        require_whole(client, lake, topic)


@pytest.mark.parametrize("point", killing.DRIVER_POINTS[:-1])
def test_a_merge_that_is_killed_is_finished_or_forgotten(client, tmp_path, point, effort, driver):
    topic, lake = f"merge-{killing.DRIVER_POINTS.index(point)}", tmp_path
    client.create_topic(topic, partitions=2)
    for turn in range(effort(check=1, test=1, torture=50)):
        publish(client, topic, 400, first=400 * turn)
        archived(lake, client.url, topic, group=f"{topic}-lake", commit_messages_max=150)
        driver.kill(client.url, lake, "", point, runner="here")
        archived(lake, client.url, topic, group=f"{topic}-lake")
        require_whole(client, lake, topic)
        # The manifest decides: with it the merge is done, without it nothing is merged.
        is_merged = LakeReader(lake).manifests()[-1].is_merge
        assert is_merged == (killing.DRIVER_POINTS.index(point) > 1)


@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("point", killing.TASK_POINTS)
def test_a_task_that_is_killed_is_done_again_and_counts_once(
    spark, client, tmp_path, point, effort
):
    from pyspark import cloudpickle

    from penstock.spark.pipelines.task_runner import SparkTaskRunner

    # Workers cannot import what only the tests have.
    cloudpickle.register_pickle_by_value(killing)
    for turn in range(effort(check=1, test=1, torture=50)):
        topic, lake = topic_and_lake(
            client, tmp_path, f"task-{killing.TASK_POINTS.index(point)}", turn
        )
        mark = tmp_path / f"mark-{turn}"
        spread = killing.killing(SparkTaskRunner(spark), point, mark)
        archived(
            lake, client.url, topic, spread=spread, group=f"{topic}-lake", task_messages_max=100
        )
        assert mark.exists(), "a process died"
        require_whole(client, lake, topic)


@pytest.mark.tier("torture")
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("point", killing.DRIVER_POINTS)
def test_a_driver_whose_tasks_run_in_spark_is_killed_and_nothing_is_left_out_or_twice(
    spark, client, tmp_path, point, effort, driver
):
    for turn in range(effort(check=1, test=1, torture=50)):
        topic, lake = topic_and_lake(
            client, tmp_path, f"spark-{killing.DRIVER_POINTS.index(point)}", turn
        )
        driver.kill(client.url, lake, topic, point, **gateway_of(spark))
        driver_goes_on(spark, client, lake, topic)


@pytest.mark.tier("torture")  # Once, on a cluster, is in test_cluster.py.
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("point", killing.DRIVER_POINTS)
def test_a_driver_that_is_killed_with_its_jvm_leaves_nothing_out_and_nothing_twice(
    spark, client, tmp_path, point, effort, driver
):
    for turn in range(effort(check=1, test=1, torture=10)):
        topic, lake = topic_and_lake(
            client, tmp_path, f"whole-{killing.DRIVER_POINTS.index(point)}", turn
        )
        driver.kill(client.url, lake, topic, point, runner="spark")
        driver_goes_on(spark, client, lake, topic)


def driver_goes_on(spark, client, lake, topic):
    from penstock.spark.pipelines.task_runner import SparkTaskRunner

    archived(lake, client.url, topic, spread=SparkTaskRunner(spark), group=f"{topic}-lake")
    require_whole(client, lake, topic)


@contextmanager
def serving(data, port=0):
    """A broker that may be killed, and its port."""
    words = [
        sys.executable,
        "-m",
        "penstock",
        "serve",
        "--port",
        "0",
        "--binary-port",
        str(port),
        "--data-dir",
        str(data),
    ]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    rest = Thread(target=process.stderr.read)
    try:
        line = next(one for one in process.stderr if "listens on" in one)
        rest.start()
        yield process, int(re.search(r"penstock://\S+:(\d+)", line)[1])
    finally:
        process.kill()
        process.wait()
        rest.join()
        process.stderr.close()


@pytest.mark.xdist_group("spark")
def test_a_broker_that_is_killed_while_it_is_read_is_waited_for(spark, tmp_path, effort):
    from pyspark import cloudpickle

    from penstock.client import Client
    from penstock.spark.pipelines.task_runner import SparkTaskRunner

    cloudpickle.register_pickle_by_value(killing)
    lake, port = tmp_path / "lake", 0
    for turn in range(effort(check=1, test=1, torture=50)):
        with ExitStack() as stack:
            process, port = stack.enter_context(serving(tmp_path / "data", port))
            with Client(f"penstock://127.0.0.1:{port}") as client:
                if turn == 0:
                    client.create_topic("served", partitions=2)
                publish(client, "served", 400, first=400 * turn)

            def start_again(process=process, stack=stack, port=port):
                process.wait()
                stack.enter_context(serving(tmp_path / "data", port))

            back = Thread(target=start_again, daemon=True)
            back.start()
            mark = tmp_path / f"mark-{turn}"
            spread = killing.killing(SparkTaskRunner(spark), killing.THE_BROKER, mark, process.pid)
            # As many as it takes until the broker is there again, also on a busy machine.
            options = {"group": "served-lake", "task_messages_max": 100, "retries": 100}
            archived(lake, f"penstock://127.0.0.1:{port}", "served", spread=spread, **options)
            back.join()
            with Client(f"penstock://127.0.0.1:{port}") as client:
                require_whole(client, lake, "served")


def test_a_broker_that_stays_away_is_said_and_nothing_is_half_done(tmp_path):
    from penstock.client import Client

    lake = tmp_path / "lake"
    with serving(tmp_path / "data") as (process, port):
        url = f"penstock://127.0.0.1:{port}"
        with Client(url) as client:
            client.create_topic("away", partitions=1)
            publish(client, "away", 300)
        spread = killing.killing(here, killing.THE_BROKER, tmp_path / "mark", process.pid)
        with pytest.raises(Unreachable, match=f"no answer from penstock://127.0.0.1:{port}"):
            archived(lake, url, "away", spread=spread, task_messages_max=100)
    assert LakeReader(lake).manifests() == []
    with serving(tmp_path / "data", port), Client(url) as client:
        archived(lake, url, "away", group="away-lake")
        require_whole(client, lake, "away")
