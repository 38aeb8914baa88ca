"""Fetches that wait, and fetch sessions (KIP-227): what is read, when, and what a client is told."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.api.command import Command
from penstock.api.fetch import DescribeBounds, Fetch
from penstock.api.principals import Principal, Role
from penstock.api.publish import Publish
from penstock.api.topics import CreateTopic, DeleteTopic
from penstock.broker.node import Node
from penstock.model import Message
from penstock.runtime.waits import PartitionEnd
from penstock.server.kafka import port
from penstock.server.kafka.converted import ConvertedBatches
from penstock.server.kafka.errors import Code
from penstock.server.kafka.fetch_sessions import NO_SESSION, FetchSession
from tests.kafka.in_process import KafkaClient, KafkaRig
from tests.server.rigs import InProcess, in_process
from tests.server.wires import until

FETCH, VERSION = 1, 11
LONG_MS = 3_600_000
PARTITIONS = 1000
MESSAGE = bytes(1000)


class FetchRig(KafkaRig):
    def __init__(self, broker: InProcess) -> None:
        super().__init__(broker)
        self.http, self.driver = broker, broker.app.driver
        self.waits = broker.driver.waits

    def publish(self, topic: str, partition: int = 0, value: bytes = b"a") -> None:
        self.driver.start(Publish(topic, [Message(value)], partition))

    async def until_waiting(self, count: int = 1) -> None:
        async with asyncio.timeout(10):
            await until(lambda: self.driver.waiting == count)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[FetchRig]:
    async with in_process(tmp_path) as broker:
        yield FetchRig(broker)


@pytest.fixture
def carried_out(monkeypatch: pytest.MonkeyPatch) -> Counter[type[Command[Any]]]:
    """How many commands of each type a node has carried out."""
    counts: Counter[type[Command[Any]]] = Counter()
    carry_out = Node.carry_out

    def counted(node: Node, command: Command[Any], *rest: Any, **named: Any) -> Any:
        counts[type(command)] += 1
        return carry_out(node, command, *rest, **named)

    monkeypatch.setattr(Node, "carry_out", counted)
    return counts


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of batches in the order in which they were converted."""
    offsets: list[int] = []
    convert = ConvertedBatches.convert

    def counted(converted: ConvertedBatches, head: Any, *rest: Any, **more: Any) -> Any:
        offsets.append(head.base_offset)
        return convert(converted, head, *rest, **more)

    monkeypatch.setattr(ConvertedBatches, "convert", counted)
    return offsets


