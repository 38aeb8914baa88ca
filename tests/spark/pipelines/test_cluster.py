"""An archive on a cluster of a master and two workers: an executor dies, then the driver; and through Spark Connect."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.codec import Columns, encode
from penstock.spark.pipelines.lake import LakeReader
from penstock.spark.pipelines.verify import verify

from ..standalone import standalone_cluster
from .rigs import places, visible

# Six processes of Java on two cores take minutes; the gate has the same for the source.
pytestmark = [pytest.mark.tier("torture"), pytest.mark.xdist_group("spark")]
JOB = Path(__file__).parent / "cluster_archive.py"


def test_a_cluster_archives_every_message_once_though_executor_and_driver_die(
    broker, client, tmp_path
):
    client.create_topic("clustered", partitions=2)
    for partition in range(2):
        for _ in range(10):
            batch = encode(Columns(values=[bytes(100)] * 1000, timestamps=1)).to_bytes()
            client.append_batch("clustered", partition, bytes(batch))
    with standalone_cluster(tmp_path) as cluster:
        words = [cluster.url, broker, str(tmp_path)]
        dying = [sys.executable, JOB, *words, "when the manifest is there"]
        done = subprocess.run(dying, env=cluster.environment, timeout=1200)
        assert done.returncode == -9
        assert len(LakeReader(tmp_path / "lake").manifests()) == 1
        cluster.run(JOB, *words)
    assert (tmp_path / "killed").exists()
    for lake in (tmp_path / "lake", tmp_path / "connected"):
        assert places(lake) == visible(client, "clustered")
        assert verify(LakeReader(lake), client, is_content_read=True).problems == []
    assert client.lag("clustered").total == 0
