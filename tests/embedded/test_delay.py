"""Messages for later, through the public library, restarts included."""

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import penstock
from penstock.api.delays import DelayState
from penstock.errors import NotFound, NotPending, Refused
from penstock.testing import VirtualClock


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def broker(clock):
    with penstock.Broker(clock=clock) as opened:
        opened.create_topic("t", partitions=2)
        yield opened


def values(messages):
    return [message.value for message in messages]


def drain(queue):
    return values(iter(queue))


@pytest.mark.parametrize(
    "delay", ["3ms", "2h", pytest.param("400d", marks=pytest.mark.tier("test"))]
)
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_message_comes_after_its_delay_and_not_before(tmp_path, clock, delay, is_stopped):
    queue = penstock.open(tmp_path / "q", clock=clock)
    try:
        number = queue.put(b"later", delay=delay)
        queue.put(b"now")
        if is_stopped:
            queue.close()
            queue = penstock.open(tmp_path / "q", clock=clock)
        assert drain(queue) == [b"now"]
        clock.advance(timedelta(milliseconds=2) if delay == "3ms" else "119m")
        assert drain(queue) == []
        clock.advance(delay)
        assert drain(queue) == [b"later"]
        assert queue.delayed_get(number).state is DelayState.DELIVERED
    finally:
        queue.close()


def test_what_is_overdue_after_a_restart_comes_at_once(tmp_path, clock):
    with penstock.open(tmp_path / "q", clock=clock) as queue:
        queue.put(b"second", delay="2h")
        queue.put(b"first", delay="1h")
    clock.advance("3d")
    with penstock.open(tmp_path / "q", clock=clock) as queue:
        assert drain(queue) == [b"first", b"second"]
        assert queue.put(b"third") == 3
        assert queue.get().id == 3


def test_a_real_clock_wakes_whoever_waits(tmp_path):
    with penstock.open(tmp_path / "q") as queue:
        queue.put(b"soon", delay=0.02)
        assert queue.get(timeout=60).value == b"soon"
        assert queue.get() is None


