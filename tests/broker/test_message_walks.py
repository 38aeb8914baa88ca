"""Journeys and dead letters in slices of any size, with other commands, deletions and retention in between."""

import random
from collections import Counter

import pytest

from penstock.api.command import Command
from penstock.api.dead_letters import (
    BrowseDeadLetters,
    CountDeadLetters,
    DiscardDeadLetters,
    GroupBy,
    RedriveDeadLetters,
)
from penstock.api.delays import ListDelayed
from penstock.api.fetch import Peek, Read
from penstock.api.groups import Commit, DescribeLag, PartitionOffset
from penstock.api.journeys import (
    DescribeJourney,
    DescribeJourneys,
    FindTrace,
    ListJourneys,
    SearchJourneys,
)
from penstock.api.principals import LOCAL
from penstock.api.publish import Delayed
from penstock.api.spans import TailSpans
from penstock.api.start import EARLIEST
from penstock.broker import journey_search
from penstock.broker.partition import batch_cache, delayed_messages
from penstock.broker.walks import Walk
from penstock.codec.decode import open_body
from penstock.errors import NotFound, OffsetOutOfRange, PenstockError
from penstock.journeys.traces import TracePlace, trace_id_of
from penstock.model import Message
from tests.broker.test_walks import in_slices, slices, walking

from .world import TOPIC, WALL_NS, World

LETTERS = f"{TOPIC}.dlq"
GROUPS = [f"group-{number}" for number in range(5)]
MESSAGES = 12
COMMANDS: list[Command] = [
    DescribeJourney(TOPIC, 0, 1),
    DescribeJourney(LETTERS, 0, 0),
    SearchJourneys(topic=TOPIC, limit=5),
    SearchJourneys(group=GROUPS[2], limit=100),
    ListJourneys(limit=7),
    ListJourneys(topic=LETTERS),
    DescribeJourneys(),
    Peek(TOPIC, 0, GROUPS[0], 5),
    Peek(LETTERS, 0, "of-letters", 100),
    BrowseDeadLetters(TOPIC, limit=6),
    BrowseDeadLetters(TOPIC, cursor=(1, 2)),
    CountDeadLetters(TOPIC, GroupBy.CONSUMER),
    TailSpans({}, 1 << 64),
]


