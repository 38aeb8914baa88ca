"""Many threads on one queue or broker: nothing lost, nothing twice, work shared, one sync for many."""

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import penstock
from penstock.api.consume import Poll
from penstock.api.principals import LOCAL
from penstock.embedded.prefetch import Prefetch
from penstock.errors import NoSpace, NotFound, Refused
from penstock.model import Priority
from penstock.runtime.file import RealFile
from penstock.runtime.group_polls import FOR_EVER
from penstock.testing import VirtualClock

from .waiting import until, waiting_calls


@pytest.mark.parametrize("others", [1, 2])
def test_who_waits_longest_is_served_first_also_after_messages_for_others(others):
    with penstock.Broker() as broker:
        broker.create_topic("t", partitions=1)
        names = ("first", "second", "third")
        asked = [Poll("t", "g", name, 1, 30_000, Priority.HIGH) for name in names]
        waiters = [broker.driver.polls.enter(one, LOCAL, FOR_EVER) for one in asked]
        for _ in range(others):
            broker.publish("t", b"for none of them", priority="low")
        assert not any(one.is_settled for one in waiters)
        for number in range(3):
            broker.publish("t", b"%d" % number, priority="high")
        assert [[one.value for one in each.messages] for each in waiters] == [
            [b"0"],
            [b"1"],
            [b"2"],
        ]


@pytest.mark.parametrize("query", [lambda _: None, lambda broker: broker.in_flight("g")])
def test_what_a_consumer_that_waited_leaves_unanswered_comes_back_in_time(query):
    with penstock.Broker() as broker:
        broker.create_topic("t", partitions=1, backoff_base_ms=0)
        waiter = broker.driver.polls.enter(Poll("t", "g", "a", 1, 50), LOCAL, FOR_EVER)
        broker.publish("t", b"x")
        assert [one.attempts for one in waiter.messages] == [1]
        query(broker)
        assert [one.attempts for one in broker.poll("t", "g", timeout=60)] == [2]


@pytest.mark.parametrize("fsync", ["interval", "always"])
def test_ids_are_unique_and_say_where_the_message_is(tmp_path, fsync):
    with penstock.open(tmp_path, fsync=fsync) as queue:

        def produce(number):
            placed = {}
            for count in range(60):
                value = b"%d-%d" % (number, count)
                if count % 10 == 3:
                    ids = queue.put_many([value + b"a", value + b"b"])
                    placed |= {ids[0]: value + b"a", ids[1]: value + b"b"}
                elif count % 10 == 6:
                    placed[queue.put(value, key=b"k")] = value
                else:
                    placed[queue.put(value)] = value
            return placed

        with ThreadPoolExecutor(8) as pool:
            placed = {
                id_: value for some in pool.map(produce, range(8)) for id_, value in some.items()
            }
        assert sorted(placed) == list(range(1, len(placed) + 1))
        assert {message.id: message.value for message in queue} == placed


def test_consumers_share_the_messages_and_none_comes_twice(tmp_path):
    with penstock.open(tmp_path) as queue:
        got = Counter()

        def consume(_number):
            while (message := queue.get(timeout=60)) is not None and message.value != b"end":
                got[message.value] += 1

        with ThreadPoolExecutor(5) as pool:
            consumers = pool.map(consume, range(4))
            for number in range(3000):
                queue.put(b"%d" % number)
            queue.put_many([b"end"] * 4)
            list(consumers)
        assert got == Counter(b"%d" % number for number in range(3000))
    with penstock.open(tmp_path) as queue:
        assert queue.get() is None


def test_who_waits_comes_before_one_who_fetches_for_himself(tmp_path):
    with penstock.open(tmp_path) as queue, ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(queue.get, timeout=60)
        until(lambda: waiting_calls(queue))
        queue._ticker.close()  # Late, as on a busy machine.
        queue.put_many([b"a", b"b"])
        assert queue.get().value == b"b"
        assert waiter.result(120).value == b"a"


def test_what_another_thread_has_fetched_is_there_for_one_that_begins_to_wait(
    tmp_path, monkeypatch
):
    with ThreadPoolExecutor(1) as pool, penstock.open(tmp_path) as queue:
        enter = Prefetch.enter

        def enter_late(prefetch, *more):
            if not prefetch.ready:
                queue.put_many([b"a", b"b"])
                assert queue.get().value == b"a"
            return enter(prefetch, *more)

        monkeypatch.setattr(Prefetch, "enter", enter_late)
        assert pool.submit(queue.get, timeout=None).result(120).value == b"b"


def test_two_idle_streams_and_ten_messages_give_five_each(tmp_path):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=1)
        got = {"a": [], "b": []}

        def consume(member):
            for message in broker.stream("t", "g", member=member, timeout=60):
                broker.ack(message)
                got[member].append(message.value)
                if len(got[member]) == 5:
                    return

        with ThreadPoolExecutor(2) as pool:
            done = pool.map(consume, got)
            until(lambda: waiting_calls(broker) == 2)
            for number in range(10):
                broker.publish("t", b"%d" % number)
                until(partial(is_idle_again, broker, got, number + 1))
            list(done)
        assert {len(values) for values in got.values()} == {5}


