"""Members of assigned groups: they join, answer, commit and leave; die, come back, and meet their former selves."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..api.answers import Kind
from ..api.groups import Mode, PartitionOffset
from ..api.members import CommitAsMember
from ..api.received import Received
from ..api.topics import AddPartitions
from ..broker.memberships import Ask, Join
from ..broker.partition import Now
from ..errors import NotOwner, StaleGeneration, Unavailable, UnknownMember
from ..model import TopicPartition
from .members import OLD_KEPT, Member
from .ownerbook import SESSION_MS, Call
from .schedule import MS
from .shell import Shell
from .violation import Checker, Violation

_SILENT_MS = SESSION_MS * 3 // 2
_PARTITIONS_MAX = 6


@dataclass(slots=True, eq=False)
class AssignedMember(Member):
    """One member of one group. `generation` 0: it has not joined, or has heard that it is none any more."""

    mode: Mode = Mode.RELAXED
    is_auto_commit: bool = False
    generation: int = 0
    assigned: tuple[TopicPartition, ...] = ()
    to_release: tuple[TopicPartition, ...] = ()
    # What it knew before it joined again: its former selves may still be about.
    former: list[int] = field(default_factory=list)
    silent_until_ns: int = 0

    def wake(self) -> None:
        place = self.place
        place.wake_later(250, self)
        shell = place.shell
        is_silent = place.new_scene("").moment.true_ns < self.silent_until_ns
        if shell is None or (is_silent and not self.is_draining):
            return
        if not self.generation:
            self._join(shell)
        elif self.is_draining:
            self._drain(shell)
        else:
            self._choose(shell, place.entropy.random())

    def nudge(self) -> None:
        return

    def _drain(self, shell: Shell) -> None:
        self._beat(shell)
        self._release(shell)
        if self.generation:
            self._poll(shell, 50)
            self._answer_all(shell, Kind.ACK, self.hand)

    def _choose(self, shell: Shell, lot: float) -> None:
        entropy = self.place.entropy
        if lot < 0.30:
            self._poll(shell, entropy.randint(1, 16))
        elif lot < 0.60:
            self._answer_some(shell)
        elif lot < 0.72:
            self._beat(shell)
            if entropy.random() < 0.7:
                self._release(shell)
        elif lot < 0.79:
            self._commit(shell, self.assigned, self.generation)
        elif lot < 0.83:
            self._commit(shell, self._partitions(shell), None)
        elif lot < 0.90:
            self._be_a_zombie(shell)
        elif lot < 0.93:
            self._join(shell)
        elif lot < 0.95:
            self._leave(shell)
        elif lot < 0.97:
            self.silent_until_ns = self.place.scene.moment.true_ns + _SILENT_MS * MS
        elif lot < 0.975:
            self._grow(shell)
        else:
            self._answer_all(shell, Kind.ACK, self.old[: entropy.randint(1, 4)])

    def _grow(self, shell: Shell) -> None:
        """One more partition, while everybody consumes."""
        total = len(self._partitions(shell)) + 1
        if total > _PARTITIONS_MAX:
            return

        def grow() -> None:
            with suppress(Unavailable):
                shell.execute(AddPartitions(self.topic, total))

        self.place.act(self.place.new_scene(f"{total} partitions"), grow)

    def _partitions(self, shell: Shell) -> tuple[TopicPartition, ...]:
        count = len(shell.node.topic(self.topic).partitions)
        return tuple(TopicPartition(self.topic, number) for number in range(count))

    def _ask(self, shell: Shell, what: str, command: Callable[[Now], object]) -> None:
        """One call as the member that it is now."""

        def call() -> None:
            self.place.owners.calling = Call(self.name, what)
            try:
                command(shell.now())
            except Unavailable as error:
                self.place.note(f"refused: {error.code}")
            except (UnknownMember, StaleGeneration) as error:
                self.place.note(f"refused: {error.code}")
                self._lose(error)
            else:
                self.place.owners.seen(self.group, self.name, self.place.scene)

        self.place.act(self.place.new_scene(f"{self.name}: {what}"), call)

    def _lose(self, error: UnknownMember | StaleGeneration) -> None:
        """No member any more, or only behind the times: then the next heartbeat tells."""
        if isinstance(error, UnknownMember):
            self.former = [*self.former, self.generation][-3:]
            self.generation, self.assigned, self.to_release = 0, (), ()

    def _join(self, shell: Shell) -> None:
        def join(now: Now) -> None:
            wish = Join(
                frozenset({self.topic}),
                member=self.name,
                session_ms=SESSION_MS,
                mode=self.mode,
                is_auto_commit=self.is_auto_commit,
            )
            _, standing = shell.node.assigned.join(self.group, wish, now)
            if self.generation:
                self.former = [*self.former, self.generation][-3:]
            self.generation = standing.generation
            self.assigned, self.to_release = standing.assigned, standing.to_release
            self.old, self.hand = self.hand[-OLD_KEPT:], []

        self._ask(shell, "join", join)

    def _beat(self, shell: Shell) -> None:
        def beat(now: Now) -> None:
            heard = shell.node.assigned.heartbeat(self.group, self.name, self.generation, now)
            self.generation = heard.generation
            self.assigned, self.to_release = heard.assigned, heard.to_release

        self._ask(shell, "heartbeat", beat)

    def _release(self, shell: Shell) -> None:
        if not self.to_release:
            return
        known = self.generation

        def release(now: Now) -> None:
            try:
                shell.node.assigned.release(self.group, self.name, known, self.to_release, now)
            except NotOwner:
                self.place.note("too late")
            self.to_release = ()

        self._ask(shell, "release", release)

    def _leave(self, shell: Shell) -> None:
        def leave(now: Now) -> None:
            shell.node.assigned.leave(self.group, self.name, now)
            self.former = [*self.former, self.generation][-3:]
            self.generation, self.assigned, self.to_release = 0, (), ()
            self.old, self.hand = self.hand[-OLD_KEPT:], []

        self._ask(shell, "leave", leave)

    def _poll(self, shell: Shell, limit: int) -> None:
        ask = Ask(self.name, limit, self.generation, self.lease_ms)
        self._ask(shell, "poll", lambda now: self._take(shell, ask, now))

    def _take(self, shell: Shell, ask: Ask, now: Now) -> None:
        received = shell.node.assigned.poll(self.group, ask, now)
        place = self.place
        place.books.follow(shell.node, place.scene)
        for one in received:
            partition = TopicPartition(one.topic, one.partition)
            if not self._owns_now(shell, partition):
                story = f"{self.name} got {one.receipt}, but {partition} is not its own"
                raise Violation(Checker.OWNED_ONCE, story)
            self._check(shell, one)
        self.hand.extend(received)
        self.received += len(received)
        if received:
            place.note(f"got {[(one.partition, one.offset, one.attempts) for one in received]}")

    def _owns_now(self, shell: Shell, partition: TopicPartition) -> bool:
        """By the group itself, because somebody may have been missed in this very call."""
        return shell.node.assigned.groups[self.group].owners.get(partition) == self.name

    def _check(self, shell: Shell, one: Received) -> None:
        partition = shell.node.partition(one.topic, one.partition)
        self.place.books.check_received(self.name, partition, [one], self.place.scene)

    def _commit(
        self, shell: Shell, among: tuple[TopicPartition, ...], generation: int | None
    ) -> None:
        """Commit somewhere; where somebody else is the owner, that has to be refused."""
        if not among:
            return
        one = self.place.entropy.choice(among)
        partition = shell.node.topic(one.topic).partitions.serving(one.number)
        if partition is None:
            return
        log = partition.messages
        to = self.place.entropy.randint(log.start_offset, log.end_offset)
        what = f"{self.name} commits {one} to {to} in generation {generation}"
        scene = replace(self.place.new_scene(what), moving_to=to)
        self.place.act(scene, lambda: self._commit_to(shell, one, to, generation))

    def _commit_to(
        self, shell: Shell, one: TopicPartition, to: int, generation: int | None
    ) -> None:
        try:
            offsets = (PartitionOffset(*one, to),)
            shell.execute(CommitAsMember(self.group, self.name, offsets, generation))
        except (NotOwner, StaleGeneration, Unavailable) as error:
            self.place.note(f"refused: {error.code}")
            return
        except UnknownMember as error:
            self._lose(error)
            return
        if not self._owns_now(shell, one):
            story = f"{self.name} committed {one}, which is not its own"
            raise Violation(Checker.FENCED, story)
        self.place.owners.seen(self.group, self.name, self.place.scene)
        self._await_reply(shell, shell.node.partition(*one), 0)

    def _be_a_zombie(self, shell: Shell) -> None:
        """A former self comes back and goes on as if nothing had happened."""
        if not self.former:
            return
        known = self.place.entropy.choice(self.former)
        what = self.place.entropy.choice(("heartbeat", "poll", "release"))
        scene = self.place.new_scene(f"a former {self.name} of generation {known}: {what}")
        self.place.act(scene, lambda: self._haunt(shell, what, known))

    def _haunt(self, shell: Shell, what: str, known: int) -> None:
        assigned, now = shell.node.assigned, shell.now()
        try:
            match what:
                case "heartbeat":
                    assigned.heartbeat(self.group, self.name, known, now)
                case "poll":
                    assigned.poll(self.group, Ask(self.name, 5, known, self.lease_ms), now)
                case _:
                    assigned.release(self.group, self.name, known, self.to_release, now)
        except (StaleGeneration, UnknownMember, Unavailable) as error:
            self.place.note(f"refused: {error.code}")
        else:
            # A disk that lies may lose which generations were given, and then they come again.
            if self.place.books.is_disk_honest:
                story = f"a {what} of a former {self.name}, of generation {known}, was taken"
                raise Violation(Checker.FENCED, story)