def busy() -> World:
    """A topic of two partitions whose messages five groups have had; each group has rejected some."""
    world = World()
    world.topic(name="other", partitions=1)
    world.topic(partitions=2, max_retries=0)
    for number in range(MESSAGES):
        world.publish(b"%d" % number, topic=TOPIC)
        world.publish(b"other", topic="other")
    for group in GROUPS:
        world.group(group)
        received = world.poll(100, group=group, member=f"of-{group}")
        world.reject(*received[: MESSAGES // 2], error=f"by {group}")
        world.ack(*received[MESSAGES // 2 :])
    world.settle()
    world.group("of-letters", LETTERS)
    return world


@pytest.mark.parametrize("command", COMMANDS, ids=repr)
def test_the_answer_is_that_of_one_slice(command) -> None:
    world, entropy = busy(), random.Random(1)
    whole = world.node.execute(command, LOCAL, world.now()).outcome()
    for _ in range(3):
        assert in_slices(world, command, entropy) == whole
    if isinstance(command, DescribeJourneys):
        return  # Latencies are those since the start.
    world.restart()
    # Without what was in memory: indexes are read, or made anew.
    assert in_slices(world, command, entropy) == whole


def test_a_trace_is_found_in_slices() -> None:
    world = busy()
    place = TracePlace(*world.node.partition(TOPIC, 1).identity, 2)
    journey = in_slices(world, FindTrace(trace_id=trace_id_of(place)), random.Random(1))
    assert (journey.topic, journey.partition, journey.offset) == (TOPIC, 1, 2)


@pytest.mark.parametrize("command", COMMANDS, ids=repr)
@pytest.mark.parametrize("seed", range(4))
def test_topics_go_and_letters_are_redriven_between_slices(command, seed) -> None:
    world, entropy = busy(), random.Random(seed)
    for reply in slices(world, Walk(command, LOCAL), entropy, entries_max=20):
        if isinstance(reply, PenstockError):
            assert isinstance(reply, NotFound)
        match entropy.randrange(12):
            case 0 if TOPIC in world.topics():
                world.delete()
            case 1 if TOPIC in world.topics():
                world.execute(RedriveDeadLetters(TOPIC, limit=3))
                world.settle()
            case 2 if TOPIC in world.topics():
                world.publish(b"more")
            case 3:
                world.sweep()
    assert not walking()


@pytest.mark.parametrize("seed", range(6))
def test_a_letter_goes_back_once_however_many_redrive_at_once(seed) -> None:
    world, entropy = busy(), random.Random(seed)
    letters = sum(count.count for count in world.execute(CountDeadLetters(TOPIC, GroupBy.REASON)))
    command = RedriveDeadLetters(TOPIC)
    walks = [slices(world, Walk(command, LOCAL), entropy, entries_max=9) for _ in range(3)]
    walks.append(slices(world, Walk(DiscardDeadLetters(TOPIC, limit=4), LOCAL), entropy))
    replies = []
    while walks:
        walk = entropy.choice(walks)
        reply = next(walk, None)
        if reply is not None:
            replies.append(reply)
            walks.remove(walk)
    world.settle()
    redriven = sum(getattr(reply, "redriven", 0) for reply in replies)
    discarded = sum(getattr(reply, "discarded", 0) for reply in replies)
    assert redriven + discarded == letters
    assert world.execute(BrowseDeadLetters(TOPIC)).letters == []
    stored = Counter[bytes | None]()
    for partition in range(2):
        reply = world.execute(Read(TOPIC, partition, EARLIEST, limit=1000))
        stored.update(message.value for message in reply.messages)
    assert stored.total() == MESSAGES + redriven


def test_a_page_ends_with_so_many_events_and_the_next_goes_on(monkeypatch) -> None:
    """A message that many groups have had has many events, however few bytes it has."""
    world = busy()
    whole = world.execute(SearchJourneys(topic=TOPIC, limit=1000))
    assert whole.cursor is None
    monkeypatch.setattr(journey_search, "_EVENTS_A_PAGE", 30)
    pages, cursor = [], None
    while not pages or cursor:
        page = world.execute(SearchJourneys(topic=TOPIC, limit=1000, cursor=cursor))
        assert sum(row.span_count for row in page.rows[:-1]) <= 30
        pages.append(page)
        cursor = page.cursor
    assert len(pages) > 3
    assert [row for page in pages for row in page.rows] == whole.rows


def test_the_latest_are_the_last_of_all_partitions() -> None:
    world, entropy = World(), random.Random(1)
    for name, partitions in (("one", 3), ("two", 2)):
        world.topic(name=name, partitions=partitions)
    published = []
    for number in range(60):
        world.wait(1)
        topic, count = entropy.choice((("one", 3), ("two", 2)))
        partition = entropy.randrange(count)
        # Some batches have several messages.
        values = [b"%d" % number] * entropy.choice((1, 1, 3))
        stored = world.publish(*values, topic=topic, partition=partition)
        published += [(topic, each.partition, each.offset) for each in stored]
    for limit in (1, 5, 20, 1000):
        rows = in_slices(world, ListJourneys(limit=limit), entropy).rows
        places = {(row.topic, row.partition, row.offset) for row in rows}
        assert len(rows) == min(limit, len(published))
        # Messages of one batch have one time, so that any of them may be the last one shown.
        assert places <= {*published[-limit - 2 :]}
        assert places >= {*published[-limit + 2 :]} if limit > 2 else True


def test_two_walks_that_make_one_index_both_have_it_whole() -> None:
    world, entropy = busy(), random.Random(3)
    whole = world.execute(DescribeJourney(TOPIC, 0, 1))
    world.restart()
    for partition in world.node.partitions():
        for path in [*world.disk.list(partition.journal.log.directory)]:
            if path.endswith(".journeys"):
                world.disk.remove(f"{partition.journal.log.directory}/{path}")
    world.restart()
    walks = [slices(world, Walk(DescribeJourney(TOPIC, 0, 1), LOCAL), entropy, 1) for _ in range(2)]
    answers = []
    while len(answers) < 2:
        reply = next(entropy.choice(walks), None)
        if reply is not None:
            answers.append(reply)
    assert answers == [whole, whole]


def test_offsets_are_committed_in_slices_and_what_is_gone_is_left_out() -> None:
    world, entropy = World(), random.Random(5)
    for name in ("kept", "gone"):
        world.topic(name=name, partitions=3)
        for partition in range(3):
            world.publish(b"a", b"b", topic=name, partition=partition)
    places = [PartitionOffset(name, number, 2) for name in ("gone", "kept") for number in range(3)]
    command = Commit("billing", tuple(places), opens_group=True)
    walk = slices(world, Walk(command, LOCAL), entropy, entries_max=1)
    # Each was looked at, and the first is committed.
    for _ in range(len(places) + 1):
        next(walk)
    world.delete("gone")
    *_, reply = walk
    assert reply is True
    lags = world.execute(DescribeLag(group="billing")).partitions
    assert [(lag.topic, lag.partition, lag.floor) for lag in lags] == [
        ("kept", number, 2) for number in range(3)
    ]
    beyond = Commit("billing", (PartitionOffset("kept", 0, 1), PartitionOffset("kept", 1, 9)))
    refusal = in_slices(world, beyond, entropy)
    assert isinstance(refusal, OffsetOutOfRange)


def test_groups_that_are_asked_how_a_message_stands_count_as_its_events(monkeypatch) -> None:
    """Of messages that nobody has polled yet there is no event of a group, and each group is asked all the same."""
    world = World()
    world.topic(name="other")
    for number in range(MESSAGES):
        world.publish(b"%d" % number, topic="other")
    few = world.execute(ListJourneys(limit=MESSAGES)).rows
    for number in range(20):
        world.group(f"group-{number}", "other")
    assert len(world.execute(ListJourneys(limit=MESSAGES)).rows) == len(few) == MESSAGES
    monkeypatch.setattr(journey_search, "_EVENTS_A_PAGE", 100)
    monkeypatch.setattr(journey_search, "_EVENTS_AT_ONCE", 30)
    latest = world.execute(ListJourneys(limit=MESSAGES)).rows
    assert 0 < len(latest) < MESSAGES
    page = world.execute(SearchJourneys(topic="other", limit=MESSAGES))
    assert 0 < len(page.rows) < MESSAGES
    assert page.cursor is not None


def test_delayed_messages_of_one_batch_are_listed_with_one_look_at_it() -> None:
    world = World()
    world.topic(partitions=2)
    delayed = [Delayed(Message(b"%d" % number), WALL_NS + number + 1) for number in range(50)]
    for partition in range(2):
        world.schedule(delayed, partition=partition)
    before = world.node.cache.size
    opened = 0

    def counted(*words, **options):
        nonlocal opened
        opened += 1
        return open_body(*words, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_cache, "open_body", counted)
        patch.setattr(delayed_messages, "open_body", counted)
        page = world.execute(ListDelayed(TOPIC, limit=1000))
    assert [one.message.value for one in page.messages[::2]] == [b"%d" % n for n in range(50)]
    assert opened == 2
    assert world.node.cache.size == before, "a page leaves nothing behind"
