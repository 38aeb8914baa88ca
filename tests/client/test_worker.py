"""Workers against a server process: retries, dead letters, deadlines, long handlers, and how they end."""

import asyncio
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from penstock.client import (
    AsyncClient,
    Client,
    ClientSettings,
    Outgoing,
    Reject,
    Retry,
    RetryPolicy,
)
from penstock.client.worker import Pace
from penstock.errors import Refused, Unreachable
from tests.stalls import despite_stalls

from .servers import NOWHERE, restartable, until

# Longer than a client stops asking for: a test is as patient as an iteration.
PATIENT = ClientSettings(retry=RetryPolicy(retries=30, backoff_ms=20, backoff_ms_max=31_000))
pytestmark = pytest.mark.tier("test")


@pytest.fixture
def client(url):
    with Client(url) as client:
        yield client


def filled(client, topic, count, **config):
    client.create_topic(topic, partitions=3, backoff_base_ms=1, **config)
    client.publish_many(topic, spread(range(count)))


def spread(numbers):
    """Over three partitions."""
    return [Outgoing(b"%d" % one, partition=one % 3) for one in numbers]


def quiet(_message, _error):
    """Failures are the point of these tests, and not worth a line in the log."""


def lag(client, group):
    return client.lag(group).total


def test_a_worker_does_not_wait_for_the_clock_to_get_more(client, monkeypatch):
    """The server lends ten at a time, and answers would go out by themselves only after a minute."""
    monkeypatch.setattr("penstock.client.synchronous.consumer._ANSWER_S", 60)
    filled(client, "w-prompt", 300, max_in_flight_per_consumer=10)
    handled = set()
    with client.worker(
        "w-prompt", "wp", lambda one: handled.add(one.value), visibility_timeout="10m"
    ):
        until(lambda: len(handled) == 300)


def test_failures_are_tried_again_and_end_as_dead_letters(client):
    filled(client, "w-failures", 30, max_retries=2)
    attempts = Counter()

    def handle(message):
        number = int(message.value)
        attempts[number] += 1
        if number == 3:
            raise Reject("never")
        if number == 4 and message.attempts == 1:
            raise Retry("in a moment", delay="1ms")
        if number % 10 == 5:
            raise ZeroDivisionError("as always")

    with client.worker("w-failures", "w1", handle, concurrency=4, on_failure=quiet) as worker:
        until(lambda: lag(client, "w1") == 0)
    assert attempts == {one: {3: 1, 4: 2}.get(one, 3 if one % 10 == 5 else 1) for one in range(30)}
    # Beside these, one was rejected and one asked for another turn.
    assert (worker.done, worker.failed) == (26, 9)
    letters = until(
        lambda: (found := client.dead_letters("w-failures")) and len(found) == 4 and found
    )
    assert {(int(one.value), one.last_error.splitlines()[0]) for one in letters} == {
        (3, "never"),
        *((one, "ZeroDivisionError: as always") for one in (5, 15, 25)),
    }


class OutOfStock(Retry):
    def __init__(self, item):
        self.item = item


def test_a_retry_of_a_class_of_the_program_is_one(client):
    filled(client, "w-own-retry", 1)
    attempts = []

    def handle(message):
        attempts.append(message.attempts)
        if message.attempts == 1:
            raise OutOfStock("lamp")

    with client.worker("w-own-retry", "wor", handle):
        until(lambda: lag(client, "wor") == 0)
    assert attempts == [1, 2]


def test_a_handler_may_take_longer_than_the_lease(client):
    def story(lease_s):
        topic = f"w-long-{lease_s}"
        filled(client, topic, 2, visibility_timeout_ms=lease_s * 1000)
        seen = []

        def handle(message):
            seen.append(message.attempts)
            time.sleep(lease_s * 1.7)

        with client.worker(topic, topic, handle, concurrency=2):
            until(lambda: lag(client, topic) == 0, 60 + 4 * lease_s)
        assert seen == [1, 1]

    despite_stalls(story)


def test_a_handler_that_is_late_has_failed(client, caplog):
    filled(client, "w-late", 1)
    errors, go_on = [], threading.Event()

    def handle(message):
        if message.attempts == 1:
            go_on.wait(120)

    options = {"concurrency": 2, "deadline": 2}
    with client.worker(
        "w-late", "w4", handle, on_failure=lambda _, error: errors.append(str(error)), **options
    ) as worker:
        until(lambda: lag(client, "w4") == 0)
        go_on.set()
    assert "w-late/0/0: its handler is past the deadline of 2 s and runs on" in caplog.text
    # A machine that stalls may make the second attempt late as well.
    assert set(errors) == {"the handler took longer than 2 s"}
    assert (worker.done, worker.failed) == (1, len(errors))


