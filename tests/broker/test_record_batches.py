"""Record batches of Kafka in a partition: as they came or as columns, side by side with batches of ours."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.fetch import FindTimestamp, Read
from penstock.api.publish import PublishRecords
from penstock.api.start import Start
from penstock.codec import batches_in
from penstock.codec.verbatim import as_fetched
from penstock.config import Cleanup, KafkaStorage
from penstock.errors import (
    ChecksumMismatch,
    MalformedBatch,
    OutOfSequence,
    PenstockError,
    Refused,
    TooLarge,
    UnsupportedFormat,
)
from penstock.model import Message
from penstock.sim import SimDisk
from tests.codec.kafka_twin import Record, batch, read

from .world import SMALL, TOPIC, WALL_NS, World, messages_of, pull_the_plug, values

MS = 1_000_000
NOW_MS = WALL_NS // MS


def records(*contents: bytes, **fields: object) -> list[Record]:
    return [
        Record(NOW_MS + index, None, one)._replace(**fields) for index, one in enumerate(contents)
    ]


def send(world: World, sent: list[Record], sequence: int | None = None, **more: int) -> list[int]:
    """The offsets that the producer is told."""
    if sequence is not None:
        more = {"producer_id": 7, "epoch": 0, "sequence": sequence, **more}
    stored = world.execute(PublishRecords(TOPIC, 0, batch(sent, **more))).stored
    return [one.offset for one in stored]


def heads(world: World) -> list[tuple[int, int, int, int]]:
    """Encoding, first offset, last offset and messages of each stored batch."""
    listed, offset = [], 0
    while (found := world.fetch(Start.at_offset(offset))).data:
        listed += [
            (head.encoding, head.base_offset, head.last_offset, head.message_count)
            for head, _ in batches_in(found.data, seed=found.seed)
        ]
        offset = found.next_offset
    return listed


def with_header(name: str, value: bytes | None, content: bytes = b"x") -> Record:
    return Record(NOW_MS, None, content, [(name, value), ("kept", None)])


def test_a_record_batch_is_stored_as_it_came() -> None:
    world = World()
    world.topic()
    sent = records(b"a", b"b", key=b"k", headers=[("", None)])
    data = batch(sent, packing=1, producer_id=7, epoch=0, sequence=0)
    world.execute(PublishRecords(TOPIC, 0, data))
    assert send(world, records(b"c"), 2) == [2]
    found = world.fetch()
    head, stored = next(iter(batches_in(found.data, seed=found.seed)))
    assert b"".join(as_fetched(stored, head))[16:] == data[16:]
    assert heads(world) == [(1, 0, 1, 2), (1, 2, 2, 1)]


@pytest.mark.parametrize(
    "settings",
    [{"kafka_storage": KafkaStorage.COLUMNAR}, {"ttl_ms": 1000}, {"cleanup": Cleanup.COMPACT}],
)
def test_some_topics_have_columns(settings: dict[str, object]) -> None:
    world = World()
    world.topic(**settings)
    send(world, records(b"a", b"b", key=b"k"), 0, packing=3)
    assert heads(world) == [(0, 0, 1, 2)]
    got = messages_of(world.fetch())
    assert [(one.key, one.value, one.timestamp) for one in got] == [
        (b"k", b"a", WALL_NS),
        (b"k", b"b", WALL_NS + MS),
    ]
    expected = WALL_NS + 1000 * MS if "ttl_ms" in settings else None
    assert {one.expires_at for one in got} == {expected}


@pytest.mark.parametrize("stop", ["restart", "kill"])
def test_a_log_may_hold_both_kinds_for_every_reader(stop: str) -> None:
    world = World()
    world.topic()
    world.publish(b"ours 1")
    send(world, records(b"theirs 1", b"theirs 2", headers=[("a", None)]), 0, packing=4)
    world.publish(b"ours 2", b"ours 3")
    send(world, records(b"theirs 3"), 2)
    world.configure(kafka_storage="columnar")
    send(world, records(b"theirs 4"), 3)
    getattr(world, stop)()
    wanted = [b"ours 1", b"theirs 1", b"theirs 2", b"ours 2", b"ours 3", b"theirs 3", b"theirs 4"]
    assert values(messages_of(world.fetch())) == wanted
    assert values(world.execute(Read(TOPIC, 0)).messages) == wanted
    assert values(world.execute(Read(TOPIC, 0, Start.at_offset(2))).messages) == wanted[2:]
    got = world.drain()
    assert values(got) == wanted
    assert got[1].headers == (("a", None),)
    assert send(world, records(b"theirs 4"), 3) == [6]
    assert send(world, records(b"theirs 5"), 4) == [7]


def test_what_fails_becomes_a_dead_letter_and_comes_back() -> None:
    world = World()
    world.topic(max_retries=0)
    send(world, records(b"a", b"b", key=b"k", headers=[("h", None), ("", b"1")]), packing=3)
    first, second = world.poll()
    world.reject(first, error="no")
    world.ack(second)
    world.settle()
    (letter,) = world.letters()
    assert (letter.message.value, letter.message.key) == (b"a", b"k")
    assert letter.message.headers == (("h", None), ("", b"1"))


def test_compaction_keeps_the_last_of_each_key_of_batches_that_came_before_it_was_asked_for() -> (
    None
):
    world = World()
    world.topic(segment_messages_max=4)
    for number in range(6):
        sent = [Record(NOW_MS, b"k%d" % one, b"%d" % number) for one in range(number % 3 + 1)]
        send(world, sent, packing=4)
    world.configure(cleanup="compact")
    world.now(400_000)
    world.sweep()
    kept = world.execute(Read(TOPIC, 0)).messages
    assert len(kept) < 12
    found = {one.key: one.value for one in kept}
    assert found == {b"k0": b"5", b"k1": b"5", b"k2": b"5"}
    assert {encoding for encoding, *_ in heads(world)} == {0, 1}


@pytest.mark.parametrize("sequence", [None, 0])
def test_headers_for_the_queue_make_columns_and_are_taken_out(sequence: int | None) -> None:
    world = World()
    world.topic()
    sent = [
        with_header("penstock-priority", b"high"),
        with_header("penstock-ttl", b"30s"),
        with_header("penstock-idempotency-key", b"once"),
        Record(NOW_MS, None, b"plain"),
    ]
    send(world, sent, sequence)
    assert heads(world) == [(0, 0, 3, 4)]
    got = messages_of(world.fetch())
    assert [one.priority for one in got] == [1, 2, 2, 2]
    assert got[1].expires_at == WALL_NS + 30_000 * MS
    assert [one.idempotency_key for one in got] == [None, None, b"once", None]
    assert [one.headers for one in got] == [(("kept", None),)] * 3 + [()]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("penstock-prio", b"1"),
        ("penstock-priority", b"9"),
        ("penstock-priority", b"\xff"),
        ("penstock-ttl", b"soon"),
    ],
)
def test_a_header_for_the_queue_that_means_nothing_is_refused(name: str, value: bytes) -> None:
    world = World()
    world.topic()
    with pytest.raises(Refused):
        send(world, [Record(NOW_MS, None, b"first"), with_header(name, value)], 0)
    assert heads(world) == []
    assert send(world, records(b"next"), 0) == [0]


@pytest.mark.parametrize("stop", ["restart", "kill"])
def test_records_that_repeat_a_key_are_left_out_and_the_sequence_goes_on(stop: str) -> None:
    world = World()
    world.topic()
    name = "penstock-idempotency-key"
    sent = [with_header(name, key, key + b"1") for key in (b"a", b"b", b"a")]
    assert send(world, sent, 0) == [0, 1, 2]
    again = [with_header(name, key, key + b"2") for key in (b"b", b"c", b"a")]
    assert send(world, again, 3) == [3, 4, 5]
    assert send(world, [with_header(name, b"c", b"c3")], 6) == [6]
    assert heads(world) == [(0, 0, 2, 2), (0, 3, 5, 1), (0, 6, 6, 0)]
    getattr(world, stop)()
    assert send(world, sent, 0) == [0, 1, 2]
    assert send(world, again, 3) == [3, 4, 5]
    with pytest.raises(OutOfSequence):
        send(world, again, 4)
    assert send(world, records(b"last"), 7) == [7]
    assert values(world.drain()) == [b"a1", b"b1", b"c2", b"last"]


def test_a_power_cut_leaves_all_of_a_batch_or_nothing(effort) -> None:
    name = "penstock-idempotency-key"
    first = [with_header(name, key, key) for key in (b"a", b"b")]
    second = [with_header(name, key, key + b"2") for key in (b"b", b"c")]

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        world.topic()
        for sequence, sent in ((0, first), (2, second), (4, records(b"d"))):
            send(world, sent, sequence)
            world.sync()
            disk.mark(sequence)

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        if not marks:
            return
        for sequence, sent in ((0, first), (2, second), (4, records(b"d"))):
            assert send(world, sent, sequence)[0] == sequence
        assert values(messages_of(world.fetch())) == [b"a", b"b", b"c2", b"d"]

    pull_the_plug(scenario, check, effort)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", MalformedBatch),
        (b"\0" * 61, UnsupportedFormat),
        (batch(records(b"a"))[:-1], MalformedBatch),
        (batch(records(b"a")) * 2, MalformedBatch),
        (batch(records(b"a"), checksum=5), ChecksumMismatch),
        (batch(records(b"a"), count=2), MalformedBatch),
        (batch(records(b"a"), attributes=1 << 4), MalformedBatch),
        (batch(records(b"a"), attributes=1 << 5), MalformedBatch),
        (batch(records(b"a"), attributes=3), MalformedBatch),
        (batch(records(b"a" * 101)), TooLarge),
        (batch(records(*[b"a" * 90] * 10), packing=1), TooLarge),
    ],
)
def test_what_lies_or_is_too_large_is_refused_and_nothing_is_stored(
    data: bytes, error: type[PenstockError]
) -> None:
    world = World(limits=SMALL)
    world.topic()
    with pytest.raises(error):
        world.execute(PublishRecords(TOPIC, 0, data))
    assert world.node.partition(TOPIC, 0).messages.end_offset == 0


@given(
    sent=st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=5), min_size=1, max_size=5),
    ours=st.sets(st.integers(0, 4)),
    wanted=st.integers(0, 62),
)
def test_a_time_is_found_where_a_naive_search_finds_it(
    sent: list[list[int]], ours: set[int], wanted: int
) -> None:
    world = World()
    world.topic()
    stored: list[Message] = []
    for index, times in enumerate(sent):
        if index in ours:
            world.configure(kafka_storage="columnar")
        else:
            world.configure(kafka_storage="verbatim")
        send(world, [Record(one, None, b"x") for one in times])
        stored += [Message(b"x", timestamp=one * MS) for one in times]
    found = world.execute(FindTimestamp(TOPIC, 0, wanted * MS)).found
    naive = next((at for at, one in enumerate(stored) if one.timestamp >= wanted * MS), None)
    assert (None if found is None else found.offset) == naive
    latest = world.execute(FindTimestamp(TOPIC, 0, None)).found
    top = max(one.timestamp for one in stored)
    assert (latest.offset, latest.timestamp) == (
        next(at for at, one in enumerate(stored) if one.timestamp == top),
        top,
    )


def test_bytes_at_random_never_spoil_the_log() -> None:
    world, chance = World(), random.Random(9)
    world.topic()
    good = batch(records(*(b"value %d" % one for one in range(9)), key=b"k", headers=[("h", b"1")]))
    kept = 0
    for _ in range(400):
        changed = bytearray(good)
        for _ in range(chance.randrange(1, 5)):
            changed[chance.randrange(61, len(good))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
        data = bytearray(changed)
        data[17:21] = _checksum(bytes(data[21:]))
        try:
            world.execute(PublishRecords(TOPIC, 0, bytes(data)))
            kept += 1
        except PenstockError:
            continue
        read(bytes(data))
    assert 0 < kept < 400
    assert len(messages_of(world.fetch(bytes_max=1 << 24))) == 9 * kept


def _checksum(checked: bytes) -> bytes:
    from crc32c import crc32c

    return crc32c(checked).to_bytes(4, "big")
