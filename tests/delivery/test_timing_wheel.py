"""The timing wheel against a plain dictionary that is looked through from end to end."""

import random

import numpy as np
import pytest
from pyroaring import BitMap64

from penstock.delivery.due_times import DueTimes, ids_in
from penstock.delivery.timing_wheel import TICK_NS, TimingWheel

MS = 1_000_000
S = 1000 * MS
DAY = 24 * 3600 * S
START = 1_700_000_000 * S


class Twin:
    """A wheel and a dictionary that have to agree."""

    def __init__(self) -> None:
        self.dues: dict[int, int] = {}
        self.wheel = TimingWheel(self._dues_of)
        self.now_ns = START
        self.next_id = 0
        self.wheel.advance(self.now_ns)

    def _dues_of(self, ids):
        return np.array([self.dues[one] for one in ids.tolist()], dtype=np.int64)

    def insert(self, delays: list[int]) -> None:
        ids = np.arange(self.next_id, self.next_id + len(delays), dtype=np.int64)
        dues = np.array(delays, dtype=np.int64) + self.now_ns
        self.next_id += len(delays)
        self.dues.update(zip(ids.tolist(), dues.tolist(), strict=True))
        self.wheel.insert(ids, dues)
        self.check_next()

    def remove(self, identity: int) -> None:
        self.wheel.remove(identity, self.dues.pop(identity))
        self.check_next()

    def pass_to(self, now_ns: int) -> None:
        """Everything that is due comes, in its order, and nothing else."""
        self.now_ns = now_ns
        expected = sorted((due, one) for one, due in self.dues.items() if due <= now_ns)
        found: list[tuple[int, int]] = []
        while True:
            self.wheel.advance(now_ns)
            ids, dues = self.wheel.due(now_ns, 100)
            if not len(ids):
                break
            found += zip(dues.tolist(), ids.tolist(), strict=True)
            for one in ids.tolist():
                self.remove(one)
        assert found == expected
        assert not self.dues or self.check_next() > now_ns

    def check_next(self) -> int | None:
        """Nothing is due before what the wheel says."""
        left = min(self.dues.values(), default=None)
        promised = self.wheel.next_ns()
        assert (left is None) == (promised is None)
        assert left is None or promised <= left
        return promised

    def check_order(self) -> None:
        expected = sorted((due, one) for one, due in self.dues.items())
        assert list(self.wheel.in_order()) == expected
        assert sum(self.wheel.levels()) == len(expected)


DELAYS = (0, 1, 3 * MS, 9 * MS, 10 * MS, 300 * MS, 3 * S, 200 * S, 3 * 3600 * S, 9 * DAY, 400 * DAY)


def some_delay(rng: random.Random) -> int:
    return rng.randint(0, rng.choice(DELAYS))


@pytest.mark.parametrize("seed", range(4))
def test_the_wheel_and_a_dictionary_agree(seed, effort) -> None:
    rng, twin = random.Random(seed), Twin()
    for _ in range(effort(check=150, test=500, torture=20_000)):
        match rng.randrange(6):
            case 0 | 1:
                twin.insert([some_delay(rng) for _ in range(rng.choice((1, 2, 40)))])
            case 2 if twin.dues:
                twin.remove(rng.choice(list(twin.dues)))
            case 3:
                twin.pass_to(twin.now_ns - some_delay(rng) // 100)
            case 4:
                twin.check_order()
            case _:
                twin.pass_to(twin.now_ns + some_delay(rng))
    twin.pass_to(twin.now_ns + 500 * DAY)
    assert not twin.dues


def test_nothing_is_early_inside_a_tick() -> None:
    twin = Twin()
    twin.insert([TICK_NS // 2 + 7])
    twin.pass_to(START + TICK_NS // 2 + 6)
    assert twin.dues
    twin.pass_to(START + TICK_NS // 2 + 7)
    assert not twin.dues


def test_a_clock_that_was_set_back_makes_everybody_wait() -> None:
    twin = Twin()
    twin.insert([S, 2 * DAY])
    twin.pass_to(START - DAY)
    twin.insert([30 * S])
    assert twin.wheel.next_ns() > START - DAY
    twin.pass_to(START - DAY + 30 * S)
    assert len(twin.dues) == 2


@pytest.mark.tier("test")
def test_a_wheel_that_is_far_behind_comes_by_everything_in_order() -> None:
    twin = Twin()
    rng = random.Random(3)
    twin.insert([rng.randint(0, DAY) for _ in range(5000)])
    twin.pass_to(START + DAY)
    assert not twin.dues


def test_due_times_are_found_whether_their_block_is_full_or_nearly_empty() -> None:
    rng, dues, known = random.Random(5), DueTimes(), {}
    for start in range(0, 40_000, 500):
        ids = np.arange(start, start + 500, dtype=np.int64)
        times = np.array([rng.getrandbits(60) for _ in range(500)], dtype=np.int64)
        dues.set_many(ids, times)
        known.update(zip(ids.tolist(), times.tolist(), strict=True))
    before = dues.size
    for gone in rng.sample(sorted(known), 39_900):
        del known[gone]
        dues.forget((gone,))
    pending = BitMap64(known)
    dues.thin_out(pending)
    assert dues.size < before / 8
    changed = next(iter(known))
    known[changed] = 77
    dues.change(changed, 77)
    for gone in sorted(known)[::2]:
        del known[gone]
        dues.forget((gone,))
    dues.thin_out(BitMap64(known))
    ids = ids_in(BitMap64(known))
    assert dues.of_many(ids).tolist() == [known[one] for one in ids.tolist()]
    assert [dues.of(one) for one in known] == list(known.values())


def test_those_that_are_due_before_a_time_are_found_whether_their_block_is_full_or_not() -> None:
    rng, dues, known = random.Random(6), DueTimes(), {}
    for start in range(0, 20_000, 500):
        ids = np.arange(start, start + 500, dtype=np.int64)
        times = np.array([rng.getrandbits(60) for _ in range(500)], dtype=np.int64)
        dues.set_many(ids, times)
        known.update(zip(ids.tolist(), times.tolist(), strict=True))
    for gone in rng.sample(sorted(known)[:8192], 7900) + rng.sample(sorted(known)[8192:], 300):
        del known[gone]
        dues.forget((gone,))
    for _ in range(2):
        for _ in range(100):
            first = rng.randrange(20_000)
            end, time_ns = first + rng.randrange(1, 6000), rng.getrandbits(60)
            found = dues.before(time_ns, first, end).tolist()
            expected = [one for one, at in known.items() if first <= one < end and at < time_ns]
            assert found == sorted(expected)
        dues.thin_out(BitMap64(known))


def test_before_the_horizon_no_more_is_due_than_the_limit() -> None:
    rng, due = random.Random(7), {}
    wheel = TimingWheel(lambda ids: np.array([due[one] for one in ids.tolist()], np.int64))
    wheel.advance(START)
    due.update(enumerate(START + rng.randrange(MS, DAY) for _ in range(3000)))
    wheel.insert(np.arange(3000), np.array([*due.values()], np.int64))
    for limit in (0, 1, 10, 500, 2999):
        horizon_ns = wheel.horizon_ns(limit)
        assert sum(at < horizon_ns for at in due.values()) <= limit
    assert wheel.horizon_ns(3000) > START + DAY
