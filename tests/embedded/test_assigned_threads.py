"""Members of assigned groups in threads: they wait, are woken, and come and go while others work."""

import random
import threading
from collections import defaultdict
from contextlib import suppress

import pytest

import penstock
from penstock.errors import NotOwner, PenstockError, Refused, StaleGeneration
from penstock.model import Message
from penstock.testing import VirtualClock

KEYS = 20


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def broker(clock):
    with penstock.Broker(clock=clock) as broker:
        broker.create_topic("t", partitions=6)
        yield broker


def values(messages):
    return [message.value for message in messages]


def in_thread(call):
    done = []
    thread = threading.Thread(target=lambda: done.append(call()))
    thread.start()
    return thread, done


def wait_until_somebody_waits(broker, count=1):
    while len(broker.driver.members.waiting) < count:
        threading.Event().wait(0.001)


def test_an_open_long_poll_ends_at_once_when_its_member_must_release_or_may_take(tmp_path):
    with penstock.Broker(tmp_path / "data") as broker:
        broker.create_topic("t", partitions=2)
        changes = threading.Semaphore(0)
        a = broker.join("t", "g", member="a", on_revoked=lambda _: changes.release())
        thread, got = in_thread(lambda: a.poll(timeout=60))
        wait_until_somebody_waits(broker)
        b = broker.join("t", "g", member="b", on_assigned=lambda _: changes.release())
        other, got_b = in_thread(lambda: b.poll(timeout=60))
        assert changes.acquire(timeout=60)
        assert changes.acquire(timeout=60)
        assert broker.describe_group("g").state == "stable"
        for number in (0, 1):
            broker.publish("t", b"%d" % number, partition=number)
        thread.join(60)
        other.join(60)
        assert sorted(values(got[0]) + values(got_b[0])) == [b"0", b"1"]


def test_a_poll_that_waits_counts_as_a_sign_of_life(broker, clock):
    member = broker.join("t", "g", session_timeout=2)
    thread, got = in_thread(lambda: member.poll(timeout=50))
    wait_until_somebody_waits(broker)
    clock.advance(40)
    assert broker.describe_group("g").state == "stable"
    clock.advance(11)
    thread.join(60)
    assert got == [[]]
    clock.advance(2)
    assert broker.describe_group("g").state == "empty"


def test_a_closed_broker_sends_waiting_members_home(tmp_path):
    broker = penstock.Broker(tmp_path / "data")
    broker.create_topic("t")
    member = broker.join("t", "g")
    failed = []

    def poll():
        try:
            member.poll(timeout=60)
        except Refused as error:
            failed.append(str(error))

    thread, _ = in_thread(poll)
    wait_until_somebody_waits(broker)
    broker.close()
    thread.join(60)
    assert failed == ["it is closed"]


def test_an_open_long_poll_ends_at_once_when_another_takes_the_name_of_its_member(tmp_path):
    with penstock.Broker(tmp_path / "data") as broker:
        broker.create_topic("t")
        old = broker.join("t", "g", member="a")
        failed = []

        def poll():
            try:
                old.poll(timeout=600)
            except PenstockError as error:
                failed.append(type(error))

        thread, _ = in_thread(poll)
        wait_until_somebody_waits(broker)
        new = broker.join("t", "g", member="a")
        thread.join(60)
        assert failed == [StaleGeneration]
        broker.publish("t", b"for the new one")
        assert values(new.poll()) == [b"for the new one"]


class Churn:
    """Workers that join, work for a while and leave, over and over."""

    def __init__(self, broker, count):
        self.broker, self.count = broker, count
        self.seen, self.failed = defaultdict(list), []
        self.lock, self.left = threading.Lock(), count

    def work(self, seed):
        entropy = random.Random(seed)
        try:
            while self.left > 0:
                with self.broker.join("t", "g", order="strict") as member:
                    for _ in range(entropy.randint(3, 20)):
                        self.take(member, entropy.randint(1, 20))
        except PenstockError as error:
            self.failed.append(error)
            self.left = 0

    def take(self, member, limit):
        got = member.poll(limit=limit, timeout=0.02)
        with self.lock:
            for message in got:
                self.seen[message.key].append(int(message.value))
        # It may have passed on while we worked; then somebody else does it again.
        with suppress(NotOwner):
            if got and member.commit(got):
                with self.lock:
                    self.left -= len(got)


def test_workers_that_come_and_go_keep_strict_order_and_lose_nothing(tmp_path, effort):
    count = effort(check=400, test=1500, torture=100_000)
    with penstock.Broker(tmp_path / "data", fsync="never") as broker:
        broker.create_topic("t", partitions=5, max_retries=-1)
        churn = Churn(broker, count)
        threads = [threading.Thread(target=churn.work, args=(seed,)) for seed in range(5)]
        for thread in threads:
            thread.start()
        for first in range(0, count, 10):
            numbers = range(first, first + 10)
            broker.publish_many("t", [Message(b"%d" % n, b"k%d" % (n % KEYS)) for n in numbers])
        for thread in threads:
            thread.join(120)
        assert churn.failed == []
        assert sum(one.lag for one in broker.lag("g")) == 0
    for number in range(KEYS):
        firsts = list(dict.fromkeys(churn.seen[b"k%d" % number]))
        assert firsts == list(range(number, count, KEYS))


def test_messages_for_others_do_not_wake_a_member(broker):
    broker.create_topic("other")
    member = broker.join("t", "g")
    thread, got = in_thread(lambda: member.poll(timeout=60))
    wait_until_somebody_waits(broker)
    broker.publish("other", b"not yours")
    broker.poll("t", "another-group")
    assert len(broker.driver.members.waiting) == 1
    broker.publish("t", b"yours")
    thread.join(60)
    assert values(got[0]) == [b"yours"]


def test_a_retry_that_is_due_wakes_its_member(broker, clock):
    broker.publish("t", b"again")
    member = broker.join("t", "g")
    broker.nack(member.poll(), delay=5)
    thread, got = in_thread(lambda: member.poll(timeout=60))
    wait_until_somebody_waits(broker)
    clock.advance(6)
    thread.join(60)
    assert [one.attempts for one in got[0]] == [2]
