"""What was put comes out in its order and as it was then, alone, in packs, and however it is cut."""

from threading import Lock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec.blobs import Joined
from penstock.embedded.intake import NOT_TAKEN, Intake, pack_of
from penstock.model import Message

VALUES = st.binary(max_size=5)
STEPS = st.lists(
    st.one_of(
        VALUES,
        st.lists(VALUES, min_size=1, max_size=6),
        st.lists(st.just(b"four"), min_size=1, max_size=6),
        st.integers(1, 9),
    ),
    max_size=30,
)


@given(STEPS, st.booleans())
def test_the_first_of_those_that_wait_are_what_was_put(steps, is_mixed):
    intake, expected, last_id = Intake(7, Lock(), 100), [], 7
    for step in steps:
        if isinstance(step, int):
            found = intake.first(step)
            assert [*found] == expected[:step]
            assert not (is_mixed and isinstance(found, Joined))
            assert len(found) == len(expected[:step])
            intake.take_out(intake.last_out + len(found))
            del expected[:step]
        elif isinstance(step, bytes):
            assert intake.take_in(step) == last_id + 1
            expected.append(step)
            last_id += 1
        else:
            buffers = [bytearray(one) for one in step]
            pack = pack_of(buffers, 5)
            last_id += len(step)
            assert intake.take_in(pack) == last_id
            expected += step
            for one in buffers:
                one[:] = b"changed"
        intake.is_mixed = is_mixed
    assert [*intake.first(1000)] == expected
    assert len(intake.waiting) == len(expected)


def test_a_pack_of_which_a_part_is_out_hides_nobody_behind_it():
    """As many are gone from its front as stand alone between it and the next, so the counts agree."""
    intake = Intake(0, Lock(), 100)
    for values in ([b"a", b"b", b"c"], [b"d"]):
        intake.take_in(pack_of(values, 5))
        intake.take_out(1)
        intake.take_in(b"alone")
    assert [*intake.first(4)] == [b"b", b"c", b"alone", b"d"]


def test_packs_alone_need_no_second_look():
    intake = Intake(0, Lock(), 100)
    for values in ([b"a", b"b"], [b"c"]):
        intake.take_in(pack_of(values, 5))
    found = intake.first(10)
    assert isinstance(found, Joined)
    assert found.blobs() == (1, None, b"abc")
    assert found[1:] == [b"b", b"c"]


@given(st.lists(st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=6))
def test_packs_of_any_sizes_become_one_column(packs):
    intake = Intake(0, Lock(), 100)
    for values in packs:
        intake.take_in(pack_of(values, 5))
    column, count = intake.first(100).blobs(), len(intake.waiting)
    assert column.cut(count) == [value for values in packs for value in values]


RUNS = st.lists(st.tuples(st.sampled_from((0, 3, 4)), st.integers(1, 40), st.integers(0, 50)))


@given(RUNS)
def test_runs_of_one_size_come_out_as_they_went_in(runs):
    """Many of one size are known to be of one size, until there is another among them, and again when it is gone."""
    intake, expected = Intake(0, Lock(), 100), []
    for size, count, out in runs:
        values = [bytes([number]) * size for number in range(count)]
        for value in values:
            intake.take_in(value)
        expected += values
        found = intake.first(out)
        assert [*found] == expected[:out]
        if isinstance(found, Joined):
            assert found.blobs().lengths == len(expected[0])
        intake.take_out(intake.last_out + len(found))
        del expected[:out]
    intake.take_out(intake.last_out + len(expected))
    for number in range(16):
        intake.take_in(b"%04d" % number)
    assert isinstance(intake.first(16), Joined)
    intake.is_mixed = True
    assert type(intake.first(16)) is list


def test_one_of_another_size_that_comes_just_now_is_noticed():
    class Slow(list[bytes]):
        def __getitem__(self, index):
            intake.take_in(b"three")
            return super().__getitem__(index)

    intake = Intake(0, Lock(), 100)
    intake.waiting = Slow()
    intake.accept()
    for _ in range(16):
        intake.take_in(b"four")
    assert intake.first(17) == [b"four"] * 16 + [b"three"]


def test_a_value_of_another_size_is_known_before_it_is_seen():
    """A pack's values are nobody's bare values, whatever their sizes."""
    intake = Intake(0, Lock(), 100)
    for _ in range(20):
        intake.take_in(b"four")
    intake.take_in(pack_of([b"six", b"two"], 5))
    assert [*intake.first(30)] == [b"four"] * 20 + [b"six", b"two"]
    intake.is_mixed = True
    assert type(intake.first(20)) is list


@pytest.mark.parametrize(
    "value", [b"x" * 101, bytearray(b"x"), "text", None, [b"x"], Message(b"x"), 7]
)
def test_bare_objects_that_are_no_small_bytes_are_not_taken(value):
    intake = Intake(0, Lock(), 100)
    assert intake.take_in(value) == NOT_TAKEN
    assert intake.waiting == []
    assert intake.take_in(b"x" * 100) == 1
