"""The batch of a producer: how messages of several threads get their places, and when it is full."""

import threading

import pytest

from penstock.client import value_appender
from penstock.client.producer_batch import NO_EXTRA, Batch, CheckedMessage
from penstock.client.value_appender import UNEVEN, BatchLimits, ValueAppender
from penstock.errors import Refused

ROOM = BatchLimits(bytes_max=1000, messages_max=50, value_bytes_max=900)


def made(_batch, index):
    return index


def filled(room, values):
    """How many go in one after the other, and where they went."""
    one = ValueAppender(room, made, None)
    taken = [one.append_waiting(value) for value in values]
    count = sum(place is not None for place in taken)
    assert taken == [*range(count), *[None] * (len(values) - count)]
    assert one.values == values[:count]
    return one


@pytest.fixture(params=["one at a time", "side by side"])
def threads(request, monkeypatch):
    """Interpreters without a global lock use a lock of their own."""
    is_one = request.param == "one at a time"
    monkeypatch.setattr(value_appender, "_is_one_thread_at_a_time", lambda: is_one)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    ("values", "count", "size"),
    [
        ([b"x" * 100] * 20, 9, 100),
        ([b""] * 60, 50, 0),
        ([b"x"] * 60, 50, 1),
        ([b"x" * 2000] * 2, 1, 2000),
        ([b"x" * 100, *[b"y" * 300] * 5], 3, UNEVEN),
        ([b"x" * 100, b"y" * 899, b"z"], 2, UNEVEN),
        ([b"x" * 100, b"y" * 900], 1, UNEVEN),
        ([b"x", *[b"yy"] * 60], 50, UNEVEN),
    ],
)
def test_values_go_in_until_one_does_not_fit(values, count, size):
    one = filled(ROOM, values)
    assert (len(one.values), one.size) == (count, size)


def test_one_that_is_too_large_goes_in_nowhere():
    """`send` refuses it, where its size is checked."""
    roomy = BatchLimits(bytes_max=10_000, messages_max=50, value_bytes_max=900)
    assert filled(roomy, [b"x", b"y", b"z" * 901]).values == [b"x", b"y"]
    assert filled(roomy, [b"x", b"z" * 900]).values == [b"x", b"z" * 900]


@pytest.mark.usefixtures("threads")
def test_the_end_waits_for_a_thread_that_is_inside():
    """The value of that thread is in the list by then, and its place is known."""
    is_inside, may_go_on = threading.Event(), threading.Event()

    def slow(_batch, index):
        if index == 1:
            is_inside.set()
            may_go_on.wait(120)
        return index

    one = ValueAppender(ROOM, slow, None)
    one.append(b"a")
    places, found = [], []
    inside = threading.Thread(target=lambda: places.append(one.append(b"b")))

    def end():
        one.end()
        found.append((len(one.values), [*places]))

    ending = threading.Thread(target=end)
    inside.start()
    is_inside.wait(120)
    ending.start()
    ending.join(0.01)
    assert not found
    may_go_on.set()
    inside.join()
    ending.join()
    assert found[0][0] == 2
    assert places == [1]
    assert one.append_waiting(b"c") is None
    assert one.values == [b"a", b"b"]


def test_a_thread_that_finds_another_one_inside_gets_the_next_place():
    is_inside, may_go_on = threading.Event(), threading.Event()

    def slow(_batch, index):
        if index == 0:
            is_inside.set()
            may_go_on.wait(120)
        return index

    one = ValueAppender(ROOM, slow, None)
    places = {}
    first = threading.Thread(target=lambda: places.update(a=one.append(b"a")))
    first.start()
    is_inside.wait(120)
    with pytest.raises(ValueError, match="executing"):
        one.append(b"b")
    second = threading.Thread(target=lambda: places.update(b=one.append_waiting(b"b")))
    second.start()
    may_go_on.set()
    first.join()
    second.join()
    assert places == {"a": 0, "b": 1}
    assert one.values == [b"a", b"b"]


def test_an_interrupt_inside_ends_it_with_what_is_there():
    def interrupted(_batch, index):
        if index == 2:
            raise KeyboardInterrupt
        return index

    one = ValueAppender(ROOM, interrupted, None)
    assert [one.append(b"a"), one.append(b"b")] == [0, 1]
    with pytest.raises(KeyboardInterrupt):
        one.append(b"c")
    assert one.append_waiting(b"d") is None
    one.end()
    assert one.values[:2] == [b"a", b"b"]
    assert len(one.values) == 3


@pytest.mark.usefixtures("threads")
def test_a_signal_handler_that_comes_inside_is_refused_instead_of_waiting_for_itself():
    def handling(_batch, index):
        with pytest.raises(Refused, match="signal handler"):
            one.append_waiting(b"handler")
        with pytest.raises(Refused, match="signal handler"):
            one.end()
        return index

    one = ValueAppender(ROOM, handling, None)
    assert one.append(b"a") == 0
    assert one.values == [b"a"]


SMALL = BatchLimits(bytes_max=1000, messages_max=10, value_bytes_max=5000)


def made_batch(*values):
    """A batch whose deliveries are indexes."""
    batch = Batch(0, (1, 0.0), SMALL, threading.Event(), lambda _batch, index: index)
    for place, value in enumerate(values):
        assert batch.add(CheckedMessage(value, None, NO_EXTRA)) == place
    return batch


def test_a_sealed_batch_takes_no_more():
    batch = made_batch(b"first", b"other")
    batch.seal()
    with pytest.raises(StopIteration):
        batch.append(b"late")
    assert list(batch.columns().values) == [b"first", b"other"]
    assert (batch.count, batch.size) == (2, 10)
    batch.clear()
    with pytest.raises(StopIteration):
        batch.append(b"very late")


def test_a_batch_is_full_by_bytes_and_by_messages_and_takes_one_that_is_too_large_alone():
    keyed = CheckedMessage(b"x" * 600, b"key", NO_EXTRA)
    assert made_batch().add(CheckedMessage(b"x" * 5000, b"key", NO_EXTRA)) == 0
    assert made_batch(b"x" * 5000).add(CheckedMessage(b"", b"k", NO_EXTRA)) is None
    assert made_batch(b"x" * 397).add(keyed) is None
    assert made_batch(b"x" * 396).add(keyed) == 1
    assert made_batch(*[b"x"] * 10).add(CheckedMessage(b"", b"", NO_EXTRA)) is None
    assert made_batch(*[b"x"] * 9).add(CheckedMessage(b"", b"", NO_EXTRA)) == 9


def test_a_batch_counts_what_came_in_plain_when_something_else_follows():
    batch = made_batch(b"one", b"two")
    assert batch.add(CheckedMessage(None, b"key", NO_EXTRA)) == 2
    with pytest.raises(StopIteration):
        batch.append(b"not by this way")
    assert batch.add(CheckedMessage(b"four", None, NO_EXTRA)) == 3
    batch.seal()
    assert (batch.count, batch.size) == (4, 13)
    columns = batch.columns()
    assert list(columns.values) == [b"one", b"two", None, b"four"]
    assert columns.keys == [None, None, b"key", None]
