"""The plug pulled at every write: a named commit is there as a whole, once, or not at all, and is never forgotten."""

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api.commits import CommitStagings, OpenStaging, StageNamed, StagingRef
from penstock.broker.partition.cleanup import clear_staged
from penstock.errors import CommitNameTaken, NotFound, SequenceCommitted, StagingMismatch
from penstock.model import Message
from penstock.sim import SimDisk, Tree

from .test_commits import NAME, WRITER, Attempt, commit, staged
from .test_transactions import stored
from .world import TOPIC, World, pull_the_plug

FIRST, SECOND, GONE = {b"a", b"b", b"c"}, {b"d", b"e"}, {b"loser", b"dead", b"given up"}


def begun() -> Tree:
    """A topic, and a name that has committed nothing, all durable."""
    world = World()
    world.topic(3, segment_size_bytes=1500)
    Attempt(world, 0)
    world.restart()
    return world.disk.tree()


@pytest.mark.tier("test")
def test_a_named_commit_is_whole_or_absent_at_every_crash_state(effort) -> None:
    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        one, two = staged(world, 0, b"a", b"b"), staged(world, 0, b"c", partition=1)
        staged(world, 0, b"loser", partition=1)
        commit(world, 0, one, two)
        disk.mark("first")
        world.node.partition(TOPIC, 0).take_snapshot()
        world.node.commits.home(NAME).take_snapshot()
        staged(world, 3, b"dead", partition=2)
        three = staged(world, 5, b"d")
        three.stage(b"e", partition=2)
        world.node.partition(TOPIC, 2).take_snapshot()
        commit(world, 5, three)
        disk.mark("second")
        staged(world, 6, b"given up")
        partition = world.node.partition(TOPIC, 0)
        assert partition.staging.log is not None
        partition.staging.log.roll()
        clear_staged(partition, world.now())

    def check(disk: SimDisk, marks: tuple[object, ...]) -> None:
        world = World(disk)
        # Ids are random, and never come again.
        world.entropy.seed(8)
        world.settle()
        found = Counter(value for some in stored(world) for value in some)
        assert max(found.values(), default=1) == 1, found
        for one in (FIRST, SECOND):
            assert found.keys() & one in (set(), one), (found, marks)
        assert not found.keys() & GONE
        last = -1
        for one, sequence, mark in ((FIRST, 0, "first"), (SECOND, 5, "second")):
            if mark in marks:
                assert found.keys() >= one
            if found.keys() >= one:
                last = sequence
        # What is there was committed, and the name knows it.
        for sequence in range(last + 1):
            assert commit(world, sequence).is_repeat
        if last == 5:
            assert sum(one.message_count for one in commit(world, 5).places) == len(SECOND)
        # The writer comes back, and sends again what it was not told of.
        for one, sequence in ((FIRST, 0), (SECOND, 5)):
            if sequence > last:
                commit(world, sequence, staged(world, sequence, *sorted(one)))
        world.kill()
        world.settle()
        after = Counter(value for some in stored(world) for value in some)
        assert after == Counter(FIRST | SECOND)
        assert world.node.partition(TOPIC, 1).machine.stagings.bytes == 0

    assert pull_the_plug(scenario, check, effort, start=begun(), is_long=True) > 60


@pytest.mark.tier("test")
def test_a_writer_that_goes_on_after_a_crash_loses_and_doubles_nothing(effort) -> None:
    """It repeats what was not answered under the same staging and sequences, and then commits; or stages anew."""
    world = World()
    world.topic(3, segment_size_bytes=1500)
    staging = world.execute(OpenStaging(NAME, 0, WRITER))
    world.restart()
    start = world.disk.tree()
    batches = [(0, 0, b"a"), (1, 0, b"b"), (0, 1, b"c")]
    command = CommitStagings(NAME, 0, WRITER, [StagingRef(staging, len(batches))])

    def sent(world: World) -> None:
        for partition, sequence, value in batches:
            world.execute(StageNamed(staging, TOPIC, [Message(value)], partition, sequence))

    def finish(world: World) -> None:
        for _ in range(6):
            if world.execute(command).is_complete:
                return
            world.sync()
            world.node.pump(world.now())
        raise AssertionError("it never ends")

    def scenario(disk: SimDisk) -> None:
        world = World(disk)
        sent(world)
        world.sync()
        finish(world)

    def check(disk: SimDisk, _marks: tuple[object, ...]) -> None:
        world = World(disk)
        # Once the commit was decided the staging is gone, and the commit is a repeat.
        with suppress(NotFound):
            sent(world)
        finish(world)
        assert stored(world) == [[b"a", b"c"], [b"b"], []]

    assert pull_the_plug(scenario, check, effort, start=start, is_long=True) > 20


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("stage"), st.integers(0, 4), st.sampled_from("xy"), st.integers(0, 2)),
        st.tuples(
            st.just("commit"),
            st.integers(0, 4),
            st.sampled_from("xy"),
            st.lists(st.integers(0, 30), max_size=3),
        ),
        st.tuples(st.just("restart"), st.just(0), st.just(""), st.just(0)),
    ),
    max_size=25,
)


class NaiveName:
    """What a name promises, as a list of stagings and a number."""

    def __init__(self) -> None:
        self.last, self.writer = -1, ""
        # Of each staging: sequence, writer, partition and value, or None if it is gone.
        self.stagings: list[tuple[int, str, int, bytes] | None] = []
        self.published: list[list[bytes]] = [[], [], []]

    def refuses(self, sequence: int, writer: str) -> type[Exception] | None:
        if self.last >= 0 and writer != self.writer:
            return CommitNameTaken
        return SequenceCommitted if sequence <= self.last else None

    def commit(self, sequence: int, writer: str, chosen: list[int]) -> type[Exception] | None:
        found = [self.stagings[one] for one in chosen]
        for one in found:
            if one is None:
                return NotFound
            if one[:2] != (sequence, writer):
                return StagingMismatch
        for one in found:
            assert one is not None
            self.published[one[2]].append(one[3])
        self.last, self.writer = sequence, writer
        self.stagings = [
            None if one is not None and one[0] <= sequence else one for one in self.stagings
        ]
        return None


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_names_do_what_a_naive_model_says(steps) -> None:
    world, model = World(), NaiveName()
    world.topic(3)
    attempts: list[Attempt] = []
    for what, sequence, writer, more in steps:
        if what == "restart":
            world.restart()
        elif what == "stage":
            value, refusal = b"%d" % len(attempts), model.refuses(sequence, writer)
            if refusal is not None:
                with pytest.raises(refusal):
                    staged(world, sequence, value, partition=more, writer=writer)
                continue
            attempts.append(staged(world, sequence, value, partition=more, writer=writer))
            model.stagings.append((sequence, writer, more, value))
        elif attempts:
            chosen = [*dict.fromkeys(one % len(attempts) for one in more)]
            some, refusal = [attempts[one] for one in chosen], model.refuses(sequence, writer)
            is_repeat = refusal is SequenceCommitted
            if refusal is None:
                refusal = model.commit(sequence, writer, chosen)
            if refusal is not None and not is_repeat:
                with pytest.raises(refusal):
                    commit(world, sequence, *some, writer=writer)
                continue
            done = commit(world, sequence, *some, writer=writer)
            assert (done.is_repeat, done.last_sequence) == (is_repeat, model.last)
        assert stored(world) == model.published
