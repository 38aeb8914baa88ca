"""Acks, nacks and rejects in a named commit: they happen with it, once, and belong to a staging until then."""

from collections import Counter

import pytest

from penstock.api.answers import Kind, LeaseAnswer, answers_of
from penstock.api.commits import (
    CommitStagings,
    DescribeCommitName,
    DropStagings,
    StageNamed,
    StageNamedAnswers,
)
from penstock.api.dead_letters import BrowseDeadLetters
from penstock.api.receipts import read_receipt
from penstock.errors import (
    Refused,
    SequenceCommitted,
    StagingMismatch,
    StaleReceipt,
    UnknownStaging,
)
from penstock.model import Message
from penstock.sim import SimDisk

from .test_commits import HOUR_MS, NAME, WRITER, Attempt, commit
from .test_transaction_answers import OUT, Consumer, out, three_messages
from .world import TOPIC, Answered, World, pull_the_plug, values


class Task(Attempt):
    """An attempt that consumes, too."""

    def answer(self, kind: Kind, *received, reason: str = "", ms: int | None = None) -> None:
        receipts = [read_receipt(one.receipt) for one in received]
        said = [*answers_of(receipts, kind, reason, ms).values()]
        self.world.execute(StageNamedAnswers(self.id, said))

    def ack(self, *received) -> None:
        self.answer(Kind.ACK, *received)

    def put(self, value: bytes) -> None:
        self.count += len(self.world.execute(StageNamed(self.id, OUT, [Message(value)], 0)))


@pytest.fixture
def world() -> World:
    return three_messages()


@pytest.mark.parametrize("stop", ["none", "restart", "kill", "lose_unsynced"])
def test_acks_count_with_the_commit_and_belong_to_the_staging_before(world, stop) -> None:
    task = Task(world, 0)
    first, second, third = world.poll(3, ms=1000)
    task.put(b"A")
    task.ack(first)
    task.ack(first)
    assert [type(one) for one in world.ack(first)] == [StaleReceipt]
    world.ack(second, third)
    world.sync()
    if stop != "none":
        getattr(world, stop)()
    world.wait(10_000)
    assert values(world.poll(member="other")) == []
    assert (world.lag()[0].lag, world.lag()[0].in_flight) == (1, 1)
    (shown,) = world.execute(DescribeCommitName(NAME)).stagings
    assert sum(one.answers for one in shown.participants) == 1
    assert not commit(world, 0, task).is_repeat
    assert out(world) == [b"A"]
    assert (world.lag()[0].lag, world.lag()[0].in_flight) == (0, 0)
    assert commit(world, 0, task).is_repeat
    if stop != "none":
        getattr(world, stop)()
    assert (world.lag()[0].lag, out(world)) == (0, [b"A"])
    with pytest.raises(UnknownStaging):
        task.ack(first)


def test_nacks_and_rejects_happen_with_the_commit(world) -> None:
    task = Task(world, 0)
    first, second, third = world.poll(3)
    task.answer(Kind.NACK, first, reason="later", ms=500)
    task.answer(Kind.REJECT, second, reason="bad")
    task.answer(Kind.REJECT, third, reason="worse")
    world.wait(1000)
    assert values(world.poll()) == []
    assert world.lag()[0].lag == 3
    commit(world, 0, task)
    world.settle()
    letters = world.execute(BrowseDeadLetters(TOPIC)).letters
    assert [(one.message.value, one.provenance.last_error) for one in letters] == [
        (b"b", "bad"),
        (b"c", "worse"),
    ]
    world.wait(500)
    (again,) = world.poll()
    assert (again.value, again.attempts) == (b"a", 2)


@pytest.mark.parametrize("end", ["dropped", "loser", "expired", "reset"])
def test_a_staging_that_is_not_committed_gives_its_messages_back(world, end) -> None:
    (first,) = world.poll(1, ms=1000)
    task = Task(world, 3)
    task.put(b"never")
    task.ack(first)
    world.sync()
    if end == "dropped":
        world.execute(DropStagings([task.id]))
    elif end == "loser":
        commit(world, 4, Attempt(world, 4))
    elif end == "reset":
        world.node.commits.reset(world.node.commits.find(NAME), world.now())
    else:
        world.wait(25 * HOUR_MS)
    world.settle()
    world.kill()
    world.settle()
    (answered,) = world.ack(first)
    assert isinstance(answered, Answered)
    assert out(world) == []