def is_idle_again(broker, got, sent):
    """Everything sent has arrived, and whoever has not had five waits for more."""
    hungry = sum(len(values) < 5 for values in got.values())
    return sum(map(len, got.values())) == sent and waiting_calls(broker) == hungry


def test_what_others_take_while_one_fetches_is_acked(tmp_path, monkeypatch):
    """One that found nothing ready comes to fetch when another has done so; and the rest goes just then."""
    with penstock.open(tmp_path) as queue:
        queue.put_many([b"%d" % number for number in range(10)])
        taken = [queue.get()]
        queue.put_many([b"more"] * 3)
        ack = Prefetch.ack_locked

        def ack_and_let_others_in(prefetch):
            ack(prefetch)
            taken.extend(iter(queue.get_if_ready, None))

        with monkeypatch.context() as patch:
            patch.setattr(Prefetch, "ack_locked", ack_and_let_others_in)
            queue._fetch()
        taken.extend(iter(queue.get, None))
        assert len(taken) == 13
    with penstock.open(tmp_path) as queue:
        assert queue.get() is None


def test_ten_messages_at_once_are_divided_among_those_who_wait(tmp_path):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=1)
        with ThreadPoolExecutor(2) as pool:
            polls = [pool.submit(broker.poll, "t", "g", member=one, timeout=60) for one in "ab"]
            until(lambda: waiting_calls(broker) == 2)
            broker.publish_many("t", [b"%d" % number for number in range(10)])
            assert [len(poll.result()) for poll in polls] == [5, 5]


def test_waiting_poll_gets_a_retry_and_an_expired_lease_when_they_are_due(tmp_path):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=1, backoff_base_ms=30)
        broker.publish_many("t", [b"nacked", b"forgotten"])
        nacked, forgotten = broker.poll("t", "g")
        broker.nack(nacked)
        broker.extend(forgotten, "60ms")
        found = []
        while len(found) < 2:
            found += broker.poll("t", "g", timeout=60)
        assert [(one.value, one.attempts) for one in found] == [
            (b"nacked", 2),
            (b"forgotten", 2),
        ]


def test_who_waits_on_a_topic_that_is_deleted_hears_of_it_at_once_and_others_do_not(tmp_path):
    with penstock.Broker(tmp_path) as broker, ThreadPoolExecutor(3) as pool:
        for topic in "tu":
            broker.create_topic(topic, partitions=1)
        lost = [pool.submit(broker.poll, "t", one, timeout=None) for one in "ab"]
        other = pool.submit(broker.poll, "u", "a", timeout=60)
        until(lambda: waiting_calls(broker) == 3)
        broker.delete_topic("t")
        for one in lost:
            with pytest.raises(NotFound):
                one.result(120)
        broker.create_topic("t", partitions=1)
        broker.publish("u", b"x")
        assert len(other.result(120)) == 1
        assert not broker.driver.is_awaited


def test_release_and_redrive_wake_who_waits(tmp_path):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=1)
        broker.publish("t", b"x")
        broker.poll("t", "g", member="gone")
        with ThreadPoolExecutor(1) as pool:
            poll = pool.submit(broker.poll, "t", "g", member="here", timeout=60)
            until(lambda: waiting_calls(broker) == 1)
            broker.release("t", "g", "gone")
            (message,) = poll.result()
            broker.reject(message, "bad")
            assert len(broker.dead_letters("t")) == 1
            poll = pool.submit(broker.poll, "t", "g", member="here", timeout=60)
            until(lambda: waiting_calls(broker) == 1)
            broker.redrive("t", target="group")
            assert poll.result()[0].value == b"x"


def test_threads_that_need_an_fsync_share_it(tmp_path, monkeypatch):
    syncs = Counter()
    real_sync = RealFile.sync

    def slow_sync(file):
        syncs[threading.current_thread().name] += 1
        threading.Event().wait(0.005)
        real_sync(file)

    with penstock.open(tmp_path, fsync="always") as queue:
        monkeypatch.setattr(RealFile, "sync", slow_sync)

        def produce(_number):
            for _ in range(10):
                queue.put(b"x")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(produce, range(8)))
        assert sum(syncs.values()) < 50
        assert queue.stats().put == 80
        monkeypatch.undo()


def test_get_goes_on_when_others_took_all_that_it_had_fetched(tmp_path, monkeypatch):
    with penstock.open(tmp_path) as queue:
        queue.put_many([b"a", b"b"])
        fetch, taken = Prefetch.fetch, []

        def fetch_for_others(prefetch):
            has_some = fetch(prefetch)
            if not taken:
                taken.extend((prefetch.ready.popleft(), prefetch.ready.popleft()))
            return has_some

        monkeypatch.setattr(Prefetch, "fetch", fetch_for_others)
        assert queue.get() is None
        assert queue.put(b"c") == 3
        assert queue.get().value == b"c"


