"""Named commits of both clients against a server process: one stages, another commits, a kill comes in between."""

import json
import threading
import time

import pytest

from penstock.client import AsyncClient, Client, Outgoing, StagingHandle
from penstock.codec import Columns
from penstock.errors import (
    CommitNameTaken,
    NotFound,
    PenstockError,
    Refused,
    SequenceCommitted,
    StagingMismatch,
    Unavailable,
    UnknownStaging,
)

from .proxies import Relay
from .servers import restartable, until


def values(client, topic):
    return sorted(one.value for _, one in client.read(topic))


def fail(staging, answered=()):
    staging.publish("n-audit", b"x")
    staging.ack(answered)
    raise ZeroDivisionError


@pytest.fixture(scope="module")
def client(url):
    with Client(url) as client:
        for topic, partitions in (("n-audit", 1), ("n-lost", 2), ("n-async", 2)):
            client.create_topic(topic, partitions=partitions)
        yield client


def test_one_process_stages_and_another_commits_what_it_chooses(client, url):
    client.create_topic("n-all-orders", partitions=3)
    client.create_topic("n-all-audit", partitions=1)

    def attempt(number):
        with client.staging("n-all", 0, "w", attempt=f"task {number}") as staging:
            staging.publish("n-all-orders", b"a%d" % number, key="ann")
            staging.publish("n-all-orders", b"b%d" % number, partition=2)
            staging.publish_many("n-all-orders", [Outgoing(b"c%d" % number, partition=1), b"d"])
            staging.stage_columns("n-all-audit", 0, Columns(values=[b"x", b"y"], timestamps=1))
        return staging.handle

    handles = [attempt(number) for number in range(2)]
    assert handles[0].messages == 6
    assert values(client, "n-all-orders") == values(client, "n-all-audit") == []
    winner = StagingHandle(*json.loads(json.dumps(handles[1])))
    assert winner == handles[1]
    with Client(url) as driver:
        done = driver.commit_stagings("n-all", 0, "w", [winner])
        assert not done.is_repeat
        assert sum(one.message_count for one in done.places) == 6
        again = driver.commit_stagings("n-all", 0, "w", [winner])
        assert (again.is_repeat, again.places) == (True, done.places)
        assert driver.commit_stagings("n-all", 0, "w", []).is_repeat
    assert values(client, "n-all-orders") == [b"a1", b"b1", b"c1", b"d"]
    assert values(client, "n-all-audit") == [b"x", b"y"]
    with pytest.raises(SequenceCommitted), client.staging("n-all", 0, "w"):
        pass
    with pytest.raises(CommitNameTaken), client.staging("n-all", 1, "other"):
        pass


def test_a_commit_of_nothing_counts(client):
    assert not client.commit_stagings("n-empty", 3, "w", []).is_repeat
    assert client.commit_stagings("n-empty", 3, "w", []).is_repeat
    with pytest.raises(SequenceCommitted), client.staging("n-empty", 2, "w"):
        pass


def test_many_batches_under_way_keep_their_order(client):
    client.create_topic("n-many", partitions=1)
    with client.staging("n-many", 0, "w") as staging:
        for number in range(30):
            rows = [b"%d/%d" % (number, one) for one in range(50)]
            staging.stage_columns("n-many", 0, Columns(values=rows, timestamps=1))
    client.commit_stagings("n-many", 0, "w", [staging.handle], one_off=True)
    found = [one.value for _, one in client.read("n-many")]
    assert found == [b"%d/%d" % (number, one) for number in range(30) for one in range(50)]


def test_what_raises_is_given_up_and_wrong_use_is_refused(client):
    staging = client.staging("n-wrong", 0, "w")
    with pytest.raises(Refused):
        staging.publish("n-audit", b"x")
    with pytest.raises(ZeroDivisionError), staging:
        fail(staging)
    with pytest.raises(Refused):
        assert staging.handle
    with pytest.raises(Refused):
        staging.__enter__()
    for wrong in ({"delay_key": "k"}, {"idempotency_key": "k"}, {"json": 1}):
        with pytest.raises(Refused), client.staging("n-wrong", 0, "w") as other:
            other.publish("n-audit", b"x", **wrong)
    with pytest.raises(NotFound), client.staging("n-wrong", 0, "w") as other:
        other.publish("n-nowhere", b"x")
    with client.staging("n-wrong", 0, "w") as good:
        good.publish("n-audit", b"good")
    handle = good.handle
    refused = (
        (Refused, ("n-wrong", 1, "w", [handle])),
        (Refused, ("n-wrong", 0, "v", [handle])),
        (Refused, ("n-wrong", -1, "w", [])),
        (Refused, ("n" * 300, 0, "w", [])),
        (Refused, ("n-wrong", 0, "w", [handle, handle])),
        (Refused, ("n-wrong", 0, "w", ["nonsense"])),
        (StagingMismatch, ("n-wrong", 0, "w", [handle._replace(messages=2)])),
        (UnknownStaging, ("n-wrong", 0, "w", [handle._replace(staging="4" * 16)])),
    )
    for kind, arguments in refused:
        with pytest.raises(kind):
            client.commit_stagings(*arguments)
    client.commit_stagings("n-wrong", 0, "w", [handle])
    assert values(client, "n-audit").count(b"good") == 1
    assert client.drop_stagings([handle]) == 0


