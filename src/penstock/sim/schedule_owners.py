"""Owners of schedules: they create, pause, resume and delete them, and miss none that was acknowledged."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ..api.schedules import (
    ChangeSchedule,
    CreateSchedule,
    DeleteSchedule,
    GetSchedule,
    Missed,
)
from ..broker.node import Node
from ..errors import Unavailable
from ..model import TopicPartition
from .client import WorldView
from .driver import PendingReply, SimDriver
from .schedule_book import ZONE
from .violation import Checker, Violation

_SCHEDULES_MAX = 4
# A step of the clock by a day makes few of these due. Those with a second come all the time, and may be paused.
_KINDS: tuple[dict[str, Any], ...] = (
    {"every_ms": 1000},
    {"every_ms": 1000, "missed": Missed.SKIP},
    {"every_ms": 150_000, "missed": Missed.ALL},
    {"cron": "*/40 * * * *", "timezone": ZONE, "missed": Missed.ALL},
    {"cron": "0 3 * * *", "timezone": ZONE, "missed": Missed.ALL},
)


@dataclass(slots=True, eq=False)
class ScheduleOwner:
    """`known` are the schedules of which the node said, durably, that they are there; `gone` those that are not.

    `is_stopping`: deletes its schedules one by one, after what is due of them has come.
    """

    name: str
    topic: str
    world: WorldView
    # Its own, so that other clients act as they would without it.
    entropy: Random
    known: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    # Created or deleted, and not answered yet: either may be.
    unsure: set[str] = field(default_factory=set)
    is_stopping: bool = False
    _made: int = 0

    @property
    def outstanding(self) -> bool:
        return bool(self.known or self.unsure)

    def wake(self) -> None:
        self.world.wake_later(100 if self.is_stopping else 600, self)
        driver = self.world.driver
        if driver is None:
            return
        for key in sorted(self.unsure):
            self._look(driver.node, key)
        if self.is_stopping or (self.known and self.entropy.random() < 0.2):
            if self.known:
                self._act(driver, "deletes", min(self.known), self._delete)
        elif len(self.known) < _SCHEDULES_MAX:
            self._made += 1
            self._act(driver, "creates", f"{self.name}-{self._made}", self._create)
        else:
            self._act(driver, "changes", self.entropy.choice(sorted(self.known)), self._change)

    def _act(
        self, driver: SimDriver, what: str, key: str, call: Callable[[SimDriver, str], None]
    ) -> None:
        def act() -> None:
            try:
                call(driver, key)
            except Unavailable as error:
                self.world.note(f"put off: {error.code}")

        self.world.act(self.world.new_event(f"{self.name} {what} {key}"), act)

    def _create(self, driver: SimDriver, key: str) -> None:
        times = self.entropy.choice(_KINDS)
        self.unsure.add(key)
        made = driver.execute(CreateSchedule(self.topic, key, value=key.encode(), **times))
        self._hold(driver, made.partition, key, self.known)

    def _delete(self, driver: SimDriver, key: str) -> None:
        driver.tick()
        # The books look at what has come while its schedule is still there.
        self.world.books.follow(driver.node, self.world.event)
        found = driver.execute(GetSchedule(self.topic, key))
        if found.next_due_ns is not None and found.next_due_ns <= driver.now().wall_ns:
            raise Violation(Checker.SCHEDULE, f"{key}: {found.next_due_ns} is overdue")
        self.known.discard(key)
        self.unsure.add(key)
        driver.execute(DeleteSchedule(self.topic, key))
        self._hold(driver, found.partition, key, self.gone)

    def _change(self, driver: SimDriver, key: str) -> None:
        schedule = driver.execute(GetSchedule(self.topic, key))
        if schedule.missed is Missed.ALL:
            value = b"%s %d" % (key.encode(), self.entropy.randrange(100))
            driver.execute(ChangeSchedule(self.topic, key, value=value))
        else:
            driver.execute(ChangeSchedule(self.topic, key, is_paused=not schedule.is_paused))

    def _hold(self, driver: SimDriver, number: int, key: str, outcome: set[str]) -> None:
        partition = driver.node.partition(self.topic, number)
        journal_end = partition.journal.log.end_offset
        promises = self.world.books.by_partition[TopicPartition(self.topic, number)].promises

        def replied() -> None:
            promises.state = max(promises.state, journal_end)
            self.unsure.discard(key)
            outcome.add(key)

        driver.hold(partition, PendingReply(0, journal_end, replied))

    def _look(self, node: Node, key: str) -> None:
        """What became of a request without an answer, once nothing of it can be taken back."""
        if any(one.is_dirty for one in node.topic(self.topic).partitions):
            return
        self.unsure.discard(key)
        (self.known if self._is_there(node, key) else self.gone).add(key)

    def _is_there(self, node: Node, key: str) -> bool:
        partitions = node.topic(self.topic).partitions
        return any(key in one.machine.schedules.by_key for one in partitions)

    def check(self, node: Node, *, is_forgiven: bool) -> None:
        """Violation: a node that has just started has lost a schedule, or has one that was deleted."""
        if is_forgiven:
            self.unsure |= self.known | self.gone
            self.known, self.gone = set(), set()
        if missing := [key for key in sorted(self.known) if not self._is_there(node, key)]:
            raise Violation(Checker.SCHEDULE, f"{missing} are lost")
        if there := [key for key in sorted(self.gone) if self._is_there(node, key)]:
            raise Violation(Checker.SCHEDULE, f"{there} are back")
