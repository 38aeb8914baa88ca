"""A Ctrl-C in the middle of a call: the program that goes on finds everything once, in order, and nothing stuck."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

import penstock
from penstock.api.leased import LeasedPart
from penstock.broker.partition.machine import PartitionMachine
from penstock.embedded import prefetch
from penstock.embedded import queue as queue_module
from penstock.embedded.write_buffer import NumberedMessages
from penstock.errors import Refused, UnknownMember
from penstock.runtime.waiting_polls import Waiter, WaitingPolls
from penstock.testing import VirtualClock

from .waiting import until, waiting_calls

CONSUMER = """
import sys, penstock
queue = penstock.open(sys.argv[1])
print("ready", flush=True)
for message in queue.stream():
    queue.put(message.value + b"+")
    print(message.id, flush=True)
"""


def mind_ctrl_c() -> None:
    """A shell that runs the tests in the background makes them, and so their children, deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_leaves_a_queue_that_goes_on(tmp_path, effort):
    for _ in range(effort(check=1, test=3, torture=200)):
        with penstock.open(tmp_path) as queue:
            queue.put(b"x")
        child = subprocess.Popen(
            [sys.executable, "-c", CONSUMER, tmp_path],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=mind_ctrl_c,
        )
        assert child.stdout.readline() == "ready\n"
        for _ in range(20):
            child.stdout.readline()
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
        assert errors.rstrip().endswith("KeyboardInterrupt"), errors
        with penstock.open(tmp_path) as queue:
            expected = queue.stats().next_id
            # Each message is put when the one before was taken: what was handed out at a clean end is gone.
            assert len(list(queue)) <= 2
            assert queue.put(b"y") == expected
            assert queue.get().id == expected


def test_tick_that_meets_an_interrupted_change_mends_it_and_says_nothing(tmp_path, caplog):
    with penstock.open(tmp_path) as queue:
        driver = queue._driver
        check = driver._check

        def check_when_interrupted():
            driver._check = check
            driver._is_torn = True
            check()

        driver._check = check_when_interrupted
        driver.tick()
        assert not driver._is_torn
        assert not caplog.records
        assert queue.put(b"x") == queue.get().id


