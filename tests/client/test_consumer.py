"""Consumers against a server process: shared and assigned, answers in batches, hand-over, faults."""

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from penstock.api.wire import encode_leased_reply
from penstock.client import AsyncClient, Client, ClientSettings, Outgoing, RetryPolicy
from penstock.errors import ModeConflict, NotFound, Refused, StaleGeneration, Unreachable
from tests.stalls import despite_stalls

from .proxies import Relay, busy, reply_frame
from .servers import NOWHERE, restartable, until

QUICK = ClientSettings(retry=RetryPolicy(retries=5, backoff_ms=5, backoff_ms_max=50))
# Longer than a client stops asking for: a test is as patient as an iteration.
PATIENT = ClientSettings(retry=RetryPolicy(retries=30, backoff_ms=20, backoff_ms_max=31_000))
ONE_TRY = ClientSettings(retry=RetryPolicy(retries=0))
pytestmark = pytest.mark.tier("test")


@pytest.fixture
def client(url):
    with Client(url, settings=QUICK) as client:
        yield client


def filled(client, topic, count, *, partitions=3, **config):
    client.create_topic(topic, partitions=partitions, **config)
    if count:
        numbers = range(count)
        spread = [Outgoing(b"%d" % one, partition=one % partitions) for one in numbers]
        client.publish_many(topic, spread)


def left(client, topic):
    """How many messages of a topic its group has not finished."""
    return sum(one.lag for one in client.lag("readers").partitions if one.topic == topic)


async def left_of(client, topic, group):
    return sum(one.lag for one in (await client.lag(group)).partitions if one.topic == topic)


def values(messages):
    return sorted(int(one.value) for one in messages)


def test_poll_brings_messages_columns_and_arrow(client):
    filled(client, "columns", 30, partitions=1, backoff_base_ms=1)
    with client.consumer("columns", "readers") as consumer:
        polled = consumer.poll(20, wait="60s")
        assert len(polled) == 20
        assert polled[3].value == b"3"
        assert [one.offset for one in polled[-2:]] == [18, 19]
        assert polled.arrow(["offset", "value"]).to_pydict() == {
            "offset": list(range(20)),
            "value": [b"%d" % one for one in range(20)],
        }
        assert polled.receipts() == [one.receipt for one in polled]
        consumer.nack(polled[0], "no luck", delay=0)
        consumer.ack(polled)
        consumer.flush()
        assert not polled[0].ack()
        (again,) = until(lambda: consumer.poll(1))
        assert (again.offset, again.attempts, again.last_error) == (0, 2, "no luck")
        # The receipts are those of every other way to answer.
        client.ack([again])
    assert left(client, "columns") == 10


def test_iteration_ends_when_idle_and_every_answer_counts(client):
    filled(client, "answers", 40, backoff_base_ms=1, max_retries=1)
    seen = Counter()
    with client.consumer("answers", "readers", max_poll=7) as consumer:
        for message in consumer.stream(idle=60):
            number = int(message.value)
            seen[number] += 1
            if number % 10 == 0:
                message.reject("never")
            elif number % 10 == 1:
                message.nack("not yet")
            elif number % 10 == 2 and message.attempts == 1:
                message.nack("once", delay="1ms")
            else:
                message.ack()
            if seen.total() == 48:
                break
        assert list(consumer.stream(idle=0.2)) == []
    assert left(client, "answers") == 0
    assert seen == {one: 2 if one % 10 in {1, 2} else 1 for one in range(40)}
    letters = until(lambda: (found := client.dead_letters("answers")) and len(found) == 8 and found)
    assert sorted(int(one.value) % 10 for one in letters) == [0] * 4 + [1] * 4
    assert {one.last_error for one in letters} == {"never", "not yet"}


def test_auto_commit_finishes_what_was_before_and_not_what_failed(client):
    filled(client, "auto", 10, partitions=1)
    with client.consumer("auto", "readers", auto_commit=True, max_poll=4) as consumer:
        for message in consumer:
            if message.offset == 5:
                break
    assert left(client, "auto") == 4

    def fail_at_8():
        with client.consumer("auto", "readers", auto_commit=True) as consumer:
            for message in consumer:
                1 / (8 - message.offset)

    with pytest.raises(ZeroDivisionError):
        fail_at_8()
    assert [one.floor for one in client.lag("readers").partitions if one.topic == "auto"] == [8]
    with client.consumer("auto", "readers", auto_commit=True) as consumer:
        assert [one.attempts for one in consumer.poll(wait=60)] == [2, 1]
    assert left(client, "auto") == 0


