"""Transactions: all of their messages or none, once, whatever the power does; and what is refused."""

from collections.abc import Callable, Sequence

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from penstock.api.publish import PublishRecords
from penstock.api.transactions import (
    BeginTransaction,
    DescribeTransaction,
    EndTransaction,
    ForceAbort,
    InitProducer,
    ListTransactions,
    ProducerHeartbeat,
    ProducerSession,
    Stage,
    StageBatch,
    Staged,
    StageRecords,
    TransactionEnd,
)
from penstock.broker.partition.staging import drop
from penstock.codec import Marks, decode_messages, encode_messages
from penstock.errors import (
    MalformedBatch,
    NotFound,
    OutOfSequence,
    PenstockError,
    ProducerFenced,
    Refused,
    TransactionEnded,
    TransactionInProgress,
)
from penstock.model import Message, TopicPartition
from penstock.transactions.stagings import TransactionKey

from .losses import log_ends
from .world import TOPIC, World, values

MS = 1_000_000
MINUTE_MS = 60_000


class Transactional:
    """A producer on a world: remembers its epoch, as a client does."""

    def __init__(self, world: World, name: str = "p", **options: int) -> None:
        self.world, self.name, self.options = world, name, options
        self.init()

    def init(self) -> ProducerSession:
        session = self.world.execute(InitProducer(self.name, **self.options))
        self.id, self.epoch = session
        return session

    def stage(self, *some: bytes, **options) -> Sequence[Staged]:
        messages = [Message(one) for one in some]
        return self.world.execute(Stage(self.id, self.epoch, TOPIC, messages, **options))

    def end(self, *, is_commit: bool = True, epoch: int | None = None) -> TransactionEnd:
        """Until it is complete, with a sync between, as a driver does."""
        command = EndTransaction(self.id, self.epoch if epoch is None else epoch, is_commit)
        for _ in range(6):
            found = self.world.execute(command)
            if found.is_complete:
                if epoch is None:
                    self.epoch = found.epoch
                return found
            self.world.sync()
            self.world.node.pump(self.world.now())
        raise AssertionError("it never ends")


@pytest.fixture
def world() -> World:
    world = World()
    world.topic(3)
    return world


def stored(world: World, partitions: int = 3) -> list[list[bytes | None]]:
    logs = [world.node.partition(TOPIC, one).messages for one in range(partitions)]
    return [
        [
            message.value
            for head, batch in log.batches_from(0)
            for message in decode_messages(batch, head)
        ]
        for log in logs
    ]


def test_what_is_staged_is_seen_by_no_reader_before_the_commit_and_by_all_after_it(world) -> None:
    producer = Transactional(world)
    assert producer.stage(b"a", partition=0) == [Staged(0, 0, False)]
    producer.stage(b"b", b"c", partition=1)
    world.group()
    world.publish(b"plain", partition=0)
    world.sync()
    assert stored(world) == [[b"plain"], [], []]
    assert values(world.drain()) == [b"plain"]
    end = producer.end()
    assert end.state == "CompleteCommit"
    assert [(*one,) for one in end.places] == [(TOPIC, 0, 1, 1), (TOPIC, 1, 0, 2)]
    assert stored(world) == [[b"plain", b"a"], [b"b", b"c"], []]
    assert sorted(values(world.drain())) == [b"a", b"b", b"c"]


def test_the_next_one_begins_with_the_partitions_of_the_last_and_tells_those_that_it_came_to(
    world,
) -> None:
    producer = Transactional(world)

    def stage(*partitions: int) -> int:
        """How many batches of records the coordinator has written for it."""
        log = world.node.transactions.home(producer.id).journal.log
        first = log.end_offset
        for one in partitions:
            producer.stage(b"%d" % one, partition=one)
        return sum(1 for _ in log.batches_from(first))

    assert stage(0, 1, 2) == 3
    producer.end()
    assert stage(2, 1, 0) == 1
    producer.end()
    assert stage(1) == 1
    world.sync()
    untold = world.node.partition(TOPIC, 2).journal.log
    before = untold.end_offset
    assert [(*one,) for one in producer.end().places] == [(TOPIC, 1, 2, 1)]
    assert untold.end_offset == before
    # What it did not come to is not expected any more.
    assert stage(2) == 1
    assert stage(1) == 0
    assert stage(0) == 1
    producer.end(is_commit=False)
    assert stored(world) == [[b"0"] * 2, [b"1"] * 3, [b"2"] * 2]


