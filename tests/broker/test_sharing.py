"""A fair split."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.sharing import shares


def test_two_idle_members_and_ten_messages_are_five_each() -> None:
    assert shares(10, [500, 500]) == [5, 5]
    assert shares(11, [500, 500]) == [6, 5]
    assert shares(10, [2, 500, 500]) == [2, 4, 4]


@given(st.integers(0, 40), st.lists(st.integers(0, 12), max_size=6))
def test_a_split_is_what_dealing_one_by_one_would_give(ready: int, wanted: list[int]) -> None:
    split = shares(ready, wanted)
    assert sum(split) == min(ready, sum(wanted))
    assert all(part <= wish for part, wish in zip(split, wanted, strict=True))
    dealt = [0] * len(wanted)
    left = min(ready, sum(wanted))
    while left:
        for index, wish in enumerate(wanted):
            if left and dealt[index] < wish:
                dealt[index] += 1
                left -= 1
    assert split == dealt
