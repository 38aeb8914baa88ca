"""Who follows a partition: answered when it grows, when time is up, and when anything else happens meanwhile."""

import asyncio
import re

import pytest

from penstock.codec import decode_messages, verify
from penstock.server.http.known_head import KnownRead

from .rigs import in_process, until
from .test_prompt import scope_of
from .wires import answer_to, connected

BATCH = b"Accept: application/vnd.penstock.batch\r\n"


def asks(offset: int, more: bytes = BATCH, query: bytes = b"limit=10&timeout=20s") -> bytes:
    target = b"/topics/orders/partitions/0/messages?%b&offset=%d" % (query, offset)
    return b"GET %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % (target, more)


def values_of(answer: bytes) -> list[bytes | None]:
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), answer
    seed, found = int(re.search(rb"penstock-seed: (\d+)", head)[1]), []
    while rest:
        one = verify(rest, seed=seed)
        found += [message.value for message in decode_messages(rest[: one.length], one)]
        rest = rest[one.length :]
    return found


class Following:
    """A connection that has asked before, so that it is known."""

    def __init__(self, broker) -> None:
        self.broker = broker
        self.connection, self.wire = connected(broker)

    async def begin(self, offset: int = 0) -> None:
        await self.broker.topic()
        await answer_to(self.connection, self.wire, asks(0, query=b"limit=10"))
        await answer_to(self.connection, self.wire, asks(0, query=b"limit=10"))
        # Of another query, and learnt anew; after that, straight.
        self.connection.data_received(asks(0))
        await self.broker.publish("first")
        await self.answer()
        self.ask(1 + offset)

    def ask(self, offset: int) -> None:
        self.connection.data_received(asks(offset))
        assert self.connection._follower.is_waiting
        assert self.wire.written == b""
        assert self.broker.door.driver.waiting == 1

    async def answer(self) -> bytes:
        async with asyncio.timeout(5):
            await until(lambda: self.wire.written and not self.broker.door.driver.waiting)
        await asyncio.sleep(0)
        return self.wire.take()


@pytest.fixture
async def following(tmp_path):
    async with in_process(tmp_path) as broker:
        one = Following(broker)
        await one.begin()
        yield one
        one.connection.connection_lost(None)
        async with asyncio.timeout(5):
            await until(lambda: not broker.door.driver.waiting)
        assert not broker.door.driver._readers


async def test_it_is_answered_when_the_partition_grows(following):
    for number in range(1, 4):
        await following.broker.publish(f"number {number}")
        assert values_of(await following.answer()) == [b"number %d" % number]
        following.ask(number + 1)


async def test_its_answer_is_the_same_as_by_the_usual_way(following):
    await following.broker.publish("second", "third")
    straight = await following.answer()
    other = connected(following.broker)
    assert await answer_to(*other, asks(1)) == straight


async def test_several_follow_the_same_partition(following):
    others = [connected(following.broker) for _ in range(3)]
    for line in others:
        await answer_to(*line, asks(0))
        line[0].data_received(asks(1))
    assert following.broker.door.driver.waiting == 4
    await following.broker.publish("for all")
    assert values_of(await following.answer()) == [b"for all"]
    for _, wire in others:
        assert values_of(wire.take()) == [b"for all"]


async def test_messages_that_another_thread_writes_wake_it(following):
    driver = following.broker.door.driver
    message = {"value": "later", "delay": "5s"}
    sent = {"messages": [message]}
    await following.broker.call("POST", "/topics/orders/messages", sent)
    assert following.connection._follower.is_waiting
    await driver.in_thread(lambda: following.broker.clock.advance("6s"))
    assert values_of(await following.answer()) == [b"later"]


async def test_its_time_is_up(following):
    timer, place = following.connection._follower._timer, following.connection._follower._place
    assert timer.when() - asyncio.get_running_loop().time() <= 20
    following.connection._follower._end(place)
    answer = await following.answer()
    assert values_of(answer) == []
    assert b"penstock-next-offset: 1\r\n" in answer
    following.ask(1)
    # What was to end the wait before says nothing about this one.
    following.connection._follower._end(place)
    assert following.connection._follower.is_waiting


async def test_a_drain_ends_the_wait_and_lets_nobody_wait_again(following):
    following.broker.door.drain()
    assert values_of(await following.answer()) == []
    assert values_of(await answer_to(following.connection, following.wire, asks(1))) == []


async def test_where_too_many_answers_are_unread_it_gets_429_asked_or_woken(following):
    following.broker.door.unsent.bytes_max = 0
    await following.broker.publish("second")
    assert (await following.answer()).startswith(b"HTTP/1.1 429 ")
    told = await answer_to(following.connection, following.wire, asks(1))
    assert told.startswith(b"HTTP/1.1 429 ")
    following.broker.door.unsent.bytes_max = 1
    told = await answer_to(following.connection, following.wire, asks(1))
    assert values_of(told) == [b"second"]


async def test_a_client_that_leaves_waits_no_longer(following):
    following.connection.connection_lost(None)
    assert following.broker.door.driver.waiting == 0
    await following.broker.publish("to nobody")
    assert following.wire.written == b""