def test_an_aborted_one_leaves_nothing_and_the_next_has_another_epoch(world) -> None:
    producer = Transactional(world)
    producer.stage(b"a")
    assert producer.end(is_commit=False).state == "CompleteAbort"
    assert producer.epoch == 1
    assert stored(world) == [[], [], []]
    producer.stage(b"b", partition=2)
    producer.end()
    assert stored(world) == [[], [], [b"b"]]


def test_a_commit_can_be_repeated_and_a_late_one_touches_nothing(world) -> None:
    producer = Transactional(world)
    producer.stage(b"a", partition=0)
    first = producer.end()
    assert producer.end(epoch=0) == first
    producer.stage(b"b", partition=0)
    # The transaction of epoch 0 is over, and the one of epoch 1 is not the one it is about.
    with pytest.raises(ProducerFenced):
        producer.end(epoch=0)
    with pytest.raises(ProducerFenced):
        producer.end(epoch=0, is_commit=False)
    assert stored(world)[0] == [b"a"]
    producer.end()
    assert stored(world)[0] == [b"a", b"b"]


def test_commits_that_were_asked_for_go_on_by_themselves_after_each_sync(world) -> None:
    producers = [Transactional(world, name) for name in ("p", "q")]
    for producer in producers:
        producer.stage(producer.name.encode(), partition=0)
        producer.stage(producer.name.encode(), partition=1)
        assert not world.execute(EndTransaction(producer.id, producer.epoch, True)).is_complete
    for _ in range(3):
        assert stored(world)[2] == []
        world.sync()
        world.node.pump(world.now())
    assert world.node.changes.ended == {one.id for one in producers}
    for producer in producers:
        end = world.execute(EndTransaction(producer.id, producer.epoch, True))
        assert end.state == "CompleteCommit"
        assert sum(one.message_count for one in end.places) == 2
    assert stored(world) == [[b"p", b"q"], [b"p", b"q"], []]


def test_a_commit_that_was_asked_for_does_not_touch_what_comes_after_an_abort(world) -> None:
    producer = Transactional(world)
    producer.stage(b"old", partition=0)
    assert not world.execute(EndTransaction(producer.id, producer.epoch, True)).is_complete
    producer.init()
    world.settle()
    producer.stage(b"new", partition=0)
    world.settle()
    assert stored(world) == [[], [], []]
    producer.end()
    assert stored(world) == [[b"new"], [], []]


def test_a_new_session_fences_the_old_one_and_aborts_what_it_had_open(world) -> None:
    old = Transactional(world)
    old.stage(b"a", partition=0)
    new = Transactional(world)
    assert (new.id, new.epoch) == (old.id, 2)
    for zombie in (
        lambda: old.stage(b"b", partition=0),
        lambda: world.execute(BeginTransaction(old.id, old.epoch)),
        lambda: world.execute(ProducerHeartbeat(old.id, old.epoch)),
    ):
        with pytest.raises(ProducerFenced):
            zombie()
    with pytest.raises(TransactionEnded):
        old.end()
    with pytest.raises(TransactionInProgress):
        new.stage(b"c", partition=0)
    world.settle()
    new.stage(b"c", partition=0)
    new.end()
    assert stored(world)[0] == [b"c"]


def test_a_commit_waits_for_its_stagings_to_be_durable(world) -> None:
    producer = Transactional(world)
    world.sync()
    producer.stage(b"a", partition=0)
    assert world.execute(EndTransaction(producer.id, 0, True)).state == "Ongoing"
    world.sync()
    assert world.execute(EndTransaction(producer.id, 0, True)).state == "PrepareCommit"
    world.lose_unsynced()
    # The decision was not durable, the staging was.
    assert stored(world)[0] == []
    assert producer.end().state == "CompleteCommit"
    assert stored(world)[0] == [b"a"]