def test_close_gives_back_and_only_what_was_looked_at_counts(client):
    filled(client, "back", 10, partitions=1)
    with client.consumer("back", "readers") as consumer:
        stream = iter(consumer)
        assert [next(stream).offset, next(stream).offset] == [0, 1]
    with client.consumer("back", "readers", max_poll=5) as consumer:
        first = next(iter(consumer))
        assert first.attempts == 2
        first.ack()
    polled = client.poll("back", "readers")
    assert [one.offset for one in polled] == list(range(1, 10))
    assert [one.attempts for one in polled] == [1] * 9


def test_leases_are_extended_while_messages_are_in_hand(client):
    def story(lease_s):
        topic, lost = f"slow-{lease_s}", []
        config = {"visibility_timeout_ms": lease_s * 1000, "backoff_base_ms": 1}
        filled(client, topic, 3, partitions=1, **config)
        with client.consumer(topic, "readers", on_error=lost.append) as consumer:
            polled = consumer.poll(wait=60)
            end = time.monotonic() + lease_s * 1.5
            while time.monotonic() < end:
                assert not client.poll(topic, "readers", timeout=0.1)
            consumer.ack(polled)
            consumer.flush()
        assert lost == []
        assert left(client, topic) == 0

    despite_stalls(story)


def test_an_answer_that_comes_too_late_is_reported(client):
    filled(client, "late", 1, partitions=1, visibility_timeout_ms=50, backoff_base_ms=1)
    lost = []
    with client.consumer("late", "readers", extend_for=0, on_error=lost.append) as consumer:
        (message,) = consumer.poll(wait=60)
        (taken,) = until(lambda: client.poll("late", "readers", timeout=60, visibility_timeout=600))
        message.ack()
        consumer.flush()
        (error,) = lost
        assert (error.code, error.fields["offset"]) == ("STALE_RECEIPT", 0)
        client.ack(taken)


def test_two_members_hand_over_and_every_partition_has_one_owner(client):
    filled(client, "moving", 200, partitions=6)
    owned, events, both = {}, [], threading.Lock()

    def noting(name, what):
        def note(places):
            with both:
                events.append((name, what))
                for place in places:
                    if what == "assigned":
                        assert owned.setdefault(place, name) == name
                    else:
                        assert owned.pop(place) == name

        return note

    def consumer(name):
        return client.consumer(
            "moving",
            "readers",
            mode="assigned",
            # So seldom that all news come from polls.
            heartbeat_interval=300,
            session_timeout=1000,
            on_assigned=noting(name, "assigned"),
            on_revoked=noting(name, "revoked"),
            on_lost=noting(name, "lost"),
        )

    handled = []
    with consumer("ann") as ann:
        for message in ann.stream(idle=60):
            handled.append(message)
            message.ack()
            if len(handled) == 40:
                break
        assert len(ann.assigned) == 6
        with consumer("bob") as bob:
            end = time.monotonic() + 60
            while len(ann.assigned) != 3 or len(bob.assigned) != 3:
                assert time.monotonic() < end
                for one in (bob, ann):
                    polled = one.poll(5, wait=0.05)
                    handled.extend(polled)
                    one.ack(polled)
            assert set(ann.assigned).isdisjoint(bob.assigned)
            assert sorted(owned.values()) == ["ann"] * 3 + ["bob"] * 3
        while len(ann.assigned) != 6 or left(client, "moving"):
            polled = ann.poll(50, wait=0.1)
            handled.extend(polled)
            ann.ack(polled)
            ann.flush()
    assert ("ann", "revoked") in events
    assert ("bob", "assigned") in events
    assert values(handled) == list(range(200))


def test_a_partition_is_not_handed_over_before_its_messages_are_answered(client):
    filled(client, "kept", 8, partitions=2)
    with client.consumer("kept", "readers", mode="assigned") as ann:
        polled = ann.poll(wait=60)
        while len(polled) < 8:
            polled = [*polled, *ann.poll(wait=60)]
        with client.consumer("kept", "readers", mode="assigned") as bob:
            for _ in range(3):
                assert not ann.poll(wait=0.05)
                assert not bob.poll(wait=0.05)
            assert len(ann.assigned) == 2
            ann.ack(polled)
            until(lambda: not ann.poll(wait=0.05) and not bob.poll() and len(bob.assigned) == 1)
    assert left(client, "kept") == 0


def test_a_commit_finishes_everything_up_to_a_message(client):
    filled(client, "commits", 10, partitions=1)
    with client.consumer("commits", "readers", mode="assigned", order="strict") as consumer:
        polled = consumer.poll(wait=60)
        assert consumer.commit(polled[4])
        assert not consumer.commit({"commits/0": 3})
        assert client.offsets("readers")["commits"] == {0: 5}
        with pytest.raises(NotFound):
            consumer.commit({"commits/7": 1})
    with client.consumer("commits", "sharers") as shared, pytest.raises(Refused):
        shared.commit({"commits/0": 3})


