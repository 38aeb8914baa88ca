"""Acks and offsets inside of transactions: they count with the commit, and until then no other consumer gets them."""

from collections import Counter
from contextlib import suppress

import pytest

from penstock.api.answers import AnswerOffset, Kind, LeaseAnswer, OffsetKind, answers_of
from penstock.api.classic import CommitOffsets, CommittedOffset, ListCommitted
from penstock.api.dead_letters import BrowseDeadLetters
from penstock.api.groups import ResetGroup
from penstock.api.receipts import read_receipt
from penstock.api.start import EARLIEST
from penstock.api.topics import TrimPartition
from penstock.api.transaction_answers import StageAnswers, StagedOffset, StageOffsets
from penstock.api.transactions import EndTransaction, Stage
from penstock.codec import decode_messages
from penstock.errors import (
    GroupBusy,
    NotFound,
    NotHeld,
    OffsetOutOfRange,
    ProducerFenced,
    Refused,
    StaleReceipt,
    TransactionInProgress,
    UnknownMember,
)
from penstock.model import Message
from penstock.sim import SimDisk

from .test_transactions import Transactional
from .test_transactions import stored as stored_in
from .world import GROUP, TOPIC, Answered, World, pull_the_plug, values

OUT = "out"
MINUTE_MS = 60_000


class Consumer(Transactional):
    """A transactional producer that consumes, too."""

    def answer(self, kind: Kind, *received, reason: str = "", ms: int | None = None) -> None:
        receipts = [read_receipt(one.receipt) for one in received]
        said = [*answers_of(receipts, kind, reason, ms).values()]
        self.world.execute(StageAnswers(self.id, self.epoch, said))

    def ack(self, *received) -> None:
        self.answer(Kind.ACK, *received)

    def commit_offset(self, offset: int, partition: int = 0, **options) -> None:
        note = options.pop("note", None)
        offsets = (StagedOffset(TOPIC, partition, offset, note),)
        self.world.execute(StageOffsets(self.id, self.epoch, GROUP, offsets, **options))

    def put(self, value: bytes) -> None:
        self.world.execute(Stage(self.id, self.epoch, OUT, [Message(value)], 0))


def three_messages() -> World:
    world = World()
    world.topic(1, visibility_timeout_ms=30_000, backoff_base_ms=1000)
    world.topic(1, OUT)
    world.group()
    world.publish(b"a", b"b", b"c")
    return world


@pytest.fixture
def world() -> World:
    return three_messages()


def out(world: World) -> list[bytes | None]:
    log = world.node.partition(OUT, 0).messages
    return [
        one.value for head, batch in log.batches_from(0) for one in decode_messages(batch, head)
    ]


def test_an_ack_inside_counts_with_the_commit_and_its_message_is_no_others_before(world) -> None:
    consumer = Consumer(world)
    first, second, third = world.poll(3)
    consumer.ack(first)
    consumer.put(b"A")
    assert [type(one) for one in world.ack(first)] == [StaleReceipt]
    assert [type(one) for one in world.nack(first)] == [StaleReceipt]
    assert [type(one) for one in world.extend(first, ms=1000)] == [StaleReceipt]
    with pytest.raises(NotHeld):
        world.execute(AnswerOffset(OffsetKind.ACK, TOPIC, 0, GROUP, first.offset))
    with pytest.raises(NotHeld):
        world.execute(AnswerOffset(OffsetKind.ACK_UP_TO, TOPIC, 0, GROUP, second.offset))
    world.ack(second, third)
    assert world.lag()[0].lag == 1
    consumer.end()
    assert world.lag()[0].lag == 0
    assert world.lag()[0].in_flight == 0
    assert out(world) == [b"A"]
    # A lost reply of an ack outside would be recognised as after any other.
    (again,) = world.ack(first)
    assert isinstance(again, Answered)
    assert again.is_repeat


def test_a_lease_does_not_expire_while_a_transaction_has_it(world) -> None:
    consumer = Consumer(world)
    first, _second, _third = world.poll(3, ms=1000)
    consumer.ack(first)
    world.wait(5000)
    world.wait(5000)
    assert values(world.poll()) == [b"b", b"c"]
    consumer.end()
    assert world.lag()[0].lag == 2


@pytest.mark.parametrize("restarted", [False, True])
def test_after_an_abort_the_message_is_with_its_lease_again(world, restarted) -> None:
    consumer = Consumer(world)
    (first,) = world.poll(1, ms=1000)
    consumer.ack(first)
    world.wait(10_000)
    if restarted:
        world.restart()
        world.kill()
    consumer.end(is_commit=False)
    assert values(world.poll(member="other")) == [b"b", b"c"]
    world.wait(999)
    assert values(world.poll(member="other")) == []
    (answered,) = world.ack(first)
    assert isinstance(answered, Answered)


def test_one_whose_answers_were_about_messages_that_are_gone_goes_on_after_a_restart(world) -> None:
    consumer = Consumer(world)
    consumer.ack(*world.poll(3))
    world.sync()
    world.execute(TrimPartition(TOPIC, 0))
    world.restart()
    world.execute(Stage(consumer.id, consumer.epoch, TOPIC, [Message(b"d")], 0))
    end = consumer.end()
    assert [(*one,) for one in end.places] == [(TOPIC, 0, 3, 1)]
    assert values(world.poll()) == [b"d"]


