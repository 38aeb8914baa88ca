"""Where messages go, what is refused, and who is told."""

import random
import re
from pathlib import Path
from unittest.mock import patch

import pytest

from penstock.api.fetch import Read
from penstock.api.publish import PublishBatch, PublishEach
from penstock.broker.partition.partitioner import partition_of
from penstock.broker.partition.publishing import encode_for
from penstock.codec import Columns, Marks, Origin, encode
from penstock.codec.head import NO_MARKS
from penstock.config import LimitsConfig
from penstock.errors import (
    BacklogFull,
    MalformedBatch,
    NoSpace,
    NotFound,
    PartlyPublished,
    Refused,
    TooLarge,
)
from penstock.model import Message
from penstock.sim import Call, Fault, Misbehaviour

from .world import SMALL, TOPIC, World, values

VECTORS = Path(__file__).parents[2] / "docs" / "partitioner.md"


def test_the_partitioner_gives_what_its_page_says() -> None:
    rows = re.findall(
        r"^\| `([0-9a-f]*)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|",
        VECTORS.read_text(),
        re.MULTILINE,
    )
    assert len(rows) >= 12
    for key, unsigned, *partitions in rows:
        raw = bytes.fromhex(key)
        assert murmur3(raw) == int(unsigned)
        assert [partition_of(raw, count) for count in (3, 8, 12)] == [
            int(one) for one in partitions
        ]


def murmur3(data: bytes) -> int:
    """MurmurHash3_x86_32 with seed 0, from its description."""
    mask, hashed = 0xFFFFFFFF, 0

    def mixed(block: int) -> int:
        block = block * 0xCC9E2D51 & mask
        block = (block << 15 | block >> 17) & mask
        return block * 0x1B873593 & mask

    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        hashed ^= mixed(int.from_bytes(data[start : start + 4], "little"))
        hashed = (hashed << 13 | hashed >> 19) & mask
        hashed = (hashed * 5 + 0xE6546B64) & mask
    if whole < len(data):
        hashed ^= mixed(int.from_bytes(data[whole:], "little"))
    hashed ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        hashed = (hashed ^ hashed >> shift) * factor & mask
    return hashed


def test_the_hash_is_murmur3_for_any_bytes() -> None:
    dice = random.Random(2)
    for size in range(70):
        key = dice.randbytes(size)
        assert partition_of(key, 2**32) == murmur3(key)


def test_a_key_always_goes_to_the_same_partition_and_no_key_goes_round() -> None:
    world = World()
    world.topic(partitions=3)
    keyed = {world.publish(Message(b"v", b"k"))[0].partition for _ in range(5)}
    assert len(keyed) == 1
    runs = [{one.partition for one in world.publish(b"a", b"b", b"c")} for _ in range(6)]
    assert all(len(run) == 1 for run in runs)
    assert set().union(*runs) == {0, 1, 2}


def test_an_explicit_partition_wins_and_has_to_exist() -> None:
    world = World()
    world.topic(partitions=3)
    assert [one.partition for one in world.publish(Message(b"v", b"k"), b"w", partition=2)] == [
        2,
        2,
    ]
    for wrong in (-1, 3):
        with pytest.raises(NotFound):
            world.publish(b"v", partition=wrong)


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (Message(b"v" * 101), "value"),
        (Message(b"", b"k" * 21), "key"),
        (Message(b"", headers=(("h", b"x" * 50),)), "headers"),
        (Message(b"", idempotency_key=b"i" * 21), "idempotency key"),
    ],
)
def test_over_a_limit_is_refused_with_the_limit(message, what) -> None:
    world = World(limits=SMALL)
    world.topic()
    with pytest.raises(TooLarge, match=what) as refusal:
        world.publish(b"fits", message)
    assert str(refusal.value.fields["limit"]) in str(refusal.value)
    assert world.node.partition(TOPIC, 0).messages.end_offset == 0


def test_a_batch_over_the_limit_is_refused_whole() -> None:
    world = World(limits=SMALL)
    world.topic()
    with pytest.raises(TooLarge, match="batch"):
        world.publish(*[b"v" * 100] * 20)
    assert world.node.partition(TOPIC, 0).messages.end_offset == 0


def test_limits_above_the_usual_ones_hold_for_reading_too() -> None:
    size = 20 << 20
    world = World(limits=LimitsConfig(value_bytes_max=size, batch_bytes_max=size * 2))
    world.topic()
    world.group()
    world.publish(b"x" * size)
    world.kill()
    assert [len(one.value) for one in world.poll()] == [size]
    read = world.execute(Read(TOPIC, 0)).messages
    assert [len(one.value) for one in read] == [size]


def test_each_message_gets_its_own_answer_when_asked_for() -> None:
    world = World(limits=SMALL)
    world.topic(partitions=2)
    messages = [Message(b"ok %d" % number, b"%d" % number) for number in range(9)]
    messages[4] = Message(b"v" * 101, b"4")
    answers = world.execute(PublishEach(TOPIC, messages))
    assert [isinstance(one, TooLarge) for one in answers] == [number == 4 for number in range(9)]
    world.group()
    assert sorted(values(world.drain())) == sorted(m.value for m in messages if len(m.value) < 99)


def test_a_full_partition_refuses_its_own_messages_only() -> None:
    world = World()
    world.topic(partitions=2, max_backlog_messages=1)
    world.publish(b"a", partition=0)
    zero = next(b"%d" % number for number in range(99) if partition_of(b"%d" % number, 2) == 0)
    one = next(b"%d" % number for number in range(99) if partition_of(b"%d" % number, 2) == 1)
    with pytest.raises(BacklogFull):
        world.publish(Message(b"b", zero), Message(b"c", one))
    answers = world.execute(PublishEach(TOPIC, [Message(b"b", zero), Message(b"c", one)]))
    assert [type(answer).__name__ for answer in answers] == ["BacklogFull", "Published"]


