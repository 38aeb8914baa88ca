"""What users rely on, through the public library, restarts included."""

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import penstock
from penstock import Letters
from penstock.api.journeys import SearchJourneys
from penstock.errors import BacklogFull, GroupBusy, NotFound, StaleReceipt, TraceNotFound
from penstock.model import Message
from penstock.testing import VirtualClock

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def start(tmp_path, clock):
    """Opens the broker, and opens it again."""
    opened = []

    def open_broker():
        if opened:
            opened.pop().close()
        opened.append(penstock.Broker(tmp_path / "data", clock=clock))
        return opened[0]

    yield open_broker
    opened.pop().close()


def values(messages):
    return [message.value for message in messages]


def test_two_groups_with_several_members_get_every_message_once_each(start):
    broker = start()
    broker.create_topic("t", partitions=3)
    sent = [b"%d" % number for number in range(200)]
    broker.publish_many("t", [Message(value, key=value) for value in sent])
    entropy, got = random.Random(3), {"red": Counter(), "blue": Counter()}
    for round_number in range(20):
        if round_number in {7, 13}:
            broker = start()
        for group, counts in got.items():
            held = []
            for member in ("a", "b", "c"):
                held += broker.poll("t", group, member=member, limit=entropy.randint(1, 12))
            entropy.shuffle(held)
            for message in held:
                broker.ack(message)
                counts[message.value] += 1
    assert got == {"red": Counter(sent), "blue": Counter(sent)}
    assert sum(one.lag for one in broker.lag("red")) == 0


def test_ack_of_a_later_message_never_loses_an_earlier_one(start, clock):
    broker = start()
    broker.create_topic("t", partitions=1)
    broker.publish_many("t", [b"0", b"1", b"2", b"3", b"4", b"5"])
    held = broker.poll("t", "g")
    broker.ack([held[5], held[4], held[0]])
    broker = start()
    clock.advance("31s")
    clock.advance("1s")
    assert values(broker.poll("t", "g")) == [b"1", b"2", b"3"]
    (lag,) = broker.lag("g")
    assert (lag.floor, lag.lag, lag.finished_above) == (1, 3, 2)


def test_nack_waits_for_its_backoff_and_counts(start, clock):
    broker = start()
    broker.create_topic("t", partitions=1)
    broker.publish("t", b"x")
    for attempt, backoff_s in ((1, 1), (2, 2), (3, 4)):
        (message,) = broker.poll("t", "g")
        assert message.attempts == attempt
        broker.nack(message, "busy")
        if attempt == 2:
            broker = start()
        clock.advance(backoff_s - 0.001)
        assert broker.poll("t", "g") == []
        clock.advance(0.001)
    assert broker.poll("t", "g")[0].attempts == 4


def test_fourth_failure_is_a_dead_letter_with_every_field(start, clock):
    broker = start()
    broker.create_topic("orders", partitions=2)
    first = broker.publish("orders", b"poison", key="k", headers={"h": "v"}, partition=1)
    published_ns = clock.now_ns()
    for _ in range(4):
        clock.advance("1m")
        (message,) = broker.poll("orders", "billing", member="worker-1")
        broker.nack(message, "cannot parse")
    broker = start()
    (letter,) = broker.dead_letters("orders")
    assert (letter.message.value, letter.message.key) == (b"poison", b"k")
    assert tuple(letter.message.headers) == (("h", b"v"),)
    story = letter.provenance
    assert (story.original_topic, story.original_partition) == ("orders", 1)
    assert (story.original_offset, story.original_timestamp) == (first.offset, published_ns)
    assert (story.delivery_attempts, story.group) == (4, "billing")
    assert (story.last_consumer, story.last_error) == ("worker-1", "cannot parse")
    assert story.dlq_reason == "MAX_RETRIES_EXCEEDED"
    minute = 60 * 10**9
    assert story.first_delivery == published_ns + minute
    assert story.last_delivery == story.dlq_timestamp == published_ns + 4 * minute
    floors = {one.partition: one.floor for one in broker.lag("billing")}
    assert floors[1] == first.offset + 1
    assert broker.poll("orders", "billing") == []