def test_get_that_comes_while_the_queue_closes_is_refused(tmp_path, monkeypatch):
    with penstock.open(tmp_path) as queue:
        queue.put_many([b"a", b"b"])
        close_driver = queue._driver.close

        def close_after_a_get():
            with pytest.raises(Refused, match="the queue is closed"):
                queue.get()
            with pytest.raises(Refused, match="the queue is closed"):
                queue.get(timeout=60)
            close_driver()

        monkeypatch.setattr(queue._driver, "close", close_after_a_get)
    with penstock.open(tmp_path) as queue:
        assert [one.value for one in queue] == [b"a", b"b"]


def test_get_that_takes_a_message_just_before_the_queue_closes_returns_it(tmp_path, monkeypatch):
    clock = VirtualClock()
    queue = penstock.open(tmp_path, clock=clock)
    queue.put_many([b"a", b"b"])
    taken = [queue.get().value]
    clock.advance(1)
    wake = queue._wake

    def wake_late():
        queue.close()
        wake()

    monkeypatch.setattr(queue, "_wake", wake_late)
    taken.append(queue.get().value)
    assert taken == [b"a", b"b"]
    with penstock.open(tmp_path) as queue:
        assert queue.get() is None


def test_message_for_a_waiting_get_is_returned_or_comes_after_the_next_open(tmp_path, monkeypatch):
    queue = penstock.open(tmp_path)
    note_single = Prefetch.note_single

    def note_late(prefetch, message):
        queue.close()
        note_single(prefetch, message)

    monkeypatch.setattr(Prefetch, "note_single", note_late)
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(queue.get, timeout=60)
        until(lambda: waiting_calls(queue))
        queue.put(b"x")
        with pytest.raises(Refused, match="the queue is closed"):
            waiter.result(120)
    with penstock.open(tmp_path) as queue:
        assert [(one.value, one.attempts) for one in queue] == [(b"x", 1)]


def test_close_tells_callers_that_wait_that_the_queue_is_closed(tmp_path):
    queue = penstock.open(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(queue.get, timeout=None)
        until(lambda: waiting_calls(queue))
        queue.close()
        with pytest.raises(Refused, match="the queue is closed"):
            waiter.result(120)


@pytest.mark.parametrize("opened", [penstock.open, penstock.Broker])
def test_threads_that_close_at_once_all_return_when_it_is_closed(tmp_path, opened, effort):
    for _ in range(effort(check=4, test=10, torture=500)):
        found, start = opened(tmp_path), threading.Barrier(6)

        def close(found=found, start=start):
            start.wait()
            found.close()
            with pytest.raises(Refused, match=r"the (queue|broker) is closed"):
                found.sync()

        with ThreadPoolExecutor(6) as pool:
            closing = [pool.submit(close) for _ in range(6)]
        for one in closing:
            one.result()


def test_trouble_of_a_waiting_consumer_is_not_the_publisher_s(tmp_path, monkeypatch):
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic("t", partitions=1)
        with ThreadPoolExecutor(1) as pool:
            poll = pool.submit(broker.poll, "t", "g", timeout=60)
            until(lambda: waiting_calls(broker) == 1)

            def full(*_, **_more):
                raise NoSpace("state")

            monkeypatch.setattr("penstock.broker.partition.consumption.poll", full)
            assert broker.publish("t", b"x").offset == 0
            with pytest.raises(NoSpace):
                poll.result()
            monkeypatch.undo()
            assert broker.poll("t", "g")[0].value == b"x"


def test_puts_of_every_kind_from_many_threads_arrive_once_each(tmp_path, effort):
    """Plain, urgent and delayed ones at once: ids stay unique while delayed messages come in between."""
    each = effort(check=300, test=800, torture=20_000)
    with penstock.open(tmp_path) as queue:

        def put_some(thread: int) -> list[int]:
            dice, ids = random.Random(thread), []
            for number in range(each):
                value, kind = b"%d-%d" % (thread, number), dice.random()
                if kind < 0.05:
                    queue.put(value, delay=dice.random() * 0.02)
                elif kind < 0.1:
                    queue.put(value, priority=dice.choice(["critical", "high", "low"]))
                else:
                    ids.append(queue.put(value))
            return ids

        def get_all() -> list[bytes]:
            values = []
            while (message := queue.get(timeout=60)).value != b"end":
                values.append(message.value)
            queue.put(b"end", priority="background")
            return values

        with ThreadPoolExecutor(7) as pool:
            putters = [pool.submit(put_some, thread) for thread in range(4)]
            getters = [pool.submit(get_all) for _ in range(3)]
            ids = [one for putter in putters for one in putter.result()]
            queue.put(b"end", delay=0.1, priority="background")
            values = [one for getter in getters for one in getter.result()]
        left = [message.value for message in queue]
    assert len(set(ids)) == len(ids)
    assert sorted([*values, *(one for one in left if one != b"end")]) == sorted(
        b"%d-%d" % (thread, number) for thread in range(4) for number in range(each)
    )
