"""Many receipts at once: each answered on its own, whatever the others are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.answers import Kind
from penstock.api.receipts import Place, Receipt, read_receipt, write_receipt
from penstock.errors import NoSpace, NotFound, Refused, StaleReceipt
from penstock.sim import Call, Fault, Misbehaviour

from .world import GROUP, TOPIC, Answered, World

NAMES = st.text("aZ9._-", min_size=1, max_size=20)


@given(NAMES, st.integers(0, 9999), st.integers(0, 2**63 - 1), st.integers(1, 10**9), st.data())
def test_a_receipt_is_read_as_it_was_written(topic, partition, offset, attempts, data) -> None:
    group, lease = data.draw(st.integers(1, 2**32 - 1)), data.draw(st.integers(1, 2**64 - 1))
    place = Place(topic, partition, group)
    text = write_receipt(place, offset, attempts, lease)
    assert read_receipt(text) == Receipt(place, offset, attempts, lease)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "orders:0:0:1:1",
        "orders:0:0:1:1.1 ",
        "orders:0:0:1:1.1\n",
        "orders:0:-1:1:1.1",
        "orders:0:0:1:G.1",
        "or/ders:0:0:1:1.1",
        "orders:0:٣:1:1.1",
        "orders:0:0:1:1.1" + "0" * 20,
        "x" * 1_000_000,
    ],
)
def test_what_is_not_a_receipt_is_refused(text) -> None:
    with pytest.raises(Refused) as refusal:
        read_receipt(text)
    assert len(str(refusal.value)) < 200


@given(st.text(max_size=40))
def test_reading_any_text_refuses_or_gives_a_receipt_that_writes_back(text) -> None:
    try:
        receipt = read_receipt(text)
    except Refused:
        return
    assert read_receipt(write_receipt(*receipt)) == receipt


def test_every_receipt_gets_its_own_answer() -> None:
    world = World()
    world.topic(partitions=2)
    world.topic(name="other")
    world.group()
    world.group("second")
    world.group(topic="other")
    world.publish(b"a", b"b", partition=0)
    world.publish(b"c", partition=1)
    world.publish(b"d", topic="other")
    mine = [one.receipt for one in world.poll()]
    theirs = [one.receipt for one in world.poll(group="second")]
    other = [one.receipt for one in world.poll(topic="other")]
    gone = mine[0].replace("orders:", "nothing:", 1)
    beyond = write_receipt(Place(TOPIC, 0, 1), 99, 1, 1)
    far = write_receipt(Place(TOPIC, 7, 1), 0, 1, 1)
    old = write_receipt(Place(TOPIC, 0, 1), 0, 1, 1)
    strange = write_receipt(Place(TOPIC, 0, 77), 0, 1, 1)
    receipts = [*mine, *theirs[:1], gone, *other, beyond, far, old, strange, mine[0]]
    results = world.answer(Kind.ACK, receipts)
    kinds = [type(one).__name__ for one in results]
    assert kinds == [
        *["Answered"] * 4,
        "NotFound",
        "Answered",
        *["NotFound"] * 2,
        *["StaleReceipt"] * 2,
        "Answered",
    ]
    floors = {one.partition: one.floor for one in world.lag(GROUP)[:2]}
    assert floors == {0: 2, 1: 1}
    assert world.lag("second")[0].floor in {0, 1}


def test_an_ack_may_be_repeated_and_nothing_else_may() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(b"a", b"b", b"c")
    first, second, third = world.poll()
    assert [one.is_repeat for one in world.ack(first)] == [False]
    assert [one.is_repeat for one in world.ack(first)] == [True]
    assert isinstance(world.nack(first)[0], StaleReceipt)
    assert isinstance(world.reject(first)[0], StaleReceipt)
    extended = world.extend(first, ms=5)
    assert isinstance(extended[0], StaleReceipt)
    world.nack(second)
    assert isinstance(world.ack(second)[0], StaleReceipt)
    assert isinstance(world.nack(second)[0], StaleReceipt)
    world.reject(third)
    assert isinstance(world.ack(third)[0], StaleReceipt)


def test_a_repeated_ack_is_a_success_after_a_restart_too() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(b"a")
    (held,) = world.poll()
    world.ack(held)
    for stop in (world.kill, world.restart):
        stop()
        assert world.ack(held)[0].is_repeat


def test_the_last_thousand_leases_that_ended_may_be_acked_again() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(*[b"x"] * 2100)
    held = [*world.poll(10)]
    world.ack(*held)
    for _ in range(2090):
        held += world.poll(1)
        world.ack(held[-1])
    for stop in (lambda: None, world.kill):
        stop()
        assert all(one.is_repeat for one in world.ack(*held[-1000::37], held[-1]))
        assert isinstance(world.ack(held[0])[0], StaleReceipt)


def test_an_answer_says_how_the_group_stands() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(b"a", b"b", b"c")
    held = world.poll()
    (answer,) = world.ack(held[1])
    assert (answer.floor, answer.has_floor_moved, answer.in_flight) == (0, False, 2)
    (answer,) = world.ack(held[0])
    assert (answer.floor, answer.has_floor_moved, answer.in_flight) == (2, True, 1)
    (answer,) = world.nack(held[2], error="no", delay_ms=700)
    assert (answer.retry_in_ms, answer.is_finished) == (700, False)
    world.wait(700)
    (again,) = world.poll()
    (answer,) = world.reject(again)
    assert (answer.retry_in_ms, answer.is_finished) == (None, True)


def test_extending_sets_a_new_deadline_from_now() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(b"a", b"b")
    first, second = world.poll(ms=1000)
    world.wait(900)
    world.extend(first, ms=1000)
    world.wait(500)
    assert isinstance(world.ack(second)[0], StaleReceipt)
    assert isinstance(world.ack(first)[0], Answered)
    for wrong in (0, -1, 12 * 3600 * 1000 + 1):
        (refusal,) = world.extend(first, ms=wrong)
        assert isinstance(refusal, Refused)


def test_a_delay_that_makes_no_sense_is_refused() -> None:
    world = World()
    world.topic()
    world.group()
    world.publish(b"a")
    (held,) = world.poll()
    for wrong in (-1, 10**15):
        assert isinstance(world.nack(held, delay_ms=wrong)[0], Refused)
    assert isinstance(world.ack(held)[0], Answered)


def test_a_full_disk_under_one_partition_does_not_hold_up_the_others() -> None:
    world = World()
    world.topic(partitions=2)
    world.group()
    world.publish(b"a", partition=0)
    world.publish(b"b", partition=1)
    held = sorted(world.poll(), key=lambda one: one.partition)
    full = Fault(call=Call.APPEND, does=Misbehaviour.NO_SPACE, path_part="partition-0/state")
    world.disk.inject(full)
    refusal, answer = world.ack(*held)
    assert isinstance(refusal, NoSpace)
    assert isinstance(answer, Answered)
    assert world.ack(held[0])[0].is_repeat is False


def test_a_receipt_of_a_message_that_retention_took_is_unknown() -> None:
    world = World()
    world.topic(retention_hours=1)
    world.group()
    world.publish(b"a")
    (held,) = world.poll(ms=10 * 3600 * 1000)
    world.now(2 * 3600 * 1000)
    world.sweep()
    assert isinstance(world.ack(held)[0], NotFound)


def test_messages_in_hand_are_grouped_by_their_lease() -> None:
    world = World()
    world.topic(partitions=2)
    world.group()
    world.publish(b"a", b"b", b"c", partition=0)
    world.publish(b"d", partition=1)
    held = world.poll(3)
    held += world.poll(3)
    found = {(one.place, one.lease): set() for one in held}
    for one in held:
        found[one.place, one.lease].add(one.offset)
    assert {
        (Place(one.topic, one.partition, one.group), one.lease): {*one.offsets}
        for one in held.release().answers
    } == found
    assert sum(map(len, found.values())) == 4