@pytest.mark.parametrize("stop", [World.kill, World.restart, World.lose_unsynced])
def test_a_start_applies_decisions_before_it_serves(world, stop) -> None:
    producer = Transactional(world)
    producer.stage(b"a", partition=0)
    producer.stage(b"b", partition=2)
    world.sync()
    assert world.execute(EndTransaction(producer.id, 0, True)).state == "PrepareCommit"
    world.sync()
    stop(world)
    assert stored(world) == [[b"a"], [], [b"b"]]
    end = producer.end()
    assert [(*one,) for one in end.places] == [(TOPIC, 0, 0, 1), (TOPIC, 2, 0, 1)]
    stop(world)
    assert producer.end(epoch=0) == end


@pytest.mark.parametrize("stop", [World.kill, World.restart, World.lose_unsynced])
def test_an_open_one_goes_on_after_a_restart_with_its_sequences(world, stop) -> None:
    producer = Transactional(world)
    producer.stage(b"a", partition=0, sequence=0)
    world.sync()
    stop(world)
    assert producer.stage(b"a", partition=0, sequence=0) == [Staged(0, 0, True)]
    with pytest.raises(OutOfSequence):
        producer.stage(b"c", partition=0, sequence=2)
    producer.stage(b"b", partition=0, sequence=1)
    producer.end()
    assert stored(world)[0] == [b"a", b"b"]


def test_a_time_out_aborts_and_a_heartbeat_puts_it_off_but_not_for_ever(world) -> None:
    producer = Transactional(world, timeout_ms=MINUTE_MS)
    producer.stage(b"a", partition=0)
    for _ in range(17):
        world.wait(50_000)
        world.execute(ProducerHeartbeat(producer.id, producer.epoch))
    assert world.execute(ListTransactions(state="Ongoing"))
    # Fifteen minutes in all.
    world.wait(50_000)
    with pytest.raises(TransactionEnded, match="too long"):
        producer.end()
    with pytest.raises(ProducerFenced):
        producer.stage(b"b", partition=0)
    world.settle()
    assert stored(world)[0] == []
    producer.init()
    producer.stage(b"c", partition=0)
    producer.end()
    assert stored(world)[0] == [b"c"]


def test_an_administrator_sees_and_aborts_it(world) -> None:
    producer = Transactional(world, "billing")
    producer.stage(b"a", b"b", partition=1)
    (found,) = world.execute(ListTransactions())
    assert (found.name, found.state, found.epoch) == ("billing", "Ongoing", 0)
    assert [(one.topic, one.partition, one.messages) for one in found.participants] == [
        (TOPIC, 1, 2)
    ]
    assert world.execute(DescribeTransaction(found.transaction_id)) == found
    world.execute(ForceAbort(found.transaction_id))
    with pytest.raises(TransactionEnded, match="administrator"):
        producer.end()
    world.settle()
    assert world.execute(DescribeTransaction(found.transaction_id)).state == "CompleteAbort"
    assert stored(world)[1] == []


def refusals(world: World) -> list[tuple[Callable[[], object], type[PenstockError]]]:
    producer = Transactional(world)
    keyed = [Message(b"a", idempotency_key=b"k")]
    unmarked = encode_messages([Message(b"a")]).to_bytes()
    other = Marks(producer_id=77, producer_epoch=0, first_sequence=0)
    gap = Marks(producer_id=producer.id, producer_epoch=0, first_sequence=5)

    def batch(marks: Marks) -> StageBatch:
        return StageBatch(TOPIC, 0, encode_messages([Message(b"a")], marks=marks).to_bytes())

    execute = world.execute
    return [
        (lambda: execute(InitProducer("")), Refused),
        (lambda: execute(InitProducer("n" * 251)), Refused),
        (lambda: execute(InitProducer("a\nb")), Refused),
        (lambda: execute(InitProducer("n", timeout_ms=0)), Refused),
        (lambda: execute(InitProducer("n", timeout_ms=15 * MINUTE_MS + 1)), Refused),
        (lambda: execute(Stage(77, 0, TOPIC, [Message(b"a")])), NotFound),
        (lambda: execute(Stage(-1, 0, TOPIC, [Message(b"a")])), NotFound),
        (lambda: execute(Stage(producer.id, 0, "nothing", [Message(b"a")])), NotFound),
        (lambda: execute(Stage(producer.id, 0, "__transactions", [Message(b"a")])), NotFound),
        (lambda: execute(Stage(producer.id, 1, TOPIC, [Message(b"a")])), ProducerFenced),
        (lambda: execute(Stage(producer.id, 0, TOPIC, keyed)), Refused),
        (lambda: producer.stage(b"a", partition=9), NotFound),
        (lambda: execute(Stage(producer.id, 0, TOPIC, [Message(b"a")] * 2, None, 0)), Refused),
        (lambda: producer.stage(b"a", sequence=3), OutOfSequence),
        (
            lambda: execute(EndTransaction(producer.id, 0, True, f"{producer.id}-7")),
            TransactionEnded,
        ),
        (lambda: producer.stage(b"a", partition=0, sequence=-1), Refused),
        (lambda: producer.stage(b"a", partition=0, sequence=3), OutOfSequence),
        (lambda: execute(StageBatch(TOPIC, 0, unmarked)), Refused),
        (lambda: execute(batch(other)), NotFound),
        (lambda: execute(batch(gap)), OutOfSequence),
        (lambda: execute(EndTransaction(77, 0, True)), NotFound),
        (lambda: execute(EndTransaction(producer.id, 5, True)), ProducerFenced),
        (lambda: execute(ForceAbort("x")), NotFound),
        (lambda: execute(ForceAbort(f"{producer.id}-1")), NotFound),
        (lambda: execute(ListTransactions(state="Open")), Refused),
        (lambda: execute(DescribeTransaction("1-")), NotFound),
        (lambda: world.delete("__transactions"), NotFound),
        (lambda: world.topic(name="__transactions"), Refused),
        (lambda: world.publish(b"x", topic="__transactions"), NotFound),
    ]