def test_a_stop_waits_for_what_runs_and_gives_back_the_rest(client):
    """It works fast enough to have many at hand, and then three handlers do not come to an end."""
    filled(client, "w-stop", 1500)
    begun, go_on, is_slow = [], threading.Event(), threading.Event()

    def handle(message):
        begun.append(int(message.value))
        if len(begun) > 500:
            is_slow.set()
            go_on.wait(120)

    worker = client.worker("w-stop", "w5", handle, concurrency=3)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        assert is_slow.wait(120)
        until(lambda: len(worker._inbox) > 10 and len(begun) == 503)
        worker.stop()
        until(lambda: len(worker._inbox) <= 1)
    finally:
        worker.stop()
        go_on.set()
        thread.join(120)
    assert len(begun) == 503
    left = []
    while polled := client.poll("w-stop", "w5", limit=500):
        left.extend(polled)
    assert sorted([*begun, *(int(one.value) for one in left)]) == list(range(1500))
    assert {one.attempts for one in left} == {1}


def test_after_its_grace_a_worker_leaves_and_the_message_is_free(client):
    filled(client, "w-grace", 1)
    begun, go_on = threading.Event(), threading.Event()

    def handle(_message):
        begun.set()
        go_on.wait(120)

    with client.worker("w-grace", "w6", handle, grace=0.05):
        assert begun.wait(120)
    (message,) = client.poll("w-grace", "w6", timeout=60)
    assert message.attempts == 2
    go_on.set()


@pytest.mark.parametrize("concurrency", [1, 8])
def test_two_workers_handle_everything_and_nothing_that_was_acked_again(client, concurrency):
    """Chance fails some, one worker leaves in the middle; what returned once is not seen again."""
    topic, count, chance = f"w-many-{concurrency}", 3000, random.Random(concurrency)
    filled(client, topic, count, max_retries=-1)
    done, again, lock = set(), [], threading.Lock()

    def handle(message):
        with lock:
            if message.value in done:
                again.append(message)
            if chance.random() < 0.05:
                raise OSError("bad luck")
            done.add(message.value)

    options = {"concurrency": concurrency, "on_failure": quiet}
    with client.worker(topic, "w7", handle, **options):
        with client.worker(topic, "w7", handle, **options):
            until(lambda: len(done) > count / 3)
        until(lambda: len(done) == count)
    assert again == []
    assert until(lambda: lag(client, "w7") == 0)


def test_a_second_worker_of_an_assigned_group_takes_its_share_and_nothing_twice(client):
    """There is always more to do until the second one has its share, however long that takes."""
    client.create_topic("w-assigned", partitions=3)
    published = []
    seen, places, lock = Counter(), {"ann": set(), "bob": set()}, threading.Lock()

    def publish():
        if len(published) < len(seen) + 1000:
            more = range(len(published), len(published) + 1000)
            published.extend(client.publish_many("w-assigned", spread(more)))

    def handler(name):
        def handle(message):
            with lock:
                seen[message.value] += 1
                places[name].add(message.partition)

        return handle

    options = {"mode": "assigned", "concurrency": 2}
    with client.worker("w-assigned", "w10", handler("ann"), **options) as ann:
        until(lambda: publish() or len(places["ann"]) == 3)
        with client.worker("w-assigned", "w10", handler("bob"), **options):
            until(lambda: publish() or places["bob"])
            assert len(ann.consumer.assigned) < 3
        until(lambda: len(seen) == len(published))
    assert set(seen.values()) == {1}
    assert places["ann"] == {0, 1, 2}
    assert lag(client, "w10") == 0