def test_interrupted_change_is_mended_from_the_files(tmp_path, monkeypatch):
    with penstock.open(tmp_path, auto_ack=False) as queue:
        queue.put_many([b"a", b"b"])
        held = queue.get_many()

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(PartitionMachine, "apply", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.ack(held[0])
        monkeypatch.undo()
        # The ack had reached the journal, so it counts; what is asked again is a repeat.
        queue.ack(held)
        assert queue.put(b"c") == 3
        assert [one.value for one in queue.get_many()] == [b"c"]


def test_who_waits_for_a_sync_is_not_forgotten_when_a_change_is_interrupted(tmp_path):
    with penstock.open(tmp_path, fsync="always") as queue:
        queue.put(b"a")
        driver = queue._driver
        with driver.lock:
            driver._is_torn = True
            ticket = driver._point.draw()
        ticket.wait()
        assert queue.put(b"b") == 2
        assert [one.value for one in queue] == [b"a", b"b"]


def test_put_that_is_interrupted_after_the_write_is_there_once(tmp_path, monkeypatch):
    # The queue's own thread writes nothing while this clock stands.
    with penstock.open(tmp_path, clock=VirtualClock()) as queue:
        queue.put(b"a")

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(NumberedMessages, "take_out", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.stats()
        monkeypatch.undo()
        assert queue.put(b"b") == 2
        assert [(one.id, one.value) for one in queue] == [(1, b"a"), (2, b"b")]


def test_get_that_is_interrupted_loses_nothing_that_nobody_has_seen(tmp_path, monkeypatch):
    batches = [[b"%d" % one for one in range(start, start + 100)] for start in (0, 100)]
    with penstock.open(tmp_path) as queue:
        for batch in batches:
            queue.put_many(batch)
            queue.flush()
        made = LeasedPart.messages

        def interrupted(part):
            if part.offsets[0] >= 100:
                raise KeyboardInterrupt
            return made(part)

        monkeypatch.setattr(LeasedPart, "messages", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.get()
        monkeypatch.undo()
    with penstock.open(tmp_path) as queue:
        assert [one.value for one in queue] == [*batches[0], *batches[1]]


@pytest.mark.parametrize("place", ["command", "messages", "offsets"])
def test_what_an_interrupted_get_had_leased_comes_with_the_next_one(tmp_path, monkeypatch, place):
    batches = [[b"%d" % one for one in range(start, start + 100)] for start in (0, 100)]

    def interrupted(*_args, **_more):
        raise KeyboardInterrupt

    with penstock.open(tmp_path) as queue:
        for batch in batches:
            queue.put_many(batch)
            queue.flush()
        whole, name = {
            "command": (queue._driver, "_act_on"),
            "messages": (LeasedPart, "messages"),
            "offsets": (prefetch, "_offsets_of"),
        }[place]
        monkeypatch.setattr(whole, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.get()
        monkeypatch.undo()
        assert [(one.value, one.attempts) for one in queue] == [
            (value, 1) for batch in batches for value in batch
        ]
        assert queue.stats().in_flight == 0


def test_message_that_came_to_an_interrupted_wait_comes_with_the_next_get(tmp_path, monkeypatch):
    with penstock.open(tmp_path) as queue:
        wait_for = queue._driver.polls.wait_for

        def interrupted(waiter, _timeout_ns):
            queue.put(b"came")
            wait_for(waiter, 60_000_000_000)
            raise KeyboardInterrupt

        monkeypatch.setattr(queue._driver.polls, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.get(timeout=60)
        monkeypatch.undo()
        assert queue.get(timeout=60).value == b"came"


def test_wait_that_is_interrupted_takes_nothing_from_another_that_was_served(tmp_path, monkeypatch):
    with penstock.open(tmp_path) as queue:
        served = queue.begin_get(1, 60, lambda: None)

        def interrupted(*_):
            queue.put(b"came")
            queue.flush()
            raise KeyboardInterrupt

        monkeypatch.setattr(queue._driver.polls, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.get(timeout=60)
        monkeypatch.undo()
        assert queue.get() is None
        assert [one.value for one in queue.end_get(served)] == [b"came"]
        queue.put(b"next")
        assert queue.get().value == b"next"
        assert (queue.stats().done, queue.stats().in_flight) == (2, 0)


def test_fetch_that_is_interrupted_takes_nothing_from_a_wait_that_was_served(tmp_path, monkeypatch):
    with penstock.open(tmp_path) as queue:
        served = queue.begin_get(1, 60, lambda: None)
        queue.put_many([b"came", b"next"])
        queue.flush()

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(prefetch, "_offsets_of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.get()
        monkeypatch.undo()
        assert [one.value for one in queue] == [b"next"]
        assert [one.value for one in queue.end_get(served)] == [b"came"]
        assert (queue.stats().done, queue.stats().in_flight) == (2, 0)


def test_get_that_is_interrupted_when_its_wait_has_ended_loses_nothing(tmp_path, monkeypatch):
    # The clock stands still: nothing is acked meanwhile.
    with penstock.open(tmp_path, clock=VirtualClock()) as queue:
        wait_for = queue._driver.polls.wait_for

        def wait_for_a_put(waiter, timeout_ns):
            queue.put(b"came")
            queue.flush()
            monkeypatch.setattr(queue, "_wake", interrupted)
            return wait_for(waiter, timeout_ns)

        def interrupted():
            raise KeyboardInterrupt

        monkeypatch.setattr(queue._driver.polls, "wait_for", wait_for_a_put)
        with pytest.raises(KeyboardInterrupt):
            queue.get(timeout=60)
        monkeypatch.undo()
        assert queue.get().value == b"came"
        assert (queue.stats().done, queue.stats().in_flight) == (1, 0)


def interrupt_at(place):
    """For `sys.setprofile`: raise at one of the places of the queue's own code where Python looks for a Ctrl-C.

    It looks when a function begins, and when a function written in C has returned.
    """
    left = [place]

    def profile(frame, event, _argument):
        is_ours = frame.f_globals["__name__"] in (queue_module.__name__, prefetch.__name__)
        if is_ours and event in ("call", "c_return"):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt

    return profile


def test_get_many_that_is_interrupted_anywhere_loses_nothing_and_repeats_nothing(tmp_path):
    values = [b"%d" % one for one in range(4)]
    is_interrupted, place = True, 0
    with penstock.open(tmp_path) as queue:
        while is_interrupted:
            place += 1
            is_interrupted = False
            queue.put_many(values)
            got = []
            sys.setprofile(interrupt_at(place))
            try:
                got = queue.get_many(9)
            except KeyboardInterrupt:
                is_interrupted = True
            finally:
                sys.setprofile(None)
            assert [one.value for one in [*got, *queue]] == values, place
            assert queue.stats().in_flight == 0
    assert place > 10


def test_signal_handler_may_close_a_queue_that_is_being_closed(tmp_path, monkeypatch):
    queue = penstock.open(tmp_path)
    queue.put(b"x")
    close_ticker = queue._ticker.close

    def close_after_a_signal():
        monkeypatch.undo()
        signal.raise_signal(signal.SIGTERM)
        close_ticker()

    monkeypatch.setattr(queue._ticker, "close", close_after_a_signal)
    before = signal.signal(signal.SIGTERM, lambda *_: queue.close())
    try:
        queue.close()
    finally:
        signal.signal(signal.SIGTERM, before)
    with penstock.open(tmp_path) as queue:
        assert queue.get().value == b"x"


def test_close_that_a_ctrl_c_has_ended_is_done_by_the_next_one(tmp_path, monkeypatch):
    queue = penstock.open(tmp_path)
    queue.put(b"x")

    def interrupted():
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(queue._driver, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        queue.close()
    queue.close()
    with penstock.open(tmp_path) as queue:
        assert queue.get().value == b"x"


def test_generator_that_a_ctrl_c_ended_is_replaced(tmp_path):
    with penstock.open(tmp_path) as queue:
        assert queue.put(b"a") == 1
        generator = queue._messages.take_in.__self__
        with pytest.raises(KeyboardInterrupt):
            generator.throw(KeyboardInterrupt)
        assert queue.put(b"b") == 2
        generator = queue._messages.take_in.__self__
        generator.close()
        assert queue.put(b"c", key=b"k") == 3
        ids = [one.id for one in queue]
        assert all(after == before + 1 for before, after in pairwise(ids))
        assert len(ids) == 3


# Where a Ctrl-C may come to a thread that serves those who wait, before or after what is called there.
SERVING = [
    (PartitionMachine, "apply", "before"),
    (Waiter, "settle", "before"),
    (Waiter, "settle", "after"),
    (WaitingPolls, "leave", "after"),
]


def interrupt_publish(broker, place, monkeypatch):
    """Publish, and get a Ctrl-C while the polls that wait are served."""
    owner, name, moment = place
    whole = getattr(owner, name)

    def interrupted(*args):
        if moment == "after":
            whole(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        broker.publish("t", b"first")
    monkeypatch.undo()


@pytest.mark.parametrize("place", SERVING)
def test_polls_that_wait_are_served_after_a_publish_that_was_interrupted(monkeypatch, place):
    with ThreadPoolExecutor(2) as threads, penstock.Broker() as broker:
        broker.create_topic("t", partitions=1)
        polls = [threads.submit(broker.poll, "t", "g", limit=1, timeout=None) for _ in range(2)]
        until(lambda: waiting_calls(broker) == 2)
        interrupt_publish(broker, place, monkeypatch)
        broker.publish_many("t", [b"second", b"third"])
        served = [[one.value for one in poll.result(60)] for poll in polls]
        assert [len(each) for each in served] == [1, 1]
        assert served[0] != served[1]


@pytest.mark.parametrize("place", SERVING)
def test_no_poll_waits_longer_than_the_broker_whose_publish_was_interrupted(monkeypatch, place):
    with ThreadPoolExecutor(2) as threads:
        with penstock.Broker() as broker:
            broker.create_topic("t", partitions=1)
            polls = [threads.submit(broker.poll, "t", "g", limit=1, timeout=None) for _ in range(2)]
            until(lambda: waiting_calls(broker) == 2)
            interrupt_publish(broker, place, monkeypatch)
        for poll in polls:
            # One may have been served just before.
            assert isinstance(poll.exception(60), Refused) or len(poll.result()) == 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_member_that_waits_is_told_after_a_publish_that_was_interrupted(monkeypatch, moment):
    with ThreadPoolExecutor(1) as thread, penstock.Broker() as broker:
        broker.create_topic("t", partitions=1)
        member = broker.join("t", "g")
        poll = thread.submit(member.poll, limit=1, timeout=None)
        until(lambda: waiting_calls(broker) == 1)
        interrupt_publish(broker, (Waiter, "settle", moment), monkeypatch)
        broker.publish("t", b"second")
        # A member is one in memory only, so it may have to join again.
        assert isinstance(poll.exception(60), UnknownMember) or len(poll.result()) == 1
