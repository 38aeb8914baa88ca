"""The registry of waits: it wakes exactly those whose wait is over, and looks at nothing else."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.api.answers import Answer, Kind, LeaseAnswer
from penstock.api.classic import AwaitJoin, JoinClassic, LeaveClassic, Pending
from penstock.api.command import Command
from penstock.api.consume import Poll
from penstock.api.fetch import DescribeBounds
from penstock.api.leased import LeasedMessages
from penstock.api.members import JoinGroup, PollMember
from penstock.api.principals import LOCAL
from penstock.api.publish import Publish
from penstock.broker.node import Node
from penstock.broker.partition import consumption
from penstock.broker.partition.changes import Done
from penstock.model import Message
from penstock.runtime.asynchronous import AsyncDriver
from penstock.runtime.waits import (
    GONE,
    GroupChanges,
    Key,
    MemberLoad,
    PartitionEnd,
    Waits,
)
from tests.server.rigs import InProcess, in_process

PARTITIONS = 1000
FOR_EVER_NS = 3600 * 1_000_000_000
KEYS: list[Key] = [
    PartitionEnd("a", 0),
    PartitionEnd("a", 1),
    PartitionEnd("b", 0),
    MemberLoad("a", "g", "m"),
    MemberLoad("a", "g", "n"),
    MemberLoad("b", "g", "m"),
    GroupChanges("g"),
    GroupChanges("h"),
]


class Touched(NamedTuple):
    """As much of a partition as the registry looks at."""

    topic: str
    number: int


class ModelLevels:
    def __init__(self) -> None:
        self.levels = dict.fromkeys(KEYS, 0)
        # What was appended and is not confirmed.
        self.hidden = dict.fromkeys(KEYS, 0)

    def level_of(self, key: Key) -> int:
        return self.levels[key]

    def is_behind(self, key: Key) -> bool:
        return self.hidden[key] > 0 and self.levels[key] < GONE


def told(key: Key) -> Done[None]:
    """What the core says when a key has changed."""
    if isinstance(key, PartitionEnd):
        partition: Any = Touched(key.topic, key.partition)
        return Done(None, [(partition, 0), (partition, 3)])
    if isinstance(key, MemberLoad):
        return Done(None, loads=[tuple(key)])
    return Done(None, groups=[key.group])


class AgainstWalk(RuleBasedStateMachine):
    """The model walks all waits after every change."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ModelLevels()
        self.waits = Waits(self.model)
        self.open: dict[int, tuple[Key, int, Callable[[Key], None]]] = {}
        self.woken: list[int] = []
        self.expected: list[int] = []
        self.next = 0

    def walk(self) -> None:
        for number, (key, level, _) in [*self.open.items()]:
            if self.model.level_of(key) > level:
                self.expected.append(number)
                del self.open[number]

    @rule(key=st.sampled_from(KEYS), above=st.integers(-2, 3))
    def wait(self, key: Key, above: int) -> None:
        number, self.next = self.next, self.next + 1
        level = min(self.model.level_of(key), 100) + above

        def wake(woken: Key) -> None:
            assert woken == key
            self.woken.append(number)

        self.open[number] = (key, level, wake)
        self.waits.add(key, level, wake)
        self.walk()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.open)))
        key, level, wake = self.open.pop(number)
        self.waits.discard(key, level, wake)
        self.waits.discard(key, level, wake)

    @rule(key=st.sampled_from(KEYS), step=st.integers(-1, 3), is_hidden=st.booleans())
    def change(self, key: Key, step: int, is_hidden: bool) -> None:
        if is_hidden and isinstance(key, PartitionEnd):
            self.model.hidden[key] += max(0, step)
        elif self.model.levels[key] < GONE:
            self.model.levels[key] += step
        before = self.waits.looked
        self.waits.wake(told(key))
        assert self.waits.looked - before <= 1
        self.walk()

    @rule()
    def confirm(self) -> None:
        for key, hidden in self.model.hidden.items():
            self.model.levels[key] += hidden
            self.model.hidden[key] = 0
        self.waits.wake_behind()
        self.walk()

    @rule(topic=st.sampled_from(["a", "b"]), is_gone=st.booleans())
    def change_topic(self, topic: str, is_gone: bool) -> None:
        for key in KEYS:
            if not isinstance(key, GroupChanges) and key.topic == topic:
                self.model.levels[key] = GONE if is_gone else 0
                self.model.hidden[key] = 0
        self.waits.wake(Done(None, topics=[topic]))
        self.walk()

    @rule()
    def change_unknown(self) -> None:
        """After a node was opened again."""
        for key in KEYS:
            self.model.levels[key] += 1
        self.waits.wake_all()
        self.walk()

    @invariant()
    def the_same_were_woken(self) -> None:
        assert sorted(self.woken) == sorted(self.expected)
        assert self.waits.woken == len(self.woken)
        assert len(self.waits) == len({key for key, *_ in self.open.values()})


