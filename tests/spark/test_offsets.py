"""Offsets and what follows from them: no broker, no Spark."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.queries import PartitionEnds, TopicEnds
from penstock.errors import Refused
from penstock.spark.losses import DataLoss
from penstock.spark.offsets import (
    Advance,
    OffsetRange,
    StreamOffset,
    ends_up_to,
    limit_ends,
    ranges_between,
    split,
)
from penstock.spark.options import Topics

ORDERS = Topics(names=("orders",))


def found(*ends: tuple[int, int], topic: str = "orders", topic_id: int = 7):
    partitions = {str(number): PartitionEnds(*one) for number, one in enumerate(ends)}
    return {topic: TopicEnds(topic_id, partitions)}


def at(*offsets: int, is_first: bool = False, topic_id: int = 7) -> StreamOffset:
    following = {f"orders/{number}": one for number, one in enumerate(offsets)}
    return StreamOffset(following, {"orders": topic_id}, is_first=is_first)


def test_offsets_survive_json_and_equal_ones_are_equal_text():
    one = StreamOffset({"b/10": 1, "b/9": 2, "a/0": 3}, {"b": 2, "a": 1}, {"a/0": 1}, is_first=True)
    other = StreamOffset(
        {"a/0": 3, "b/9": 2, "b/10": 1}, {"a": 1, "b": 2}, {"a/0": 1}, is_first=True
    )
    text = json.dumps(one.to_json())
    assert text == json.dumps(other.to_json())
    assert StreamOffset.from_json(json.loads(text)) == one


@pytest.mark.parametrize(
    "written", [{}, {"orders": {"0": 5}}, {"next": {"orders/0": "5"}, "ids": {}}]
)
def test_a_checkpoint_of_something_else_is_refused(written):
    with pytest.raises(Refused, match="not one of a penstock source"):
        StreamOffset.from_json(written)


def test_nothing_new_gives_the_very_same_offset():
    start = StreamOffset({"orders/0": 5}, {"orders": 7}, {"orders/0": 2})
    assert Advance(ORDERS).from_start(start, found((0, 5))) is start


def test_a_first_batch_remembers_where_it_began():
    end = Advance(ORDERS).from_start(at(5, 6, is_first=True), found((0, 9), (0, 6)))
    # After a crash Spark asks for the start again, and "latest" has moved meanwhile.
    asked_again = at(9, 6, is_first=True)
    assert ranges_between(asked_again, end) == [OffsetRange("orders", 0, 5, 9)]


def test_a_new_partition_is_read_from_its_beginning():
    end = Advance(ORDERS).from_start(at(5), found((0, 5), (0, 3)))
    assert ranges_between(at(5), end) == [OffsetRange("orders", 1, 0, 3)]


def test_what_retention_took_of_a_new_partition_is_a_loss_like_any_other():
    seen = found((0, 5), (2, 3))
    with pytest.raises(DataLoss, match="orders/1: 2 messages are gone"):
        Advance(ORDERS).from_start(at(5), seen)
    end = Advance(ORDERS, is_loss_fatal=False).from_start(at(5), seen)
    assert ranges_between(at(5), end) == [OffsetRange("orders", 1, 2, 3)]


def test_a_new_topic_of_a_pattern_is_read_from_what_it_has():
    rules = Advance(Topics(pattern="o.*"))
    seen = found((0, 5)) | found((4, 9), topic="other", topic_id=8)
    end = rules.from_start(at(5), seen)
    assert ranges_between(at(5), end) == [OffsetRange("other", 0, 4, 9)]


def test_retention_that_overtook_is_an_error_with_the_numbers():
    with pytest.raises(DataLoss, match=r"orders/0: 15 messages are gone .* offset 5, .* is 20 now"):
        Advance(ORDERS).from_start(at(5), found((20, 30)))


def test_retention_that_overtook_may_be_passed_over():
    end = Advance(ORDERS, is_loss_fatal=False).from_start(at(5), found((20, 30)))
    assert ranges_between(at(5), end) == [OffsetRange("orders", 0, 20, 30)]


def test_a_log_that_shrank_is_an_error_with_the_numbers():
    with pytest.raises(DataLoss, match="at offset 50, the partition ends at 30 now"):
        Advance(ORDERS).from_start(at(50), found((0, 30)))


@pytest.mark.parametrize("latest", [30, 50, 70])
def test_a_topic_made_again_is_noticed_whatever_its_size(latest):
    with pytest.raises(DataLoss, match="deleted and made again"):
        Advance(ORDERS).from_start(at(50), found((0, latest), topic_id=8))
    allowed = Advance(ORDERS, is_loss_fatal=False)
    end = allowed.from_start(at(50), found((0, latest), topic_id=8))
    assert ranges_between(at(50), end) == [OffsetRange("orders", 0, 0, latest)]
    assert allowed.from_start(end, found((0, latest), topic_id=8)) is end


def test_a_checkpoint_of_another_topic_is_refused_whatever_loss_is_allowed():
    start = StreamOffset({"bills/0": 5}, {"bills": 3})
    for is_fatal in (True, False):
        with pytest.raises(Refused, match="query over bills, this one reads orders"):
            Advance(ORDERS, is_loss_fatal=is_fatal).from_start(start, found((0, 9)))


def test_a_checkpoint_of_more_partitions_is_refused_unless_loss_is_allowed():
    """Were one left out and taken again later, it would be read from its beginning once more."""
    second, seen = Topics(partitions=(("orders", (1,)),)), found((0, 9), (0, 9))
    with pytest.raises(Refused, match="query over orders/0, this one reads orders/1:"):
        Advance(second).from_start(at(5, 6), seen)
    end = Advance(second, is_loss_fatal=False).from_start(at(5, 6), seen)
    assert ranges_between(at(5, 6), end) == [OffsetRange("orders", 1, 6, 9)]


def test_a_topic_of_a_pattern_may_go_if_loss_is_allowed():
    start = StreamOffset({"orders/0": 5, "other/0": 3}, {"orders": 7, "other": 8})
    rules = Advance(Topics(pattern="o.*"), is_loss_fatal=False)
    assert ranges_between(start, rules.from_start(start, found((0, 9)))) == [
        OffsetRange("orders", 0, 5, 9)
    ]
    with pytest.raises(DataLoss, match="topic other is gone"):
        Advance(Topics(pattern="o.*")).from_start(start, found((0, 9)))


def test_only_assigned_partitions_are_read():
    rules = Advance(Topics(partitions=(("orders", (1,)),)))
    start = StreamOffset({"orders/1": 0}, {"orders": 7})
    end = rules.from_start(start, found((0, 5), (0, 5), (0, 5)))
    assert ranges_between(start, end) == [OffsetRange("orders", 1, 0, 5)]


def test_what_came_after_the_target_is_not_there():
    target = at(5, 8)
    seen = ends_up_to(found((0, 9), (0, 9), (0, 9)), target, at(0, 0))
    end = Advance(ORDERS).from_start(at(0, 0), seen)
    assert end.next == {"orders/0": 5, "orders/1": 8}
    assert Advance(ORDERS).from_start(end, ends_up_to(found((0, 50), (0, 50)), target, end)) is end


sizes = st.lists(st.integers(0, 1000), min_size=1, max_size=6)


@given(sizes, st.integers(1, 2000))
def test_a_limit_is_used_up_and_never_passed(waiting, rows_max):
    begin = {f"orders/{number}": 100 * number for number in range(len(waiting))}
    latest = {key: begin[key] + one for key, one in zip(begin, waiting, strict=True)}
    end = limit_ends(begin, latest, rows_max)
    assert all(begin[key] <= end[key] <= latest[key] for key in begin)
    assert sum(end[key] - begin[key] for key in begin) == min(sum(waiting), rows_max)


def test_a_partition_with_one_message_does_not_wait_behind_a_long_backlog():
    end = limit_ends({"orders/0": 0, "orders/1": 7}, {"orders/0": 10**6, "orders/1": 8}, 1000)
    assert end == {"orders/0": 999, "orders/1": 8}


@given(sizes, st.integers(1, 50))
def test_pieces_are_the_same_messages_in_order(waiting, tasks_min):
    whole = [
        OffsetRange("orders", number, 10, 10 + one) for number, one in enumerate(waiting) if one
    ]
    pieces = split(whole, tasks_min)
    assert len(pieces) >= min(tasks_min, sum(waiting))
    assert all(one.start < one.end for one in pieces)
    messages = [(one.partition, offset) for one in whole for offset in range(one.start, one.end)]
    assert messages == [(one.partition, at) for one in pieces for at in range(one.start, one.end)]


@given(st.data())
def test_batches_of_any_size_read_every_message_once(data):
    """Whatever the limits and however the log grows, the ranges join without a gap and without a repeat."""
    start, ends, read = at(0, 0, is_first=True), [0, 0], [0, 0]
    for _ in range(4):
        ends = [one + data.draw(st.integers(0, 20)) for one in ends]
        rules = Advance(ORDERS, rows_max=data.draw(st.one_of(st.none(), st.integers(1, 15))))
        end = rules.from_start(start, found(*((0, one) for one in ends)))
        for one in ranges_between(start, end):
            assert one.start == read[one.partition]
            read[one.partition] = one.end
        start = StreamOffset.from_json(end.to_json())
    end = Advance(ORDERS).from_start(start, found(*((0, one) for one in ends)))
    for one in ranges_between(start, end):
        assert one.start == read[one.partition]
        read[one.partition] = one.end
    assert read == ends
