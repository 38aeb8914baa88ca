"""What adds up in a loop counts whichever comes first: partitions, groups, letters and sessions, generated."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.answers import Kind, answers_of
from penstock.api.commits import CommitStagings, DescribeCommitName, StageNamedAnswers
from penstock.api.consume import Poll
from penstock.api.groups import Commit, PartitionOffset
from penstock.api.groups import Mode as GroupMode
from penstock.api.health import SeeFigures
from penstock.api.members import CommitAsMember, JoinGroup
from penstock.api.principals import LOCAL
from penstock.api.publish import Delayed, Publish
from penstock.api.receipts import read_receipt
from penstock.api.schedules import CreateSchedule, RunSchedule
from penstock.api.schemas import (
    DecodeContent,
    DeleteSubject,
    Level,
    Mode,
    NewSchema,
    RegisterSchema,
    SetCompatibility,
    SetMode,
)
from penstock.api.topics import CreateTopic
from penstock.api.transaction_answers import StageAnswers
from penstock.api.transactions import (
    EndTransaction,
    ForceAbort,
    InitProducer,
    ListTransactions,
    SeeTransactionStats,
)
from penstock.errors import BacklogFull, PenstockError, ProducerFenced
from penstock.model import Message
from penstock.sim import SimDisk

from .test_commits import NAME, WRITER, Attempt
from .test_transactions import Transactional, stored
from .world import TOPIC, World

PARTITIONS = 3
IMPORTED = 7


@given(st.lists(st.booleans(), min_size=PARTITIONS, max_size=PARTITIONS), st.integers(1, 2))
def test_a_named_commit_waits_for_all_that_was_staged(is_synced: list[bool], tasks: int) -> None:
    world = World()
    world.topic(PARTITIONS)
    attempts = [Attempt(world, 0) for _ in range(tasks)]
    for number, is_early in enumerate(is_synced):
        attempts[number % tasks].stage(b"v", partition=number)
        if is_early:
            world.node.partition(TOPIC, number).sync()
    refs = [attempt.ref for attempt in attempts]
    world.execute(CommitStagings(NAME, 0, WRITER, refs))
    # Its decision may reach the disk before anything else does.
    home = world.node.commits.home(NAME)
    home.sync()
    world.lose_unsynced()
    world.settle()
    facts = world.execute(DescribeCommitName(NAME))
    is_committed = facts.sequence is not None
    assert stored(world) == [[b"v"] if is_committed else []] * PARTITIONS


@given(st.lists(st.booleans(), min_size=PARTITIONS, max_size=PARTITIONS))
def test_a_transaction_waits_for_all_that_was_staged(is_synced: list[bool]) -> None:
    world = World()
    world.topic(PARTITIONS)
    producer = Transactional(world)
    for number, is_early in enumerate(is_synced):
        producer.stage(b"v", partition=number)
        if is_early:
            world.node.partition(TOPIC, number).sync()
    world.execute(EndTransaction(producer.id, producer.epoch, True))
    # Its decision may reach the disk before anything else does.
    world.node.transactions.home(producer.id).sync()
    world.lose_unsynced()
    world.settle()
    assert stored(world) in ([[]] * PARTITIONS, [[b"v"]] * PARTITIONS)


def rejects(world: World, group: str, count: int) -> list:
    messages = world.execute(Poll(TOPIC, group, "m", count, 60_000))
    read = [read_receipt(message.receipt) for message in messages]
    return [*answers_of(read, Kind.REJECT, "poison").values()]


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.booleans(), st.booleans())
def test_every_letter_of_a_transaction_arrives(
    counts: list[int], is_named: bool, is_lost: bool
) -> None:
    world = World()
    world.topic(1)
    world.publish(*(b"%d" % number for number in range(3)))
    answers = [
        answer
        for number, count in enumerate(counts)
        for answer in rejects(world, f"g{number}", count)
    ]
    if is_named:
        attempt = Attempt(world, 0)
        world.execute(StageNamedAnswers(attempt.id, answers))
        world.execute(CommitStagings(NAME, 0, WRITER, [attempt.ref]))
    else:
        producer = Transactional(world)
        world.execute(StageAnswers(producer.id, producer.epoch, answers))
        producer.end()
    world.settle()
    if is_lost:
        world.lose_unsynced()
        world.settle()
    letters = Counter(
        (letter.provenance.group, letter.provenance.original_offset) for letter in world.letters()
    )
    wanted = [
        (f"g{number}", offset) for number, count in enumerate(counts) for offset in range(count)
    ]
    assert letters == Counter(wanted)


@given(st.lists(st.sampled_from(["follow", "end", "abort", "time out"]), min_size=1, max_size=4))
def test_a_session_that_was_followed_comes_back_only_while_its_follower_is_the_last(
    steps: list[str],
) -> None:
    world = World()
    world.topic(1)
    producer = Transactional(world)
    former = world.execute(InitProducer("p"))
    follower = world.execute(InitProducer("p", former=former))
    is_last = True
    for step in steps:
        if step == "follow":
            follower = world.execute(InitProducer("p", former=follower))
            is_last = False
            continue
        producer.id, producer.epoch = follower
        producer.stage(b"v", partition=0)
        if step == "end":
            producer.end()
        elif step == "abort":
            (transaction,) = world.execute(ListTransactions())
            world.execute(ForceAbort(transaction.transaction_id))
        else:
            world.wait(61_000)
        world.settle()
        (transaction,) = world.execute(ListTransactions())
        is_last = False
        follower = follower._replace(epoch=transaction.epoch)
    with pytest.raises(ProducerFenced):
        world.execute(InitProducer("p", former=former))
    assert not is_last


def test_a_session_that_asks_again_waits_for_what_it_was_answered_with() -> None:
    world = World()
    former = world.execute(InitProducer("p"))
    world.sync()
    command = InitProducer("p", former=former)
    first, again = (world.node.execute(command, LOCAL, world.now()) for _ in range(2))
    assert again.outcome() == first.outcome()
    assert {place for place, _ in again.touched} == {place for place, _ in first.touched}


@given(st.integers(1, 3), st.lists(st.booleans(), min_size=1, max_size=8))
def test_a_schedule_that_is_run_meets_the_backlog_like_a_publish(
    most: int, is_run: list[bool]
) -> None:
    world = World()
    world.topic(1, max_backlog_messages=most)
    world.group()
    world.execute(CreateSchedule(TOPIC, "s", every_ms=3_600_000, value=b"v"))
    for number, runs in enumerate(is_run):
        command = RunSchedule(TOPIC, "s") if runs else Publish(TOPIC, [Message(b"v")])
        if number < most:
            world.execute(command)
        else:
            with pytest.raises(BacklogFull):
                world.execute(command)


SCHEMAS = {kind: NewSchema("AVRO", f'"{kind}"') for kind in ("int", "boolean")}
CONTENT = b"\0" + IMPORTED.to_bytes(4, "big") + b"\2"
"""Of an int a 1, and no boolean."""


def answer_of(world: World, command) -> object:
    try:
        world.execute(command)
    except PenstockError as error:
        return error.code
    return "done"


def decoded(world: World) -> object:
    try:
        return world.execute(DecodeContent(content=CONTENT)).json
    except PenstockError as error:
        return error.code


@given(
    st.lists(
        st.sampled_from(["int", "boolean", "hide", "delete", "publish"]), min_size=3, max_size=9
    )
)
def test_a_registry_that_was_changed_answers_as_one_that_has_started_again(
    steps: list[str],
) -> None:
    """Whatever a node keeps by a schema's id or a subject's name, it is that of the present one."""
    world, subject = World(), "t-value"
    world.execute(SetCompatibility(level=Level.NONE))
    world.execute(CreateTopic("t", 1, {"value_subject": subject, "validation": "reject"}))
    for step in steps:
        if step in SCHEMAS:
            answer_of(world, SetMode(subject, Mode.IMPORT, force=True))
            schema = SCHEMAS[step]
            answer_of(world, RegisterSchema(subject, schema, schema_id=IMPORTED, version=1))
        elif step != "publish":
            answer_of(world, DeleteSubject(subject))
            if step == "delete":
                answer_of(world, DeleteSubject(subject, permanent=True))
        started = World(SimDisk(world.disk.tree()))
        for content in (CONTENT, b"plain") if step == "publish" else ():
            publish = Publish("t", [Message(content)])
            assert answer_of(world, publish) == answer_of(started, publish)
        assert decoded(world) == decoded(started)


@given(st.lists(st.integers(0, 3), min_size=PARTITIONS, max_size=PARTITIONS))
def test_figures_of_a_topic_count_what_is_in_each_of_its_partitions(counts: list[int]) -> None:
    world = World()
    world.topic(PARTITIONS)
    producer = Transactional(world)
    due_ns = world.wall_ns + 3600 * 1_000_000_000
    for number, count in enumerate(counts):
        for _ in range(count):
            producer.stage(b"v", partition=number)
            world.schedule([Delayed(Message(b"later"), due_ns)], partition=number)
    total = sum(counts)
    figures = {
        sample.name: sample.value
        for sample in world.execute(SeeFigures(100))
        if sample.labels == {"topic": TOPIC}
    }
    assert figures.get("penstock_staged_messages", 0) == total
    assert figures.get("penstock_delayed_pending", 0) == total
    assert world.execute(SeeTransactionStats()).staged_messages == total


@given(st.lists(st.integers(1, 50), min_size=1, max_size=4), st.sets(st.integers(0, 3)))
def test_the_oldest_of_the_open_transactions_is_told(waits: list[int], ended: set[int]) -> None:
    world = World()
    world.topic(PARTITIONS)
    producers = [Transactional(world, f"p{number}") for number in range(len(waits))]
    for producer, wait_ms in zip(producers, waits, strict=True):
        producer.stage(b"v", partition=0)
        world.now(wait_ms)
    ages = [sum(waits[number:]) for number in range(len(waits)) if number not in ended]
    for number in ended & {*range(len(waits))}:
        producers[number].end()
    stats = world.execute(SeeTransactionStats())
    assert stats.oldest_open_ms == max(ages, default=None)


@given(st.lists(st.integers(0, 2), min_size=PARTITIONS, max_size=PARTITIONS), st.booleans())
def test_a_commit_says_that_the_group_has_moved_if_any_partition_has(
    offsets: list[int], is_member: bool
) -> None:
    world = World()
    world.topic(PARTITIONS)
    for number in range(PARTITIONS):
        world.publish(b"v", b"w", partition=number)
    places = tuple(PartitionOffset(TOPIC, number, offset) for number, offset in enumerate(offsets))
    if is_member:
        world.execute(
            JoinGroup("g", "m", (TOPIC,), session_ms=60_000, mode=GroupMode.RELAXED, client="m")
        )
        commit = CommitAsMember("g", "m", places)
    else:
        world.group("g")
        commit = Commit("g", places)
    assert world.execute(commit) == any(offsets)
    assert world.execute(commit) is False
    assert [lag.floor for lag in world.lag("g")] == offsets
