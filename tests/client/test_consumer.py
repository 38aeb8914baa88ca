"""Consumers against a server process: shared and assigned, answers in batches, hand-over, faults."""

import asyncio
import threading
import time
from collections import Counter

import pytest

from penstock.api.frames import ClientDefaults
from penstock.client import AsyncClient, Client
from penstock.client.consumer_options import ConsumerSettings
from penstock.errors import ModeConflict, NotFound, Refused, StaleGeneration
from tests.stalls import despite_stalls

from .consumers import QUICK, filled, left, values
from .servers import until

pytestmark = pytest.mark.tier("test")


@pytest.fixture
def client(url):
    with Client(url, settings=QUICK) as client:
        yield client


async def left_of(client, topic, group):
    return sum(one.lag for one in (await client.lag(group)).partitions if one.topic == topic)


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


def test_an_answer_after_the_end_of_the_consumer_is_none(client):
    filled(client, "ended", 3, partitions=1)
    with client.consumer("ended", "readers") as consumer:
        first, second, third = consumer.poll(wait=60)
        assert first.ack()
    assert [second.ack(), second.nack("bad"), third.reject(), third.extend("1m")] == [False] * 4
    assert left(client, "ended") == 2

    def fail(_places):
        raise OSError("the disk is full")

    consumer = client.consumer("ended", "others", mode="assigned", on_revoked=fail)
    first, second, _ = consumer.poll(wait=60)
    assert first.ack()
    with pytest.raises(OSError, match="the disk is full"):
        consumer.close()
    assert not second.ack()
    assert client.offsets("others")["ended"] == {0: 1}


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
        ({"visibility_timeout": "soon"}, "visibility_timeout"),
        ({"visibility_timeout": 0}, "visibility_timeout"),
        ({"auto_commit": "false"}, "auto_commit"),
    ],
)
def test_options_that_mean_nothing_are_refused(client, options, words):
    with pytest.raises(Refused, match=words):
        client.consumer("columns", "readers", **options).poll()


def test_heartbeats_leave_the_processor_alone():
    settings = ConsumerSettings(heartbeat_interval=1e-6)
    assert settings.heartbeat_s(ClientDefaults()) >= 0.01


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


def test_stop_ends_a_poll_that_waits(client):
    filled(client, "still", 0)
    with client.consumer("still", "readers") as consumer:
        thread = threading.Thread(target=lambda: list(consumer))
        thread.start()
        until(lambda: client.group("readers").members)
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