def test_lost_answers_are_asked_for_again_and_count_once(client, url):
    def swallows(request, answer, count):
        kinds = ("StageNamedBatch", "CommitStagings")
        return answer is not None and request.kind in kinds and count < 2

    with Relay(url, swallows) as relay, Client(relay.url) as cut:
        with cut.staging("n-lost", 0, "w") as staging:
            for number in range(8):
                columns = Columns(values=[b"%d" % number], timestamps=1)
                staging.stage_columns("n-lost", number % 2, columns)
        cut.commit_stagings("n-lost", 0, "w", [staging.handle])
        assert len(relay.swallowed) >= 1
    assert values(client, "n-lost") == [b"%d" % number for number in range(8)]


def test_what_was_consumed_is_acked_with_the_commit_and_given_back_without(client, url):
    client.create_topic("n-in", partitions=1)
    client.create_topic("n-out", partitions=1)
    client.publish_many("n-in", [b"a", b"b", b"c", b"d"])

    def swallows(request, answer, count):
        return answer is not None and request.kind == "StageNamedAnswers" and count < 1

    with (
        Relay(url, swallows) as relay,
        Client(relay.url) as cut,
        cut.consumer("n-in", "n-group") as consumer,
    ):
        batch = consumer.poll(2, wait="60s")
        with cut.staging("n-answers", 0, "w") as staging:
            for message in batch:
                staging.publish("n-out", message.value.upper())
            staging.ack(batch)
        assert all(one.is_answered for one in batch)
        (third,) = consumer.poll(1, wait="60s")
        with pytest.raises(ZeroDivisionError), cut.staging("n-answers", 0, "w") as failing:
            fail(failing, third)
        (fourth,) = consumer.poll(1, wait="60s")
        with cut.staging("n-answers", 0, "w") as other:
            other.reject(fourth, "bad")
            other.nack(third, "later", delay="1h")
        assert len(relay.swallowed) == 1
    assert client.lag("n-group").total == 4
    with pytest.raises(Refused):
        staging.ack(batch)
    client.commit_stagings("n-answers", 0, "w", [staging.handle, other.handle])
    assert values(client, "n-out") == [b"A", b"B"]
    assert client.lag("n-group").total == 1
    assert client.commit_stagings("n-answers", 0, "w", [staging.handle]).is_repeat


def test_delayed_messages_are_scheduled_with_the_commit(client):
    client.create_topic("n-later", partitions=2)
    with client.staging("n-later", 0, "w") as staging:
        staging.publish("n-later", b"one", delay="1h", delay_key="k", partition=1)
        staging.publish_many("n-later", [b"now", Outgoing(b"two", delay="2h", partition=1)])
    assert staging.handle.messages == 3
    client.commit_stagings("n-later", 0, "w", [staging.handle])
    with client.transactional_producer("n-later").transaction() as t:
        t.publish_many("n-later", [Outgoing(b"three", delay="3h"), b"also now"])
    assert values(client, "n-later") == [b"also now", b"now"]
    assert [one.value for one in client.delayed("n-later")] == [b"one", b"two", b"three"]


async def test_the_same_for_asyncio(client, url):
    async with AsyncClient(url) as other:
        async with other.staging("n-async", 0, "w") as staging:
            await staging.publish("n-async", b"one", key="k")
            await staging.publish_many("n-async", [b"two", b"three"])
        done = await other.commit_stagings("n-async", 0, "w", [staging.handle])
        assert not done.is_repeat
        async with other.staging("n-async", 1, "w") as given_up:
            await given_up.publish("n-async", b"never")
        assert await other.drop_stagings([given_up.handle]) == 1
    assert values(client, "n-async") == [b"one", b"three", b"two"]


class Writer(threading.Thread):
    """Commits sequence after sequence, each of two stagings beside a loser; what fails is done again from the start."""

    def __init__(self, url):
        super().__init__(daemon=True)
        self.url, self.committed = url, 0
        self.is_ending = self.is_done = False

    def run(self):
        with Client(self.url) as client:
            while not self.is_ending or not self.committed:
                self._round(client)
        self.is_done = True

    def _round(self, client):
        sequence = self.committed
        try:
            handles = [self._staged(client, sequence, one) for one in range(3)]
            client.commit_stagings("sink", sequence, "writer", handles[:2])
        except SequenceCommitted:
            client.commit_stagings("sink", sequence, "writer", [])
        except (Unavailable, UnknownStaging):
            time.sleep(0.01)
            return
        self.committed += 1

    def _staged(self, client, sequence, number):
        with client.staging("sink", sequence, "writer", attempt=str(number)) as staging:
            for partition in range(2):
                text = b"loser" if number == 2 else b"%d/%d/%d" % (sequence, number, partition)
                staging.publish("orders", text, partition=partition)
        return staging.handle


@pytest.mark.tier("test")
def test_kill_9_between_stagings_and_commits_loses_and_doubles_nothing(tmp_path, effort):
    with restartable(tmp_path / "data") as server, Client(server.url) as client:
        client.create_topic("orders", partitions=2)
        writer = Writer(server.url)
        writer.start()
        for _ in range(effort(check=1, test=3, torture=100)):
            reached = writer.committed + 2
            until(lambda at=reached: writer.committed >= at or not writer.is_alive(), 120)
            server.restart(0)
        reached = writer.committed + 1
        until(lambda: writer.committed >= reached or not writer.is_alive(), 120)
        writer.is_ending = True
        writer.join(120)
        assert writer.is_done
        wanted = [
            b"%d/%d/%d" % (sequence, number, partition)
            for sequence in range(writer.committed)
            for number in range(2)
            for partition in range(2)
        ]

        def found():
            try:
                return values(client, "orders")
            except PenstockError:
                return None

        assert until(found) == sorted(wanted)