def test_ids_stay_those_that_put_returned_while_delayed_messages_come_in_between(tmp_path):
    """Puts are numbered without a lock, and delayed messages take numbers of the same row."""
    told: dict[int, bytes] = {}
    with penstock.open(tmp_path / "q") as queue:

        def put_many(name: int) -> None:
            for number in range(1500):
                value = b"%d-%d" % (name, number)
                if number % 10 == 0:
                    queue.put(b"late " + value, delay=0.001)
                told[queue.put(value)] = value

        threads = [threading.Thread(target=put_many, args=(name,)) for name in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = {}
        while len(found) < 3 * 1650:
            message = queue.get(timeout=60)
            assert message is not None, len(found)
            assert message.id not in found
            found[message.id] = message.value
        assert len(told) == 4500
        assert {number: found[number] for number in told} == told
        assert sum(value.startswith(b"late") for value in found.values()) == 450


def test_cancel_races_the_fire_and_exactly_one_wins(tmp_path):
    """In one thread they come due, in another they are cancelled."""
    with penstock.open(tmp_path / "q") as queue:
        numbers = [queue.put(b"%d" % one, delay=0.005 + one * 0.0001) for one in range(200)]
        outcome: Counter[str] = Counter()
        cancelled = set()
        for number in numbers:
            try:
                queue.cancel(number)
                cancelled.add(b"%d" % (number - 1))
            except NotPending as error:
                outcome[error.fields["state"]] += 1
        came = set()
        while len(came) + len(cancelled) < 200:
            message = queue.get(timeout=60)
            assert message is not None
            came.add(message.value)
        assert queue.get(timeout=0.05) is None
        assert not came & cancelled
        assert outcome["DELIVERED"] == len(came)


def test_a_broker_says_where_it_waits_and_lists_by_due_time(broker, clock):
    sent = [
        broker.publish("t", b"%d" % hours, delay=f"{hours}h", partition=hours % 2)
        for hours in (5, 2, 9)
    ]
    assert all(one.is_delayed for one in sent)
    assert [one.message.value for one in broker.delayed("t")] == [b"2", b"5", b"9"]
    first = broker.delayed("t", limit=1)[0]
    assert first.state is DelayState.PENDING
    after = clock.now() + timedelta(hours=4)
    assert [one.message.value for one in broker.delayed("t", after=after)] == [b"5", b"9"]
    broker.cancel_delayed("t", sent[2].partition, sent[2].offset)
    moved = broker.reschedule("t", sent[0].partition, sent[0].offset, delay="1m")
    assert moved.due_ns == clock.now_ns() + 60 * 1_000_000_000
    clock.advance("1d")
    assert values(broker.poll("t", "g")) in ([b"5", b"2"], [b"2", b"5"])
    facts = broker.delay_stats("t")
    assert sum(one.delivered for one in facts) == 2
    assert sum(one.cancelled for one in facts) == 1
    assert [one.next_due_ns for one in facts] == [None, None]
    with pytest.raises(NotPending):
        broker.cancel_delayed("t", sent[0].partition, sent[0].offset)


def test_a_limit_may_be_as_large_as_a_number_can_be(broker, tmp_path):
    broker.publish("t", b"x", delay="1h")
    assert len(broker.delayed("t", limit=1 << 63)) == 1
    with penstock.open(tmp_path) as queue:
        queue.put(b"x", delay="1h")
        assert len(queue.delayed(1 << 63)) == 1


def test_deliver_at_takes_a_datetime_or_text(broker, clock):
    at = clock.now() + timedelta(seconds=30)
    broker.publish("t", b"a", deliver_at=at)
    broker.publish("t", b"b", deliver_at=at.isoformat())
    broker.publish("t", b"c", deliver_at=at.strftime("%Y-%m-%dT%H:%M:%SZ"))
    broker.publish("t", b"over", deliver_at=datetime(2000, 1, 1, tzinfo=UTC))
    clock.advance(0)
    assert values(broker.poll("t", "g")) == [b"over"]
    clock.advance(30)
    assert sorted(values(broker.poll("t", "g"))) == [b"a", b"b", b"c"]


def test_many_with_one_delay_and_from_a_queue_without_an_object_each(broker, clock, tmp_path):
    sent = broker.publish_many("t", [b"a", "b"], delay=1, partition=0)
    assert [(one.offset, one.is_delayed) for one in sent] == [(0, True), (1, True)]
    with penstock.open(tmp_path / "q", clock=clock) as queue:
        numbers = queue.put_many([b"%d" % one for one in range(10_000)], delay="1s")
        assert numbers == range(1, 10_001)
        assert queue.put_many(["x", "y"], delay="1s", priority="high") == range(10_001, 10_003)
        with pytest.raises(Refused):
            queue.put_many([b"x"], delay=1, delay_key="k")
        clock.advance(1)
        assert len(drain(queue)) == 10_002


def test_debounce_by_business_key(tmp_path, clock):
    with penstock.open(tmp_path / "q", clock=clock) as queue:
        for click in range(5):
            queue.put(b"click %d" % click, delay="30s", delay_key="cart 7")
            clock.advance("20s")
        assert [one.value for one in queue.delayed()] == [b"click 4"]
        assert queue.delayed_get("cart 7").delay_key == b"cart 7"
        queue.reschedule("cart 7", delay="1h")
        clock.advance("59m")
        assert drain(queue) == []
        clock.advance("1m")
        assert drain(queue) == [b"click 4"]
        for key, name in ("cart 7", "cart 7"), (b"\xff", "\\xff"):
            with pytest.raises(NotFound) as caught:
                queue.cancel(key)
            assert caught.value.fields["name"] == name


def test_delay_with_priority_ttl_and_idempotency_key(broker, clock):
    broker.publish("t", b"low", partition=0, priority="background")
    options = {"partition": 0, "priority": "critical", "ttl": "10s", "idempotency_key": "once"}
    first = broker.publish("t", b"late", delay="5m", **options)
    again = broker.publish("t", b"late", delay="5m", **options)
    assert (again.offset, again.is_duplicate, again.is_delayed) == (first.offset, True, True)
    clock.advance("5m")
    got = broker.poll("t", "g")
    assert values(got) == [b"late", b"low"]
    assert got[0].expires_at == clock.now_ns() + 10 * 1_000_000_000
    assert broker.publish("t", b"late", **options).is_duplicate


def test_acks_all_makes_a_delayed_message_durable(tmp_path, clock):
    with penstock.Broker(tmp_path / "b", clock=clock, fsync="never") as broker:
        broker.create_topic("t", partitions=1)
        sent = broker.publish("t", b"a", delay="1h", acks="all")
        assert sent.guarantee.value == "fsynced"
        partition = broker.driver.node.partition("t", 0)
        assert partition.delayed.durable_end == 1


def test_acks_all_of_a_delayed_message_waits_for_the_disk_behind_other_messages_too(
    tmp_path, clock
):
    with penstock.Broker(tmp_path / "b", clock=clock, fsync="never") as broker:
        broker.create_topic("t", partitions=1)
        broker.publish_many("t", [b"a", b"b", b"c"], acks="all")
        assert broker.publish("t", b"a", delay="1h", acks="all").guarantee.value == "fsynced"
        assert broker.driver.node.partition("t", 0).delayed.durable_end == 1
