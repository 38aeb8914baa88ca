"""Producers that number their messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.publish import PublishBatch
from penstock.broker.partition.producers import Producers
from penstock.codec import Columns, Head, Marks, encode, read_head
from penstock.errors import BacklogFull, OutOfSequence

from .world import TOPIC, World

STOPS = pytest.mark.parametrize("stop", ["restart", "kill", "retain"])
TOP = 2**31 - 1


def batch(sequence: int, *values: bytes, producer: int = 9, epoch: int = 0) -> bytes:
    marks = Marks(producer_id=producer, producer_epoch=epoch, first_sequence=sequence)
    return encode(Columns(values=list(values), timestamps=1), marks=marks).to_bytes()


def send(world: World, sequence: int, *values: bytes, **producer: int):
    results = world.execute(PublishBatch(TOPIC, 0, batch(sequence, *values, **producer))).stored
    return [(one.offset, one.is_duplicate) for one in results]


def stopped(world: World, stop: str) -> None:
    """Start again; or lose the messages to retention first, and then start again."""
    if stop == "retain":
        world.now(200 * 3600 * 1000)
        assert world.sweep()[TOPIC].segments_removed
        world.kill()
    else:
        getattr(world, stop)()


@STOPS
def test_a_repeated_batch_gets_the_first_result(stop) -> None:
    world = World()
    world.topic()
    assert send(world, 0, b"a", b"b") == [(0, False), (1, False)]
    assert send(world, 2, b"c") == [(2, False)]
    stopped(world, stop)
    assert send(world, 0, b"a", b"b") == [(0, True), (1, True)]
    assert send(world, 2, b"c") == [(2, True)]
    assert send(world, 3, b"d") == [(3, False)]
    assert world.node.partition(TOPIC, 0).messages.end_offset == 4


@STOPS
def test_a_gap_is_refused_and_changes_nothing(stop) -> None:
    world = World()
    world.topic()
    send(world, 0, b"a")
    stopped(world, stop)
    for wrong in (2, 5):
        with pytest.raises(OutOfSequence, match="instead of 1"):
            send(world, wrong, b"x")
    assert send(world, 1, b"b") == [(1, False)]


@STOPS
def test_what_the_epoch_before_has_sent_is_no_repeat_in_a_new_one(stop) -> None:
    world = World()
    world.topic()
    for sequence in range(3):
        send(world, sequence, b"a")
    send(world, 0, b"b", epoch=1)
    stopped(world, stop)
    with pytest.raises(OutOfSequence, match="instead of 1"):
        send(world, 2, b"d", epoch=1)
    assert send(world, 0, b"b", epoch=1) == [(3, True)]
    assert send(world, 1, b"c", epoch=1) == [(4, False)]


@STOPS
def test_an_old_epoch_is_refused_and_a_new_one_starts_with_zero(stop) -> None:
    world = World()
    world.topic()
    send(world, 0, b"a")
    with pytest.raises(OutOfSequence, match="starts with sequence 0"):
        send(world, 1, b"b", epoch=1)
    send(world, 0, b"b", epoch=1)
    stopped(world, stop)
    with pytest.raises(OutOfSequence, match="was replaced by 1"):
        send(world, 1, b"zombie", epoch=0)
    assert send(world, 1, b"c", epoch=1) == [(2, False)]


def test_a_producer_that_nobody_knows_starts_with_zero() -> None:
    world = World()
    world.topic()
    with pytest.raises(OutOfSequence):
        send(world, 7, b"a", producer=1)


def test_a_repeat_of_another_size_is_not_a_repeat() -> None:
    world = World()
    world.topic()
    send(world, 0, b"a", b"b")
    with pytest.raises(OutOfSequence):
        send(world, 0, b"a")


def test_a_repeat_waits_for_the_original_to_be_durable() -> None:
    world = World()
    world.topic()
    world.execute(PublishBatch(TOPIC, 0, batch(0, b"a", b"b")))
    (first, _) = world.execute(PublishBatch(TOPIC, 0, batch(0, b"a", b"b"))).stored
    assert first.is_duplicate
    log = world.node.partition(TOPIC, 0).messages
    assert first.durable_at == 2 > log.durable_end
    world.sync()
    assert log.durable_end == 2


def test_what_a_power_cut_took_can_be_sent_again() -> None:
    world = World()
    world.topic()
    send(world, 0, b"a")
    world.sync()
    send(world, 1, b"b")
    world.lose_unsynced()
    assert send(world, 0, b"a") == [(0, True)]
    assert send(world, 1, b"b") == [(1, False)]


def head_of(sequence: int, count: int) -> Head:
    made = read_head(batch(min(sequence, TOP), *[b"x"] * count))
    return made._replace(first_sequence=sequence)


def test_sequences_start_again_behind_the_largest() -> None:
    producers = Producers()
    producers.add(head_of(TOP - 1, 2))
    assert producers.repeat_of(head_of(0, 1)) is None
    assert producers.repeat_of(head_of(TOP - 1, 2)) is not None
    with pytest.raises(OutOfSequence):
        producers.repeat_of(head_of(1, 1))


@given(st.lists(st.integers(1, 3), min_size=1, max_size=12), st.data())
def test_of_any_history_the_last_five_are_repeats_and_only_the_next_is_new(sizes, data) -> None:
    producers, sent, sequence = Producers(), [], 0
    for size in sizes:
        head = head_of(sequence, size)._replace(base_offset=sequence)
        assert producers.repeat_of(head) is None
        producers.add(head)
        sent.append(head)
        sequence += size
    for head in sent[-5:]:
        found = producers.repeat_of(head)
        assert found is not None
        assert found.base_offset == head.base_offset
    for head in sent[:-5]:
        with pytest.raises(OutOfSequence):
            producers.repeat_of(head)
    wrong = data.draw(st.integers(sequence + 1, sequence + 9))
    with pytest.raises(OutOfSequence):
        producers.repeat_of(head_of(wrong, 1))


def test_only_so_many_producers_are_remembered() -> None:
    producers = Producers()
    for number in range(10_050):
        producers.add(head_of(0, 1)._replace(producer_id=number))
    assert len(producers.by_id) == 10_000
    assert 49 not in producers.by_id


def test_the_producer_that_was_silent_longest_is_forgotten_first() -> None:
    producers, first, second = Producers(), head_of(0, 1), head_of(1, 1)
    for number in range(10_000):
        producers.add(first._replace(producer_id=number))
    producers.add(second._replace(producer_id=0))
    producers.add(first._replace(producer_id=10_000))
    assert producers.repeat_of(second._replace(producer_id=0)) is not None
    # The one that was forgotten begins anew.
    assert producers.repeat_of(first._replace(producer_id=1)) is None
    assert producers.repeat_of(first._replace(producer_id=2)) is not None


@pytest.mark.parametrize("limit", [{"max_backlog_messages": 2}, {"max_backlog_bytes": 200}])
def test_a_repeat_gets_its_answer_from_a_full_partition(limit) -> None:
    """It adds nothing; and its producer would give up and call lost what is there."""
    world = World()
    world.topic(partitions=1, **limit)
    assert send(world, 0, b"a", b"b") == [(0, False), (1, False)]
    assert send(world, 0, b"a", b"b") == [(0, True), (1, True)]
    with pytest.raises(BacklogFull):
        send(world, 2, b"c")