def test_redrive_to_the_group_reaches_only_the_group_that_failed(start, clock):
    broker = start()
    broker.create_topic("t", partitions=1, max_retries=0)
    broker.publish_many("t", [b"good", b"bad"])
    for group in ("fine", "broken"):
        held = broker.poll("t", group)
        broker.ack(held[0])
        (broker.ack if group == "fine" else broker.nack)(held[1])
    assert broker.redrive("t", target="group", dry_run=True).redriven == 1
    assert broker.redrive("t", target="group").redriven == 1
    broker = start()
    assert broker.poll("t", "fine") == []
    (again,) = broker.poll("t", "broken")
    assert (again.value, again.attempts) == (b"bad", 1)
    assert broker.dead_letters("t") == []


def test_redrive_to_the_topic_reaches_every_group(start):
    broker = start()
    broker.create_topic("t", partitions=1)
    broker.publish_many("t", [b"a", b"b"])
    held = broker.poll("t", "one")
    broker.reject(held[0], "first")
    broker.reject(held[1], "second")
    broker.ack(broker.poll("t", "two"))
    broker.dead_letters("t")
    answer = broker.redrive("t", selection=Letters(error="second"), target="topic")
    assert (answer.matched, answer.redriven, answer.failed) == (1, 1, [])
    broker = start()
    for group in ("one", "two"):
        assert values(broker.poll("t", group)) == [b"b"]
    assert [one.provenance.last_error for one in broker.dead_letters("t")] == ["first"]
    assert broker.discard("t", selection=Letters(error="first")).discarded == 1
    broker = start()
    assert broker.dead_letters("t") == []


def test_one_slow_message_blocks_nobody(start):
    broker = start()
    broker.create_topic("t", partitions=1)
    broker.publish_many("t", [b"%d" % number for number in range(100)])
    (slow,) = broker.poll("t", "g", member="slow", limit=1)
    done = []
    while held := broker.poll("t", "g", member="quick", limit=7):
        broker.ack(held)
        done += values(held)
    assert done == [b"%d" % number for number in range(1, 100)]
    (lag,) = broker.lag("g")
    assert (lag.lag, lag.in_flight) == (1, 1)
    broker.ack(slow)
    assert broker.lag("g")[0].floor == 100


def test_eight_producers_with_mixed_sizes_find_every_message_where_it_was_said(tmp_path):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=3)

        def produce(number):
            entropy, placed = random.Random(number), []
            for count in range(40):
                value = b"%d-%d-" % (number, count) + entropy.randbytes(
                    entropy.choice([0, 90, 9000])
                )
                acks = entropy.choice(["none", "leader", "all"])
                found = broker.publish("t", value, acks=acks)
                assert found.guarantee.value == ("fsynced" if acks == "all" else "buffered")
                placed.append((found.partition, found.offset, value))
            return placed

        with ThreadPoolExecutor(8) as pool:
            placed = [one for some in pool.map(produce, range(8)) for one in some]
    with penstock.Broker(tmp_path) as broker:
        assert len({(partition, offset) for partition, offset, _ in placed}) == 320
        for partition, offset, value in placed:
            (found,) = broker.read("t", partition, offset, limit=1)
            assert found.value == value


def test_in_flight_limit_of_one(start):
    broker = start()
    broker.create_topic("t", partitions=1, max_in_flight=1)
    broker.publish_many("t", [b"a", b"b"])
    (first,) = broker.poll("t", "g", member="m")
    assert broker.poll("t", "g", member="other") == []
    broker = start()
    assert broker.poll("t", "g", member="other") == []
    broker.ack(first)
    assert values(broker.poll("t", "g", member="other")) == [b"b"]


def test_receipt_of_an_expired_lease_gets_a_clear_refusal(start, clock):
    broker = start()
    broker.create_topic("t", partitions=1)
    broker.publish("t", b"x")
    (first,) = broker.poll("t", "g", visibility_timeout="10s")
    receipt = first.receipt
    clock.advance("11s")
    for answer in (broker.ack, broker.nack, broker.reject, lambda one: broker.extend(one, "5s")):
        with pytest.raises(StaleReceipt, match="not the current lease"):
            answer(receipt)
    broker = start()
    with pytest.raises(StaleReceipt):
        broker.ack(receipt)
    clock.advance("1m")
    (second,) = broker.poll("t", "g")
    assert second.attempts == 2
    broker.ack(second.receipt)