async def test_a_topic_that_goes_is_told(following):
    assert (await following.broker.call("DELETE", "/topics/orders")).status == 204
    assert (await following.answer()).startswith(b"HTTP/1.1 404 ")


async def test_a_topic_that_comes_again_with_fewer_partitions_harms_nobody(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic(partitions=4)
        lines = [connected(broker) for _ in range(2)]
        asked = asks(0).replace(b"partitions/0/", b"partitions/3/")
        # One has asked before, and goes straight.
        await answer_to(*lines[0], asked.replace(b"timeout=20s", b"timeout=0s"))
        for connection, _ in lines:
            connection.data_received(asked)
        await until(lambda: broker.door.driver.waiting == 2)
        assert (await broker.call("DELETE", "/topics/orders")).status == 204
        await broker.topic()
        await broker.publish("lamp")
        for connection, wire in lines:
            assert (await answer_to(connection, wire)).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("more", [b"&from_time=2026-01-01T00:00:00Z", b"&encoding=none"])
async def test_what_is_wrong_beside_an_offset_is_told_every_time(tmp_path, more):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        line = connected(broker)
        for _ in range(3):
            answer = await answer_to(*line, asks(0, query=b"limit=1" + more))
            assert answer.startswith(b"HTTP/1.1 400 ")


async def test_with_tls_what_is_large_goes_in_pieces_and_the_rest_counts(tmp_path, monkeypatch):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("x" * 200_000)
        plain, secret = connected(broker), connected(broker)
        secret[0].scheme = "https"
        owed = []

        def write(data: bytes) -> None:
            owed.append(secret[0].owed_bytes)
            secret[1].written += data

        monkeypatch.setattr(secret[1], "write", write)
        # The usual way, and the follower's.
        for _ in range(2):
            asked = asks(0, query=b"limit=1")
            found = [await answer_to(*one, asked) for one in (secret, plain)]
            assert sorted(found[0].split(b"\r\n")) == sorted(found[1].split(b"\r\n"))
            assert max(owed) > 100_000
            assert len(owed) == 5
            owed.clear()
        assert secret[0].owed_bytes == 0


async def test_an_offset_beyond_the_end_is_told(following):
    await following.broker.publish("second")
    await following.answer()
    answer = await answer_to(following.connection, following.wire, asks(7))
    assert answer.startswith(b"HTTP/1.1 416 ") or b"OFFSET_OUT_OF_RANGE" in answer


async def test_whoever_asks_for_more_meanwhile_is_answered_in_order(following):
    health = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    following.connection.data_received(health)
    assert not following.connection._follower.is_waiting
    await asyncio.sleep(0)
    await following.broker.publish("second")
    async with asyncio.timeout(5):
        await until(lambda: following.wire.written.count(b"HTTP/1.1 200") == 2)
    first, second = following.wire.take().split(b"HTTP/1.1 ")[1:]
    assert b"second" in first
    assert b"alive" in second or b"json" in second


def known() -> KnownRead:
    raw = asks(5)
    found = KnownRead.of(raw, scope_of(raw, **target_of(raw)))
    assert found is not None
    return found


def target_of(raw: bytes) -> dict[str, object]:
    method, target, _ = raw.split(b" ", 2)
    return {"method": method.decode(), "query_string": target.partition(b"?")[2]}


def test_a_known_head_reads_offsets_and_nothing_else():
    one = known()
    assert one.read(asks(123)) == b"123"
    assert one.scope_of(b"123")["query_string"] == b"limit=10&timeout=20s&offset=123"
    for wrong in (
        asks(1) + b" ",
        asks(1)[:-1],
        asks(1) * 2,
        asks(1, more=b""),
        asks(1).replace(b"orders", b"orderz"),
        asks(1).replace(b"offset=1", b"offset="),
        asks(1).replace(b"offset=1", b"offset=-1"),
        asks(1).replace(b"offset=1", b"offset=1&offset=2"),
        asks(1).replace(b"offset=1", b"offset=1%30"),
        asks(1).replace(b"offset=1", b"offset=" + b"1" * 19),
        asks(1).replace(b"Host", b"Connection: close\r\nHost"),
        asks(1).replace(b"HTTP/1.1", b"HTTP/1.0"),
        b"",
    ):
        assert one.read(wrong) is None, wrong


@pytest.mark.parametrize(
    "raw",
    [
        asks(1, more=BATCH + b"Connection: close\r\n"),
        asks(1, more=BATCH + b"Proxy-Connection: close\r\n"),
        asks(1, more=BATCH + b"Content-Length: 0\r\n"),
        asks(1, more=BATCH + b"Upgrade: h2c\r\n"),
        asks(1, more=BATCH + b"X: %b\r\n" % (b"a" * 5000)),
        asks(1).replace(b"&offset=1", b"&offset=1&x=1"),
        asks(1).replace(b"&offset=1", b"&offset=%31"),
        asks(1).replace(b"GET", b"HEAD"),
        asks(1) * 2,
        asks(1) + b"a",
        asks(1).replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
def test_other_reads_are_not_remembered(raw):
    assert KnownRead.of(raw, scope_of(raw, **target_of(raw))) is None
