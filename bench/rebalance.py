"""Measures a rebalance of a large group: a member joins 99 others that share 1,000 partitions.

The whole of a join is measured: membership, assignor, and the hand-over of what is free. Time that passes while
members answer is virtual: each of them waits in a long poll, and hears and answers with the delays of a slow network.
"""

import random
from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

from penstock.api.command import Command
from penstock.api.members import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ReleasePartitions,
    Standing,
    StartWaiting,
)
from penstock.api.principals import LOCAL
from penstock.api.topics import CreateTopic
from penstock.broker.node import Node
from penstock.broker.partition import Now
from penstock.broker.partition.changes import Done
from penstock.sim import SimClock, SimDisk
from penstock.sim.schedule import MS, Schedule

from .measure import Clock, Effort, collector_off
from .report import Case, CaseResult, Unit, on_value

R = TypeVar("R")
MEMBERS = 100
PARTITIONS = 1000
TOPIC, GROUP = "orders", "billing"
# One way, at most: a message to a broker on another continent takes less.
NETWORK_MS_MAX = 100
_START_NS = 1_700_000_000_000_000_000


class IdleGroup:
    """A group of members that wait in long polls. It only changes by their calls."""

    def __init__(self) -> None:
        self.clock = SimClock(_START_NS)
        self.schedule = Schedule(self.clock)
        self.entropy = random.Random(7)  # noqa: S311 - delays, and the same ones in every run
        self.node = Node(SimDisk(), now=self.now(), entropy=self.entropy)
        self.node.execute(CreateTopic(TOPIC, PARTITIONS), LOCAL, self.now()).outcome()
        # Members whose call is on its way.
        self.busy: set[str] = set()
        for number in range(MEMBERS - 1):
            self.join(f"member-{number:03}")
            self.settle()

    def now(self) -> Now:
        return Now(self.clock.now_ns(), self.clock.monotonic_ns())

    def join(self, member: str) -> int:
        """Let a member join. Returns the nanoseconds of CPU."""
        command, now = JoinGroup(GROUP, member, (TOPIC,)), self.now()
        began_ns = Clock.CPU.now_ns()
        done = self.node.execute(command, LOCAL, now)
        took_ns = Clock.CPU.now_ns() - began_ns
        self._wake(done)
        changes = done.outcome().standing.changes
        self._execute(StartWaiting(GROUP, member, changes))
        return took_ns

    def _execute(self, command: Command[R]) -> R:
        done = self.node.execute(command, LOCAL, self.now())
        self._wake(done)
        return done.outcome()

    def _wake(self, done: Done[Any]) -> None:
        """End the long polls of members that must release partitions or got some."""
        for _, member in sorted(done.members):
            if member not in self.busy:
                self.busy.add(member)
                self._later(partial(self._answer, member))

    def _later(self, call: Callable[[], None]) -> None:
        self.schedule.after(self.entropy.randint(1, NETWORK_MS_MAX) * MS, call)

    def _answer(self, member: str) -> None:
        if member not in self.node.assigned.groups[GROUP].members:
            self.busy.discard(member)
            return
        standing = self._execute(Heartbeat(GROUP, member))
        if standing.to_release:
            self._later(partial(self._release, member, standing))
        else:
            self.busy.discard(member)

    def _release(self, member: str, standing: Standing) -> None:
        release = ReleasePartitions(GROUP, member, standing.to_release, standing.generation)
        self._execute(release)
        self.busy.discard(member)

    def settle(self) -> float:
        """Let all members hear of the change and answer. Returns the virtual milliseconds."""
        began_ns = done_ns = self.clock.monotonic_ns()
        while self.schedule.step(began_ns + 60_000 * MS):
            done_ns = self.clock.monotonic_ns()
        assert self.node.assigned.groups[GROUP].state == "stable", "all members have answered"
        return (done_ns - began_ns) / MS

    def leave(self, member: str) -> None:
        self._execute(LeaveGroup(GROUP, member))


@cache
def idle_group() -> IdleGroup:
    return IdleGroup()


def settings() -> dict[str, object]:
    return {"members": MEMBERS, "partitions": PARTITIONS, "network_ms_max": NETWORK_MS_MAX}


def measure_moves(_effort: Effort) -> CaseResult:
    """Measure how many partitions move; the sticky assignor needs to move the new member's even share."""
    group = idle_group()
    group.join("new")
    moved = len(group.node.assigned.groups[GROUP].rebalances[-1].passed)
    group.settle()
    group.leave("new")
    group.settle()
    return CaseResult(moved, PARTITIONS // MEMBERS, settings=settings())


def measure_decide(effort: Effort) -> CaseResult:
    """Measure the milliseconds of CPU of one join, the best of several."""
    group, best_ns = idle_group(), float("inf")
    for turn in range(effort.turns):
        with collector_off():
            best_ns = min(best_ns, group.join(f"new-{turn}"))
        group.settle()
        group.leave(f"new-{turn}")
        group.settle()
    return CaseResult(best_ns / MS, settings=settings())


def measure_settle(_effort: Effort) -> CaseResult:
    """Measure the virtual milliseconds until all members know their partitions, after one joined an idle group."""
    group = idle_group()
    group.join("new")
    took_ms = group.settle()
    group.leave("new")
    group.settle()
    return CaseResult(took_ms, settings=settings())


CASES = (
    Case(
        name="rebalance_moves",
        unit=Unit.PARTITIONS,
        measure=measure_moves,
        goal=on_value("<=10"),
        baseline="an even share",
    ),
    Case(
        name="rebalance",
        unit=Unit.MS,
        measure=measure_decide,
        goal=on_value("<50"),
    ),
    Case(
        name="rebalance_settle",
        unit=Unit.MS,
        measure=measure_settle,
        goal=on_value("<1000"),
    ),
)