def test_keep_unread_keeps_until_its_cap(start, clock):
    broker = start()
    small = {"segment_size_bytes": 2000, "retention_hours": 1, "keep_unread": True}
    broker.create_topic("kept", partitions=1, **small)
    broker.create_topic("capped", partitions=1, **small, keep_unread_bytes_max=5000)
    for topic in ("kept", "capped"):
        broker.open_group(topic, "late")
        for number in range(20):
            broker.publish(topic, b"%0900d" % number)
    clock.advance("2h")
    broker.retain()
    broker = start()
    assert len(broker.poll("kept", "late")) == 20
    left = broker.poll("capped", "late")
    assert 0 < len(left) < 6
    assert left[-1].value == b"%0900d" % 19
    assert broker.describe("capped")[0].earliest == left[0].offset


def test_hundred_threads_with_one_idempotency_key_store_one_message(tmp_path):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("t")
        together = threading.Barrier(100)

        def publish(_number):
            together.wait()
            return broker.publish("t", b"x", idempotency_key="one", acks="all")

        with ThreadPoolExecutor(100) as pool:
            found = list(pool.map(publish, range(100)))
        assert len({(one.partition, one.offset) for one in found}) == 1
        assert sum(not one.is_duplicate for one in found) == 1
    with penstock.Broker(tmp_path) as broker:
        assert broker.publish("t", b"y", idempotency_key="one").is_duplicate
        assert sum(one.messages for one in broker.describe("t")) == 1


def test_acks_all_of_a_repeat_and_a_new_message_waits_for_the_new_one(tmp_path):
    with penstock.Broker(tmp_path, fsync="never") as broker:
        broker.create_topic("t", partitions=8)
        known = penstock.Message(b"x", key=b"a", idempotency_key=b"one")
        first = broker.publish_many("t", [known], acks="all")[0]
        both = broker.publish_many("t", [known, penstock.Message(b"y", key=b"b")], acks="all")
        assert both[0].is_duplicate
        assert both[1].partition != first.partition
        partition = broker.driver.node.partition("t", both[1].partition)
        assert partition.messages.durable_end == 1


def test_messages_with_an_empty_idempotency_key_are_all_stored(tmp_path):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=4)
        found = [broker.publish("t", b"x", idempotency_key=one) for one in ("", b"", "", b"")]
        found += broker.publish_many("t", [penstock.Message(b"x", idempotency_key=b"")] * 4)
        found += [broker.publish("t", b"x", idempotency_key="", delay="1h") for _ in range(4)]
        assert not any(one.is_duplicate for one in found)
        # Without any key the partitions take turns.
        assert {one.partition for one in found} == {0, 1, 2, 3}


def test_hundred_threads_with_one_idempotency_key_put_one_message(tmp_path):
    with penstock.open(tmp_path, fsync="always") as queue:
        together = threading.Barrier(100)

        def put(_number):
            together.wait()
            return queue.put(b"x", idempotency_key=b"one")

        with ThreadPoolExecutor(100) as pool:
            assert set(pool.map(put, range(100))) == {1}
    with penstock.open(tmp_path) as queue:
        assert queue.put(b"y", idempotency_key=b"one") == 1
        assert values(queue) == [b"x"]


def test_topic_that_is_deleted_and_made_again_shows_nothing_old(start):
    broker = start()
    for round_number in range(3):
        broker.create_topic("t", partitions=2)
        assert broker.poll("t", "g") == []
        broker.publish_many("t", [b"%d" % round_number] * 10)
        assert set(values(broker.poll("t", "g"))) == {b"%d" % round_number}
        broker.delete_topic("t")
        with pytest.raises(NotFound):
            broker.publish("t", b"x")
        broker = start()
        assert broker.topics() == []


def test_backlog_limits_refuse_with_numbers_and_recover(start):
    broker = start()
    broker.create_topic("t", partitions=1, max_backlog_messages=10)
    broker.publish_many("t", [b"x"] * 10)
    broker.open_group("t", "g")
    with pytest.raises(BacklogFull) as refused:
        broker.publish("t", b"y")
    assert refused.value.fields["found"] == refused.value.fields["limit"] == 10
    assert refused.value.fields["retry_after_ms"] > 0
    broker = start()
    broker.ack(broker.poll("t", "g", limit=4))
    broker.publish_many("t", [b"z"] * 4)
    with pytest.raises(BacklogFull):
        broker.publish("t", b"y")


