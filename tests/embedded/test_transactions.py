"""Transactions of an embedded broker: a `with` block is all there, or nothing of it."""

from threading import Thread

import pytest

import penstock
from penstock.api.transactions import Placed
from penstock.errors import Refused, StaleReceipt, TransactionEnded
from penstock.testing import VirtualClock


def stored(broker, topic, partition=0):
    return [one.value for one in broker.read(topic, partition)]


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_all_of_a_block_or_nothing(tmp_path, fsync):
    with penstock.Broker(tmp_path, fsync=fsync) as broker:
        broker.create_topic("orders", partitions=2)
        broker.create_topic("audit", partitions=1)
        with broker.transaction() as done:
            done.publish("orders", b"a", partition=0)
            done.publish_many("orders", [b"b", b"c"], partition=1)
            done.publish("audit", b"d")
            assert stored(broker, "orders") == stored(broker, "audit") == []
        assert done.places == (
            Placed("orders", 0, 0, 1),
            Placed("orders", 1, 0, 2),
            Placed("audit", 0, 0, 1),
        )

        def fail() -> None:
            with broker.transaction() as failed:
                failed.publish("orders", b"gone", partition=0)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert stored(broker, "orders", 0) == [b"a"]
        assert stored(broker, "orders", 1) == [b"b", b"c"]
        assert broker.topics() == ["audit", "orders"]
    with penstock.Broker(tmp_path) as broker:
        assert stored(broker, "orders", 1) == [b"b", b"c"]
        with broker.transaction() as again:
            again.publish("audit", b"e")
        assert stored(broker, "audit") == [b"d", b"e"]


def test_messages_are_not_synced_one_by_one(tmp_path):
    syncs = []
    with penstock.Broker(tmp_path, fsync="always") as broker:
        broker.create_topic("orders", partitions=1)
        with broker.transaction() as one:
            broker.driver.on_synced(lambda *_: syncs.append(1))
            for _ in range(300):
                one.publish("orders", b"a")
            # One may have been on its way.
            assert len(syncs) <= 1
        assert len(syncs) >= 2
        assert len(stored(broker, "orders")) == 300


def test_threads_have_a_transaction_each(tmp_path):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("orders", partitions=1)

        def work(name):
            for number in range(5):
                with broker.transaction() as one:
                    one.publish("orders", f"{name} {number} a")
                    one.publish("orders", f"{name} {number} b")

        threads = [Thread(target=work, args=(name,)) for name in "xyz"]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        found = stored(broker, "orders")
        assert len(found) == len(set(found)) == 30
        # What was committed together is together.
        assert all(
            first[:-1] == second[:-1] for first, second in zip(found[::2], found[1::2], strict=True)
        )


def test_a_block_that_takes_too_long_is_told():
    clock = VirtualClock()
    with penstock.Broker(clock=clock) as broker:
        broker.create_topic("orders", partitions=1)

        def take_long() -> None:
            with broker.transaction(timeout="10s") as slow:
                slow.publish("orders", b"a")
                clock.advance("11s")

        with pytest.raises(TransactionEnded):
            take_long()
        assert stored(broker, "orders") == []
        with broker.transaction(timeout="10s") as quick:
            quick.publish("orders", b"b")
        assert stored(broker, "orders") == [b"b"]


def test_wrong_use_is_refused():
    with penstock.Broker() as broker:
        broker.create_topic("orders", partitions=1)
        used = broker.transaction()
        with pytest.raises(Refused):
            used.publish("orders", b"a")
        with used:
            with pytest.raises(Refused):
                used.publish("orders", b"a", delay_key="k")
            with pytest.raises(Refused):
                used.publish("orders", b"a", idempotency_key="k")
            with pytest.raises(Refused):
                used.publish(["orders"], b"a")
            with pytest.raises(Refused), used:
                pass
        with pytest.raises(Refused), broker.transaction(timeout="16m"):
            pass
        assert stored(broker, "orders") == []


def test_consume_transform_produce(tmp_path):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("in", partitions=1)
        broker.create_topic("out", partitions=1)
        broker.publish_many("in", [b"a", b"b", b"c", b"d"])
        first, second, third, fourth = broker.poll("in", "g", limit=4)

        def fail() -> None:
            with broker.transaction() as failed:
                failed.publish("out", b"never")
                failed.ack(first)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        with broker.transaction() as done:
            done.publish("out", b"A")
            done.ack(first)
            done.nack(second, "later", delay="1h")
            done.reject([third.receipt], "bad")
            with pytest.raises(StaleReceipt):
                broker.ack(first)
        with broker.transaction() as skipped:
            skipped.commit("in", 0, "g", fourth.offset + 1)
        assert stored(broker, "out") == [b"A"]
        assert broker.lag("g")[0].lag == 0
        with pytest.raises(Refused):
            done.ack(second)


def test_delayed_messages_are_scheduled_with_the_commit():
    clock = VirtualClock()
    with penstock.Broker(clock=clock) as broker:
        broker.create_topic("orders", partitions=1)
        with broker.transaction() as t:
            t.publish("orders", b"later", delay="1h", delay_key="k")
            t.publish("orders", b"now")
            assert broker.delayed("orders") == []
        assert stored(broker, "orders") == [b"now"]
        assert [one.delay_key for one in broker.delayed("orders")] == [b"k"]
        clock.advance("1h")
        assert stored(broker, "orders") == [b"now", b"later"]