def test_after_an_abort_a_lease_expires_in_its_own_time_and_the_attempt_counts(world) -> None:
    consumer = Consumer(world)
    (first,) = world.poll(1, ms=1000)
    consumer.ack(first)
    consumer.end(is_commit=False)
    world.wait(1000)
    world.wait(60_000)
    again = next(one for one in world.poll() if one.offset == first.offset)
    assert again.attempts == 2
    with pytest.raises(StaleReceipt):
        consumer.ack(first)
    consumer.ack(again)
    consumer.end()


def test_what_a_member_had_that_went_away_is_ready_when_the_transaction_aborts(world) -> None:
    consumer = Consumer(world)
    (first,) = world.poll(1, member="gone")
    consumer.ack(first)
    world.release("gone")
    assert values(world.poll(member="other")) == [b"b", b"c"]
    consumer.end(is_commit=False)
    (again,) = world.poll(member="other")
    assert (again.value, again.attempts) == (b"a", 2)


def test_what_a_member_had_that_went_away_is_a_dead_letter_if_it_was_its_last_attempt(
    world,
) -> None:
    world.configure(max_retries=0)
    consumer = Consumer(world)
    (first,) = world.poll(1, member="gone")
    consumer.ack(first)
    world.release("gone")
    consumer.end(is_commit=False)
    world.settle()
    assert values(world.poll(member="other")) == [b"b", b"c"]
    assert [one.message.value for one in world.letters()] == [b"a"]
    world.kill()
    assert (world.lag()[0].lag, world.lag()[0].in_flight) == (2, 2)


def test_nack_and_reject_inside_happen_with_the_commit(world) -> None:
    consumer = Consumer(world)
    first, second, third = world.poll(3)
    consumer.answer(Kind.NACK, first, reason="later", ms=500)
    consumer.answer(Kind.REJECT, second, reason="bad")
    consumer.answer(Kind.REJECT, third, reason="worse")
    world.wait(1000)
    assert values(world.poll()) == []
    assert world.lag()[0].lag == 3
    world.restart()
    consumer.end()
    world.settle()
    assert values(world.poll()) == []
    letters = world.execute(BrowseDeadLetters(TOPIC)).letters
    assert [(one.message.value, one.provenance.last_error) for one in letters] == [
        (b"b", "bad"),
        (b"c", "worse"),
    ]
    world.wait(500)
    (again,) = world.poll()
    assert (again.value, again.attempts) == (b"a", 2)


def test_a_repeat_is_harmless_and_anything_else_is_refused_and_changes_nothing(world) -> None:
    consumer, other = Consumer(world), Consumer(world, "other")
    first, second, _ = world.poll(3)
    consumer.ack(first)
    consumer.ack(first)
    for wrong in (Kind.NACK, Kind.REJECT):
        with pytest.raises(StaleReceipt):
            consumer.answer(wrong, first)
    with pytest.raises(StaleReceipt):
        other.ack(first)
    place, offset, _, lease = read_receipt(second.receipt)
    never = LeaseAnswer(Kind.ACK, *place, lease + 1, [offset])
    held = LeaseAnswer(Kind.ACK, *place, lease, [offset])
    with pytest.raises(StaleReceipt):
        world.execute(StageAnswers(consumer.id, consumer.epoch, [held, never]))
    with pytest.raises(Refused):
        consumer.answer(Kind.EXTEND, second, ms=1000)
    with pytest.raises(Refused):
        consumer.answer(Kind.NACK, second, ms=-1)
    with pytest.raises(Refused):
        world.execute(StageAnswers(consumer.id, consumer.epoch, [held, held]))
    with pytest.raises(ProducerFenced):
        world.execute(StageAnswers(consumer.id, consumer.epoch + 1, []))
    with pytest.raises(NotFound):
        world.execute(StageAnswers(7, 0, []))
    # Nothing of it happened to the second message.
    (answered,) = world.ack(second)
    assert isinstance(answered, Answered)
    assert not answered.is_repeat
    consumer.end()
    assert world.lag()[0].lag == 1


def test_a_time_out_gives_the_messages_back(world) -> None:
    consumer = Consumer(world)
    (first,) = world.poll(1, ms=1000)
    consumer.ack(first)
    consumer.put(b"A")
    world.wait(MINUTE_MS)
    world.settle()
    world.wait(1000)
    world.wait(60_000)
    assert sorted(values(world.poll())) == [b"a", b"b", b"c"]
    assert out(world) == []


def test_offsets_inside_keep_everything_below_from_all_members_until_the_end(world) -> None:
    consumer = Consumer(world)
    got = world.poll(2, ms=1000)
    consumer.commit_offset(2)
    consumer.put(b"AB")
    world.wait(30_000)
    world.release("m")
    assert values(world.poll(member="other")) == []
    with pytest.raises(GroupBusy):
        world.execute(ResetGroup(GROUP, topic=TOPIC, to=EARLIEST))
    assert world.lag()[0].floor == 0
    consumer.end()
    assert world.lag()[0].floor == 2
    assert values(world.poll(member="other")) == [b"c"]
    assert [type(one) for one in world.ack(*got)] == [StaleReceipt, StaleReceipt]