def topics_of(positions: dict[tuple[str, int], int]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in positions.items():
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        topics.setdefault(topic, []).append(wanted)
    return [{"topic": topic, "partitions": wanted} for topic, wanted in topics.items()]


async def fetch(
    client: KafkaClient,
    positions: dict[tuple[str, int], int],
    session: tuple[int, int] = (NO_SESSION, -1),
    forgotten: list[tuple[str, int]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    gone = [{"topic": topic, "partitions": [number]} for topic, number in forgotten or ()]
    usual: dict[str, Any] = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 64 << 20,
        "forgotten_topics_data": gone,
    }
    return await client.ask(
        FETCH,
        VERSION,
        **{**usual, **more},
        session_id=session[0],
        session_epoch=session[1],
        topics=topics_of(positions),
    )


def parts(answer: dict[str, Any]) -> dict[tuple[str, int], tuple[int, int, bytes]]:
    """Error, end and records by partition."""
    return {
        (topic["topic"], part["partition_index"]): (
            part["error_code"],
            part["high_watermark"],
            bytes(part["records"] or b""),
        )
        for topic in answer["responses"]
        for part in topic["partitions"]
    }


def waiting(coroutine: Any) -> "asyncio.Task[dict[str, Any]]":
    return asyncio.ensure_future(coroutine)


async def test_a_fetch_that_waits_reads_the_partition_that_grew_and_no_other(
    rig: FetchRig, carried_out: Counter[type[Command[Any]]]
) -> None:
    await rig.http.topic("many", partitions=PARTITIONS)
    positions = {("many", number): 0 for number in range(PARTITIONS)}
    client = rig.client()
    answer = waiting(fetch(client, positions, max_wait_ms=LONG_MS))
    await rig.until_waiting()
    assert carried_out[Fetch] == PARTITIONS
    carried_out.clear()
    rig.publish("many", 7)
    found = parts(await answer)
    assert carried_out == {Publish: 1, DescribeBounds: 1, Fetch: 1}
    assert (rig.waits.looked, rig.waits.woken) == (1, 1)
    assert len(found) == PARTITIONS
    assert [key for key, part in found.items() if part[2]] == [("many", 7)]


@pytest.mark.parametrize("has_session", [False, True])
async def test_an_idle_client_reads_nothing_again(
    rig: FetchRig, carried_out: Counter[type[Command[Any]]], has_session: bool
) -> None:
    await rig.http.topic("many", partitions=50)
    await rig.http.topic("elsewhere")
    positions = {("many", number): 0 for number in range(50)}
    client = rig.client()
    first = await fetch(client, positions, (NO_SESSION, 0 if has_session else -1))
    assert len(parts(first)) == 50
    carried_out.clear()
    for epoch in range(1, 4):
        rig.publish("elsewhere")
        if has_session:
            answer = await fetch(client, {}, (first["session_id"], epoch))
            assert answer["responses"] == []
        else:
            assert parts(await fetch(client, positions)) == parts(first)
    assert carried_out == {Publish: 3}
    assert rig.waits.looked == 0


async def test_an_idle_client_without_a_session_is_answered_with_the_bytes_of_before(
    rig: FetchRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.http.topic("a", partitions=3)
    encoded: list[int] = []
    encode = port.encode_response

    def counted(key: int, *rest: Any) -> Any:
        encoded.append(key)
        return encode(key, *rest)

    monkeypatch.setattr(port, "encode_response", counted)
    client, positions = rig.client(), {("a", number): 0 for number in range(3)}
    first = await fetch(client, positions)
    # In another order, as librdkafka asks.
    turned = {key: positions[key] for key in reversed(positions)}
    assert parts(await fetch(client, turned)) == parts(first)
    assert len(encoded) == 1
    # While it waits.
    answer = waiting(fetch(client, positions, max_wait_ms=LONG_MS))
    await rig.until_waiting()
    rig.publish("a", 1)
    assert [key for key, part in parts(await answer).items() if part[2]] == [("a", 1)]
    # The records come as often as they are asked for.
    for _ in range(2):
        assert parts(await fetch(client, positions))["a", 1][2]
    positions["a", 1] = 1
    for _ in range(3):
        assert not any(part[2] for part in parts(await fetch(client, positions)).values())
    count = len(encoded)
    del positions["a", 0]
    assert parts(await fetch(client, positions)).keys() == positions.keys()
    assert len(encoded) == count + 1


async def test_another_key_on_the_connection_is_told_nothing_of_what_the_first_one_read(
    rig: FetchRig,
) -> None:
    await rig.http.topic("a")
    client = rig.client()
    session = (await fetch(client, {("a", 0): 0}, (NO_SESSION, 0)))["session_id"]
    await fetch(client, {("a", 0): 0})
    client.authenticate(Principal("other", Role.CONSUMER, prefixes=("b",)))
    (part,) = parts(await fetch(client, {("a", 0): 0})).values()
    assert part == (Code.TOPIC_AUTHORIZATION_FAILED, -1, b"")
    answer = await fetch(client, {}, (session, 1))
    assert answer["error_code"] == Code.FETCH_SESSION_ID_NOT_FOUND


async def test_all_partitions_are_forgotten_that_a_client_names_of_a_topic(rig: FetchRig) -> None:
    await rig.http.topic("a", partitions=3)
    client = rig.client()
    first = await fetch(client, {("a", number): 0 for number in range(3)}, (NO_SESSION, 0))
    gone = [{"topic": "a", "partitions": [0, 1]}]
    await fetch(client, {}, (first["session_id"], 1), forgotten_topics_data=gone)
    for number in range(3):
        rig.publish("a", number)
    assert [*parts(await fetch(client, {}, (first["session_id"], 2)))] == [("a", 2)]


async def test_a_client_that_is_gone_is_waited_for_by_nobody(rig: FetchRig) -> None:
    await rig.http.topic("many", partitions=50)
    positions = {("many", number): 0 for number in range(50)}
    client, other = rig.client(), rig.client()
    await fetch(client, positions, (NO_SESSION, 0))
    await fetch(other, {("many", 0): 0})
    assert len(rig.waits) == 50
    client.leave()
    assert len(rig.waits) == 1
    other.leave()
    assert len(rig.waits) == 0


async def test_each_batch_is_converted_once_however_often_a_fetch_is_woken(
    rig: FetchRig, conversions: list[int], carried_out: Counter[type[Command[Any]]]
) -> None:
    await rig.http.topic("big", partitions=3)
    rig.publish("big", 0, MESSAGE)
    positions = {("big", number): 0 for number in range(3)}
    asked = {"max_wait_ms": LONG_MS, "min_bytes": 40_000}
    answer = waiting(fetch(rig.client(), positions, **asked))
    await rig.until_waiting()
    for count in range(1, 60):
        rig.publish("big", count % 2, MESSAGE)
        for _ in range(5):
            await asyncio.sleep(0)
    found = parts(await answer)
    assert sum(len(part[2]) for part in found.values()) >= 40_000
    ends = {key[1]: part[1] for key, part in found.items()}
    assert len(conversions) == ends[0] + ends[1]
    # Not for each message: as many are read together as were waited for.
    assert carried_out[Fetch] <= 3 + 2 * 3
    assert carried_out[DescribeBounds] < 60
    assert len(found["big", 2][2]) == 0


async def test_what_there_is_when_the_time_is_up_is_sent(rig: FetchRig) -> None:
    await rig.http.topic("big")
    rig.publish("big")
    asked = {"max_wait_ms": 50, "min_bytes": 1 << 20}
    answer = waiting(fetch(rig.client(), {("big", 0): 0}, **asked))
    await rig.until_waiting()
    rig.publish("big")
    (part,) = parts(await answer).values()
    (whole,) = parts(await fetch(rig.client(), {("big", 0): 0})).values()
    assert part == whole
    assert part[1] == 2


async def test_a_topic_that_is_gone_ends_a_fetch_that_waits(rig: FetchRig) -> None:
    await rig.http.topic("gone")
    client = rig.client()
    answer = waiting(fetch(client, {("gone", 0): 0}, max_wait_ms=LONG_MS))
    await rig.until_waiting()
    await rig.http.call("DELETE", "/topics/gone")
    assert parts(await answer) == {("gone", 0): (Code.UNKNOWN_TOPIC_OR_PARTITION, -1, b"")}


async def test_what_was_found_in_a_topic_is_not_sent_for_another_of_its_name(rig: FetchRig) -> None:
    await rig.http.topic("anew")
    rig.publish("anew", 0, b"former")
    asked = {"max_wait_ms": LONG_MS, "min_bytes": 1 << 20}
    answer = waiting(fetch(rig.client(), {("anew", 0): 0}, **asked))
    await rig.until_waiting()
    # Without a turn of the loop in between.
    rig.http.driver.execute(DeleteTopic("anew"))
    rig.http.driver.execute(CreateTopic("anew", 1))
    rig.publish("anew", 0, b"present")
    async with asyncio.timeout(10):
        await until(lambda: rig.driver.waiting == 1)
    for _ in range(1100):
        rig.publish("anew", 0, MESSAGE)
    (part,) = parts(await answer).values()
    assert b"former" not in part[2]
    assert b"present" in part[2]


async def test_what_is_deleted_behind_a_fetch_that_waits_ends_it(rig: FetchRig) -> None:
    await rig.http.topic("swept")
    rig.publish("swept", 0, b"found")
    asked = {"max_wait_ms": LONG_MS, "min_bytes": 1 << 20}
    client = rig.client()
    answer = waiting(fetch(client, {("swept", 0): 0}, **asked))
    await rig.until_waiting()
    for _ in range(3):
        rig.publish("swept")
    deleted = {"name": "swept", "partitions": [{"partition_index": 0, "offset": 3}]}
    await rig.client().ask(21, 2, topics=[deleted], timeout_ms=1000)
    rig.publish("swept")
    (part,) = parts(await answer).values()
    assert part[0] == 0
    assert b"found" in part[2]
    (part,) = parts(await fetch(client, {("swept", 0): 1})).values()
    assert part[0] == Code.OFFSET_OUT_OF_RANGE


async def test_a_drain_ends_a_fetch_that_waits(rig: FetchRig) -> None:
    await rig.http.topic("orders")
    rig.publish("orders")
    asked = {"max_wait_ms": LONG_MS, "min_bytes": 1 << 20}
    answer = waiting(fetch(rig.client(), {("orders", 0): 0}, **asked))
    await rig.until_waiting()
    rig.driver.drain()
    (part,) = parts(await answer).values()
    assert part[1] == 1
    assert part[2]


async def test_without_room_for_answers_a_fetch_waits_and_has_no_records(rig: FetchRig) -> None:
    await rig.http.topic("orders")
    rig.publish("orders")
    budget = rig.service.budget
    budget.used = budget.bytes_max + 1
    for session in ((NO_SESSION, -1), (NO_SESSION, 0)):
        answer = await fetch(rig.client(), {("orders", 0): 0}, session, max_wait_ms=20)
        assert parts(answer) == {("orders", 0): (0, 1, b"")}
    budget.used = 0
    (part,) = parts(await fetch(rig.client(), {("orders", 0): 0})).values()
    assert part[2]


async def test_ends_of_sessions(rig: FetchRig) -> None:
    await rig.http.topic("a")
    client, here = rig.client(), {("a", 0): 0}
    first = await fetch(client, here, (NO_SESSION, 0))
    session = first["session_id"]
    assert session != NO_SESSION
    not_found, bad_epoch = Code.FETCH_SESSION_ID_NOT_FOUND, Code.INVALID_FETCH_SESSION_EPOCH

    async def code(asked: tuple[int, int], by: KafkaClient = client) -> int:
        answer = await fetch(by, {}, asked)
        assert answer["responses"] == []
        return int(answer["error_code"])

    assert await code((session, 2)) == bad_epoch
    assert await code((session, 1)) == 0
    assert await code((session, 1)) == bad_epoch
    assert await code((session ^ 1, 2)) == not_found
    assert await code((NO_SESSION, 2)) == not_found
    # It is its connection's.
    assert await code((session, 2), rig.client()) == not_found
    assert await code((session, 2)) == 0
    # A new one takes its place, and tells everything again.
    second = await fetch(client, here, (session, 0))
    assert parts(second) == parts(first)
    assert await code((session, 3)) == not_found
    assert await code((second["session_id"], 1)) == 0
    # One that has no partitions any more is over.
    gone = await fetch(client, {}, (second["session_id"], 2), forgotten=[*here])
    assert (gone["error_code"], gone["session_id"]) == (0, NO_SESSION)
    assert await code((second["session_id"], 3)) == not_found
    third = await fetch(client, here, (NO_SESSION, 0))
    closed = await fetch(client, here, (third["session_id"], -1))
    assert (closed["session_id"], parts(closed)) == (NO_SESSION, parts(first))
    assert await code((third["session_id"], 1)) == not_found


async def test_a_partition_asked_for_many_times_is_read_once(
    rig: FetchRig, carried_out: Counter[type[Command[Any]]]
) -> None:
    await rig.http.topic("a")
    rig.publish("a")
    (topic,) = topics_of({("a", 0): 0})
    answer = await rig.client().ask(
        FETCH,
        VERSION,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[{**topic, "partitions": topic["partitions"] * 100}] * 100,
    )
    assert carried_out[Fetch] == 1
    assert len(answer["responses"]) == len(answer["responses"][0]["partitions"]) == 1


class SessionClient:
    """Keeps a session as clients do, and what it was told of its partitions."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._session, self._epoch = NO_SESSION, 0
        self.positions: dict[tuple[str, int], int] = {}
        self.ends: dict[tuple[str, int], tuple[int, int]] = {}
        self._sent: dict[tuple[str, int], int] = {}

    async def fetch(self) -> dict[tuple[str, int], bytes]:
        """The records that came."""
        is_new = self._epoch == 0
        changed = {
            key: offset
            for key, offset in self.positions.items()
            if is_new or self._sent.get(key) != offset
        }
        gone = [key for key in self._sent if key not in self.positions]
        answer = await fetch(
            self._client, changed, (self._session, self._epoch), [] if is_new else gone
        )
        assert answer["error_code"] == 0
        self._session = answer["session_id"]
        self._epoch = self._epoch + 1 if self._session else 0
        self._sent = dict(self.positions) if self._session else {}
        found = parts(answer)
        if is_new:
            assert found.keys() == self.positions.keys()
        self.ends |= {key: part[:2] for key, part in found.items()}
        self.ends = {key: end for key, end in self.ends.items() if key in self.positions}
        return {key: part[2] for key, part in found.items() if part[2]}


async def test_a_session_tells_what_full_fetches_tell(rig: FetchRig, effort: Any) -> None:
    """Against a client that asks for everything each time, on a connection of its own."""
    for seed in range(effort(check=6, test=60, torture=600)):
        await check_session(rig, Random(seed))


async def check_session(rig: FetchRig, random: Random) -> None:
    topics = ["x", "y"]
    client, naming_all = SessionClient(rig.client()), rig.client()
    ends: Counter[tuple[str, int]] = Counter()
    for _ in range(60):
        topic, number = random.choice(topics), random.randrange(3)
        match random.randrange(8):
            case 0:
                await rig.http.call("DELETE", f"/topics/{topic}")
                for other in range(3):
                    del ends[topic, other]
            case 1:
                body = {"name": topic, "num_partitions": 3}
                await rig.http.call("POST", "/topics", body)
            case 2 | 3:
                if topic in rig.http.driver.node.open:
                    rig.publish(topic, number, b"%d" % random.randrange(1000))
                    ends[topic, number] += 1
            case 4 | 5:
                client.positions[topic, number] = random.randint(0, ends[topic, number] + 1)
            case 6:
                client.positions.pop((topic, number), None)
            case 7:
                # As a client does that has read everything.
                for key in client.positions:
                    client.positions[key] = ends[key]
        records = await client.fetch()
        other = rig.client()
        full = parts(await fetch(other, client.positions))
        other.leave()
        # Once more, and the second time perhaps as it was answered before.
        for _ in range(2):
            assert parts(await fetch(naming_all, client.positions)) == full
        assert records == {key: part[2] for key, part in full.items() if part[2]}
        assert client.ends == {key: part[:2] for key, part in full.items()}
    for topic in topics:
        await rig.http.call("DELETE", f"/topics/{topic}")


async def test_a_large_fetch_is_whole_and_others_have_turns_meanwhile(
    rig: FetchRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.driver.start(CreateTopic("orders", 2))
    for number in range(1500):
        rig.publish("orders", number % 2, b"%d" % number + MESSAGE)
    monkeypatch.setattr(rig.driver.turns, "is_spent", lambda: True)
    monkeypatch.setattr(rig.driver.turns, "turn", partial(asyncio.sleep, 0))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    answer = await fetch(rig.client(), {("orders", 0): 0, ("orders", 1): 0})
    beside.cancel()
    assert turns > 700, "a turn for each few of the batches"
    for code, end, records in parts(answer).values():
        offsets, position = [], 0
        while position < len(records):
            offsets.append(int.from_bytes(records[position : position + 8], "big"))
            position += 12 + int.from_bytes(records[position + 8 : position + 12], "big")
        assert (code, end, offsets) == (0, 750, [*range(750)])


async def test_a_fetch_in_pieces_keeps_to_the_bytes_that_a_client_wants(rig: FetchRig) -> None:
    rig.driver.start(CreateTopic("orders", 1))
    large = bytes(200_000)
    for _ in range(8):
        rig.publish("orders", 0, large)
    answer = await fetch(rig.client(), {("orders", 0): 0})
    _, end, records = parts(answer)["orders", 0]
    assert end == 8
    assert 1 << 19 < len(records) <= 1 << 20, "of the batches that fit, all that were read"


async def test_a_partition_that_grows_while_it_is_forgotten_is_looked_at_no_more(
    rig: FetchRig,
) -> None:
    await rig.http.topic("t", partitions=2)
    session = FetchSession(rig.driver)
    topics = topics_of({("t", 0): 0, ("t", 1): 0})
    for wanted in topics[0]["partitions"]:
        wanted["current_leader_epoch"] = -1
    session.update(topics, [])
    for number in range(2):
        session.watch(PartitionEnd("t", number), 0)
        rig.publish("t", number)
    session.update([], [{"topic": "t", "partitions": [0]}])
    assert session.take_grown() == [PartitionEnd("t", 1)]
    session.close()