def test_a_consumer_under_a_name_in_use_takes_its_place(client):
    filled(client, "names", 3, partitions=1)
    first = client.consumer("names", "readers", mode="assigned", member="ann")
    assert len(first.poll(wait=60)) == 3
    with client.consumer("names", "readers", mode="assigned", member="ann") as second:
        with pytest.raises(StaleGeneration):
            first.poll(wait=60)
        second.ack(until(lambda: second.poll(wait=60)))
    first.close()
    assert left(client, "names") == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "both"}, "shared, assigned"),
        ({"max_poll": 0}, "max_poll"),
        ({"order": "strict"}, "assigned"),
        ({"member": "a b"}, "member"),
        ({"heartbeat_interval": 0}, "heartbeat_interval"),
        ({"visibility_timeout": "soon"}, "duration"),
    ],
)
def test_options_that_mean_nothing_are_refused(client, options, words):
    with pytest.raises(Refused, match=words):
        client.consumer("columns", "readers", **options).poll()


def test_what_the_server_refuses_is_raised(client):
    with pytest.raises(NotFound):
        client.consumer("nowhere", "readers").poll()
    with pytest.raises(Refused):
        client.consumer([], "readers")
    filled(client, "modes", 1)
    with (
        client.consumer("modes", "readers", mode="assigned"),
        pytest.raises(ModeConflict),
        client.consumer("modes", "readers"),
    ):
        pass
    closed = client.consumer("modes", "others")
    closed.close()
    with pytest.raises(Refused, match="closed"):
        closed.poll()


def test_lost_answers_cost_no_attempt_and_repeat_nothing(client, url):
    """The answer of the first poll and that of the first acks are lost on their way."""
    filled(client, "lossy", 20, partitions=1, max_retries=0)
    lost = []

    def swallows(request, answer, count):
        wanted = ("PollMember", "Answer")
        is_wanted = count < 2 and request.kind == wanted[count]
        return answer and is_wanted and (count or b"PLS1" in answer)

    relay = Relay(url, swallows)
    with (
        Client(relay.url, settings=QUICK) as far,
        far.consumer("lossy", "readers", on_error=lost.append) as consumer,
    ):
        polled = consumer.poll(wait=60)
        assert [one.attempts for one in polled] == [1] * 20
        consumer.ack(polled[:10])
        consumer.nack(polled[10:], "bad")
        consumer.flush()
    relay.close()
    assert len(relay.swallowed) == 2
    assert lost == []
    assert left(client, "lossy") == 0
    assert len(until(lambda: client.dead_letters("lossy"))) == 10


NONSENSE = (
    busy,
    lambda _request: b"\xffgarbage",
    lambda request: reply_frame(request.correlation, [b"no reply"]),
    lambda request: reply_frame(request.correlation, encode_leased_reply(b"PLS1whole", None)),
)


@pytest.mark.parametrize("word", ["PollMember", "Answer"])
def test_nonsense_is_outlasted_and_costs_nothing(client, url, word):
    """Whatever comes instead of an answer, after the request was carried out: all is done once."""
    topic = f"nonsense-{len(word)}"
    filled(client, topic, 12, partitions=1, max_retries=0)
    lost, found = [], []

    def swallows(request, answer, count):
        return answer and count < len(NONSENSE) and request.kind == word and NONSENSE[count]

    relay = Relay(url, swallows)
    with Client(relay.url, settings=QUICK) as far:
        with far.consumer(topic, "readers", max_poll=5, on_error=lost.append) as consumer:
            for message in consumer.stream(idle=60):
                found.append(message)
                message.ack()
                if len(found) == 12:
                    break
        relay.close()
    assert len(relay.swallowed) == len(NONSENSE)
    assert lost == []
    assert [(one.offset, one.attempts) for one in found] == [(one, 1) for one in range(12)]
    assert left(client, topic) == 0


def test_what_could_not_be_sent_is_kept(client, url):
    filled(client, "unsent", 3, partitions=1, max_retries=0)
    lost = []
    relay = Relay(url, lambda request, answer, count: count < 1 and request.kind == "Answer")
    with Client(relay.url, settings=ONE_TRY) as far:
        consumer = far.consumer("unsent", "readers", on_error=lost.append)
        polled = consumer.poll(wait=60)
        consumer._ack_batcher.try_to_send = lambda: None  # Only we send.
        consumer.ack(polled[0])
        consumer.nack(polled[1], "bad")
        with pytest.raises(Unreachable):
            consumer.flush()
        assert left(client, "unsent") == 3
        polled[2].ack()
        consumer.close()
    relay.close()
    assert lost == []
    assert left(client, "unsent") == 0
    assert len(until(lambda: client.dead_letters("unsent"))) == 1


