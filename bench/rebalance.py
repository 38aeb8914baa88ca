"""What a rebalance costs a large group: a member joins 99 others that share 1,000 partitions.

The whole of a join is measured: membership, assignor, and the hand-over of what is free. Time that passes while
members answer is virtual: each of them waits in a long poll, and hears and answers with the delays of a slow network.
"""

import random
from collections.abc import Callable
from functools import cache, partial

from penstock.api.members import Standing
from penstock.api.principals import LOCAL
from penstock.api.topics import CreateTopic
from penstock.broker.memberships import Join
from penstock.broker.node import Node
from penstock.broker.partition import Now
from penstock.sim import SimClock, SimDisk
from penstock.sim.schedule import MS, Schedule

from .measure import Clock, Effort, collector_off
from .report import Case, Measured, Unit, on_value

MEMBERS = 100
PARTITIONS = 1000
TOPIC, GROUP = "orders", "billing"
# One way, at most: a message to a broker on another continent takes less.
NETWORK_MS_MAX = 100
_START_NS = 1_700_000_000_000_000_000


class Idle:
    """A group of members that wait in long polls. Only their answers move it."""

    def __init__(self) -> None:
        self.clock = SimClock(_START_NS)
        self.schedule = Schedule(self.clock)
        self.entropy = random.Random(7)  # noqa: S311 - delays, and the same ones in every run
        self.node = Node(SimDisk(), now=self.now(), entropy=self.entropy)
        self.node.execute(CreateTopic(TOPIC, PARTITIONS), LOCAL, self.now()).outcome()
        self.heard: dict[str, Standing] = {}
        # Those whose answer is on its way.
        self.busy: set[str] = set()
        for number in range(MEMBERS - 1):
            self.join(f"member-{number:03}")
            self.settle()

    def now(self) -> Now:
        return Now(self.clock.now_ns(), self.clock.monotonic_ns())

    def join(self, member: str) -> int:
        """Nanoseconds of CPU that it took."""
        wish, now = Join(frozenset({TOPIC}), member=member), self.now()
        began_ns = Clock.CPU.now_ns()
        self.node.assigned.join(GROUP, wish, now)
        took_ns = Clock.CPU.now_ns() - began_ns
        self.node.assigned.wait(GROUP, member, self.now(), is_over=False)
        self.wake_members()
        return took_ns

    def wake_members(self) -> None:
        """The long polls of those end who must release something or may take something."""
        for member in self.node.assigned.groups[GROUP].members.values():
            heard = self.heard.get(member.id)
            is_behind = heard is None or heard.changes != member.changes
            if is_behind and member.id not in self.busy:
                self.busy.add(member.id)
                self._later(partial(self._answer, member.id))

    def _later(self, call: Callable[[], None]) -> None:
        self.schedule.after(self.entropy.randint(1, NETWORK_MS_MAX) * MS, call)

    def _answer(self, member: str) -> None:
        standing = self.node.assigned.heartbeat(GROUP, member, None, self.now())
        self.heard[member] = standing
        if standing.to_release:
            self._later(partial(self._release, member, standing))
        else:
            self.busy.discard(member)

    def _release(self, member: str, standing: Standing) -> None:
        assigned = self.node.assigned
        assigned.release(GROUP, member, standing.generation, standing.to_release, self.now())
        self.heard[member] = assigned.heartbeat(GROUP, member, None, self.now())
        self.busy.discard(member)
        self.wake_members()

    def settle(self) -> float:
        """Let everybody hear and answer; virtual milliseconds until that is done."""
        began_ns = done_ns = self.clock.monotonic_ns()
        while self.schedule.step(began_ns + 60_000 * MS):
            done_ns = self.clock.monotonic_ns()
        assert self.node.assigned.groups[GROUP].state == "stable", "everybody has answered"
        return (done_ns - began_ns) / MS

    def leave(self, member: str) -> None:
        self.node.assigned.leave(GROUP, member, self.now())
        del self.heard[member]
        self.wake_members()


@cache
def idle_group() -> Idle:
    return Idle()


def settings() -> dict[str, object]:
    return {"members": MEMBERS, "partitions": PARTITIONS, "network_ms_max": NETWORK_MS_MAX}


def measure_moves(_effort: Effort) -> Measured:
    """Partitions that change hands; the new member's even share is what sticky needs."""
    group = idle_group()
    group.join("new")
    moved = len(group.node.assigned.groups[GROUP].rebalances[-1].passed)
    group.settle()
    group.leave("new")
    group.settle()
    return Measured(moved, PARTITIONS // MEMBERS, settings=settings())


def measure_decide(effort: Effort) -> Measured:
    """Milliseconds of CPU of one join, the best of several."""
    group, best_ns = idle_group(), float("inf")
    for turn in range(effort.turns):
        with collector_off():
            best_ns = min(best_ns, group.join(f"new-{turn}"))
        group.settle()
        group.leave(f"new-{turn}")
        group.settle()
    return Measured(best_ns / MS, settings=settings())


def measure_settle(_effort: Effort) -> Measured:
    """Virtual milliseconds until all know what they have, after a member joined an idle group."""
    group = idle_group()
    group.join("new")
    took_ms = group.settle()
    group.leave("new")
    group.settle()
    return Measured(took_ms, settings=settings())


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