TestAgainstWalk = AgainstWalk.TestCase
TestAgainstWalk.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_wake_may_wait_anew_and_end_the_waits_of_others() -> None:
    model, key = ModelLevels(), PartitionEnd("a", 0)
    waits, calls = Waits(model), []

    def other(_key: Key) -> None:
        calls.append("other")

    def again(_key: Key) -> None:
        calls.append("again")
        waits.discard(key, 1, other)
        waits.add(key, model.level_of(key), again)

    waits.add(key, 0, again)
    waits.add(key, 1, other)
    for _ in range(3):
        model.levels[key] += 2
        waits.wake(told(key))
    assert calls == ["again"] * 3
    assert len(waits) == 1


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcess]:
    async with in_process(tmp_path) as broker:
        yield broker


def publish(driver: AsyncDriver, topic: str, partition: int = 0) -> None:
    driver.start(Publish(topic, [Message(b"a")], partition))


def ack(driver: AsyncDriver, messages: LeasedMessages) -> None:
    """Finish the first message."""
    part = messages.parts[0]
    answer = LeaseAnswer(Kind.ACK, *part.place, part.lease, [part.columns.offsets[0]])
    driver.start(Answer([answer]))


def joining(group: str) -> JoinClassic:
    return JoinClassic(group, "", protocols=(("range", b""),), protocol_type="consumer")


async def test_a_publish_looks_at_those_who_wait_for_its_partition_only(broker: InProcess) -> None:
    await broker.topic("many", partitions=PARTITIONS)
    await broker.topic("elsewhere")
    driver, waits = broker.app.driver, broker.driver.waits
    woken: list[Key] = []
    for number in range(PARTITIONS):
        driver.subscribe(PartitionEnd("many", number), 0, woken.append)
    publish(driver, "elsewhere")
    assert (waits.looked, waits.woken) == (0, 0)
    publish(driver, "many", 7)
    publish(driver, "many", 7)
    assert woken == [PartitionEnd("many", 7)]
    assert (waits.looked, waits.woken) == (1, 1)
    assert len(waits) == PARTITIONS - 1


async def test_a_topic_that_is_gone_wakes_its_readers_and_no_others(broker: InProcess) -> None:
    driver = broker.app.driver
    woken: list[Key] = []
    for topic in ("gone", "kept"):
        await broker.topic(topic, partitions=3)
        for number in range(3):
            driver.subscribe(PartitionEnd(topic, number), 0, woken.append)
    await broker.call("DELETE", "/topics/gone")
    assert woken == [PartitionEnd("gone", number) for number in range(3)]
    # Of the topic that has its name now there is no such partition.
    await broker.topic("gone")
    driver.subscribe(PartitionEnd("gone", 2), 0, woken.append)
    assert woken[3:] == [PartitionEnd("gone", 2)]


