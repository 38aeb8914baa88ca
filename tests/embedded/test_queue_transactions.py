"""Transactions of a queue: what is put and acked in a `with` block happens as a whole, or not at all."""

import shutil
from threading import Thread

import pytest

import penstock
from penstock.broker.partition import staging
from penstock.errors import (
    BacklogFull,
    NoSpace,
    Refused,
    StaleReceipt,
    TransactionEnded,
    Unavailable,
)
from penstock.testing import VirtualClock


@pytest.fixture
def work(tmp_path):
    with penstock.open(tmp_path / "queue", auto_ack=False) as queue:
        yield queue


def drained(queue):
    found = []
    while (message := queue.get()) is not None:
        found.append((message.id, message.value))
        queue.ack(message)
    return found


def run(block, *steps):
    """Take steps in a transaction, each a function of it."""
    with block as t:
        for step in steps:
            step(t)


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_all_of_a_block_or_nothing(tmp_path, fsync):
    path, copy = tmp_path / "queue", tmp_path / "copy"
    with penstock.open(path, auto_ack=False, fsync=fsync) as queue:
        assert queue.put(b"job") == 1
        job = queue.get()
        with pytest.raises(ZeroDivisionError):
            run(
                queue.transaction(),
                lambda t: t.put(b"gone"),
                lambda t: t.ack(job),
                lambda _: 1 / 0,
            )
        assert queue.get() is None
        with queue.transaction() as t:
            t.put(b"a", key="k", headers={"h": "1"})
            t.put_many([b"b", b"c"])
            t.ack(job)
            with pytest.raises(StaleReceipt):
                queue.ack(job)
            assert queue.put(b"outside") == 2
            assert t.ids == []
        assert t.ids == [3, 4, 5]
        # As if the process was killed here.
        shutil.copytree(path, copy, ignore=shutil.ignore_patterns("lock*", "*.tmp"))
        expected = [(2, b"outside"), (3, b"a"), (4, b"b"), (5, b"c")]
        assert drained(queue) == expected
        assert queue.put(b"later") == 6
    with penstock.open(copy, auto_ack=False) as queue:
        assert drained(queue) == expected
        with queue.transaction() as t:
            t.put(b"next")
        assert t.ids == [6]