def test_what_is_wrong_is_refused_and_changes_nothing(world) -> None:
    calls = refusals(world)
    before = world.execute(ListTransactions())
    ends = [*map(log_ends, world.node.partitions())]
    for call, error in calls:
        with pytest.raises(error):
            call()
    assert world.execute(ListTransactions()) == before
    assert [*map(log_ends, world.node.partitions())] == ends
    assert world.topics() == [TOPIC]


def test_what_a_partition_has_recorded_as_over_takes_no_staging(world) -> None:
    producer = Transactional(world)
    producer.stage(b"a", partition=0)
    home = world.node.partition(TOPIC, 0)
    drop(home, TransactionKey(producer.id, 1), world.now())
    end = home.staging.end_offset
    with pytest.raises(TransactionEnded):
        producer.stage(b"b", partition=0)
    assert home.staging.end_offset == end


def test_a_batch_of_a_client_is_staged_once(world) -> None:
    producer = Transactional(world)
    marks = Marks(producer_id=producer.id, producer_epoch=0, first_sequence=0)
    batch = encode_messages([Message(b"a"), Message(b"b")], marks=marks).to_bytes()
    assert world.execute(StageBatch(TOPIC, 1, batch)) == Staged(1, 0, False)
    assert world.execute(StageBatch(TOPIC, 1, batch)) == Staged(1, 0, True)
    producer.end()
    assert stored(world)[1] == [b"a", b"b"]


def test_a_commit_of_nothing_is_a_commit(world) -> None:
    producer = Transactional(world)
    assert producer.end() == TransactionEnd(f"{producer.id}-0", "CompleteCommit", 0, True, ())
    transaction_id = world.execute(BeginTransaction(producer.id, 0))
    assert world.execute(BeginTransaction(producer.id, 0)) == transaction_id
    assert producer.end() == TransactionEnd(transaction_id, "CompleteCommit", 1, True, ())


def test_a_topic_that_is_deleted_takes_its_part_along(world) -> None:
    producer = Transactional(world)
    world.topic(name="other")
    producer.stage(b"a", partition=0)
    world.execute(Stage(producer.id, 0, "other", [Message(b"b")]))
    world.delete("other")
    end = producer.end()
    assert [(*one,) for one in end.places] == [(TOPIC, 0, 0, 1)]


def test_a_session_that_keeps_its_epoch_is_fenced_by_what_ends_it_from_outside(world) -> None:
    producer = Transactional(world, keeps_epoch=True)
    for value in (b"a", b"b"):
        producer.stage(value, partition=0)
        first = producer.end()
        assert (first.state, first.epoch) == ("CompleteCommit", 0)
        # Asked again, it is the same end, until the next transaction begins.
        assert producer.end() == first
    with pytest.raises(TransactionEnded):
        producer.end(is_commit=False)
    producer.stage(b"gone", partition=1)
    world.restart()
    world.wait(MINUTE_MS)
    world.settle()
    with pytest.raises(ProducerFenced):
        producer.stage(b"late", partition=1)
    with pytest.raises(TransactionEnded):
        producer.end()
    assert stored(world) == [[b"a", b"b"], [], []]


