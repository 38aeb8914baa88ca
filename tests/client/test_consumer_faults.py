"""Consumers whose server, network or process fails: nothing confirmed is lost, and nothing is done twice."""

import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress

import pytest
from msgspec.structs import replace

from penstock.api.groups import Mode
from penstock.api.members import JoinGroup, PollMember
from penstock.api.wire import encode_leased_reply
from penstock.client import Client, ClientSettings, Outgoing, RetryPolicy
from penstock.errors import AlreadyExists, Refused, StaleGeneration, Unreachable

from .consumers import QUICK, filled, left, values
from .proxies import Proxy, Relay, busy, reply_frame
from .servers import NOWHERE, restartable, until

# Longer than a client stops asking for: a test is as patient as an iteration.
PATIENT = ClientSettings(retry=RetryPolicy(retries=30, backoff_ms=20, backoff_ms_max=31_000))
ONE_TRY = ClientSettings(retry=RetryPolicy(retries=0))
pytestmark = pytest.mark.tier("test")


@pytest.fixture
def client(url):
    with Client(url, settings=QUICK) as client:
        yield client


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


@pytest.mark.parametrize("mode", ["shared", "assigned"])
def test_a_stop_while_messages_are_under_way_costs_no_attempt(client, url, mode):
    """Without another attempt a message that no program has seen would be a dead letter."""
    topic = f"stopped-{mode}"
    filled(client, topic, 3, partitions=1, max_retries=0)

    class Stopping(Proxy):
        def is_special(self, request):
            return request.kind == "PollMember"

        def on_answer(self, _request, _answer, _link):
            consumer.stop()
            return False

    with Stopping(url) as proxy, Client(proxy.url, settings=QUICK) as far:
        consumer = far.consumer(topic, topic, mode=mode)
        assert not consumer.poll(wait=60)
        consumer.close()
    with client.consumer(topic, topic, mode=mode) as other:
        found = until(lambda: other.poll(wait=60))
        assert [(one.offset, one.attempts) for one in found] == [(0, 1), (1, 1), (2, 1)]
        other.ack(found)
    assert client.dead_letters(topic) == []


def test_a_death_in_rounds_is_no_attempt_and_its_name_is_free_after_the_session(client):
    filled(client, "rounds", 3, partitions=1, max_retries=0)
    # A consumer that never gives a sign of life again, and then one late command.
    joining = JoinGroup(
        *("readers", "driver", ("rounds",)), mode=Mode.SHARED, session_ms=1000, in_rounds=True
    )
    generation = client.execute(joining).standing.generation
    polling = PollMember("readers", "driver", 10, generation, 60_000)
    assert len(client.execute(polling).parts) > 100
    following = client.consumer("rounds", "readers", member="driver", in_rounds=True)
    with pytest.raises(AlreadyExists, match="member driver exists already"):
        following.start()
    with pytest.raises(AlreadyExists):
        client.execute(replace(joining, in_rounds=False))

    def has_started():
        with suppress(AlreadyExists):
            following.start()
            return True

    until(has_started)
    with pytest.raises(StaleGeneration):
        client.execute(polling)
    found = until(lambda: following.poll(wait=60))
    assert [(one.offset, one.attempts) for one in found] == [(0, 1), (1, 1), (2, 1)]
    following.ack(found)
    following.close()
    assert left(client, "rounds") == 0
    assert client.dead_letters("rounds") == []


@pytest.mark.parametrize("options", [{"mode": "assigned"}, {"in_rounds": "yes"}], ids=str)
def test_rounds_are_for_shared_groups(client, options):
    with pytest.raises(Refused, match="in_rounds"):
        client.consumer("rounds", "readers", **{"in_rounds": True, **options})


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


def test_a_poll_whose_callback_fails_costs_none_of_its_messages(client):
    """A poll brings messages of a partition and the news of another one, and the callback for that raises."""
    filled(client, "news", 0, partitions=4, max_retries=0)
    client.publish("news", b"0", partition=1)

    def fail(places):
        if places == ["news/1"]:
            raise OSError("the disk is full")

    # Heartbeats are so seldom that all news come from polls.
    options = {
        "mode": "assigned",
        "assignor": "range",
        "heartbeat_interval": 300,
        "session_timeout": 1000,
    }
    with client.consumer("news", "readers", member="bob", **options) as bob:
        held = bob.poll(wait=60)
        with client.consumer("news", "readers", member="ann", on_assigned=fail, **options) as ann:
            until(lambda: not bob.poll() and not ann.poll() and ann.assigned == ["news/0"])
            client.publish_many("news", [Outgoing(b"%d" % one, partition=0) for one in range(1, 7)])
            bob.ack(held)
            until(lambda: not bob.poll() and len(bob.assigned) == 2)
            with pytest.raises(OSError, match="the disk is full"):
                ann.poll(wait=60)
            found = ann.poll(wait=60)
            assert [(one.value, one.attempts) for one in found] == [
                (b"%d" % one, 1) for one in range(1, 7)
            ]
            ann.ack(found)
    assert left(client, "news") == 0


def test_a_server_that_is_not_there():
    with Client(NOWHERE, settings=ONE_TRY) as client:
        with pytest.raises(Unreachable), client.consumer("orders", "readers"):
            pass
        with pytest.raises(Unreachable):
            next(iter(client.consumer("orders", "readers", patience=0.05)))


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
