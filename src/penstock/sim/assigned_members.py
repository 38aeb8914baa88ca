"""Members of assigned groups: they join, answer, commit, leave, fall silent, and repeat calls of old generations."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ..api.answers import Kind
from ..api.command import Command
from ..api.groups import Mode, PartitionOffset
from ..api.members import (
    CommitAsMember,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    PollMember,
    ReleasePartitions,
)
from ..api.received import Received
from ..api.topics import AddPartitions
from ..errors import NotOwner, StaleGeneration, Unavailable, UnknownMember
from ..model import TopicPartition
from .driver import SimDriver
from .members import OLD_KEPT, Member
from .owner_book import SESSION_MS, MemberCall
from .schedule import MS
from .violation import Checker, Violation

_SILENT_MS = SESSION_MS * 3 // 2
_PARTITIONS_MAX = 6


@dataclass(slots=True, eq=False)
class AssignedMember(Member):
    """One member of one group. `generation` is 0 while it has not joined, or was told that it is no member."""

    mode: Mode = Mode.RELAXED
    is_auto_commit: bool = False
    generation: int = 0
    assigned: tuple[TopicPartition, ...] = ()
    to_release: tuple[TopicPartition, ...] = ()
    # Generations that it had before it joined again.
    former: list[int] = field(default_factory=list)
    silent_until_ns: int = 0

    def wake(self) -> None:
        world = self.world
        world.wake_later(250, self)
        driver = world.driver
        is_silent = world.new_event("").time.true_ns < self.silent_until_ns
        if driver is None or (is_silent and not self.is_draining):
            return
        if not self.generation:
            self._join(driver)
        elif self.is_draining:
            self._drain(driver)
        else:
            self._choose(driver, world.entropy.random())

    def poll_now(self) -> None:
        return

    def _drain(self, driver: SimDriver) -> None:
        self._beat(driver)
        self._release(driver)
        if self.generation:
            self._poll(driver, 50)
            self._answer_all(driver, Kind.ACK, self.leased)

    def _choose(self, driver: SimDriver, lot: float) -> None:
        entropy = self.world.entropy
        if lot < 0.30:
            self._poll(driver, entropy.randint(1, 16))
        elif lot < 0.60:
            self._answer_some(driver)
        elif lot < 0.72:
            self._beat(driver)
            if entropy.random() < 0.7:
                self._release(driver)
        elif lot < 0.79:
            self._commit(driver, self.assigned, self.generation)
        elif lot < 0.83:
            self._commit(driver, self._partitions(driver), None)
        elif lot < 0.90:
            self._act_as_former(driver)
        elif lot < 0.93:
            self._join(driver)
        elif lot < 0.95:
            self._leave(driver)
        elif lot < 0.97:
            self.silent_until_ns = self.world.event.time.true_ns + _SILENT_MS * MS
        elif lot < 0.975:
            self._grow(driver)
        else:
            self._answer_all(driver, Kind.ACK, self.old[: entropy.randint(1, 4)])

    def _grow(self, driver: SimDriver) -> None:
        """Add a partition while all members consume."""
        total = len(self._partitions(driver)) + 1
        if total > _PARTITIONS_MAX:
            return

        def grow() -> None:
            with suppress(Unavailable):
                driver.execute(AddPartitions(self.topic, total))

        self.world.act(self.world.new_event(f"{total} partitions"), grow)

    def _partitions(self, driver: SimDriver) -> tuple[TopicPartition, ...]:
        count = len(driver.node.topic(self.topic).partitions)
        return tuple(TopicPartition(self.topic, number) for number in range(count))

    def _ask(self, driver: SimDriver, what: str, command: Callable[[], object]) -> None:
        """Make one call under the present generation."""

        def call() -> None:
            self.world.owners.calling = MemberCall(self.name, what)
            try:
                command()
            except Unavailable as error:
                self.world.note(f"refused: {error.code}")
            except (UnknownMember, StaleGeneration) as error:
                self.world.note(f"refused: {error.code}")
                self._lose(error)
            else:
                self.world.owners.seen(self.group, self.name, self.world.event)

        self.world.act(self.world.new_event(f"{self.name}: {what}"), call)

    def _lose(self, error: UnknownMember | StaleGeneration) -> None:
        """Leave the group after UnknownMember. After StaleGeneration the next heartbeat tells the new one."""
        if isinstance(error, UnknownMember):
            self.former = [*self.former, self.generation][-3:]
            self.generation, self.assigned, self.to_release = 0, (), ()

    def _join(self, driver: SimDriver) -> None:
        def join() -> None:
            command = JoinGroup(
                self.group,
                self.name,
                (self.topic,),
                session_ms=SESSION_MS,
                mode=self.mode,
                is_auto_commit=self.is_auto_commit,
            )
            standing = driver.execute(command).standing
            if self.generation:
                self.former = [*self.former, self.generation][-3:]
            self.generation = standing.generation
            self.assigned, self.to_release = standing.assigned, standing.to_release
            self.old, self.leased = self.leased[-OLD_KEPT:], []

        self._ask(driver, "join", join)

    def _beat(self, driver: SimDriver) -> None:
        def beat() -> None:
            heard = driver.execute(Heartbeat(self.group, self.name, self.generation))
            self.generation = heard.generation
            self.assigned, self.to_release = heard.assigned, heard.to_release

        self._ask(driver, "heartbeat", beat)

    def _release(self, driver: SimDriver) -> None:
        if not self.to_release:
            return
        known = self.generation

        def release() -> None:
            try:
                driver.execute(ReleasePartitions(self.group, self.name, self.to_release, known))
            except NotOwner:
                self.world.note("too late")
            self.to_release = ()

        self._ask(driver, "release", release)

    def _leave(self, driver: SimDriver) -> None:
        def leave() -> None:
            driver.execute(LeaveGroup(self.group, self.name))
            self.former = [*self.former, self.generation][-3:]
            self.generation, self.assigned, self.to_release = 0, (), ()
            self.old, self.leased = self.leased[-OLD_KEPT:], []

        self._ask(driver, "leave", leave)

    def _poll(self, driver: SimDriver, limit: int) -> None:
        command = PollMember(self.group, self.name, limit, self.generation, self.lease_ms)
        self._ask(driver, "poll", lambda: self._take(driver, command))

    def _take(self, driver: SimDriver, command: PollMember) -> None:
        received = driver.execute(command)
        world = self.world
        world.books.follow(driver.node, world.event)
        for one in received:
            partition = TopicPartition(one.topic, one.partition)
            if not self._owns_now(driver, partition):
                story = f"{self.name} got {one.receipt}, but {partition} is not its own"
                raise Violation(Checker.OWNED_ONCE, story)
            self._check(driver, one)
        self.leased.extend(received)
        self.received += len(received)
        if received:
            world.note(f"got {[(one.partition, one.offset, one.attempts) for one in received]}")

    def _owns_now(self, driver: SimDriver, partition: TopicPartition) -> bool:
        """Whether the group names this member as owner. Asks the group: a session may have ended in this call."""
        return driver.node.assigned.groups[self.group].owners.get(partition) == self.name

    def _check(self, driver: SimDriver, one: Received) -> None:
        partition = driver.node.partition(one.topic, one.partition)
        self.world.books.check_received(self.name, partition, [one], self.world.event)

    def _commit(
        self, driver: SimDriver, among: tuple[TopicPartition, ...], generation: int | None
    ) -> None:
        """Commit in one of these partitions. Violation: the node accepts it though another member is the owner."""
        if not among:
            return
        one = self.world.entropy.choice(among)
        partition = driver.node.topic(one.topic).partitions.serving_at(one.number)
        if partition is None:
            return
        log = partition.messages
        to = self.world.entropy.randint(log.start_offset, log.end_offset)
        what = f"{self.name} commits {one} to {to} in generation {generation}"
        event = replace(self.world.new_event(what), moving_to=to)
        self.world.act(event, lambda: self._commit_to(driver, one, to, generation))

    def _commit_to(
        self, driver: SimDriver, one: TopicPartition, to: int, generation: int | None
    ) -> None:
        try:
            offsets = (PartitionOffset(*one, to),)
            driver.execute(CommitAsMember(self.group, self.name, offsets, generation))
        except (NotOwner, StaleGeneration, Unavailable) as error:
            self.world.note(f"refused: {error.code}")
            return
        except UnknownMember as error:
            self._lose(error)
            return
        if not self._owns_now(driver, one):
            story = f"{self.name} committed {one}, which is not its own"
            raise Violation(Checker.FENCED, story)
        self.world.owners.seen(self.group, self.name, self.world.event)
        self._await_reply(driver, driver.node.partition(*one), 0)

    def _act_as_former(self, driver: SimDriver) -> None:
        """Repeat a call under a former generation."""
        if not self.former:
            return
        known = self.world.entropy.choice(self.former)
        what = self.world.entropy.choice(("heartbeat", "poll", "release"))
        event = self.world.new_event(f"a former {self.name} of generation {known}: {what}")
        self.world.act(event, lambda: self._call_as_former(driver, what, known))

    def _call_as_former(self, driver: SimDriver, what: str, known: int) -> None:
        commands: dict[str, Command[Any]] = {
            "heartbeat": Heartbeat(self.group, self.name, known),
            "poll": PollMember(self.group, self.name, 5, known, self.lease_ms),
            "release": ReleasePartitions(self.group, self.name, self.to_release, known),
        }
        try:
            driver.execute(commands[what])
        except (StaleGeneration, UnknownMember, Unavailable) as error:
            self.world.note(f"refused: {error.code}")
        else:
            # A disk that lies may lose the last generations, and then the node gives them again.
            if self.world.books.is_disk_honest:
                story = f"a {what} of a former {self.name}, of generation {known}, was taken"
                raise Violation(Checker.FENCED, story)
