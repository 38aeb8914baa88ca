"""Files that another program removes under a running broker: nothing is promised for them any more."""

import logging
import shutil
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

import penstock
from penstock.errors import DamagedFile, PartitionFaulty, PenstockError
from penstock.runtime import sync_threads
from penstock.runtime.node_plan import NodePlan
from penstock.testing import VirtualClock

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
    shutil.rmtree(tmp_path / "topics" / "default" / "t.1" / "partition-0")
    with pytest.raises(PenstockError) as refused:
        broker.publish("t", b"y", partition=0, acks="all")
    assert refused.value.code == "PARTITION_FAULTY"
    with pytest.raises(PartitionFaulty):
        broker.publish("t", b"y", partition=0)
    assert broker.publish("t", b"y", partition=1, acks="all").guarantee.value == "fsynced"
    assert broker.publish("other", b"y", acks="all").guarantee.value == "fsynced"
    assert "partition-0" in broker.describe("t")[0].fault


def test_a_partition_that_was_moved_away_is_missed_as_well(broker, tmp_path):
    topic = tmp_path / "topics" / "default" / "t.1"
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


def test_a_partition_that_cannot_be_listed_does_not_keep_the_others_from_a_start(broker, tmp_path):
    broker.close()
    place = tmp_path / "topics" / "default" / "t.1" / "partition-1"
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(place)
    with penstock.Broker(tmp_path, logger=QUIET) as again:
        with pytest.raises(PartitionFaulty):
            again.publish("t", b"y", partition=1)
        assert again.publish("t", b"y", partition=0, acks="all").offset == 1
    assert place.is_symlink()


def test_a_sweep_and_a_stop_go_on_with_the_others(broker, tmp_path):
    shutil.rmtree(tmp_path / "topics" / "default" / "t.1" / "partition-0")
    broker.retain()
    broker.publish("other", b"y", acks="all")
    broker.close()
    with penstock.Broker(tmp_path, logger=QUIET) as again:
        assert [bool(one.fault) for one in again.describe("t")] == [True, False]
        assert again.describe("other")[0].messages == 1


def test_one_that_is_missed_among_files_synced_side_by_side_is_the_only_one(
    broker, tmp_path, monkeypatch
):
    monkeypatch.setattr(sync_threads, "_SLOW_NS", 0)
    for number in range(2):
        broker.publish("t", b"y", partition=number, acks="all")
    shutil.rmtree(tmp_path / "topics" / "default" / "t.1" / "partition-0")
    for number in range(2):
        broker.publish("t", b"z", partition=number)
    with pytest.raises(PartitionFaulty):
        broker.sync()
    broker.sync()
    assert [bool(one.fault) for one in broker.describe("t")] == [True, False]
    broker.close()
    with penstock.Broker(tmp_path, logger=QUIET) as again:
        assert again.describe("t")[1].messages == 3


def lose_partition_0(broker, tmp_path):
    shutil.rmtree(tmp_path / "topics" / "default" / "t.1" / "partition-0")
    with pytest.raises(PartitionFaulty):
        broker.publish("t", b"y", partition=0, acks="all")


def test_a_member_goes_on_with_its_other_partitions(broker, tmp_path):
    member = broker.join("t", "g", auto_commit=True)
    assert len(member.poll(request_id="once")) == 2
    lose_partition_0(broker, tmp_path)
    broker.publish("t", b"y", partition=1)
    assert [one.value for one in member.poll(request_id="more")] == [b"y"]
    assert member.poll(timeout=0.05) == []


def test_a_repeated_poll_of_a_member_gets_its_answer(broker, tmp_path):
    member = broker.join("t", "g")
    first = member.poll(request_id="once")
    lose_partition_0(broker, tmp_path)
    assert [one.offset for one in member.poll(request_id="once")] == [one.offset for one in first]


def test_a_member_gives_a_faulty_partition_to_another(broker, tmp_path):
    first = broker.join("t", "g")
    assert len(first.poll()) == 2
    lose_partition_0(broker, tmp_path)
    second = broker.join("t", "g", member="second")
    third = broker.join("t", "g", member="third")
    first.leave()
    for _ in range(3):
        second.poll()
        third.poll()
    assert sorted(second.assigned + third.assigned) == ["t/0", "t/1"]


def test_what_auto_commit_cannot_finish_there_keeps_nothing_else_from_its_time(tmp_path):
    clock = VirtualClock()
    with penstock.Broker(tmp_path, logger=QUIET, clock=clock) as broker:
        broker.create_topic("t", partitions=2)
        broker.create_topic("other", partitions=1)
        for number in range(2):
            broker.publish("t", b"x", partition=number, acks="all")
        member = broker.join("t", "g", auto_commit=True)
        assert len(member.poll()) == 2
        lose_partition_0(broker, tmp_path)
        broker.publish("other", b"later", delay="8s")
        clock.advance("6s")
        clock.advance("3s")
        assert [one.value for one in broker.poll("other", "h")] == [b"later"]


@pytest.mark.parametrize("fsync", ["always", "interval"])
def test_what_was_written_while_the_sync_failed_is_not_answered_fsynced_either(
    fsync, tmp_path, monkeypatch
):
    has_failed, may_end = Event(), Event()
    run = NodePlan.run

    def held(plan: NodePlan) -> None:
        run(plan)
        has_failed.set()
        may_end.wait(60)

    with (
        ThreadPoolExecutor() as pool,
        penstock.Broker(tmp_path, logger=QUIET, fsync=fsync) as broker,
    ):
        broker.create_topic("t", partitions=1)
        broker.publish("t", b"x", acks="all")
        shutil.rmtree(tmp_path / "topics" / "default" / "t.1" / "partition-0")
        monkeypatch.setattr(NodePlan, "run", held)
        first = pool.submit(broker.publish, "t", b"first", acks="all")
        assert has_failed.wait(60)
        later = [pool.submit(broker.publish, "t", b"later", acks="all") for _ in range(3)]
        while broker.describe("t")[0].latest < 5:
            pass
        may_end.set()
        for one in (first, *later):
            assert isinstance(one.exception(60), PartitionFaulty)


def test_a_sweep_that_syncs_for_those_who_wait_does_not_answer_them_fsynced(broker, tmp_path):
    shutil.rmtree(tmp_path / "topics" / "default" / "t.1" / "partition-0")
    with ThreadPoolExecutor() as pool:
        point = broker.driver._point
        # As if a maintainer were about to come: nobody else syncs.
        point._maintainers.add(broker)
        waits = pool.submit(broker.publish, "t", b"y", partition=0, acks="all")
        while not point._ticket.arrived:
            pass
        try:
            broker.retain()
        finally:
            point._maintainers.discard(broker)
        assert isinstance(waits.exception(60), PartitionFaulty)


def test_a_segment_that_was_removed_does_not_keep_the_other_partitions_from_being_read(tmp_path):
    with penstock.Broker(tmp_path, logger=QUIET) as broker:
        broker.create_topic("t", partitions=2, segment_size_bytes=1024)
        for number in range(20):
            broker.publish("t", bytes(300), partition=number % 2)
    with penstock.Broker(tmp_path, logger=QUIET) as broker:
        min(
            (tmp_path / "topics" / "default" / "t.1" / "partition-0" / "messages").glob("*.log")
        ).unlink()
        assert {one.partition for one in broker.poll("t", "g", limit=100)} == {1}
        with pytest.raises(DamagedFile):
            broker.poll("t", "g")