@pytest.mark.parametrize("action", ["drop", "dlq"])
def test_ttl_drops_or_dead_letters_and_never_delivers(start, clock, action):
    broker = start()
    broker.create_topic("t", partitions=1, ttl_action=action)
    broker.publish("t", b"short", ttl="1m")
    broker.publish("t", b"long", ttl="2h")
    clock.advance("61s")
    broker = start()
    assert values(broker.poll("t", "g")) == [b"long"]
    letters = broker.dead_letters("t")
    assert [one.message.value for one in letters] == ([b"short"] if action == "dlq" else [])
    assert {one.provenance.dlq_reason for one in letters} <= {"TTL_EXPIRED"}
    assert values(broker.read("t", 0)) == [b"short", b"long"]


def test_bytes_0_to_255_come_back_equal(start):
    broker = start()
    broker.create_topic("t")
    everything = bytes(range(256))
    broker.publish(
        "t", everything, key=everything, headers=[("a", everything), ("a", b""), ("", None)]
    )
    broker = start()
    (message,) = broker.poll("t", "g")
    assert (message.value, message.key) == (everything, everything)
    assert tuple(message.headers) == (("a", everything), ("a", b""), ("", None))


def test_reset_needs_an_empty_group_or_force(start, clock):
    broker = start()
    broker.create_topic("t", partitions=1)
    broker.publish_many("t", [b"a", b"b", b"c"])
    held = broker.poll("t", "g")
    with pytest.raises(GroupBusy):
        broker.reset("g", "earliest", topic="t")
    assert broker.reset("g", 1, dry_run=True)[0]["floor_after"] == 1
    broker.reset("g", 1, force=True)
    with pytest.raises(StaleReceipt):
        broker.ack(held[0])
    assert values(broker.poll("t", "g")) == [b"b", b"c"]


def test_group_may_begin_at_the_end(start):
    broker = start()
    broker.create_topic("t", partitions=1)
    broker.publish("t", b"old")
    broker.open_group("t", "new", start="latest")
    broker.publish("t", b"new")
    assert values(broker.poll("t", "new")) == [b"new"]


def test_lag_is_counted_in_messages_and_in_seconds(start, clock):
    broker = start()
    broker.create_topic("t", partitions=1)
    broker.open_group("t", "g")
    broker.publish("t", b"a")
    clock.advance("90s")
    broker.publish("t", b"b")
    (lag,) = broker.lag("g")
    assert (lag.lag, lag.lag_seconds) == (2, 90.0)


def test_member_that_goes_away_gives_everything_back_and_only_the_oldest_counts(start):
    broker = start()
    broker.create_topic("t", partitions=1)
    broker.publish_many("t", [b"a", b"b"])
    broker.poll("t", "g", member="gone")
    broker.release("t", "g", "gone")
    again = broker.poll("t", "g", member="other")
    assert [(one.value, one.attempts) for one in again] == [(b"a", 2), (b"b", 1)]


def test_broker_without_a_path_lives_in_memory(clock):
    with penstock.Broker(clock=clock) as broker:
        broker.create_topic("t", partitions=1, max_retries=0)
        broker.publish("t", b"x", acks="all")
        broker.nack(broker.poll("t", "g"), "no")
        assert len(broker.dead_letters("t")) == 1
        assert broker.clock is clock


def test_a_message_is_followed_in_the_library_too(start):
    broker = start()
    broker.create_topic("t", partitions=1, max_retries=0)
    broker.publish("t", b"a", key="k", headers={"traceparent": PARENT})
    broker.nack(broker.poll("t", "g", member="m"))
    broker.redrive("t", target="group")
    broker = start()
    broker.ack(broker.poll("t", "g", member="m"))
    found = broker.journey("t", 0, 0)
    assert [one.event_type.value for one in found.spans] == [
        "publish.received",
        "publish.persisted",
        "consume.fetched",
        "consume.nacked",
        "dlq.routed",
        "publish.persisted",
        "dlq.redriven",
        "consume.reopened",
        "consume.fetched",
        "consume.acked",
    ]
    assert broker.trace(PARENT.split("-")[1]) == found
    (row,) = broker.journeys("t")
    page = broker.search_journeys(SearchJourneys(topic="t", key=b"k"))
    assert page.rows == [row]
    assert row.trace_id == found.trace_id
    assert "t" in {one.topic for one in broker.journey_stats().topics}
    with pytest.raises(TraceNotFound):
        broker.trace("f" * 32)
