"""A whole world from one integer: a node, those who use it, what goes wrong, and the books that watch.

First everything may happen (safety: no promise is broken at any event), then everything heals (liveness: all of it
must come to rest).
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from random import Random

from ..api.principals import LOCAL
from ..api.topics import CreateTopic
from ..broker.node import Node
from ..broker.partition import Now, Partition, PartitionPlan
from ..broker.topics import settings_of
from ..errors import Damaged, Fatal, NoSpace, PenstockError, Unavailable
from .absence import Absences, Outage
from .assigned import AssignedMember
from .books import NONE_ABSENT, Absent, Books
from .chaos import Chaos
from .clock import SimClock
from .delayers import Delayer
from .disk import SimDisk
from .members import Member
from .operations import Tree
from .outage import outage
from .ownerbook import REVOCATION_MS, OwnerBook
from .place import Client
from .producers import Kind, Producer
from .scene import Moment, Scene
from .schedule import MS, SECOND, Schedule
from .shell import Report, Shell
from .terms import Terms, draw_terms
from .twin import require_same
from .violation import Checker, Violation

TOPIC = "jobs"
_START_WALL_NS = 1_800_000_000 * SECOND
_EVENTS_SHOWN = 40
# Which of the assigned members answers nothing by itself.
_AUTO_COMMITS = 2
# One member that may hold three messages needs minutes for a backlog.
_HEAL_NS = 600 * SECOND
# What no caller is told to expect. Anything else is a fault of the simulation itself, and ends it.
_SURPRISES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    PenstockError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Result:
    """What a seed did, and a hash of all of it."""

    seed: int
    seconds: int
    events: int
    faults: int
    aimed: int
    restarts: int
    messages: int
    records: int
    acked: int
    repeated: int
    letters: int
    # Files that were lost and parts that were old, by what came of them.
    absences: Counter[str]
    was_refused: bool
    trace: str


class World:
    """One seed. `run` raises a Violation with its story, or returns what happened."""

    def __init__(self, seed: int, *, terms: Terms | None = None) -> None:
        self.seed, self.terms = seed, terms or draw_terms(seed)
        self.entropy = Random(seed)  # noqa: S311  # A simulation has to be repeatable.
        self.clock = SimClock(_START_WALL_NS)
        self.schedule = Schedule(self.clock)
        self.disk = SimDisk()
        self.absences = Absences(seed)
        self.chaos = Chaos(self.terms, self.schedule, self.entropy, self)
        self.books = Books(self.notice, is_disk_honest=not self.terms.is_lying)
        self.owners = OwnerBook(self.books, has_room="full disk" not in self.terms.kinds_of_faults)
        self.shell: Shell | None = None
        self.scene = self.new_scene("nothing")
        self.life = self.events = self.restarts = 0
        self.was_refused = False
        self._ending, self._is_acting = "", False
        # A loss that the node lives with.
        self.outage: Outage | None = None
        # The partitions that it leaves out, or did before the start that is under way.
        self._absent = NONE_ABSENT
        self._is_closed = self._is_restoring = False
        self._crashed_in = self.scene
        self._boot_ns = 0
        self._slowness = 1
        self._recent: deque[str] = deque(maxlen=_EVENTS_SHOWN)
        self._trace = blake2b(digest_size=16)
        self.producers = self._make_producers()
        self.members = self._make_members()
        self.assigned = self._make_assigned()
        self.delayers = [
            Delayer(f"later-{number}", TOPIC, self) for number in range(self.terms.delayers)
        ]

    def _make_producers(self) -> list[Producer]:
        return [
            Producer(f"{kind.value}-{number}", kind, TOPIC, number, self, self.terms)
            for number, kind in enumerate((*Kind, self.entropy.choice(tuple(Kind))))
        ]

    def _make_members(self) -> list[Member]:
        lease_ms = self.terms.config.visibility_timeout_ms
        return [
            Member(f"m{group}-{number}", f"group-{group}", TOPIC, self, lease_ms)
            for group in range(self.terms.groups)
            for number in range(self.terms.members_each)
        ]

    def _make_assigned(self) -> list[AssignedMember]:
        terms = self.terms
        lease_ms, mode = terms.config.visibility_timeout_ms, terms.assigned_mode
        return [
            AssignedMember(
                f"a-{number}",
                "assigned",
                TOPIC,
                self,
                lease_ms,
                mode=mode,
                is_auto_commit=number == _AUTO_COMMITS,
            )
            for number in range(terms.assigned_members)
        ]

    def run(self, seconds: int) -> Result:
        try:
            self._start()
            self._begin()
            self._run_until(seconds * SECOND)
            self._heal(seconds)
        except Violation as violation:
            violation.add_note(self._report(seconds))
            raise
        return self._result(seconds)

    def _begin(self) -> None:
        clients: list[Client] = [
            *self.producers,
            *self.members,
            *self.assigned,
            *self.delayers,
        ]
        for client in clients:
            self.wake_later(300, client)
        self._every(250, self._tick)
        self._every(1700, self._retain)
        self.chaos.begin()

    def _run_until(self, until_ns: int) -> None:
        while not self.was_refused and self.schedule.step(until_ns):
            pass

    def _heal(self, seconds: int) -> None:
        """No faults any more: everything that was begun must come to its end."""
        self.note("healing")
        self.chaos.calm()
        self._restore()
        for producer in self.producers:
            producer.is_stopping = True
        for delayer in self.delayers:
            delayer.is_stopping = True
        for member in (*self.members, *self.assigned):
            member.is_draining = True
        for until_ns in range(seconds * SECOND, seconds * SECOND + _HEAL_NS, SECOND):
            self._run_until(until_ns)
            if self.was_refused:
                return
            if self.shell is not None and not self._unrest():
                self._rest()
                return
        raise Violation(Checker.LIVENESS, "; ".join(self._unrest()) or "the node does not start")

    def _unrest(self) -> list[str]:
        found = self.books.unfinished()
        busy = [one.name for one in self.producers if one.outstanding]
        busy += [one.name for one in self.delayers if one.outstanding]
        found += [f"{name} waits for a reply" for name in busy]
        if self.shell is not None and any(self.shell.waiting.values()):
            found.append("replies are held back")
        return found

    def _rest(self) -> None:
        """Close, start once more, and everything is as it was."""
        assert self.shell is not None
        self.books.compare(self.shell.node)
        self.end_soon("restart")
        self._run_until(self.clock.monotonic_ns() + 10 * SECOND)
        if self.shell is None:
            raise Violation(Checker.LIVENESS, "the node does not start again")
        if unrest := self._unrest():
            raise Violation(Checker.LIVENESS, f"after a restart {'; '.join(unrest)}")

    # What clients see.

    def new_scene(self, what: str) -> Scene:
        return Scene(Moment(self.clock.now_ns(), self.clock.monotonic_ns()), what)

    def wake_later(self, mean_ms: int, client: Client) -> None:
        delay_ns = self.entropy.randint(mean_ms * MS // 10, mean_ms * MS * 19 // 10)
        self.schedule.after(delay_ns, client.wake)

    def act(self, scene: Scene, call: Callable[[], None]) -> None:
        self.scene = scene
        self.events += 1
        self.note(scene.what)
        self._is_acting, seen = True, self.books.messages_seen
        try:
            call()
            if not self._ending:
                assert self.shell is not None
                self.books.follow(self.shell.node, self.scene)
                self.owners.follow(self.shell.node, self.scene)
                self.shell.sync_soon()
                if self.books.messages_seen > seen and self.entropy.random() < 0.7:
                    waiting = self.entropy.choice(self.members)
                    self.schedule.after(self.entropy.randint(0, 5) * MS, waiting.nudge)
        except Fatal as error:
            self.note(f"fatal: {error}")
            self._end("power cut", self.scene)
        except Damaged as error:
            self._refuse(error)
            return
        except Violation:
            raise
        except _SURPRISES as error:
            story = f"{scene.what}: {type(error).__name__}: {error}"
            raise Violation(Checker.SURPRISE, story) from error
        finally:
            self._is_acting = False
        self._finish_event()

    def notice(self, moment: str) -> None:
        self.chaos.notice(moment)

    def note(self, text: str) -> None:
        line = f"{self.clock.monotonic_ns() / SECOND:10.4f}  {text}"
        self._recent.append(line)
        self._trace.update(line.encode())

    # What faults do.

    def end_soon(self, kind: str) -> None:
        if self.shell is None:
            return
        self._ending = kind
        if kind == "power cut":
            # Whatever the present event still wants to write is too late.
            self.disk.power_off()
        if not self._is_acting:
            self._finish_event()

    def set_slowness(self, factor: int) -> None:
        self._slowness = factor
        if self.shell is not None:
            self.shell.slowness = factor

    def _finish_event(self) -> None:
        if self._ending:
            self._end(self._ending, self.scene)

    def _end(self, kind: str, scene: Scene) -> None:
        """End this life of the node and begin another one a little later."""
        shell, self.shell, self._ending = self.shell, None, ""
        if shell is None:
            return
        shell.is_over = True
        self._crashed_in = scene
        if kind == "restart":
            kind = self._close(shell)
        self._is_closed = kind == "restart"
        self.note(kind)
        if kind == "power cut":
            self._lose_power()
        self.schedule.after(self.entropy.randint(5, 300) * MS, self._start)

    def _close(self, shell: Shell) -> str:
        try:
            shell.node.close()
        except Fatal:
            return "power cut"
        except NoSpace:
            return "kill"
        return "restart"

    def _lose_power(self) -> None:
        self.disk = outage(self.disk, self.terms.model, entropy=self.entropy)
        self.chaos.apply_to(self.disk)
        # A machine that comes up counts its monotonic time anew.
        self._boot_ns = self.clock.monotonic_ns()

    def _start(self) -> None:
        if self.shell is not None:
            return
        now = Now(self.clock.now_ns(), self.clock.monotonic_ns() - self._boot_ns)
        if not self.terms.is_lying:
            self._lose_and_restore(now)
        try:
            node = Node(self.disk, now=now, entropy=self.entropy)
            if TOPIC not in node.open:
                settings = settings_of(self.terms.config)
                create = CreateTopic(TOPIC, self.terms.partitions, settings)
                node.execute(create, LOCAL, now).outcome()
        except Fatal:
            self.note("the power goes while the node starts")
            self._lose_power()
            self.schedule.after(50 * MS, self._start)
            return
        except NoSpace:
            self.note("no space to start")
            self.schedule.after(400 * MS, self._start)
            return
        except Damaged as error:
            self._refuse(error)
            return
        faulty = {(one.topic, one.number): one.cause for one in node.faults()}
        lost = self.outage.places if self.outage is not None else frozenset()
        if healed := sorted(lost - faulty.keys()):
            raise Violation(Checker.DAMAGE_TOLD, f"{healed} serve again without what was lost")
        if unexpected := sorted(faulty.keys() - lost):
            self._refuse(faulty[unexpected[0]])
            return
        self._started(node, now)

    def _lose_and_restore(self, now: Now) -> None:
        """Files disappear while the node is down, or come back."""
        if self.outage is not None:
            if self._is_restoring:
                self.note(f"{self.outage.loss.path} is put back")
                self._replace_disk(self.outage.restored(self.disk.tree()))
                self.outage, self._is_restoring = None, False
            return
        if self._absent.places or not self.terms.absences_a_start:
            return
        promised = {
            place: (book.promises.messages, book.promises.state, book.delays.promised)
            for place, book in self.books.by_place.items()
        }
        count = self.terms.absences_a_start
        self.absences.try_some(self.disk.tree(), now, promised, count=count)
        if not self._is_closed or self.chaos.is_calm:
            return
        self.outage = self.absences.outage(self.disk.tree(), now)
        if self.outage is not None:
            self.note(f"{self.outage.loss.path} is lost")
            self._replace_disk(self.outage.loss.tree)
            self._absent = Absent(self.outage.places, self._crashed_in)
            self.schedule.after(self.entropy.randint(1000, 5000) * MS, self._restore)

    def _replace_disk(self, tree: Tree) -> None:
        self.disk = SimDisk(tree)
        self.chaos.apply_to(self.disk)

    def _restore(self) -> None:
        """The operator stops the node, if it runs, and puts back what was lost before it starts again."""
        if self.outage is not None and not self._is_restoring:
            self._is_restoring = True
            self.end_soon("restart")

    def _refuse(self, error: PenstockError) -> None:
        """After lies of the disk a node may find that something is missing, and say so; otherwise it must not."""
        if not self.chaos.has_lied and not self.books.is_forgiving:
            story = f"what was durable is missing: {error}"
            raise Violation(Checker.NO_ACKED_LOSS, story) from error
        self.note(f"refused: {error}")
        self.was_refused = True

    def _started(self, node: Node, now: Now) -> None:
        self.life += 1
        self.restarts += 1
        report = Report(self._act_alone, self.notice, self._synced)
        node.assigned.revocation_ms = REVOCATION_MS
        self.owners.restarted()
        shell = Shell(node, self.schedule, self.entropy, report)
        shell.slowness, shell.boot_ns = self._slowness, self._boot_ns
        is_forgiven, self.chaos.has_lied = self.chaos.has_lied, False
        scene = self.new_scene("start")
        try:
            absent = self._absent
            self.books.restarted(
                node, self._crashed_in, scene, absent=absent, is_forgiven=is_forgiven
            )
            if self.outage is None:
                self._absent = NONE_ABSENT
            if self.entropy.random() < 0.3:
                require_same(node, self.disk, now)
        except Fatal:
            self._lose_power()
            self.schedule.after(50 * MS, self._start)
            return
        self.scene = self._crashed_in = scene
        self.shell = shell
        ends = [(one.messages.end_offset, one.journal.log.end_offset) for one in node.partitions()]
        self.note(f"started with {ends}")
        self.notice("recovered")
        shell.sync_soon()
        self._finish_event()

    # What goes on by itself.

    def _every(self, mean_ms: int, call: Callable[[], None]) -> None:
        def again() -> None:
            self.schedule.after(self.entropy.randint(mean_ms // 2, mean_ms * 3 // 2) * MS, again)
            if self.shell is not None:
                call()

        self.schedule.after(mean_ms * MS, again)

    def _act_alone(self, what: str, call: Callable[[], None]) -> None:
        """An event that nobody waits for: if there is no space now, it happens later."""

        def tolerant() -> None:
            try:
                call()
            except Unavailable as error:
                self.note(f"put off: {error.code}")

        self.act(self.new_scene(what), tolerant)

    def _tick(self) -> None:
        shell = self.shell
        assert shell is not None

        def pass_time() -> None:
            shell.node.tick(shell.now())
            shell.node.pump(shell.now())

        self._act_alone("tick", pass_time)

    def _retain(self) -> None:
        assert self.shell is not None
        self._act_alone("retain", self.shell.retain)

    def _synced(self, partition: Partition, plan: PartitionPlan) -> None:
        # Letting go of old segments after a snapshot syncs both logs to their ends, which is more than the plan said.
        journal_end = plan.state.up_to if partition.is_dirty else partition.journal.log.end_offset
        self.books.plan_reported(partition, journal_end)

    def _result(self, seconds: int) -> Result:
        return Result(
            self.seed,
            seconds,
            self.events,
            self.chaos.struck.total(),
            self.chaos.aimed.total(),
            self.restarts,
            self.books.messages_seen,
            self.books.records_seen,
            sum(one.acked for one in self.producers),
            sum(one.repeated for one in self.producers),
            sum(len(book.copies) for book in self.books.by_place.values()),
            self.absences.outcomes,
            self.was_refused,
            self._trace.hexdigest(),
        )

    def _report(self, seconds: int) -> str:
        at_s = self.clock.monotonic_ns() / SECOND
        return "\n".join(
            [
                f"seed {self.seed} after {at_s:.4f} s of {seconds}, {self.events} events",
                f"{self.terms}",
                "the last events:",
                *self._recent,
                f"repeat it: python -m penstock.sim {self.seed} --seconds {seconds}",
            ]
        )


def run_seed(seed: int, seconds: int = 60) -> Result:
    """Simulate one seed; a broken promise is a Violation that tells its story."""
    return World(seed).run(seconds)