def test_a_server_that_is_not_there():
    with Client(NOWHERE, settings=ONE_TRY) as client:
        with pytest.raises(Unreachable), client.consumer("orders", "readers"):
            pass
        with pytest.raises(Unreachable):
            next(iter(client.consumer("orders", "readers", patience=0.05)))


def test_stop_ends_a_poll_that_waits(client):
    filled(client, "still", 0)
    with client.consumer("still", "readers") as consumer:
        thread = threading.Thread(target=lambda: list(consumer))
        thread.start()
        until(lambda: consumer._polling)
        consumer.stop()
        thread.join(60)
        assert not thread.is_alive()


async def test_the_same_for_asyncio(url):
    noted = []

    async def note(places):
        await asyncio.sleep(0)
        noted.extend(places)

    async with AsyncClient(url, settings=QUICK) as client:
        await client.create_topic("async-consumer", partitions=2)
        await client.publish_many("async-consumer", [b"%d" % one for one in range(50)])
        options = {"mode": "assigned", "max_poll": 9, "on_assigned": note}
        async with client.consumer("async-consumer", "readers", **options) as consumer:
            found = []
            async for message in consumer.stream(idle=60):
                found.append(message)
                message.ack()
                if len(found) == 50:
                    break
        assert values(found) == list(range(50))
        assert noted == ["async-consumer/0", "async-consumer/1"]
        assert await left_of(client, "async-consumer", "readers") == 0
        async with client.consumer("async-consumer", "others") as consumer:
            waiting = asyncio.create_task(consumer.poll(wait=60))
            polled = await waiting
            assert len(polled) == 50
            again = asyncio.create_task(consumer.poll(wait=60))
            await asyncio.sleep(0)
            again.cancel()
            with pytest.raises(asyncio.CancelledError):
                await again
            consumer.ack(polled)
        assert await left_of(client, "async-consumer", "others") == 0


@pytest.mark.parametrize("mode", ["shared", "assigned"])
def test_a_server_that_is_killed_in_the_middle_costs_nothing_that_was_confirmed(tmp_path, mode):
    count, confirmed, seen = 1500, set(), Counter()
    with restartable(tmp_path / "data") as server, Client(server.url, settings=PATIENT) as client:
        filled(client, "orders", count)
        restarts = {700: threading.Thread(target=server.restart)}
        lost = []
        with client.consumer(
            "orders", "readers", mode=mode, max_poll=90, on_error=lost.append
        ) as one:
            held = one.poll(20, wait=60)
            server.restart()
            held = [*held, *until(lambda: one.poll(20, wait=60))]
            one.ack(held)
            one.flush()
            assert lost == [], "after a restart what we hold is still ours"
            seen.update(values(held))
            confirmed |= set(seen)
            unconfirmed = set()
            for message in one.stream(idle=60):
                number = int(message.value)
                assert number not in confirmed, "what was confirmed came again"
                seen[number] += 1
                message.ack()
                unconfirmed.add(number)
                if len(seen) % 50 == 0:
                    one.flush()
                    confirmed |= unconfirmed
                    unconfirmed.clear()
                if (thread := restarts.pop(len(seen), None)) is not None:
                    thread.start()
                    last = thread
                if len(seen) == count and not unconfirmed:
                    break
            last.join()
        assert set(seen) == set(range(count))
        assert left(client, "orders") == 0
        assert not restarts


def test_a_member_that_is_killed_is_missed_and_its_work_goes_on(client, url):
    filled(client, "killed", 60, partitions=4)
    program = f"""
from penstock.client import Client
with Client({url!r}) as client:
    options = dict(mode="assigned", session_timeout=6, heartbeat_interval=0.2, max_poll=10)
    with client.consumer("killed", "readers", **options) as consumer:
        polled = consumer.poll(10, wait=30)
        consumer.ack(polled[:5])
        consumer.flush()
        print("ready", flush=True)
        import time; time.sleep(60)
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        try:
            assert victim.stdout.readline() == "ready\n"
        finally:
            victim.kill()
    with client.consumer("killed", "readers", mode="assigned") as consumer:
        found = []
        for message in consumer.stream(idle=60):
            found.append(message)
            if len(found) == 55:
                break
        assert len(consumer.assigned) == 4
        consumer.ack(found)
    assert len(values(found)) == len(set(values(found))) == 55
    assert left(client, "killed") == 0
