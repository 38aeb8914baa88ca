"""Wrong types and numbers: a refusal that names them, no member lost by it, and nothing that hangs."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from threading import Thread

import numpy as np
import pytest

import penstock
from penstock.api.units import duration_ns, moment_ns
from penstock.errors import Refused

OBJECT = object()
NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - that is the point

QUEUE_CALLS = [
    lambda queue: queue.put(b"x", headers=3),
    lambda queue: queue.put(b"x", ttl=[None]),
    lambda queue: queue.put(b"x", ttl=True),
    lambda queue: queue.put(b"x", deliver_at=3),
    lambda queue: queue.put(b"x", deliver_at="tomorrow"),
    lambda queue: queue.put_many(None),
    lambda queue: queue.put_many(7),
    lambda queue: queue.put_many([b"x", b"y"], delay="1s", delay_key="k"),
    lambda queue: queue.get(timeout=["x"]),
    lambda queue: queue.get_many("a"),
    lambda queue: queue.get_many(None),
    lambda queue: queue.get_many(-1),
    lambda queue: queue.get_many(1.5),
    lambda queue: queue.peek_many(-1),
    lambda queue: queue.peek_many("x"),
    lambda queue: queue.seek("x"),
    lambda queue: queue.seek(1.5),
    lambda queue: queue.seek(None),
    lambda queue: queue.delayed("x"),
    lambda queue: queue.cancel(10**30),
    lambda queue: queue.delayed_get(10**30),
    lambda queue: queue.dead_letters("x"),
    lambda queue: queue.requeue("x"),
    lambda queue: queue.requeue(3),
    lambda queue: queue.requeue([None]),
    lambda queue: queue.nack([], "\ud800"),
    lambda queue: queue.extend([], OBJECT),
]

BROKER_CALLS = [
    lambda broker: broker.create_schedule(None, "s", b"x", every="1h"),
    lambda broker: broker.create_schedule("t", "s", b"x", every=OBJECT),
    lambda broker: broker.schedules(["t"]),
    lambda broker: broker.change_schedule("t", None, paused=True),
    lambda broker: broker.create_topic(None),
    lambda broker: broker.create_topic("n", partitions="3"),
    lambda broker: broker.create_topic("n", partitions=True),
    lambda broker: broker.create_topic("n", max_retries=10**30),
    lambda broker: broker.create_topic("n", compression="\ud800"),
    lambda broker: broker.configure_topic(["t"], max_retries=1),
    lambda broker: broker.add_partitions("t", "4"),
    lambda broker: broker.add_partitions(None, 4),
    lambda broker: broker.delete_topic(None),
    lambda broker: broker.describe(["t"]),
    lambda broker: broker.publish(["t"], b"x"),
    lambda broker: broker.journey(None, 0, 0),
    lambda broker: broker.journey("t", "0", 0),
    lambda broker: broker.journey("t", 0, -1),
    lambda broker: broker.trace(5),
    lambda broker: broker.trace("no trace id"),
    lambda broker: broker.journeys(limit=0),
    lambda broker: broker.search_journeys("t"),
    lambda broker: broker.publish("t", b"x", partition="0"),
    lambda broker: broker.publish("t", b"x", acks=["all"]),
    lambda broker: broker.publish_many("t", None),
    lambda broker: broker.publish_many("t", [b"x", b"y"], delay="1s", delay_key="k"),
    lambda broker: broker.publish_many("t", [b"x"], delay="1s", key="k"),
    lambda broker: broker.publish_many("t", [penstock.Message(b"x", key=3)]),
    lambda broker: broker.publish_many("t", [penstock.Message(b"x", idempotency_key="k")]),
    lambda broker: broker.publish_many("t", [penstock.Message(b"x", key="k")], delay="1s"),
    lambda broker: broker.read("t", "0"),
    lambda broker: broker.read("t", 0.5),
    lambda broker: broker.read("t", 0, ["x"]),
    lambda broker: broker.read("t", 0, True),
    lambda broker: broker.read("t", 0, limit="x"),
    lambda broker: broker.read("t", 0, limit=None),
    lambda broker: broker.open_group("t", 3),
    lambda broker: broker.poll("t", None),
    lambda broker: broker.poll("t", ["g"]),
    lambda broker: broker.forget_group("t", ["g"]),
    lambda broker: broker.poll("t", "g", member=3),
    lambda broker: broker.poll("t", "g", limit="x"),
    lambda broker: broker.poll("t", "g", limit=-1),
    lambda broker: broker.poll("t", "g", request_id=3),
    lambda broker: broker.release("t", ["g"], "m"),
    lambda broker: broker.commit("t", 0, "g", "1"),
    lambda broker: broker.commit("t", "0", "g", 1),
    lambda broker: broker.join(None, "g2"),
    lambda broker: broker.join([["t"]], "g2"),
    lambda broker: broker.join("t", "g2", member=3),
    lambda broker: broker.join("t", "g2", order=["strict"]),
    lambda broker: broker.join("t", "g2", auto_commit="no"),
    lambda broker: broker.join("t", "g2", on_revoked="x"),
    lambda broker: broker.lag(["g"]),
    lambda broker: broker.lanes("t", ["g"]),
    lambda broker: broker.reset("g", NAIVE, topic="t"),
    lambda broker: broker.reset("g", "latest", force="no"),
    lambda broker: broker.dead_letters("t", selection="all"),
    lambda broker: broker.dead_letters("t", limit="x"),
    lambda broker: broker.redrive("t", target=["topic"]),
    lambda broker: broker.redrive("t", dry_run=None),
    lambda broker: broker.redrive("t", edit="x"),
    lambda broker: broker.delayed("t", limit="x"),
    lambda broker: broker.delayed("t", after=3),
    lambda broker: broker.cancel_delayed("t", 0, "x"),
    lambda broker: broker.cancel_delayed("t", 0, 10**30),
]

MEMBER_CALLS = [
    lambda member: member.poll(limit="x"),
    lambda member: member.poll(request_id=3),
    lambda member: member.commit(None),
    lambda member: member.commit(["x"]),
    lambda member: member.commit({3: 1}),
    lambda member: member.commit({"t/0": "x"}),
    lambda member: member.commit({"t/0": 0}, generation="x"),
]


def test_a_queue_refuses_and_goes_on(tmp_path):
    with penstock.open(tmp_path, auto_ack=False) as queue:
        queue.put(b"x")
        for call in QUEUE_CALLS:
            with pytest.raises(penstock.errors.PenstockError):
                call(queue)
        assert queue.get_many(0) == []
        assert [one.value for one in queue.get_many(10**30)] == [b"x"]


def test_get_many_of_a_plain_queue_refuses_the_same(tmp_path):
    with penstock.open(tmp_path) as queue:
        queue.put(b"x")
        for limit in ("a", None, -1, 1.5, True, []):
            with pytest.raises(Refused, match="limit"):
                queue.get_many(limit)
        assert queue.get_many(0, timeout=None) == []
        assert len(queue.get_many(10**30)) == 1


def test_a_queue_without_a_directory_is_refused():
    """It would be in memory, and gone with the process that called it durable."""
    with pytest.raises(Refused, match="directory"):
        penstock.open(None, fsync="always")


@pytest.mark.parametrize("topic", [3, None, b"t", ["t"]])
def test_a_topic_is_named_by_text(topic):
    with penstock.Broker() as broker:
        for call in (
            lambda: broker.publish(topic, b"x"),
            lambda: broker.publish(topic, b"x", delay="1h"),
            lambda: broker.publish_many(topic, [b"x"]),
            lambda: broker.publish_many(topic, [b"x"], delay="1h"),
            lambda: broker.read(topic, 0),
            lambda: broker.open_group(topic, "g"),
            lambda: broker.poll(topic, "g"),
            lambda: broker.release(topic, "g", "m"),
            lambda: broker.commit(topic, 0, "g", 1),
            lambda: broker.forget_group(topic, "g"),
            lambda: broker.describe(topic),
            lambda: broker.settings(topic),
            lambda: broker.dead_letters(topic),
            lambda: broker.redrive(topic),
            lambda: broker.discard(topic),
            lambda: broker.delayed(topic),
            lambda: broker.delayed_get(topic, delay_key="k"),
            lambda: broker.cancel_delayed(topic, delay_key="k"),
            lambda: broker.reschedule(topic, delay_key="k", delay="1h"),
            lambda: broker.delay_stats(topic),
        ):
            with pytest.raises(Refused, match="a topic's name"):
                call()


def test_a_broker_refuses_and_its_members_stay():
    with penstock.Broker() as broker:
        broker.create_topic("t", partitions=1)
        broker.open_group("t", "g")
        # A wrong type that comes as far as the node has it opened again, without its members.
        member = broker.join("t", "assigned")
        for call in BROKER_CALLS:
            with pytest.raises(penstock.errors.PenstockError):
                call(broker)
        for call in MEMBER_CALLS:
            with pytest.raises(Refused):
                call(member)
        member.heartbeat()
        broker.publish("t", b"x")
        assert [one.value for one in broker.poll("t", "g")] == [b"x"]


def test_an_async_queue_refuses_the_same(tmp_path):
    async def use(queue):
        await queue.put(b"x")
        for limit in ("x", -1, None, 1.5):
            with pytest.raises(Refused, match="limit"):
                await queue.get_many(limit)
        with pytest.raises(Refused, match="a duration is"):
            await queue.put(b"x", ttl=[None])
        with pytest.raises(Refused, match="seek"):
            await queue.seek("x")
        assert await queue.get_many(0) == []
        assert len(await queue.get_many(10**30)) == 1

    async def run():
        async with penstock.open(tmp_path).aio as queue:
            await asyncio.wait_for(use(queue), 120)

    asyncio.run(run())


def test_a_wait_beyond_all_clocks_is_a_long_one(tmp_path):
    with penstock.open(tmp_path) as queue:
        queue.put(b"x")
        assert queue.get(timeout=10**30).value == b"x"
        assert queue.get(timeout=timedelta(0)) is None
    with penstock.Broker() as broker:
        broker.create_topic("t", partitions=1)
        broker.publish("t", b"x", delay="20ms")
        assert len(broker.poll("t", "g", timeout=10**30)) == 1


@pytest.mark.parametrize(
    "option",
    [
        {"clock": 3},
        {"logger": 3},
        {"fsync": ["always"]},
        {"fsync_interval_ms": "1"},
        {"fsync_interval_ms": 10**30},
        {"min_free_bytes": 1.5},
        {"max_backlog_messages": 10**30},
    ],
)
def test_options_of_open_are_refused_by_name(tmp_path, option):
    (name,) = option
    with pytest.raises(Refused, match=name):
        penstock.open(tmp_path / "queue", **option)
    if name != "max_backlog_messages":
        with pytest.raises(Refused, match=name):
            penstock.Broker(tmp_path / "data", **option)


def test_a_time_without_a_zone_is_nobodys(tmp_path):
    with penstock.open(tmp_path) as queue:
        number = queue.put(b"x", deliver_at=datetime.now(UTC) + timedelta(hours=1))
        calls = (
            lambda: queue.put(b"x", deliver_at=NAIVE),
            lambda: queue.put(b"x", deliver_at=NAIVE.isoformat()),
            lambda: queue.put_many([b"x", b"y"], deliver_at=NAIVE),
            lambda: queue.reschedule(number, deliver_at=NAIVE),
            lambda: queue.seek(NAIVE),
            lambda: moment_ns(NAIVE),
        )
        for call in calls:
            with pytest.raises(Refused, match=r"has no time zone; write datetime\.now\(UTC\)"):
                call()
        local = queue.reschedule(number, deliver_at=NAIVE.astimezone())
        assert local.deliver_at == NAIVE.astimezone()


@pytest.mark.parametrize("two", [np.int64(2), np.uint8(2)])
def test_the_whole_numbers_of_numpy_are_whole_numbers(tmp_path, two):
    """What is computed with arrays comes as these; none may reach the files, which know no such thing."""
    with penstock.Broker(fsync_interval_ms=two, min_free_bytes=two) as broker:
        broker.create_topic("t", partitions=two - two // two)
        broker.publish_many("t", [b"x"] * 3)
        broker.add_partitions("t", two)
        assert len(broker.poll("t", "g", limit=two)) == 2
        assert len(broker.read("t", 0, limit=two)) == 2
        assert broker.commit("t", 0, "g", two)
        with broker.join("t", "assigned") as member:
            assert len(member.poll(limit=two)) == 2
            assert member.commit({"t/0": two})
        member.leave()
    with penstock.open(tmp_path, auto_ack=False) as queue:
        queue.put_many([b"x"] * 3)
        assert len(queue.peek_many(two)) == len(queue.get_many(two)) == 2
        assert queue.seek(two) == 2


def test_whatever_is_a_number_is_a_number_of_seconds():
    for two in (2, 2.0, np.int32(2), np.float32(2), Decimal(2), Fraction(4, 2), timedelta(0, 2)):
        assert duration_ns(two) == 2_000_000_000
    for wrong in (True, b"2", bytearray(b"2"), memoryview(b"2"), [2], np.timedelta64(2, "m"), 2j):
        with pytest.raises(Refused, match="a duration is"):
            duration_ns(wrong)


@pytest.mark.parametrize("text", ["abc", b"abc", bytearray(b"abc")])
def test_the_letters_of_a_text_are_no_messages(text):
    with penstock.Broker() as broker:
        broker.create_topic("t")
        for more in ({}, {"delay": 60}):
            with pytest.raises(Refused, match="several"):
                broker.publish_many("t", text, **more)


class Name(str, Enum):  # noqa: UP042 - as programs write it; a StrEnum is no trap
    """Text with a name in the program, which is what Python writes into a path."""

    TOPIC = "orders"
    GROUP = "billing"
    MEMBER = "me"


@pytest.mark.parametrize("made", [Name, np.str_])
def test_text_that_is_more_than_text_is_found_again_after_a_restart(tmp_path, made):
    topic, group, member = map(made, ("orders", "billing", "me"))
    with penstock.Broker(tmp_path) as broker:
        broker.create_topic(topic, partitions=1, compression=np.str_("lz4"), max_retries=0)
        broker.publish_many(topic, [b"a", b"b"])
        held = broker.poll(topic, group, member=member, limit=1)
        broker.nack(held, np.str_("no"))
        broker.open_group(topic, made("billing"))
        broker.join(topic, np.str_("others"), member=member).leave()
        assert len(broker.dead_letters(topic)) == 1
    with penstock.Broker(tmp_path) as broker:
        assert [one.value for one in broker.read("orders", 0)] == [b"a", b"b"]
        assert [one.value for one in broker.poll("orders", "billing")] == [b"b"]
        assert [*map(type, broker.topics())] == [str, str]


def test_who_wants_no_message_waits_for_none(tmp_path):
    def ask():
        with penstock.Broker() as broker, penstock.open(tmp_path, auto_ack=False) as queue:
            broker.create_topic("t")
            with broker.join("t", "assigned") as member:
                found.append(member.poll(limit=0, timeout=None))
            found.append(broker.poll("t", "g", limit=0, timeout=None))
            found.append(queue.get_many(0, timeout=None))

    found = []
    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(120)
    assert found == [[], [], []]