def test_a_session_that_follows_another_is_refused_unless_that_is_the_present_one(world) -> None:
    producer = Transactional(world, keeps_epoch=True)
    former = ProducerSession(producer.id, producer.epoch)
    again = world.execute(InitProducer("p", former=former, keeps_epoch=True))
    assert again == (producer.id, 1)
    with pytest.raises(ProducerFenced):
        world.execute(InitProducer("p", former=ProducerSession(7, 0), keeps_epoch=True))
    with pytest.raises(ProducerFenced):
        world.execute(InitProducer("unknown", former=former))


@pytest.mark.parametrize("keeps_epoch", [True, False])
@pytest.mark.parametrize("stop", [None, World.restart, World.kill])
def test_a_session_that_asks_once_more_to_be_followed_gets_the_same_answer(
    world, stop, keeps_epoch
) -> None:
    producer = Transactional(world, keeps_epoch=keeps_epoch)
    # The end of this one raises the epoch, and so does the new session.
    producer.stage(b"gone", partition=0)
    old = ProducerSession(producer.id, producer.epoch)
    follow = InitProducer("p", former=old, keeps_epoch=keeps_epoch)
    present = world.execute(follow)
    assert present == (producer.id, 2)
    if stop is not None:
        stop(world)
    world.settle()
    assert world.execute(follow) == present
    # Delivered late, it ends nothing of what the client has begun since.
    producer.epoch = present.epoch
    producer.stage(b"kept", partition=0)
    assert world.execute(follow) == present
    producer.end()
    assert stored(world)[0] == [b"kept"]
    latest = world.execute(
        InitProducer("p", former=(producer.id, producer.epoch), keeps_epoch=keeps_epoch)
    )
    assert latest == (producer.id, producer.epoch + 1)
    with pytest.raises(ProducerFenced):
        world.execute(follow)


@pytest.mark.parametrize("stop", [None, World.restart, World.kill])
def test_a_zombie_does_not_share_the_session_that_took_its_place(world, stop) -> None:
    producer = Transactional(world, keeps_epoch=True)
    zombie = ProducerSession(producer.id, producer.epoch)
    assert producer.init() == (producer.id, 1)
    if stop is not None:
        stop(world)
    # Its epoch is the one before the present one, but that did not follow it.
    with pytest.raises(ProducerFenced):
        world.execute(InitProducer("p", former=zombie, keeps_epoch=True))
    producer.stage(b"a", partition=0)
    producer.end()
    assert stored(world)[0] == [b"a"]


def test_a_record_batch_is_staged_only_where_its_transaction_is_open(world) -> None:
    producer = Transactional(world, keeps_epoch=True)
    batch = transactional_records(producer.id, producer.epoch, [b"a", b"b"])
    command = StageRecords(TOPIC, 1, batch)
    with pytest.raises(TransactionEnded):
        world.execute(command)
    begin = BeginTransaction(producer.id, producer.epoch, (TopicPartition(TOPIC, 1),))
    world.execute(begin)
    assert world.execute(command) == Staged(1, 0, False)
    assert world.execute(command) == Staged(1, 0, True)
    with pytest.raises(TransactionEnded):
        world.execute(StageRecords(TOPIC, 0, batch))
    with pytest.raises(MalformedBatch):
        world.execute(PublishRecords(TOPIC, 1, batch))
    producer.end()
    assert stored(world) == [[], [b"a", b"b"], []]
    # Delivered late, it is known, and begins nothing.
    assert world.execute(command).is_duplicate
    with pytest.raises(NotFound):
        world.execute(BeginTransaction(producer.id, 0, (TopicPartition(TOPIC, 9),)))


def transactional_records(
    producer_id: int, epoch: int, some: Sequence[bytes], sequence: int = 0
) -> bytes:
    """A record batch as a transactional producer of Kafka writes it."""
    builder = DefaultRecordBatchBuilder(
        2,
        0,
        is_transactional=True,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for number, value in enumerate(some):
        builder.append(number, timestamp=1_700_000_000_000, key=None, value=value, headers=[])
    return bytes(builder.build())