@pytest.mark.parametrize("moment", ["before the look", "before the wait", "while it waits"])
async def test_a_change_at_any_moment_is_noticed(broker: InProcess, moment: str) -> None:
    """A reader looks, and waits if there is nothing; the change comes before, in between, or after."""
    await broker.topic()
    driver, bounds = broker.app.driver, DescribeBounds("orders", 0)
    if moment == "before the look":
        publish(driver, "orders")
    end = (await driver.execute(bounds, LOCAL)).end
    if moment == "before the wait":
        publish(driver, "orders")
    if not end:
        waiting = asyncio.ensure_future(driver.until(PartitionEnd("orders", 0), 0, FOR_EVER_NS))
        await asyncio.sleep(0)
        if moment == "while it waits":
            assert len(broker.driver.waits) == 1
            # By another thread, as a delayed message comes.
            await driver.in_thread(lambda: publish(driver, "orders"))
        async with asyncio.timeout(10):
            await waiting
    assert (await driver.execute(bounds, LOCAL)).end == 1
    assert len(broker.driver.waits) == 0


async def test_an_answer_looks_at_the_member_that_gave_it_only(broker: InProcess) -> None:
    await broker.topic()
    driver, waits = broker.app.driver, broker.driver.waits
    members = [f"m{number}" for number in range(20)]
    held, woken = {}, []
    for member in members:
        publish(driver, "orders")
        publish(driver, "orders")
        held[member] = driver.start(Poll("orders", "g", member, 2))
        driver.subscribe(MemberLoad("orders", "g", member), -2, woken.append)
    before = waits.looked
    ack(driver, held["m3"])
    assert woken == [MemberLoad("orders", "g", "m3")]
    assert waits.looked - before == 1


async def test_a_group_that_changes_looks_at_no_other(broker: InProcess) -> None:
    driver, waits = broker.app.driver, broker.driver.waits
    woken: list[Key] = []
    tickets = {}
    for group in ("g", "h", "i"):
        tickets[group] = driver.start(joining(group))
        pending = driver.start(AwaitJoin(group, tickets[group].member))
        assert isinstance(pending, Pending)
        driver.subscribe(GroupChanges(group), pending.changes, woken.append)
    before = waits.looked
    driver.start(LeaveClassic("h", tickets["h"].member))
    assert woken == [GroupChanges("h")]
    assert waits.looked - before == 1
    # One that begins anew under the name has changed more often than the one that is gone.
    driver.start(joining("h"))
    driver.subscribe(GroupChanges("h"), 0, woken.append)
    assert woken[1:] == [GroupChanges("h")]


async def test_an_ack_carries_out_nothing_for_the_polls_of_other_groups(
    broker: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topic()
    driver = broker.app.driver
    publish(driver, "orders")
    messages = driver.start(Poll("orders", "acking", "m", 1))
    groups = [f"g{number}" for number in range(20)]
    for group in groups:
        driver.start(Poll("orders", group, "m", 1))
        driver.park(Poll("orders", group, "m", 1), LOCAL, FOR_EVER_NS, lambda: None)
        driver.start(JoinGroup(f"assigned-{group}", "m", ("orders",)))
        poll = PollMember(f"assigned-{group}", "m", 1)
        driver.start(poll)
        driver.park(poll, LOCAL, FOR_EVER_NS, lambda: None)
    carried_out: Counter[type[Command[Any]]] = Counter()
    carry_out = Node.carry_out

    def counted(node: Node, command: Command[Any], *rest: Any, **named: Any) -> Any:
        carried_out[type(command)] += 1
        return carry_out(node, command, *rest, **named)

    looked_at: list[str] = []
    monkeypatch.setattr(Node, "carry_out", counted)
    ready_for = consumption.ready_for
    monkeypatch.setattr(
        consumption,
        "ready_for",
        lambda partition, group: looked_at.append(group) or ready_for(partition, group),
    )
    ack(driver, messages)
    assert (carried_out, looked_at) == ({Answer: 1}, [])
    await broker.topic("elsewhere")
    carried_out.clear()
    publish(driver, "elsewhere")
    assert carried_out == {Publish: 1}
    carried_out.clear()
    publish(driver, "orders")
    assert sorted(looked_at) == sorted(groups)
    assert carried_out[Poll] == len(groups)
    assert carried_out[PollMember] == len(groups)
