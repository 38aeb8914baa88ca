"""Planning is pure: every offset of a target is in one task, and no task is too large."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Refused
from penstock.model import TopicPartition
from penstock.spark.pipelines.manifest import Span
from penstock.spark.pipelines.partitions import BrokerPartition, lag, plan
from penstock.spark.pipelines.ranges import RangeTask, cut, join_spans, share
from penstock.spark.pipelines.rows import gaps_in


def span(start, end, *, partition=0, log=1, rows=None):
    rows = end - start if rows is None else rows
    return Span(topic="t", partition=partition, start=start, end=end, rows=rows, log=log)


@given(st.lists(st.integers(0, 50), max_size=6), st.integers(1, 60))
def test_a_share_is_all_there_is_or_all_there_is_room_for(counts, room):
    waiting = {TopicPartition("t", number): count for number, count in enumerate(counts)}
    given_out = share(waiting, room)
    assert all(0 < count <= waiting[place] for place, count in given_out.items())
    assert sum(given_out.values()) == min(room, sum(counts))


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(1, 300))
def test_a_range_is_cut_without_leaving_anything_out(start, count, size):
    parts = cut(RangeTask("t", 0, start, start + count, 1), size)
    assert [one for part in parts for one in range(part.start, part.end)] == [
        *range(start, start + count)
    ]
    assert max(part.end - part.start for part in parts) <= size


@given(st.sets(st.integers(0, 60), min_size=1), st.integers(0, 10))
def test_gaps_are_what_a_set_says_is_missing(present, expected):
    offsets = np.array(sorted(one + expected for one in present), np.int64)
    missing = {one for start, end in gaps_in(offsets, expected) for one in range(start, end)}
    assert missing == set(range(expected, int(offsets[-1]))) - set(offsets.tolist())


@given(
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(1, 50),
    st.integers(1, 20),
)
def test_repeated_plans_cover_every_offset_once(known_end, earliest, more, room, size):
    latest = max(known_end, earliest) + more
    partition = BrokerPartition(TopicPartition("t", 0), earliest, latest, 7, False)
    known = {TopicPartition("t", 0): span(0, known_end, log=7)} if known_end else {}
    covered, last = [], known_end
    while True:
        planned = plan(
            known, [partition], commit_messages_max=room, task_messages_max=size, skips_damage=False
        )
        if not planned.tasks:
            break
        assert sum(one.end - one.start for one in planned.tasks) <= room
        spans = [span(one.start, one.end, log=7) for one in planned.tasks]
        (whole,) = join_spans([*planned.expired, *spans])
        assert whole.start == last
        covered += [one for task in planned.tasks for one in range(task.start, task.end)]
        known, last = {TopicPartition("t", 0): whole}, whole.end
    assert covered == [*range(max(known_end, earliest), latest)]
    assert lag(known, [partition]) == 0


def test_a_task_that_is_left_out_is_noticed():
    with pytest.raises(Refused, match="left something out before offset 9"):
        join_spans([span(0, 5), span(9, 12)])