def test_when_the_disk_fills_up_in_the_middle_the_sender_learns_what_was_stored() -> None:
    world = World()
    world.topic(partitions=2)
    messages = [Message(b"%d" % number, b"%d" % number) for number in range(8)]
    full = Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="partition-1/messages")
    world.disk.inject(full)
    with pytest.raises(PartlyPublished) as failure:
        world.publish(*messages)
    results = failure.value.results
    assert [isinstance(one, NoSpace) for one in results] == [
        partition_of(message.key, 2) == 1 for message in messages
    ]
    world.group()
    stored = [
        m.value for m, one in zip(messages, results, strict=True) if not isinstance(one, NoSpace)
    ]
    assert values(world.drain()) == stored


def test_below_the_free_space_minimum_publishing_stops_and_resumes_by_itself() -> None:
    world = World(min_free_bytes=1 << 20)
    world.topic()
    world.group()
    world.publish(b"a", b"b")
    world.disk.capacity_bytes = (1 << 20) + 1
    world.now(200)
    with pytest.raises(NoSpace):
        world.publish(b"c")
    assert [type(one) for one in world.execute(PublishEach(TOPIC, [Message(b"c")]))] == [NoSpace]
    world.ack(*world.poll(1))
    world.now(200)
    world.disk.capacity_bytes = 1 << 30
    world.now(200)
    world.publish(b"c")
    assert values(world.drain()) == [b"b", b"c"]


def batch_of(*messages: bytes, marks: Marks = NO_MARKS, **columns) -> bytes:
    return encode(Columns(values=list(messages), timestamps=5, **columns), marks=marks).to_bytes()


def test_a_batch_that_a_client_encoded_is_stored_whole() -> None:
    world = World()
    world.topic()
    world.group()
    results = world.execute(PublishBatch(TOPIC, 0, batch_of(b"a", b"b"))).stored
    assert [one.offset for one in results] == [0, 1]
    assert values(world.drain()) == [b"a", b"b"]


def test_idempotency_keys_count_in_an_encoded_batch_too() -> None:
    world = World()
    world.topic()
    batch = batch_of(b"a", b"b", idempotency_keys=[b"x", None])
    world.execute(PublishBatch(TOPIC, 0, batch))
    results = world.execute(PublishBatch(TOPIC, 0, batch)).stored
    assert [(one.offset, one.is_duplicate) for one in results] == [(0, True), (2, False)]


@pytest.mark.parametrize(
    "marks",
    [
        Marks(control=True),
        Marks(origin=Origin.OUTBOX, origin_source=1, origin_sequence=1),
        Marks(transaction_id=3),
        Marks(producer_id=3),
        Marks(first_sequence=0),
    ],
)
def test_marks_that_are_ours_are_refused(marks) -> None:
    world = World()
    world.topic()
    with pytest.raises(MalformedBatch):
        world.execute(PublishBatch(TOPIC, 0, batch_of(b"a", marks=marks)))


def test_a_broken_or_oversized_batch_is_refused_before_anything_is_stored() -> None:
    world = World(limits=SMALL)
    world.topic()
    good = batch_of(b"a")
    for wrong in (b"", good[:-8], good + bytes(8), good[:120] + b"\xff" + good[121:]):
        with pytest.raises(MalformedBatch):
            world.execute(PublishBatch(TOPIC, 0, wrong))
    for large in (
        batch_of(b"v" * 101),
        batch_of(*[b"v" * 100] * 20),
        batch_of(b"", keys=[b"k" * 21]),
    ):
        with pytest.raises(TooLarge):
            world.execute(PublishBatch(TOPIC, 0, large))
    assert world.node.partition(TOPIC, 0).messages.end_offset == 0


@pytest.mark.parametrize("expires_at", [0, -1])
def test_a_time_to_live_that_ends_before_1970_is_refused(expires_at) -> None:
    world = World()
    world.topic()
    with pytest.raises(Refused):
        world.publish(Message(b"a", expires_at=expires_at))


@pytest.mark.parametrize("partition", [None, 1])
def test_a_large_call_to_a_full_topic_is_refused_without_a_look_at_each(partition) -> None:
    """One by one that takes seconds, in which nobody else is served."""
    world = World()
    world.topic(partitions=2, max_backlog_messages=3)
    messages = [Message(b"%d" % number) for number in range(1000)]
    with patch("penstock.broker.partition.publishing.encode_for", wraps=encode_for) as encoded:
        answers = world.execute(PublishEach(TOPIC, messages, partition=partition))
    assert encoded.call_count < 100
    refused = [one for one in answers if isinstance(one, BacklogFull)]
    assert len(refused) == 1000 - (6 if partition is None else 3)
    assert {one.fields["adding"] for one in refused} == {1}


def test_a_repeat_is_answered_by_a_full_topic_in_a_large_call_too() -> None:
    world = World()
    world.topic(partitions=1, max_backlog_messages=1)
    known = Message(b"a", idempotency_key=b"k")
    world.publish(known)
    answers = world.execute(PublishEach(TOPIC, [Message(b"b"), known, Message(b"c")]))
    assert [type(one).__name__ for one in answers] == ["BacklogFull", "Published", "BacklogFull"]
    assert answers[1].is_duplicate
