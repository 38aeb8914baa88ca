"""Sets of offsets against Python sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from penstock.delivery.offsets import (
    first_missing,
    known_among,
    next_of,
    offsets_of,
    runs_in_pieces,
    runs_of,
)
from penstock.delivery.progress import Progress

HIGH = 2**62
OFFSETS = st.sets(st.integers(0, 60) | st.integers(HIGH, HIGH + 60), max_size=60)


@given(OFFSETS)
def test_a_recorded_set_comes_back(offsets: set[int]) -> None:
    runs = runs_of(BitMap64(offsets))
    assert set(offsets_of(runs)) == offsets
    assert isinstance(runs, bytes) == (len(offsets) > 0 and not is_one_run(offsets))


def is_one_run(offsets: set[int]) -> bool:
    return max(offsets) - min(offsets) + 1 == len(offsets)


def test_recording_leaves_the_set_alone() -> None:
    offsets = BitMap64([1, 2, 9])
    runs_of(offsets)
    offsets_of(runs_of(offsets)).add(5)
    assert list(offsets) == [1, 2, 9]


@given(st.sets(st.integers(0, 9) | st.integers(65_530, 65_540) | st.integers(10**9, 10**9 + 9)))
def test_pieces_of_a_set_can_be_read_alone(offsets: set[int]) -> None:
    parts = [set(offsets_of(piece)) for piece in runs_in_pieces(BitMap64(offsets))]
    assert set().union(*parts) == offsets
    assert sum(map(len, parts)) == len(offsets)


def test_a_piece_is_never_larger_than_a_container() -> None:
    pieces = list(runs_in_pieces(BitMap64(range(0, 1_000_000, 2))))
    assert len(pieces) == 16
    assert max(map(len, pieces)) < 8300
    assert list(runs_in_pieces(BitMap64(range(7, 50_000_000)))) == [(7, 49_999_993)]


@given(OFFSETS, st.integers(0, 70))
def test_the_first_missing_offset_is_what_counting_finds(offsets: set[int], start: int) -> None:
    expected = start
    while expected in offsets:
        expected += 1
    assert first_missing(BitMap64(offsets), start) == expected


@pytest.mark.parametrize("hole", [0, 8191, 8192, 8193, 100_000])
def test_a_hole_is_found_across_windows_of_the_search(hole: int) -> None:
    offsets = BitMap64(range(200_000))
    offsets.discard(hole)
    offsets.discard(150_000)
    assert first_missing(offsets, 0) == hole
    assert first_missing(offsets, hole + 1) == 150_000


@given(OFFSETS, st.sets(st.integers(0, 60)))
def test_known_among_is_the_intersection_from_either_side(offsets, known) -> None:
    table = dict.fromkeys(known, "x")
    assert set(known_among(table, BitMap64(offsets))) == offsets & known


@given(st.integers(0, 30), st.lists(st.sets(st.integers(0, 60), max_size=10), max_size=8))
def test_progress_is_a_set_of_finished_offsets(start: int, steps: list[set[int]]) -> None:
    progress, finished = Progress(start), set(range(start))
    for offsets in steps:
        before = progress.floor
        progress.finish(BitMap64(offsets - finished))
        finished |= offsets
        assert progress.floor >= before
        assert {one for one in range(70) if progress.is_finished(one)} == finished
        assert progress.floor == next(one for one in range(100) if one not in finished)
        for end in (0, 10, 35, 70):
            assert progress.unfinished_below(end) == len(set(range(end)) - finished)


RUNS = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 500)), min_size=1, max_size=6)


@given(RUNS, st.integers(0, 3600))
def test_the_next_gap_and_the_next_offset_are_found_in_long_runs(
    runs: list[tuple[int, int]], start: int
) -> None:
    offsets = BitMap64()
    for first, count in runs:
        offsets.add_range(first, first + count)
    assert first_missing(offsets, start) == next(
        one for one in range(start, 9000) if one not in offsets
    )
    following = [one for one in offsets if one >= start]
    if following:
        assert next_of(offsets, start) == following[0]