async def test_the_same_for_asyncio(url):
    seen, errors, cancelled = Counter(), [], []

    async def handle(message):
        number = int(message.value)
        seen[number] += 1
        if number == 3:
            raise Reject("never")
        if number == 4 and message.attempts == 1:
            raise ValueError
        if number == 5 and message.attempts == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(number)
                raise

    def note(_message, error):
        errors.append(type(error).__name__)

    async with AsyncClient(url) as client:
        await client.create_topic("w-async", backoff_base_ms=1)
        await client.publish_many("w-async", [b"%d" % one for one in range(200)])
        options = {"concurrency": 20, "deadline": 0.3, "on_failure": note}
        async with client.worker("w-async", "w8", handle, **options), asyncio.timeout(120):
            while (await client.lag("w8")).total:  # noqa: ASYNC110 - it is in another process
                await asyncio.sleep(0.01)
    assert seen == {one: 2 if one in {4, 5} else 1 for one in range(200)}
    assert sorted(errors) == ["Overdue", "ValueError"]
    assert cancelled == [5]


async def test_an_asynchronous_worker_that_is_stopped_cancels_what_does_not_end(url):
    begun = asyncio.Event()

    async def handle(_message):
        begun.set()
        await asyncio.sleep(60)

    async with AsyncClient(url) as client:
        await client.create_topic("w-cancel", partitions=1)
        await client.publish("w-cancel", b"slow")
        async with client.worker("w-cancel", "w9", handle, grace=0.05):
            await asyncio.wait_for(begun.wait(), 120)
        (message,) = await client.poll("w-cancel", "w9", timeout=60)
        assert message.attempts == 2


def test_what_cannot_work_is_refused(client):
    for options in (
        {"concurrency": 0},
        {"retries": -1},
        {"deadline": 0},
        {"auto_commit": True},
        {"mode": "assigned", "order": "strict", "concurrency": 2},
    ):
        with pytest.raises(Refused):
            client.worker("orders", "signalled", print, **options)
    settings = ClientSettings(retry=RetryPolicy(retries=0))
    with (
        Client(NOWHERE, settings=settings) as nowhere,
        pytest.raises(Unreachable),
    ):
        nowhere.worker("orders", "signalled", print).run()


PROGRAM = """
import asyncio, sys, time
from penstock.client import AsyncClient, Client

def handle(message):
    print("begun", flush=True)
    time.sleep(0.1)
    print("done", flush=True)

async def handle_async(message):
    print("begun", flush=True)
    await asyncio.sleep(0.1)
    print("done", flush=True)

async def main(url):
    async with AsyncClient(url) as client:
        await client.worker("TOPIC", "signalled", handle_async).run()

if sys.argv[2] == "async":
    asyncio.run(main(sys.argv[1]))
else:
    with Client(sys.argv[1]) as client:
        client.worker("TOPIC", "signalled", handle).run()
print("unanswered", flush=True)
"""


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_handler_finish(client, url, kind, number):
    topic = f"w-{kind}-{number}"
    filled(client, topic, 1000)
    command = [sys.executable, "-c", PROGRAM.replace("TOPIC", topic), url, kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout.readline() == "begun\n"
            program.send_signal(number)
            words = ["begun", *program.stdout.read().split()]
            assert program.wait(60) == 0
        finally:
            program.kill()
    # More than one was handled if the signal came late; what began is done, and nothing begins when it has come.
    handled = words.count("begun")
    assert words == [*["begun", "done"] * handled, "unanswered"]
    parts = [one for one in client.lag("signalled").partitions if one.topic == topic]
    assert sum(one.lag for one in parts) == 1000 - handled > 0
    assert sum(one.in_flight for one in parts) == 0


def test_a_worker_outlives_a_server_that_is_killed(tmp_path):
    handled = Counter()

    def handle(message):
        handled[int(message.value)] += 1
        time.sleep(0.001)

    with restartable(tmp_path / "data") as server, Client(server.url, settings=PATIENT) as client:
        filled(client, "orders", 2000)
        with client.worker("orders", "signalled", handle, concurrency=4):
            until(lambda: len(handled) > 500)
            server.restart()
            until(lambda: len(handled) == 2000)
            until(lambda: client.lag("signalled").total == 0)


def test_the_pace_follows_what_is_needed():
    slow = Pace(4, 2000)
    assert slow.to_ask_for(0, 0, 10.0) == 4
    assert slow.to_ask_for(4, 0, 11.0) == 0
    assert slow.to_ask_for(3, 1, 12.0) == 1
    fast = Pace(1, 2000)
    assert fast.to_ask_for(0, 0, 10.0) == 1
    assert fast.to_ask_for(0, 1, 10.001) == 250
    assert fast.to_ask_for(200, 51, 10.002) == 0
    assert fast.to_ask_for(100, 151, 10.003) == 1900