def test_puts_of_other_threads_keep_their_ids(tmp_path):
    told: dict[int, bytes] = {}

    def put(queue, name):
        for number in range(300):
            value = b"%s %d" % (name, number)
            told[queue.put(value)] = value

    def commit(queue, name):
        for number in range(15):
            some = [b"%s %d %d" % (name, number, one) for one in range(3)]
            with queue.transaction() as t:
                t.put_many(some)
            told.update(zip(t.ids, some, strict=True))

    with penstock.open(tmp_path) as queue:
        works = [(put, b"p"), (put, b"q"), (commit, b"x"), (commit, b"y")]
        threads = [Thread(target=call, args=(queue, name)) for call, name in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(told) == 690
        assert {one.id: one.value for one in queue} == told


def test_a_commit_that_cannot_be_applied_yet_takes_no_place_of_a_put(tmp_path, monkeypatch):
    def full(*_):
        raise NoSpace("messages")

    with penstock.open(tmp_path) as queue:
        with monkeypatch.context() as patch:
            patch.setattr(staging, "publish_stagings", full)
            with queue.transaction() as t:
                t.put_many([b"a", b"b"])
            assert t.ids == []
            with pytest.raises(Unavailable):
                queue.put(b"c")
        while True:
            queue.sync()
            try:
                assert queue.put(b"c") == 3
            except Unavailable:
                continue
            break
        assert [(one.id, one.value) for one in queue] == [(1, b"a"), (2, b"b"), (3, b"c")]


def test_a_start_with_such_a_commit_numbers_behind_it(tmp_path, monkeypatch):
    def full(*_):
        raise NoSpace("messages")

    with monkeypatch.context() as patch:
        patch.setattr(staging, "publish_stagings", full)
        with penstock.open(tmp_path) as queue, queue.transaction() as t:
            t.put(b"a")
        with penstock.open(tmp_path) as queue, pytest.raises(Unavailable):
            queue.put(b"b")
    with penstock.open(tmp_path) as queue:
        assert queue.put(b"b") == 2
        assert [one.value for one in queue] == [b"a", b"b"]


def test_answers_without_puts_and_nacks_and_rejects(work):
    work.put_many([b"a", b"b", b"c"])
    first, second, third = work.get_many(3)
    with work.transaction() as t:
        t.ack(first)
        t.reject(second, "bad")
        t.nack(third, delay=0)
    assert [one.value for one in work.dead_letters()] == [b"b"]
    assert [value for _, value in drained(work)] == [b"c"]


def test_an_urgent_message_comes_first(tmp_path):
    with penstock.open(tmp_path) as queue:
        queue.put_many([b"a", b"b", b"c"])
        assert queue.get().value == b"a"
        with queue.transaction() as t:
            t.put(b"urgent", priority="critical")
        assert [one.value for one in queue] == [b"urgent", b"b", b"c"]


def test_what_is_too_much_for_the_queue_is_refused_as_a_whole(tmp_path):
    with penstock.open(tmp_path, auto_ack=False, max_backlog_messages=3) as queue:
        queue.put(b"a")
        taken = queue.get()
        with pytest.raises(BacklogFull):
            run(
                queue.transaction(),
                lambda t: t.put_many([b"b", b"c", b"d"]),
                lambda t: t.ack(taken),
            )
        queue.ack(taken)
        with queue.transaction() as t:
            t.put_many([b"b", b"c", b"d"])
        assert [value for _, value in drained(queue)] == [b"b", b"c", b"d"]


def test_a_block_that_takes_too_long_is_told(tmp_path):
    clock = VirtualClock()
    with penstock.open(tmp_path, clock=clock) as queue:
        with pytest.raises(TransactionEnded):
            run(
                queue.transaction(timeout="10s"),
                lambda t: t.put(b"a"),
                lambda _: clock.advance(11),
            )
        assert queue.put(b"b") == 1
        assert [one.value for one in queue] == [b"b"]


def test_wrong_use_is_refused(tmp_path, work):
    with work.transaction() as t, pytest.raises(Refused, match="a key names one message"):
        t.put_many([b"a", b"b"], delay="1s", delay_key="k")
    block = work.transaction()
    with pytest.raises(Refused):
        block.put(b"outside")
    with block as t:
        for options in ({"delay_key": "k"}, {"idempotency_key": "k"}):
            with pytest.raises(Refused):
                t.put(b"a", **options)
        with pytest.raises(Refused):
            t.ack(3)
        t.put_many([])
    assert t.ids == []
    with penstock.open(tmp_path / "auto") as queue:
        queue.put(b"a")
        message = queue.get()
        with queue.transaction() as t, pytest.raises(Refused):
            t.ack(message)


def test_delayed_messages_wait_from_the_commit_on_and_come_in_time(tmp_path):
    clock = VirtualClock()
    with penstock.open(tmp_path / "queue", auto_ack=False, clock=clock) as queue:
        run(queue.transaction(), lambda t: t.put(b"now"), lambda t: t.put(b"later", delay="1h"))
        with pytest.raises(ZeroDivisionError):
            run(queue.transaction(), lambda t: t.put(b"never", delay="1h"), lambda _: 1 / 0)
        assert [value for _, value in drained(queue)] == [b"now"]
        assert [one.value for one in queue.delayed()] == [b"later"]
    with penstock.open(tmp_path / "queue", auto_ack=False, clock=clock) as queue:
        clock.advance("59m")
        assert drained(queue) == []
        clock.advance("1m")
        assert [value for _, value in drained(queue)] == [b"later"]
