"""What was put comes out in its order and as it was then, alone, in packs, and however it is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec.blobs import JoinedBlobs
from penstock.embedded.write_buffer import NOT_TAKEN, NumberedMessages, pack_of
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
    buffer, expected, last_id = NumberedMessages(7, 100), [], 7
    for step in steps:
        if isinstance(step, int):
            found = buffer.first(step)
            assert [*found] == expected[:step]
            assert not (is_mixed and isinstance(found, JoinedBlobs))
            assert len(found) == len(expected[:step])
            buffer.take_out(buffer.last_out + len(found))
            del expected[:step]
        elif isinstance(step, bytes):
            assert buffer.take_in(step) == last_id + 1
            expected.append(step)
            last_id += 1
        else:
            buffers = [bytearray(one) for one in step]
            pack = pack_of(buffers, 5)
            last_id += len(step)
            assert buffer.take_in(pack) == last_id
            expected += step
            for one in buffers:
                one[:] = b"changed"
        buffer.is_mixed = is_mixed
    assert [*buffer.first(1000)] == expected
    assert len(buffer.waiting) == len(expected)


def test_a_pack_of_which_a_part_is_out_hides_nobody_behind_it():
    """As many are gone from its front as stand alone between it and the next, so the counts agree."""
    buffer = NumberedMessages(0, 100)
    for values in ([b"a", b"b", b"c"], [b"d"]):
        buffer.take_in(pack_of(values, 5))
        buffer.take_out(1)
        buffer.take_in(b"alone")
    assert [*buffer.first(4)] == [b"b", b"c", b"alone", b"d"]


def test_packs_alone_need_no_second_look():
    buffer = NumberedMessages(0, 100)
    for values in ([b"a", b"b"], [b"c"]):
        buffer.take_in(pack_of(values, 5))
    found = buffer.first(10)
    assert isinstance(found, JoinedBlobs)
    assert found.blobs() == (1, None, b"abc")
    assert found[1:] == [b"b", b"c"]


@given(st.lists(st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=6))
def test_packs_of_any_sizes_become_one_column(packs):
    buffer = NumberedMessages(0, 100)
    for values in packs:
        buffer.take_in(pack_of(values, 5))
    column, count = buffer.first(100).blobs(), len(buffer.waiting)
    assert column.items(count, b"") == [value for values in packs for value in values]


RUNS = st.lists(st.tuples(st.sampled_from((0, 3, 4)), st.integers(1, 40), st.integers(0, 50)))


@given(RUNS)
def test_runs_of_one_size_come_out_as_they_went_in(runs):
    """Many of one size are known to be of one size, until there is another among them, and again when it is gone."""
    buffer, expected = NumberedMessages(0, 100), []
    for size, count, out in runs:
        values = [bytes([number]) * size for number in range(count)]
        for value in values:
            buffer.take_in(value)
        expected += values
        found = buffer.first(out)
        assert [*found] == expected[:out]
        if isinstance(found, JoinedBlobs):
            assert found.blobs().lengths == len(expected[0])
        buffer.take_out(buffer.last_out + len(found))
        del expected[:out]
    buffer.take_out(buffer.last_out + len(expected))
    for number in range(16):
        buffer.take_in(b"%04d" % number)
    assert isinstance(buffer.first(16), JoinedBlobs)
    buffer.is_mixed = True
    assert type(buffer.first(16)) is list


def test_one_of_another_size_that_comes_just_now_is_noticed():
    class Slow(list[bytes]):
        def __getitem__(self, index):
            buffer.take_in(b"three")
            return super().__getitem__(index)

    buffer = NumberedMessages(0, 100)
    buffer.waiting = Slow()
    buffer.start()
    for _ in range(16):
        buffer.take_in(b"four")
    assert buffer.first(17) == [b"four"] * 16 + [b"three"]


def test_a_value_of_another_size_is_known_before_it_is_seen():
    """A pack's values are nobody's bare values, whatever their sizes."""
    buffer = NumberedMessages(0, 100)
    for _ in range(20):
        buffer.take_in(b"four")
    buffer.take_in(pack_of([b"six", b"two"], 5))
    assert [*buffer.first(30)] == [b"four"] * 20 + [b"six", b"two"]
    buffer.is_mixed = True
    assert type(buffer.first(20)) is list


@pytest.mark.parametrize(
    "value", [b"x" * 101, bytearray(b"x"), "text", None, [b"x"], Message(b"x"), 7]
)
def test_bare_objects_that_are_no_small_bytes_are_not_taken(value):
    buffer = NumberedMessages(0, 100)
    assert buffer.take_in(value) == NOT_TAKEN
    assert buffer.waiting == []
    assert buffer.take_in(b"x" * 100) == 1
