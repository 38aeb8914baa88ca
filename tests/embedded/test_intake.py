"""What was put comes out in its order and as it was then, alone, in packs, and however it is cut."""

from threading import Lock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec.blobs import Joined, without_nulls
from penstock.embedded.intake import NOT_TAKEN, Intake, Pack
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
            assert len(found) == len(expected[:step])
            intake.take_out(intake.last_out + len(found))
            del expected[:step]
        elif isinstance(step, bytes):
            assert intake.take_in(step) == last_id + 1
            expected.append(step)
            last_id += 1
        else:
            buffers = [bytearray(one) for one in step]
            pack = Pack(buffers, without_nulls(buffers, "value", 5))
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
        intake.take_in(Pack(values, without_nulls(values, "value", 5)))
        intake.take_out(1)
        intake.take_in(b"alone")
    assert [*intake.first(4)] == [b"b", b"c", b"alone", b"d"]


def test_packs_alone_need_no_second_look():
    intake = Intake(0, Lock(), 100)
    for values in ([b"a", b"b"], [b"c"]):
        intake.take_in(Pack(values, without_nulls(values, "value", 5)))
    found = intake.first(10)
    assert isinstance(found, Joined)
    assert found.blobs() == (1, None, b"abc")
    assert found[1:] == [b"b", b"c"]


@given(st.lists(st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=6))
def test_packs_of_any_sizes_become_one_column(packs):
    intake = Intake(0, Lock(), 100)
    for values in packs:
        intake.take_in(Pack(values, without_nulls(values, "value", 5)))
    column, count = intake.first(100).blobs(), len(intake.waiting)
    assert column.cut(count) == [value for values in packs for value in values]


@pytest.mark.parametrize(
    "value", [b"x" * 101, bytearray(b"x"), "text", None, [b"x"], Message(b"x"), 7]
)
def test_bare_objects_that_are_no_small_bytes_are_not_taken(value):
    intake = Intake(0, Lock(), 100)
    assert intake.take_in(value) == NOT_TAKEN
    assert intake.waiting == []
    assert intake.take_in(b"x" * 100) == 1
