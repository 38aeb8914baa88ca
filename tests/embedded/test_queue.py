"""The queue: what goes in comes out, once, in order, and is still there after a restart."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

import penstock
from penstock.errors import (
    AlreadyOpen,
    BacklogFull,
    InvalidConfig,
    OffsetOutOfRange,
    Refused,
    StaleReceipt,
    TooLarge,
)
from penstock.testing import VirtualClock

from .waiting import waiting_calls


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "queue"


def values(messages):
    return [message.value for message in messages]


def test_ids_count_from_one_and_order_is_kept(path):
    with penstock.open(path) as queue:
        assert [queue.put(b"a"), queue.put(b"b"), queue.put("c", key="k")] == [1, 2, 3]
        assert queue.put_many([b"d", b"e"]) == range(4, 6)
        got = list(queue)
        assert [message.id for message in got] == [1, 2, 3, 4, 5]
        assert values(got) == [b"a", b"b", b"c", b"d", b"e"]
        assert queue.get() is None


def test_get_sees_what_was_put_before_it(path, clock):
    with penstock.open(path, clock=clock) as queue:
        for number in range(10):
            queue.put(b"%d" % number)
            assert queue.get().value == b"%d" % number


def test_consumed_stays_consumed_after_a_clean_stop(path):
    with penstock.open(path) as queue:
        queue.put_many([b"%d" % number for number in range(5)])
        assert values([queue.get(), queue.get()]) == [b"0", b"1"]
    with penstock.open(path) as queue:
        assert queue.stats().waiting == 3
        message = queue.get()
        assert (message.value, message.attempts) == (b"2", 1)
        assert queue.put(b"more") == 6


def test_every_byte_survives_in_key_value_and_headers(path):
    everything = bytes(range(256))
    with penstock.open(path) as queue:
        queue.put(
            everything,
            key=everything,
            headers=[("h", everything), ("h", b""), ("h", None), ("", b"")],
        )
        queue.put(None)
        queue.put(b"")
    with penstock.open(path) as queue:
        first, second, third = queue.get_many()
        assert (first.value, first.key) == (everything, everything)
        assert tuple(first.headers) == (("h", everything), ("h", b""), ("h", None), ("", b""))
        assert second.value is None
        assert third.value == b""


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_mixed_sizes_and_options_keep_their_places(path, compression):
    with penstock.open(path, compression=compression) as queue:
        sent = []
        for number in range(300):
            value = bytes([number % 256]) * (number * 37 % 5000)
            options = {"key": b"%d" % number} if number % 3 == 0 else {}
            assert queue.put(value, **options) == number + 1
            sent.append((value, options.get("key")))
        big = b"x" * (3 << 20)
        assert queue.put_many([big, big, b"y"]) == range(301, 304)
        sent += [(big, None), (big, None), (b"y", None)]
        assert [(message.value, message.key) for message in queue] == sent


@pytest.mark.parametrize(
    ("value", "options", "error"),
    [
        (7, {}, Refused),
        (b"x" * (10 * 1024 * 1024 + 1), {}, TooLarge),
        (b"x", {"key": b"k" * 65537}, TooLarge),
        (b"x", {"headers": {"h": b"v" * 65537}}, TooLarge),
        (b"x", {"headers": [("h",)]}, Refused),
        (b"x", {"headers": {5: b"v"}}, Refused),
        (b"x", {"priority": "urgent"}, Refused),
        (b"x", {"priority": 5}, Refused),
        (b"x", {"ttl": "soon"}, Refused),
        (b"x", {"ttl": -1}, Refused),
        (b"x", {"delay": "soon"}, Refused),
        (b"x", {"delay": 1, "deliver_at": "2030-01-01T00:00:00Z"}, Refused),
        (b"x", {"deliver_at": "tomorrow"}, Refused),
        (b"x", {"delay": "200000d"}, Refused),
        (b"x", {"delay_key": "k"}, Refused),
        (b"x", {"delay": 1, "delay_key": ""}, Refused),
    ],
)
def test_bad_put_is_refused_and_leaves_the_queue_as_it_was(path, value, options, error):
    with penstock.open(path) as queue:
        queue.put(b"before")
        with pytest.raises(error):
            queue.put(value, **options)
        with pytest.raises(error):
            queue.put_many([b"good", value], **options)
        assert queue.put(b"after") == 2
        assert values(queue) == [b"before", b"after"]


def test_changing_a_buffer_after_put_changes_nothing(path):
    with penstock.open(path) as queue:
        buffer = bytearray(b"first")
        queue.put(buffer)
        queue.put_many([buffer, buffer])
        buffer[:] = b"later"
        assert values(queue) == [b"first"] * 3


@pytest.mark.parametrize(
    ("name", "number"),
    [("critical", 0), ("HIGH", 1), ("medium", 2), ("normal", 2), ("low", 3), (4, 4)],
)
def test_priorities_have_names(path, name, number):
    with penstock.open(path) as queue:
        queue.put(b"x", priority=name)
        assert queue.get().priority == number


def test_an_empty_idempotency_key_is_no_key(path, clock):
    with penstock.open(path, clock=clock) as queue:
        assert [queue.put(b"x", idempotency_key=one) for one in ("", b"", "")] == [1, 2, 3]
        assert queue.put_many([b"x", b"y"], idempotency_key="") == range(4, 6)
        assert [queue.put(b"x", idempotency_key="", delay="1m") for _ in range(2)] == [1, 2]
        assert list(queue.put_many([b"x", b"y"], idempotency_key="", delay="1m")) == [3, 4]
        clock.advance("2m")
        assert len(list(queue)) == 9
    with penstock.open(path, clock=clock) as queue:
        assert queue.put(b"x", idempotency_key=b"") == 10


def test_repeated_idempotency_key_returns_the_first_id(path):
    with penstock.open(path) as queue:
        assert queue.put(b"other") == 1
        assert queue.put(b"x", idempotency_key="order-7") == 2
        assert queue.put(b"y", idempotency_key="order-7") == 2
    with penstock.open(path) as queue:
        assert queue.put(b"z", idempotency_key=b"order-7") == 2
        assert queue.stats().put == 2


def test_expired_messages_are_dropped_even_when_fetched_before(path, clock):
    with penstock.open(path, clock=clock) as queue:
        queue.put(b"first")
        queue.put_many([b"short"] * 1_500, ttl="10s")
        queue.put(b"long", ttl="10m")
        assert queue.get().value == b"first"
        clock.advance("1m")
        assert queue.get().value == b"long"
        assert queue.get() is None
        assert queue.stats().expired == 1_500


def test_fetched_messages_stay_ours_however_slowly_they_are_taken(path, clock):
    with penstock.open(path, clock=clock) as queue:
        queue.put_many([b"1", b"2", b"3"])
        taken = []
        for _ in range(3):
            taken.append(queue.get())
            clock.advance("3d")
        assert [(one.value, one.attempts) for one in taken] == [(b"1", 1), (b"2", 1), (b"3", 1)]
        assert queue.get() is None


def test_lent_messages_come_back_after_their_time(path, clock):
    with penstock.open(path, auto_ack=False, clock=clock, visibility_timeout_ms=5000) as queue:
        queue.put(b"x")
        first = queue.get()
        assert queue.get() is None
        clock.advance("5s")
        clock.advance("1s")
        second = queue.get()
        assert (second.id, second.attempts) == (1, 2)
        with pytest.raises(StaleReceipt):
            queue.ack(first)
        queue.ack(second)
        queue.ack(second)
        assert queue.stats().done == 1


def test_extend_gives_more_time(path, clock):
    with penstock.open(path, auto_ack=False, clock=clock, visibility_timeout_ms=5000) as queue:
        queue.put(b"x")
        message = queue.get()
        for _ in range(5):
            clock.advance("4s")
            queue.extend(message, "5s")
        queue.ack(message)
        assert queue.stats().done == 1


def test_nack_with_delay_and_reject(path, clock):
    with penstock.open(path, auto_ack=False, clock=clock) as queue:
        queue.put_many([b"retry", b"bad"])
        retry, bad = queue.get_many()
        queue.nack(retry, "not now", delay="1h")
        queue.reject(bad, "no such file")
        clock.advance("59m")
        assert queue.get() is None
        clock.advance("1m")
        assert queue.get().attempts == 2
        (dead,) = queue.dead_letters()
        assert (dead.id, dead.value, dead.reason, dead.error) == (
            2,
            b"bad",
            "REJECTED",
            "no such file",
        )
        assert dead.notes == {
            "dlq.original_msg_id": 2,
            "dlq.retry_count": 0,
            "dlq.failure_reason": "no such file",
            "dlq.last_failure": dead.letter.provenance.dlq_timestamp,
        }


def test_requeued_dead_letters_come_once_more_and_survive_a_restart(path, clock):
    with penstock.open(path, auto_ack=False, clock=clock) as queue:
        queue.put_many([b"a", b"b", b"c"])
        queue.reject(queue.get_many(), "down")
        first, *_ = queue.dead_letters()
        assert queue.requeue(first) == (1, 0)
        assert [one.id for one in queue.dead_letters()] == [2, 3]
        again = queue.get()
        assert (again.value, again.attempts) == (b"a", 1)
        queue.ack(again)
    with penstock.open(path, auto_ack=False, clock=clock) as queue:
        assert queue.requeue() == (2, 0)
        assert values(queue.get_many()) == [b"b", b"c"]
        assert queue.dead_letters() == []
        assert queue.put(b"d") == 4


@pytest.mark.tier("test")
def test_all_dead_letters_are_requeued_however_many(path):
    with penstock.open(path, auto_ack=False, max_in_flight=20_000) as queue:
        queue.put_many([b"x"] * 10_500)
        # A lease has 10,000 messages at most.
        held = [*queue.get_many(10_000), *queue.get_many(10_000)]
        assert len(held) == 10_500, "a larger max_in_flight holds for all callers together"
        queue.reject(held)
        assert queue.stats().dead_letters == 10_500
        assert queue.requeue() == (10_500, 0)
        assert queue.stats().dead_letters == 0
        assert queue.stats().waiting == 10_500


def test_answers_need_a_queue_that_lends(path):
    with penstock.open(path) as queue:
        queue.put(b"x")
        message = queue.get()
        queue.ack(message)
        for answer in (queue.nack, queue.reject, lambda one: queue.extend(one, 5)):
            with pytest.raises(Refused, match="auto_ack=False"):
                answer(message)


def test_unanswered_leases_return_when_the_queue_closes(path):
    with penstock.open(path, auto_ack=False) as queue:
        queue.put_many([b"a", b"b"])
        queue.get_many()
    with penstock.open(path, auto_ack=False) as queue:
        assert [(one.value, one.attempts) for one in queue.get_many()] == [(b"a", 2), (b"b", 1)]


def test_peek_takes_nothing(path):
    with penstock.open(path) as queue:
        assert queue.peek() is None
        queue.put_many([b"a", b"b", b"c"])
        assert queue.peek().value == b"a"
        assert values(queue.peek_many(2)) == [b"a", b"b"]
        assert queue.get().value == b"a"
        assert values(queue.peek_many(5)) == [b"b", b"c"]
        assert values(queue) == [b"b", b"c"]


def test_seek_by_id_and_by_time(path, clock):
    with penstock.open(path, clock=clock) as queue:
        queue.put_many([b"1", b"2"])
        assert len(list(queue)) == 2
        clock.advance("1h")
        queue.put_many([b"3", b"4"])
        assert queue.get().value == b"3"
        assert queue.seek(2) == 2
        assert values(queue) == [b"2", b"3", b"4"]
        assert queue.seek(clock.now() - timedelta(minutes=30)) == 3
        assert values(queue) == [b"3", b"4"]
        assert queue.seek(5) == 5
        assert queue.get() is None
        assert queue.seek(datetime(2020, 1, 1, tzinfo=UTC)) == 1


def test_a_seek_to_a_message_that_is_not_there_is_refused_and_changes_nothing(path, clock):
    with penstock.open(path, clock=clock, segment_size_bytes=1000, retention_hours=1) as queue:
        queue.put_many([b"%0500d" % one for one in range(4)])
        queue.flush()
        clock.advance("2h")
        queue.put_many([b"%0500d" % one for one in range(4, 8)])
        assert queue.get().id == 1
        queue.get_many(3)
        queue.compact()
        first, end = queue.stats().first_id, queue.stats().next_id
        assert (first, end) == (5, 9)
        for wrong in (99999, end + 1, first - 1, 1, 0, -1, -(1 << 70), 1 << 70):
            with pytest.raises(OffsetOutOfRange, match=rf"^id {wrong} is outside \[5, 9\]$"):
                queue.seek(wrong)
        assert queue.stats().waiting == 4
        assert queue.get().id == 5
        for right in range(first, end + 1):
            assert queue.seek(right) == right
            assert [one.id for one in queue] == [*range(right, end)]


def test_compact_frees_what_is_finished_and_nothing_else(path):
    with penstock.open(path, segment_size_bytes=100_000) as queue:
        for _ in range(20):
            queue.put_many([b"%01000d" % number for number in range(50)])
            queue.sync()
        assert queue.compact(older_than=0) == (0, 0)
        for _ in range(500):
            queue.get()
        freed = queue.compact(older_than=0)
        assert freed.segments_removed > 3
        assert freed.bytes_freed > 300_000
        assert queue.get().id == 501
        assert queue.stats().waiting == 499


def test_second_opening_is_refused(path):
    with penstock.open(path), pytest.raises(AlreadyOpen):
        penstock.open(path)
    penstock.open(path).close()


def test_backlog_limit_refuses_with_numbers_and_recovers(path):
    with penstock.open(path, max_backlog_messages=3) as queue:
        for number in range(3):
            queue.put(b"%d" % number)
        with pytest.raises(BacklogFull) as refused:
            queue.put(b"more")
        assert refused.value.fields["limit"] == 3
        queue.get()
        queue.stats()
        assert queue.put(b"more") == 4
    with penstock.open(path) as queue, pytest.raises(BacklogFull):
        queue.put_many([b"x", b"y"])


@pytest.mark.parametrize(
    "options", [{"fsync": "sometimes"}, {"max_retrys": 3}, {"compression": "x"}]
)
def test_wrong_options_are_refused_by_name(path, options):
    with pytest.raises(InvalidConfig, match=next(iter(options))):
        penstock.open(path, **options)
    penstock.open(path).close()


def test_closed_queue_says_so(path):
    queue = penstock.open(path)
    queue.put(b"x")
    queue.close()
    queue.close()
    for call in (lambda: queue.put(b"y"), queue.get, lambda: queue.put(b"y", key=b"k"), queue.sync):
        with pytest.raises((Refused, penstock.errors.Unavailable), match="closed"):
            call()


def test_waiting_get_is_woken_by_a_put_at_once(path):
    with penstock.open(path) as queue:
        got = []
        thread = threading.Thread(target=lambda: got.append(queue.get(timeout=60)))
        thread.start()
        while not waiting_calls(queue):
            pass
        queue.put(b"hello")
        thread.join(120)
        assert values(got) == [b"hello"]
    with penstock.open(path) as queue:
        assert queue.get() is None


def test_wait_ends_when_the_time_is_up_and_when_the_queue_closes(path):
    queue = penstock.open(path)
    assert queue.get(timeout=0.02) is None
    failed = []

    def wait():
        try:
            queue.get(timeout=None)
        except Refused as error:
            failed.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not waiting_calls(queue):
        pass
    queue.close()
    thread.join(120)
    assert len(failed) == 1


def test_put_is_written_without_any_further_call(path):
    with penstock.open(path) as queue:
        queue.put(b"x")
        patience = threading.Event()
        for _ in range(500):
            if any(one.stat().st_size for one in path.rglob("topics/**/messages/*.log")):
                return
            patience.wait(0.01)
        raise AssertionError("it is not written")


def test_stats_count_everything(path, clock):
    with penstock.open(path, auto_ack=False, clock=clock) as queue:
        queue.put_many([b"%d" % number for number in range(10)])
        held = queue.get_many(4)
        queue.ack(held[:2])
        queue.reject(held[2], "bad")
        found = queue.stats()
        assert (found.put, found.waiting, found.in_flight, found.done) == (10, 6, 1, 3)
        assert (found.first_id, found.next_id, found.segments) == (1, 11, 1)
        assert found.write.p50_ms >= 0
        queue.dead_letters()
        assert queue.stats().dead_letters == 1


@pytest.mark.parametrize("auto_ack", [True, False])
def test_stats_say_how_long_messages_waited(path, clock, auto_ack):
    with penstock.open(path, auto_ack=auto_ack, clock=clock) as queue:
        queue.put(b"patient")
        queue.flush()
        clock.advance("3s")
        assert queue.get().value == b"patient"
        assert queue.stats().age.p50_ms == 3000


def test_public_names_are_these():
    names = ["Broker", "Letters", "Member", "Message", "PenstockError", "Queue", "__version__"]
    assert dir(penstock) == [*names, "open"]
    assert all(getattr(penstock, name) is not None for name in dir(penstock))


def test_the_urgent_ones_come_first(tmp_path):
    with penstock.open(tmp_path) as queue:
        queue.put_many([b"%d" % number for number in range(100)])
        assert queue.get().value == b"0"
        queue.put(b"urgent", priority="critical")
        queue.put(b"later", priority="background")
        assert queue.get().value == b"urgent"
        assert [queue.get().value for _ in range(3)] == [b"1", b"2", b"3"]
        queue.put_many([b"now", b"at once"], priority="high")
        assert [queue.get().value for _ in range(3)] == [b"now", b"at once", b"4"]
    with penstock.open(tmp_path) as queue:
        rest = [message.value for message in queue]
    assert sorted(rest) == sorted([b"%d" % number for number in range(5, 100)] + [b"later"])


@pytest.mark.parametrize("handed_out", range(1, 5))
def test_what_was_handed_out_by_lanes_is_finished_and_nothing_else(tmp_path, handed_out):
    lanes = {b"a": "normal", b"b": "critical", b"c": "background", b"d": "normal"}
    with penstock.open(tmp_path) as queue:
        for value, priority in lanes.items():
            queue.put(value, priority=priority)
        got = [queue.get().value for _ in range(handed_out)]
        # Whatever was handed out is acked now, and not when the queue closes.
        assert queue.stats().done == handed_out
    with penstock.open(tmp_path) as queue:
        rest = [message.value for message in queue]
    assert sorted(got + rest) == sorted(lanes)


def test_urgent_messages_in_manual_queues(tmp_path):
    with penstock.open(tmp_path, auto_ack=False) as queue:
        queue.put_many([b"a", b"b"])
        queue.put(b"urgent", priority="high")
        held = queue.get_many(2)
        assert [message.value for message in held] == [b"urgent", b"a"]
        queue.nack(held[0], delay=0)
        assert queue.get().value == b"urgent"
