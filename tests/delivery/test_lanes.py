"""Lanes and turns against a table of every message, and the shares that users are promised."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from penstock.delivery import Delivery
from penstock.delivery.lane_turns import LANES, WEIGHTS, Hints, LaneTurns
from penstock.delivery.lanes import LaneRequest, Lanes, choose, first_of
from penstock.delivery.records import Leased
from penstock.model import Priority

S_NS = 1_000_000_000
MANY = 1 << 30


def lanes_of(priorities: list[int]) -> Lanes:
    """The same offsets, noted in runs and in mixed batches."""
    lanes, start = Lanes(), 0
    while start < len(priorities):
        end = min(len(priorities), start + 1 + start % 5)
        batch = priorities[start:end]
        if len(set(batch)) == 1:
            lanes.add_run(start, end, batch[0])
        else:
            lanes.add(np.arange(start, end), np.array(batch, np.uint8))
        start = end
    return lanes


PRIORITIES = st.lists(st.integers(0, LANES - 1), max_size=300)


@given(PRIORITIES, st.integers(0, LANES - 1), st.integers(0, 300), st.integers(1, 40), st.data())
def test_the_first_of_a_lane_are_those_of_a_table(priorities, priority, start, count, data):
    lanes = lanes_of(priorities)
    without = set(data.draw(st.lists(st.integers(0, 300), max_size=50)))
    span = range(start, len(priorities))
    expected = [one for one in span if priorities[one] == priority and one not in without][:count]
    assert list(lanes.first(priority, span, count, BitMap64(without))) == expected


@given(PRIORITIES, st.integers(0, 300))
def test_what_is_forgotten_is_in_no_special_lane(priorities, border):
    lanes = lanes_of(priorities)
    lanes.forget_below(border)
    kept = {(offset, one) for one in Priority if one != 2 for offset in lanes.special[one]}
    assert kept == {
        (offset, one) for offset, one in enumerate(priorities) if one != 2 and offset >= border
    }
    assert lanes.is_flat == (not kept)


@given(st.sets(st.integers(0, 1000)), st.integers(0, 60))
def test_first_of_takes_the_smallest(offsets, count):
    assert list(first_of(BitMap64(offsets), count)) == sorted(offsets)[:count]


@given(PRIORITIES, st.integers(0, 2**32 - 1))
def test_every_poll_takes_the_front_of_each_lane_and_no_message_is_passed_over(priorities, seed):
    dice, lanes, end = random.Random(seed), lanes_of(priorities), len(priorities)
    delivery, seen = Delivery(1, 0, now_ns=0), set()
    returned: set[int] = set()
    lease = 0
    while len(seen - returned) < end or returned:
        limit = dice.randint(1, 30)
        only = dice.choice([None, None, None, *Priority])
        choice = choose(delivery, lanes, LaneRequest(limit, end, 0, only))
        open_ones = [one for one in range(end) if one not in seen or one in returned]
        for priority in Priority if only is None else [only]:
            queue = [one for one in open_ones if priorities[one] == priority]
            taken = [one for one in choice.offsets if priorities[one] == priority]
            assert taken == queue[: len(taken)]
        asked = [one for one in open_ones if only is None or priorities[one] == only]
        assert len(choice.offsets) == min(limit, len(asked))
        seen |= set(choice.offsets)
        returned -= set(choice.offsets)
        assert choice.cursor == min(set(range(end + 1)) - seen)
        if choice.offsets:
            lease += 1
            delivery.apply(Leased(1, lease, "m", choice.offsets.serialize(), choice.cursor, 1, 0))
        assert set(delivery.ahead) == {one for one in seen if one >= delivery.cursor}
        for priority in Priority:
            waiting = [one for one in range(end) if one not in seen or one in returned]
            expected = sum(priorities[one] == priority for one in waiting)
            assert lanes.count(priority, delivery, end) == expected
        if seen - returned and dice.random() < 0.3:
            back = dice.choice(sorted(seen - returned))
            delivery.ready.add(back)
            returned.add(back)
    assert delivery.cursor == end
    assert not delivery.ahead


def test_a_choice_is_the_same_until_it_is_leased():
    lanes, delivery = lanes_of([0, 1, 2, 3, 4] * 40), Delivery(1, 0, now_ns=0)
    first = choose(delivery, lanes, LaneRequest(60, 200, 0))
    assert choose(delivery, lanes, LaneRequest(60, 200, 0)) == first
    delivery.apply(Leased(1, 1, "m", first.offsets.serialize(), first.cursor, 1, 0))
    delivery.hints.turns = first.turns
    assert not choose(delivery, lanes, LaneRequest(60, 200, 0)).offsets & first.offsets


def shares_of(
    turns: LaneTurns, waiting: list[int], limit: int, total: int, **options
) -> Counter[int]:
    served: Counter[int] = Counter()
    while served.total() < total:
        for lane, count in enumerate(
            turns.share(waiting, limit, **{"now_ns": 0, "starvation_ns": 0, **options})
        ):
            served[lane] += count
    return served


@pytest.mark.parametrize("limit", [1, 3, 64, 500, 5000])
def test_full_lanes_are_served_by_their_weights(limit):
    served = shares_of(LaneTurns(), [MANY] * LANES, limit, 100_000)
    for lane, weight in WEIGHTS.items():
        assert abs(served[lane] / served.total() * 100 - weight) < 1


@pytest.mark.parametrize("idle", list(Priority))
def test_the_share_of_an_idle_lane_goes_to_the_others(idle):
    waiting = [0 if lane == idle else MANY for lane in range(LANES)]
    served = shares_of(LaneTurns(), waiting, 100, 100_000)
    assert served[idle] == 0
    others = 100 - WEIGHTS[idle]
    for lane, weight in WEIGHTS.items():
        if lane != idle:
            assert abs(served[lane] / served.total() - weight / others) < 0.01


def test_a_lane_alone_gets_everything():
    assert LaneTurns().share([0, 0, 0, 0, 7], 500, 0, 0) == [0, 0, 0, 0, 7]


def test_critical_is_first_in_every_round():
    turns = LaneTurns()
    order = [turns.share([MANY] * LANES, 1, 0, 0).index(1) for _ in range(200)]
    assert order == [
        lane for _ in range(2) for lane, weight in WEIGHTS.items() for _ in range(weight)
    ]


def test_a_late_urgent_message_does_not_wait_for_the_end_of_the_round():
    turns = LaneTurns()
    assert turns.share([1, 0, MANY, 0, MANY], 5, 0, 0) == [1, 0, 4, 0, 0]
    assert turns.share([1, 0, MANY, 0, MANY], 5, 0, 0) == [1, 0, 4, 0, 0]


def test_a_lane_that_waited_too_long_is_served_one_message_next():
    turns = LaneTurns()
    full = [MANY, 0, 0, 0, MANY]
    assert turns.share(full, 10, 0, 30 * S_NS) == [10, 0, 0, 0, 0]
    assert turns.share(full, 10, 29 * S_NS, 30 * S_NS) == [10, 0, 0, 0, 0]
    assert turns.share(full, 10, 30 * S_NS, 30 * S_NS) == [9, 0, 0, 0, 1]
    assert turns.share(full, 10, 31 * S_NS, 30 * S_NS) == [10, 0, 0, 0, 0]


def test_an_empty_lane_does_not_starve():
    turns = LaneTurns()
    turns.share([MANY, 0, 0, 0, 0], 10, 0, 30 * S_NS)
    turns.share([MANY, 0, 0, 0, 0], 10, 40 * S_NS, 30 * S_NS)
    assert turns.share([MANY, 0, 0, 0, 5], 10, 41 * S_NS, 30 * S_NS) == [10, 0, 0, 0, 0]


def test_in_overload_the_shares_hold_and_no_lane_starves_longer_than_the_rule():
    turns, served = LaneTurns(), Counter()
    last = [0] * LANES
    for now_s in range(0, 4_000, 5):
        given = turns.share([MANY] * LANES, 25, now_s * S_NS, 30 * S_NS)
        for lane, count in enumerate(given):
            served[lane] += count
            last[lane] = now_s if count else last[lane]
            assert now_s - last[lane] <= 30
    for lane, weight in WEIGHTS.items():
        assert abs(served[lane] / served.total() * 100 - weight) < 2


def test_zero_switches_the_rule_off():
    turns = LaneTurns()
    turns.share([MANY, 0, 0, 0, MANY], 1, 0, 0)
    assert turns.share([MANY, 0, 0, 0, MANY], 1, 10**15, 0) == [1, 0, 0, 0, 0]


def test_averages_fade():
    average = Hints().averages[0]
    average.add(600, 5_000_000, 0)
    now = average.stats(Priority.CRITICAL, 3, 0)
    assert (now.waiting, now.served, now.per_second, now.wait_ms) == (3, 600, 10, 5)
    later = average.stats(Priority.CRITICAL, 0, 60 * S_NS)
    assert later.served == 600
    assert later.per_second == pytest.approx(3.68, abs=0.01)
    assert later.wait_ms == pytest.approx(5)
