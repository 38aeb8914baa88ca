"""Commands that walk, driven: in the loop in turns, in threads with the lock free in between."""

import asyncio
from logging import getLogger
from random import Random
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from penstock.api.answers import Answer, Kind, LeaseAnswer
from penstock.api.consume import CountHeld, Poll
from penstock.api.groups import OpenGroup
from penstock.api.keys import CreateKey, RevokeKey
from penstock.api.principals import LOCAL, Role
from penstock.api.publish import PublishEach, PublishValues
from penstock.api.start import EARLIEST
from penstock.api.topics import (
    CreateTopic,
    DeleteTopic,
    DescribeTopics,
    ListTopics,
    SweepDue,
)
from penstock.config import StorageConfig
from penstock.errors import Cancelled, NotFound, Refused, Unauthenticated
from penstock.model import Message
from penstock.runtime.asynchronous import AsyncDriver
from penstock.runtime.group_polls import FOR_EVER
from penstock.runtime.loop_turns import LoopTurns
from penstock.runtime.slices import SliceBudgets, SlicedCommand
from penstock.runtime.threads import ThreadDriver
from penstock.runtime.tickets import Ticket
from penstock.runtime.world import World
from penstock.sim import SimDisk

MS = 1_000_000
NAMES = [f"topic-{number}" for number in range(12)]
DESCRIBE = DescribeTopics(NAMES)
COUNT_HELD = CountHeld(NAMES[0], "g", "m")


class SlowClock:
    """Each look at it takes a millisecond; `step_ns` says how long."""

    def __init__(self) -> None:
        self.at_ns, self.step_ns = 0, MS

    def now_ns(self) -> int:
        return 1_700_000_000_000_000_000 + self.at_ns

    def monotonic_ns(self) -> int:
        self.at_ns += self.step_ns
        return self.at_ns


class TwoEntries(SliceBudgets):
    """Two entries are a slice, whatever they take."""

    def entries_for(self, _kind) -> int:
        return 2


def _raise(error: BaseException) -> None:
    raise error


@pytest.fixture
def driver():
    clock = SlowClock()
    world = World(clock=clock, entropy=Random(1), logger=getLogger("test"), on_fatal=_raise)
    driver = ThreadDriver(SimDisk(), StorageConfig(min_free_bytes=0), world)
    for name in NAMES:
        driver.execute(CreateTopic(name, 1))
    driver.slice_budgets = TwoEntries(clock)
    yield driver
    driver.close()


def test_other_commands_run_between_slices(driver) -> None:
    sliced = SlicedCommand(driver, DESCRIBE, LOCAL)
    slices = 0
    while not sliced.go_on():
        slices += 1
        assert not driver.lock.locked()
        if slices == 2:
            driver.execute(DeleteTopic(NAMES[-1]))
    assert slices >= len(NAMES) - 1
    assert [topic.name for topic in sliced.reply] == NAMES[:-1]


def test_a_walk_that_was_closed_goes_on_no_more(driver) -> None:
    sliced = SlicedCommand(driver, DESCRIBE, LOCAL)
    assert not sliced.go_on()
    sliced.close()
    assert sliced.walk.is_over
    with pytest.raises(Cancelled):
        sliced.run()


def test_a_walk_does_not_outlive_its_driver(driver) -> None:
    sliced = SlicedCommand(driver, DESCRIBE, LOCAL)
    assert not sliced.go_on()
    driver.close()
    with pytest.raises(Refused, match="closed"):
        sliced.go_on()
    assert sliced.walk.is_over


def test_a_thread_ends_its_walk_with_the_key(driver) -> None:
    new = driver.execute(CreateKey("shop", Role.READONLY))
    principal, credential = driver.authenticate(new.text)
    sliced = SlicedCommand(driver, DESCRIBE, principal, credential)
    assert not sliced.go_on()
    driver.execute(RevokeKey(new.key.key_id))
    with pytest.raises(Unauthenticated):
        sliced.go_on()
    assert sliced.walk.is_over