def test_a_group_with_a_transaction_in_one_partition_is_reset_in_none() -> None:
    world = World()
    world.topic(3)
    world.group()
    for partition in range(3):
        world.publish(b"a", partition=partition)
    world.execute(CommitOffsets(GROUP, (CommittedOffset(TOPIC, 0, 1, ""),)))
    Consumer(world).commit_offset(1, 1)
    with pytest.raises(GroupBusy):
        world.execute(ResetGroup(GROUP, topic=TOPIC, to=EARLIEST))
    assert [one.floor for one in world.lag()] == [1, 0, 0]


def test_offsets_of_an_aborted_one_are_as_if_they_had_never_been(world) -> None:
    consumer = Consumer(world)
    got = world.poll(2)
    consumer.commit_offset(2)
    world.restart()
    assert values(world.poll(member="other")) == []
    consumer.end(is_commit=False)
    assert values(world.poll(member="other")) == [b"c"]
    assert [type(one) for one in world.ack(*got)] == [Answered, Answered]


def test_offsets_of_a_client_are_unstable_until_the_end_and_may_go_back(world) -> None:
    consumer = Consumer(world)
    world.execute(CommitOffsets(GROUP, (CommittedOffset(TOPIC, 0, 3, "before"),)))
    consumer.commit_offset(1, note="back")
    (committed,) = world.execute(ListCommitted(group=GROUP))
    assert (committed.offset, committed.note, committed.is_stable) == (3, "before", False)
    world.kill()
    assert not world.execute(ListCommitted(group=GROUP))[0].is_stable
    consumer.end()
    assert world.execute(ListCommitted(group=GROUP)) == [CommittedOffset(TOPIC, 0, 1, "back", True)]


def test_the_first_offset_of_a_group_is_unstable_and_an_abort_leaves_none(world) -> None:
    consumer = Consumer(world)
    offsets = (StagedOffset(TOPIC, 0, 2, ""),)
    world.execute(StageOffsets(consumer.id, consumer.epoch, "new", offsets))
    (committed,) = world.execute(ListCommitted(group="new"))
    assert (committed.offset, committed.is_stable) == (-1, False)
    consumer.end(is_commit=False)
    assert world.execute(ListCommitted(group="new")) == []


def test_wrong_offsets_are_refused_and_no_transaction_begins(world) -> None:
    consumer = Consumer(world)
    with pytest.raises(OffsetOutOfRange):
        consumer.commit_offset(4)
    with pytest.raises(NotFound):
        consumer.commit_offset(0, partition=1)
    with pytest.raises(UnknownMember):
        consumer.commit_offset(1, member="nobody")
    assert consumer.end().transaction_id.endswith("-0")
    assert values(world.poll()) == [b"a", b"b", b"c"]


def test_an_input_is_in_the_output_once_at_every_crash_state(effort) -> None:
    """Consume, transform, produce; whatever the power does, and however it goes on."""
    before = World()
    before.topic(1, visibility_timeout_ms=1000, backoff_base_ms=1)
    before.topic(1, OUT)
    before.group()
    before.publish(b"a", b"b", b"c", b"d")
    Consumer(before)
    before.restart()

    def step(consumer: Consumer, limit: int) -> bool:
        got = consumer.world.poll(limit, ms=1000)
        for one in got:
            assert one.value is not None
            consumer.put(one.value.upper())
        if got:
            consumer.ack(*got)
        return bool(got)

    def scenario(disk: SimDisk) -> None:
        consumer = Consumer(World(disk))
        world = consumer.world
        step(consumer, 2)
        world.node.partition(TOPIC, 0).take_snapshot()
        consumer.end()
        disk.mark("two")
        step(consumer, 1)
        world.node.partition(TOPIC, 0).take_snapshot()
        consumer.end()

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        found = len(out(world))
        assert found >= 2 or "two" not in marks
        # What it has to do yet is what is not in the output, no more and no less.
        assert world.lag()[0].lag == 4 - found
        consumer = Consumer(world)
        for _ in range(6):
            world.settle()
            with suppress(TransactionInProgress):
                step(consumer, 3)
                consumer.end()
            world.wait(1000)
        assert Counter(out(world)) == Counter([b"A", b"B", b"C", b"D"])
        assert world.lag()[0].lag == 0

    start = before.disk.tree()
    assert pull_the_plug(scenario, check, effort, start=start, is_long=True) > 40


def test_a_commit_waits_until_its_answers_are_durable(world) -> None:
    consumer = Consumer(world)
    (first,) = world.poll(1)
    world.sync()
    consumer.ack(first)
    command = EndTransaction(consumer.id, consumer.epoch, True)
    assert world.execute(command).state == "Ongoing"
    world.sync()
    assert world.execute(command).state == "PrepareCommit"
    assert stored_in(world, 1) == [[b"a", b"b", b"c"]]