def test_attempts_of_one_task_answer_the_same_messages_and_one_of_them_counts(world) -> None:
    first, second, third = world.poll(3, ms=1000)
    dead, slow, winner = Task(world, 0), Task(world, 0), Task(world, 0)
    for number, task in enumerate((dead, slow, winner)):
        task.put(b"%d" % number)
        task.ack(first, second)
    winner.ack(third)
    world.wait(2000)
    assert (world.lag()[0].lag, world.lag()[0].in_flight) == (3, 3)
    with pytest.raises(StagingMismatch):
        commit(world, 0, slow, winner)
    world.execute(DropStagings([dead.id]))
    world.settle()
    assert [type(one) for one in world.ack(first)] == [StaleReceipt]
    world.kill()
    assert (world.lag()[0].lag, world.lag()[0].in_flight) == (3, 3)
    commit(world, 0, winner)
    world.settle()
    assert (world.lag()[0].lag, world.lag()[0].in_flight) == (0, 0)
    assert out(world) == [b"2"]
    world.wait(60_000)
    assert values(world.poll()) == []


def test_a_loser_gives_back_what_the_winner_did_not_answer(world) -> None:
    first, second, third = world.poll(3)
    winner, loser = Task(world, 0), Task(world, 0)
    loser.ack(first, second)
    winner.answer(Kind.NACK, first, ms=500)
    winner.ack(third)
    commit(world, 0, winner)
    world.settle()
    assert (world.lag()[0].lag, world.lag()[0].in_flight) == (2, 1)
    assert [type(one) for one in world.ack(first, second)] == [StaleReceipt, Answered]
    world.wait(500)
    (again,) = world.poll()
    assert (again.value, again.attempts) == (b"a", 2)


def test_all_or_nothing_of_what_is_refused_is_claimed(world) -> None:
    task, other = Task(world, 0), Task(world, 0, name="other")
    later, writer = Task(world, 1), Task(world, 0, writer="query-2")
    first, second, _ = world.poll(3)
    task.ack(first)
    for stranger in (other, later, writer, Consumer(world)):
        with pytest.raises(StaleReceipt):
            stranger.ack(first)
    place, offset, _, lease = read_receipt(second.receipt)
    held = LeaseAnswer(Kind.ACK, *place, lease, [offset])
    never = LeaseAnswer(Kind.ACK, *place, lease + 1, [offset])
    with pytest.raises(StaleReceipt):
        world.execute(StageNamedAnswers(task.id, [held, never]))
    with pytest.raises(Refused):
        world.execute(StageNamedAnswers(task.id, [held, held]))
    with pytest.raises(Refused):
        task.answer(Kind.EXTEND, second, ms=1000)
    with pytest.raises(StaleReceipt):
        task.answer(Kind.NACK, first)
    with pytest.raises(UnknownStaging):
        world.execute(StageNamedAnswers("4" * 16, [held]))
    (answered,) = world.ack(second)
    assert isinstance(answered, Answered)
    commit(world, 0, task)
    with pytest.raises(SequenceCommitted):
        Task(world, 0)
    assert world.lag()[0].lag == 1


def test_a_commit_waits_until_its_answers_would_survive_a_power_cut(world) -> None:
    task = Task(world, 0)
    world.sync()
    (first,) = world.poll(1)
    task.ack(first)
    assert not world.execute(CommitStagings(NAME, 0, WRITER, [task.ref])).is_complete
    assert task.id in {one.staging for one in world.execute(DescribeCommitName(NAME)).stagings}
    commit(world, 0, task)
    world.lose_unsynced()
    assert world.lag()[0].lag == 2


@pytest.mark.tier("test")
def test_an_input_is_in_the_output_once_at_every_crash_state(effort) -> None:
    """Two attempts work on the messages of a driver, and one is committed; after a power cut it begins again."""
    before = World()
    before.topic(1, visibility_timeout_ms=1000, backoff_base_ms=1)
    before.topic(1, OUT)
    before.group()
    before.publish(b"a", b"b", b"c", b"d")
    Task(before, 0)
    before.restart()

    def work(world: World, sequence: int, limit: int) -> bool:
        got = world.poll(limit, ms=1000)
        tasks = [Task(world, sequence) for _ in range(2)]
        for task in tasks:
            for one in got:
                assert one.value is not None
                task.put(one.value.upper())
            if got:
                task.ack(*got)
        commit(world, sequence, tasks[1])
        return bool(got)

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        work(world, 0, 2)
        disk.mark("two")
        world.node.partition(TOPIC, 0).take_snapshot()
        work(world, 1, 1)

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        world.entropy.seed(8)
        world.settle()
        found = len(out(world))
        assert found >= 2 or "two" not in marks
        assert world.lag()[0].lag == 4 - found
        # What dead attempts had answered comes back with the next commit of the name.
        for sequence in range(2, 7):
            work(world, sequence, 3)
            world.settle()
            world.wait(1000)
        assert Counter(out(world)) == Counter([b"A", b"B", b"C", b"D"])
        assert world.lag()[0].lag == 0

    assert pull_the_plug(scenario, check, effort, start=before.disk.tree(), is_long=True) > 40