def test_a_budget_follows_what_entries_take() -> None:
    clock = SlowClock()
    clock.step_ns = 0
    budgets = SliceBudgets(clock)
    first = budgets.entries_for(ListTopics)

    def measure(entries: int, took_ns: int) -> int:
        clock.at_ns += took_ns
        budgets.note(ListTopics, entries, clock.at_ns - took_ns)
        return budgets.entries_for(ListTopics)

    assert measure(1, 1000) == first, "a slice that had little to look at says nothing"
    assert measure(first, MS // 4) == 2 * first, "more by steps"
    assert measure(2 * first, MS // 2) == 4 * first
    assert measure(4 * first, 8 * MS) == first // 2, "less at once"
    assert measure(first // 2, 1000 * MS) == 8, "but never too few to come to an end"
    assert measure(1, 2 * MS) == 8
    for _ in range(40):
        most = measure(budgets.entries_for(ListTopics), 0)
    assert most == 100_000
    assert budgets.entries_for(DescribeTopics) == first, "each kind has its own"


def in_loop(scenario) -> None:
    asyncio.run(scenario())


def test_what_finds_no_time_left_has_its_turn_in_the_order_in_which_it_came() -> None:
    async def scenario() -> None:
        clock = SlowClock()
        turns, order = LoopTurns(asyncio.get_running_loop(), clock), []

        async def work(name: str) -> None:
            for part in range(3):
                if turns.is_spent():
                    await turns.turn()
                order.append(f"{name}{part}")
                clock.at_ns += 5 * MS

        await asyncio.gather(*(work(name) for name in "abc"))
        # The first had spent the turn before the others came.
        assert order == ["a0", "a1", "b0", "c0", "a2", "b1", "c1", "b2", "c2"]
        assert len(turns) == 0

    in_loop(scenario)


def test_a_turn_of_the_loop_has_time_for_one_that_takes_all_of_it() -> None:
    async def scenario() -> None:
        clock, loop = SlowClock(), asyncio.get_running_loop()
        clock.step_ns = 0
        turns, worked = LoopTurns(loop, clock), []

        async def work() -> None:
            for _ in range(4):
                if turns.is_spent():
                    await turns.turn()
                worked[-1] += 1
                clock.at_ns += 5 * MS

        def count() -> None:
            worked.append(0)
            loop.call_soon(count)

        count()
        await asyncio.gather(*(work() for _ in range(5)))
        assert sum(worked) == 20
        assert max(worked) == 1

    in_loop(scenario)


def test_what_takes_little_shares_a_turn() -> None:
    async def scenario() -> None:
        clock, loop = SlowClock(), asyncio.get_running_loop()
        clock.step_ns = 0
        turns, at = LoopTurns(loop, clock), []
        turn = SimpleNamespace(number=0)

        async def work() -> None:
            if turns.is_spent():
                await turns.turn()
            at.append(turn.number)
            clock.at_ns += MS // 2

        def count() -> None:
            turn.number += 1
            loop.call_soon(count)

        count()
        await asyncio.gather(*(work() for _ in range(30)))
        assert max(at.count(number) for number in {*at}) == 3
        assert turn.number < 30

    in_loop(scenario)


def test_one_that_is_cancelled_waits_no_more() -> None:
    async def scenario() -> None:
        clock = SlowClock()
        turns = LoopTurns(asyncio.get_running_loop(), clock)
        turns.is_spent()
        first = asyncio.ensure_future(turns.turn())
        second = asyncio.ensure_future(turns.turn())
        await asyncio.sleep(0)
        assert len(turns) == 2
        first.cancel()
        await second
        assert first.cancelled()
        assert len(turns) == 0

    in_loop(scenario)


def test_walks_of_many_clients_take_their_turns(driver) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        view, slices = AsyncDriver(driver, loop), []
        take = SlicedCommand.take

        def taken(self, node, now):
            slices[-1] += 1
            return take(self, node, now)

        def count() -> None:
            slices.append(0)
            loop.call_soon(count)

        count()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SlicedCommand, "take", taken)
            walks = [view.execute(DESCRIBE, LOCAL) for _ in range(5)]
            replies = await asyncio.gather(*walks)
        assert all(len(reply) == len(NAMES) for reply in replies)
        assert sum(slices) >= 5 * len(NAMES) // 2
        assert max(slices) == 1, "one slice a turn of the loop, for all walks together"
        assert len(view.turns) == 0

    in_loop(scenario)


def test_a_walk_that_fits_into_a_slice_takes_no_turn(driver) -> None:
    async def scenario() -> None:
        driver.slice_budgets = SliceBudgets(driver.clock)
        view = AsyncDriver(driver, asyncio.get_running_loop())
        asked = view.execute(DESCRIBE, LOCAL)
        with pytest.raises(StopIteration) as returned:
            asked.send(None)
        assert len(returned.value.value) == len(NAMES)

    in_loop(scenario)


def test_a_caller_that_leaves_ends_its_walk(driver) -> None:
    async def scenario() -> None:
        view, walks = AsyncDriver(driver, asyncio.get_running_loop()), []
        take = SlicedCommand.take

        def taken(self, node, now):
            walks.append(self.walk)
            return take(self, node, now)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SlicedCommand, "take", taken)
            asked = asyncio.ensure_future(view.execute(DESCRIBE, LOCAL))
            await asyncio.sleep(0)
            assert not asked.done()
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
        assert walks[0].is_over
        assert len(view.turns) == 0

    in_loop(scenario)


def leased(driver: ThreadDriver, count: int) -> list[LeaseAnswer]:
    """Answers for messages of a topic that were each polled by itself."""
    topic = NAMES[0]
    driver.execute(PublishValues(topic, [b"%d" % number for number in range(count)]))
    driver.execute(OpenGroup("g", (topic,), EARLIEST))
    answers: list[LeaseAnswer] = []
    for _ in range(count):
        messages = driver.polls.enter(Poll(topic, "g", "m", limit=1), LOCAL, 0).outcome()
        answers += [replace(answer, kind=Kind.ACK) for answer in messages.release().answers]
    return answers


def test_many_answers_are_carried_out_in_pieces_and_each_has_its_outcome(driver) -> None:
    answers = leased(driver, 150)
    held, begin = [], driver.begin

    def begun(*asked):
        held.append(driver.execute(COUNT_HELD))
        return begin(*asked)

    driver.begin = begun
    # The last two are one that was given before, and one for a topic that is not there.
    outcomes = driver.execute(Answer([*answers, answers[0], replace(answers[0], topic="missing")]))
    assert [outcome.in_flight for outcome in outcomes[:150]] == [*range(149, -1, -1)]
    assert outcomes[150].repeated == frozenset([0])
    assert isinstance(outcomes[151], NotFound)
    # The lock was free several times on the way.
    assert len({*held}) > 3


async def test_a_command_has_its_turn_between_two_pieces(driver) -> None:
    answers = leased(driver, 150)
    asynchronous = AsyncDriver(driver, asyncio.get_running_loop())
    ended = []

    async def execute(command) -> None:
        await asynchronous.execute(command, LOCAL)
        ended.append(type(command))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(execute(Answer(answers)))
        tasks.create_task(execute(PublishValues(NAMES[1], [b"between"])))
    assert ended == [PublishValues, Answer]
    assert driver.execute(COUNT_HELD) == 0


async def test_an_answer_to_many_pieces_waits_for_the_sync_of_the_last(driver) -> None:
    answers, tickets = leased(driver, 150), []
    asynchronous, start = AsyncDriver(driver, asyncio.get_running_loop()), driver.start

    def started(*asked, **options):
        reply, _ = start(*asked, **options)
        # Each piece comes just too late for the sync of the one before.
        if tickets:
            tickets[-1].settle(None)
        tickets.append(Ticket())
        return reply, tickets[-1]

    driver.start = started
    answering = asyncio.create_task(asynchronous.execute(Answer(answers), LOCAL, is_synced=True))
    await asyncio.wait([answering], timeout=0.2)
    assert len(tickets) > 1
    assert not answering.done()
    tickets[-1].settle(None)
    assert len(await answering) == 150


async def test_commands_have_their_turns_while_many_messages_are_published(driver) -> None:
    asynchronous = AsyncDriver(driver, asyncio.get_running_loop())
    driver.execute(CreateTopic("spread", 4))
    ended, messages = [], [Message(b"x", b"%d" % number) for number in range(2000)]

    async def execute(command) -> None:
        await asynchronous.execute(command, LOCAL)
        ended.append(type(command))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(execute(PublishEach("spread", messages)))
        tasks.create_task(execute(PublishValues(NAMES[1], [b"between"])))
    assert ended == [PublishValues, PublishEach]
    (spread,) = driver.execute(DescribeTopics(["spread"]))
    assert sum(partition.messages for partition in spread.partitions) == 2000


class Stepped(SlowClock):
    """The test moves it, and has the driver tick: no thread does."""

    def listen(self, _step) -> None:
        pass


def test_what_is_due_during_a_sweep_is_done_between_its_slices() -> None:
    clock, topics = Stepped(), {"retention_check_ms": 1000, "visibility_timeout_ms": 5000}
    world = World(clock=clock, entropy=Random(1), logger=getLogger("test"), on_fatal=_raise)
    driver = ThreadDriver(SimDisk(), StorageConfig(min_free_bytes=0), world)
    for name in NAMES:
        driver.execute(CreateTopic(name, 1, topics))
    driver.execute(PublishValues(NAMES[0], [b"x"]))
    assert driver.polls.enter(Poll(NAMES[0], "g", "m", 1), LOCAL, 0).outcome()
    waiter = driver.polls.enter(Poll(NAMES[0], "g", "other", 1), LOCAL, FOR_EVER)
    served: list[bool] = []

    class Slices(SliceBudgets):
        def entries_for(self, kind) -> int:
            if kind is SweepDue:
                served.append(waiter.is_settled)
                clock.at_ns += 1000 * MS
            return 1

    driver.slice_budgets = Slices(clock)
    clock.at_ns += 2000 * MS
    driver.tick()
    # The lease ends after five slices, and the message is ready again a second later.
    assert not any(served[:5])
    assert all(served[10:])
    assert len(served) > len(NAMES)
    driver.close()
