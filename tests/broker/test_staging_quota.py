"""Quotas of what is staged: of a node, a topic and a producer; what ends makes room, and a restart counts anew."""

import pytest

from penstock.api.commits import StageNamed
from penstock.api.transactions import BeginTransaction, StageBatch, StageRecords
from penstock.codec import Columns, Marks, encode
from penstock.config import LimitsConfig
from penstock.errors import OverStagingQuota
from penstock.model import Message, TopicPartition

from .test_commits import Attempt, commit
from .test_transactions import Transactional, stored, transactional_records
from .world import TOPIC, World

VALUE = b"x" * 1000
# Room for three batches of one such value, and not for a fourth.
LIMIT = 4000


def limited(**limits: int) -> World:
    world = World(limits=LimitsConfig(**limits))
    world.topic(3)
    world.topic(1, name="other")
    return world


def fill(attempt: Attempt) -> None:
    for partition in range(3):
        attempt.stage(VALUE, partition=partition)


def test_one_transaction_or_staging_is_limited_and_others_are_not() -> None:
    world = limited(staged_bytes_per_producer_max=LIMIT)
    one, other, producer = Attempt(world, 0), Attempt(world, 0), Transactional(world)
    fill(one)
    fill(other)
    for partition in range(3):
        producer.stage(VALUE, partition=partition)
    world.sync()
    before = world.disk.tree()
    for stage in (lambda: one.stage(VALUE), lambda: producer.stage(VALUE, partition=0)):
        with pytest.raises(OverStagingQuota) as refused:
            stage()
        assert refused.value.fields["limit"] == LIMIT
    world.sync()
    assert world.disk.tree() == before
    commit(world, 0, one)
    producer.end()
    producer.stage(VALUE, partition=0)
    assert [len(some) for some in stored(world)] == [2, 2, 2]


@pytest.mark.parametrize("limit", ["staged_bytes_max", "staged_bytes_per_topic_max"])
def test_a_node_and_a_topic_are_limited_and_what_ends_makes_room(limit: str) -> None:
    world = limited(**{limit: LIMIT})
    one, other = Attempt(world, 0), Attempt(world, 0)
    fill(one)
    with pytest.raises(OverStagingQuota):
        other.stage(VALUE)
    elsewhere = StageNamed(other.id, "other", [Message(VALUE)])
    if limit == "staged_bytes_max":
        with pytest.raises(OverStagingQuota):
            world.execute(elsewhere)
    else:
        world.execute(elsewhere)
    world.restart()
    with pytest.raises(OverStagingQuota):
        other.stage(VALUE)
    commit(world, 0, one)
    world.settle()
    again = Attempt(world, 1)
    fill(again)
    with pytest.raises(OverStagingQuota):
        again.stage(VALUE)
    assert world.execute(StageNamed(again.id, TOPIC, [Message(VALUE)], 0, 0))[0].is_duplicate


def staged_records(producer: Transactional, sequence: int) -> None:
    """As a Kafka producer stages a batch."""
    records = transactional_records(producer.id, producer.epoch, [VALUE], sequence)
    producer.world.execute(StageRecords(TOPIC, 0, records))


def staged_batch(producer: Transactional, sequence: int) -> None:
    """As our client does."""
    marks = Marks(producer_id=producer.id, producer_epoch=producer.epoch, first_sequence=sequence)
    batch = encode(Columns(values=[VALUE], timestamps=1), marks=marks).to_bytes()
    producer.world.execute(StageBatch(TOPIC, 0, batch))


@pytest.mark.parametrize("stage", [staged_records, staged_batch])
@pytest.mark.parametrize(
    "limit", ["staged_bytes_max", "staged_bytes_per_topic_max", "staged_bytes_per_producer_max"]
)
def test_batches_that_a_client_encoded_meet_each_limit(stage, limit: str) -> None:
    world = limited(**{limit: LIMIT})
    producer = Transactional(world, keeps_epoch=True)
    place = TopicPartition(TOPIC, 0)
    world.execute(BeginTransaction(producer.id, producer.epoch, (place,)))
    for sequence in range(3):
        stage(producer, sequence)
    with pytest.raises(OverStagingQuota):
        stage(producer, 3)
    # A repeat adds nothing.
    stage(producer, 2)
