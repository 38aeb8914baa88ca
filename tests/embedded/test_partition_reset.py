"""A group is moved on all partitions, or on some of them; the others stay as they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.errors import GroupBusy, NotFound, OffsetOutOfRange, Refused
from penstock.testing import VirtualClock

COUNT = 3


@pytest.fixture
def broker(tmp_path):
    with penstock.Broker(tmp_path, clock=VirtualClock()) as broker:
        broker.create_topic("t", partitions=COUNT)
        for number in range(COUNT):
            broker.publish_many("t", [b"a", b"b", b"c"], partition=number)
        while polled := broker.poll("t", "g", limit=100):
            broker.ack(polled)
        yield broker


def floors(broker):
    return {one.partition: one.floor for one in broker.lag("g")}


def test_only_the_partitions_that_are_named_move(broker):
    rows = broker.reset("g", 1, topic="t", partitions=[2, 0, 2])
    assert [(one["topic"], one["partition"], one["floor_after"]) for one in rows] == [
        ("t", 0, 1),
        ("t", 2, 1),
    ]
    assert floors(broker) == {0: 1, 1: 3, 2: 1}
    found = sorted((one.partition, one.offset) for one in broker.poll("t", "g", limit=100))
    assert found == [(0, 1), (0, 2), (2, 1), (2, 2)]


def test_a_dry_run_says_what_would_be_and_changes_nothing(broker):
    planned = broker.reset("g", "earliest", topic="t", partitions=[1], dry_run=True)
    assert floors(broker) == {0: 3, 1: 3, 2: 3}
    assert broker.reset("g", "earliest", topic="t", partitions=[1]) == planned


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"partitions": [0]}, Refused),
        ({"topic": "t", "partitions": []}, Refused),
        ({"topic": "t", "partitions": ["0"]}, Refused),
        ({"topic": "t", "partitions": 0}, Refused),
        ({"topic": "t", "partitions": [0, 3]}, NotFound),
        ({"topic": "t", "partitions": [-1]}, Refused),
    ],
)
def test_partitions_that_there_are_not_are_refused_and_nothing_moves(broker, options, error):
    with pytest.raises(error):
        broker.reset("g", "earliest", **options)
    assert floors(broker) == {0: 3, 1: 3, 2: 3}


def test_if_one_partition_cannot_go_there_none_moves(broker):
    broker.publish("t", b"d", partition=1)
    with pytest.raises(OffsetOutOfRange):
        broker.reset("g", 4, topic="t", partitions=[1, 2])
    assert floors(broker) == {0: 3, 1: 3, 2: 3}


def test_messages_held_on_other_partitions_do_not_matter(broker):
    broker.publish("t", b"d", partition=1)
    (held,) = broker.poll("t", "g")
    broker.reset("g", "earliest", topic="t", partitions=[0])
    with pytest.raises(GroupBusy):
        broker.reset("g", "earliest", topic="t", partitions=[1])
    broker.ack(held)
    assert floors(broker) == {0: 0, 1: 4, 2: 3}


def test_it_survives_a_restart(tmp_path):
    clock = VirtualClock()
    for life in range(2):
        with penstock.Broker(tmp_path, clock=clock) as broker:
            if not life:
                broker.create_topic("t", partitions=2)
                broker.publish_many("t", [b"a", b"b"], partition=0)
                broker.publish_many("t", [b"a", b"b"], partition=1)
                while polled := broker.poll("t", "g", limit=10):
                    broker.ack(polled)
                broker.reset("g", "earliest", topic="t", partitions=[1])
            assert floors(broker) == {0: 2, 1: 0}


@pytest.mark.tier("test")
@given(
    moves=st.lists(
        st.tuples(st.sets(st.integers(0, COUNT - 1), min_size=1), st.integers(0, 3)), max_size=6
    )
)
def test_floors_are_as_the_last_move_of_each_partition_says(tmp_path_factory, moves):
    with penstock.Broker(tmp_path_factory.mktemp("b"), clock=VirtualClock()) as broker:
        broker.create_topic("t", partitions=COUNT)
        for number in range(COUNT):
            broker.publish_many("t", [b"a", b"b", b"c"], partition=number)
        broker.open_group("t", "g", start="latest")
        naive = dict.fromkeys(range(COUNT), 3)
        for partitions, to in moves:
            broker.reset("g", to, topic="t", partitions=partitions)
            naive |= dict.fromkeys(partitions, to)
            assert floors(broker) == naive
