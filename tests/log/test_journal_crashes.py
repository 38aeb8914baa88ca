"""A message log, its state log and snapshots under the plug: state never speaks of messages that are gone."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import msgspec
import pytest

from penstock.codec import Columns, encode
from penstock.config import LogConfig
from penstock.log import Log, open_log
from penstock.log.journal import Journal, OrderedPlan
from penstock.log.records import RecordFormat
from penstock.model import LogId
from penstock.sim import CrashCounts, SimDisk, Tree, check_crashes

from .worlds import NOW_NS

TINY = LogConfig(
    segment_size_bytes=500, index_interval_bytes=100, checkpoint_bytes=600, retention_hours=-1
)


class Finished(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A message was dealt with."""

    offset: int


class Marked(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Something else happened."""

    number: int


Fact = Finished | Marked
FORMAT: RecordFormat[Fact] = RecordFormat(Fact)


class Facts:
    """A machine that only remembers."""

    def __init__(self) -> None:
        self.known: list[Fact] = []

    def apply(self, record: Fact) -> None:
        self.known.append(record)

    def snapshot(self) -> Iterable[Fact]:
        return list(self.known)


@dataclass(slots=True)
class Promised:
    """So many decisions were durable, and so many messages."""

    decisions: int
    messages: int


@dataclass(slots=True)
class Life:
    """What was decided, and at which end of the messages."""

    decisions: list[tuple[int, list[Fact]]] = field(default_factory=list)

    def facts_after(self, decisions: int) -> list[Fact]:
        return [fact for _, facts in self.decisions[:decisions] for fact in facts]


def open_pair(disk: SimDisk) -> tuple[Log, Journal[Fact], Facts]:
    messages, _ = open_log(disk, "p/messages", log_id=LogId(1), config=TINY)
    state, _ = open_log(disk, "p/state", log_id=LogId(2), config=TINY)
    journal, machine = Journal(state, FORMAT), Facts()
    journal.recover(machine, message_end=messages.end)
    return messages, journal, machine


def living(life: Life, chance: random.Random, disk: SimDisk) -> None:
    messages, journal, machine = open_pair(disk)
    for number in range(7):
        encoded = encode(Columns(values=[b"%d" % number]))
        messages.append(encoded, now_ns=NOW_NS)
        facts: list[Fact] = [Finished(messages.end_offset - 1)]
        if chance.random() < 0.3:
            facts.append(Marked(number))
        decide(life, messages, journal, machine, facts)
        if chance.random() < 0.6:
            settle(life, disk, messages, journal, machine, is_snapshot=chance.random() < 0.4)
    settle(life, disk, messages, journal, machine, is_snapshot=False)


def decide(
    life: Life, messages: Log, journal: Journal[Fact], machine: Facts, facts: list[Fact]
) -> None:
    journal.append(facts, decided_at=messages.end, now_ns=NOW_NS)
    for fact in facts:
        machine.apply(fact)
    life.decisions.append((messages.end_offset, facts))


def settle(
    life: Life,
    disk: SimDisk,
    messages: Log,
    journal: Journal[Fact],
    machine: Facts,
    *,
    is_snapshot: bool,
) -> None:
    plan = OrderedPlan(messages.plan_sync(), journal.log.plan_sync())
    if is_snapshot:
        plan = journal.plan_snapshot(messages, machine)
    plan.run()
    journal.synced(messages, plan)
    disk.mark(Promised(len(life.decisions), messages.end_offset))


def judge(life: Life, disk: SimDisk, marks: tuple[object, ...]) -> None:
    promises = [mark for mark in marks if isinstance(mark, Promised)]
    messages, _, machine = open_pair(disk)
    kept = next(
        (
            count
            for count in range(len(life.decisions), -1, -1)
            if machine.known == life.facts_after(count)
        ),
        None,
    )
    assert kept is not None, f"{machine.known} is no state that ever was"
    if promises:
        assert messages.end_offset >= promises[-1].messages
        assert kept >= promises[-1].decisions, f"{kept} decisions of {promises[-1].decisions}"
    beyond = [
        one
        for one in machine.known
        if isinstance(one, Finished) and one.offset >= messages.end_offset
    ]
    assert not beyond, f"{beyond} finished, but the messages end at {messages.end_offset}"
    _, _, again = open_pair(disk)
    assert again.known == machine.known


def enumerate_states(states: int) -> CrashCounts:
    counts, seed = CrashCounts(), 0
    while counts.distinct < states:
        life, chance = Life(), random.Random(seed)
        counts.add(
            check_crashes(
                partial(living, life, chance), partial(judge, life), entropy=random.Random(seed)
            )
        )
        seed += 1
    return counts


def test_when_the_newest_snapshot_is_damaged_the_one_before_it_is_enough() -> None:
    """The state log keeps all that follows it, however many files that takes."""
    disk, life = SimDisk(), Life()
    messages, journal, machine = open_pair(disk)
    for number in range(30):
        decide(life, messages, journal, machine, [Marked(number)])
        settle(life, disk, messages, journal, machine, is_snapshot=number % 10 == 9)
    tree = disk.tree()
    newest = max(path for path in tree.files if path.endswith(".snapshot"))
    assert sum(path.endswith(".log") for path in tree.files if path.startswith("p/state")) > 2
    for damaged in (b"", tree.files[newest][:-1], bytes(len(tree.files[newest]))):
        files = {**tree.files, newest: damaged}
        _, _, again = open_pair(SimDisk(Tree(files, tree.directories)))
        assert again.known == machine.known


@pytest.mark.tier("test")
def test_no_crash_leaves_state_without_its_messages(effort: Callable[..., int]) -> None:
    states = effort(check=150, test=3_000, torture=300_000)
    assert enumerate_states(states).distinct >= states
