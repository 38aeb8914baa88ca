"""Files that another program removes under a running broker: nothing is promised for them any more."""

import logging
import shutil

import pytest

import penstock
from penstock.errors import PartitionFaulty, PenstockError

QUIET = logging.getLogger("penstock.test_vanished")


@pytest.fixture
def broker(tmp_path):
    QUIET.setLevel(logging.CRITICAL)
    with penstock.Broker(tmp_path, logger=QUIET) as broker:
        broker.create_topic("t", partitions=2)
        broker.create_topic("other", partitions=1)
        for number in range(2):
            broker.publish("t", b"x", partition=number, acks="all")
        yield broker


def test_a_publish_to_a_partition_that_was_removed_is_not_answered_fsynced(broker, tmp_path):
    shutil.rmtree(tmp_path / "topics" / "t.1" / "partition-0")
    with pytest.raises(PenstockError) as refused:
        broker.publish("t", b"y", partition=0, acks="all")
    assert refused.value.code == "PARTITION_FAULTY"
    with pytest.raises(PartitionFaulty):
        broker.publish("t", b"y", partition=0)
    assert broker.publish("t", b"y", partition=1, acks="all").guarantee.value == "fsynced"
    assert broker.publish("other", b"y", acks="all").guarantee.value == "fsynced"
    assert "partition-0" in broker.describe("t")[0].fault


def test_a_partition_that_was_moved_away_is_missed_as_well(broker, tmp_path):
    topic = tmp_path / "topics" / "t.1"
    (topic / "partition-0").rename(tmp_path / "elsewhere")
    with pytest.raises(PartitionFaulty):
        broker.publish("t", b"y", partition=0, acks="all")
    before = sorted(p.name for p in (tmp_path / "elsewhere" / "messages").iterdir())
    assert broker.publish("t", b"y", partition=1, acks="all").guarantee.value == "fsynced"
    broker.close()
    assert sorted(p.name for p in (tmp_path / "elsewhere" / "messages").iterdir()) == before
    (tmp_path / "elsewhere").rename(topic / "partition-0")
    with penstock.Broker(tmp_path, logger=QUIET) as again:
        assert again.describe("t")[0].fault == ""
        assert again.describe("t")[0].messages >= 1


def test_a_sweep_and_a_stop_go_on_with_the_others(broker, tmp_path):
    shutil.rmtree(tmp_path / "topics" / "t.1" / "partition-0")
    broker.retain()
    broker.publish("other", b"y", acks="all")
    broker.close()
    with penstock.Broker(tmp_path, logger=QUIET) as again:
        assert [bool(one.fault) for one in again.describe("t")] == [True, False]
        assert again.describe("other")[0].messages == 1
