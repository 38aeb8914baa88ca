"""Simulates a node from one seed: its clients, its faults, and the books that check it.

First faults happen, and no promise may be broken at any event (safety). Then they stop, and everything must come to
rest (liveness).
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from random import Random

from ..api.principals import LOCAL
from ..api.topics import CreateTopic
from ..broker.node import Node
from ..broker.partition import Now, Partition, PartitionPlan, delayed_messages
from ..broker.topics import settings_of
from ..errors import Damaged, DamagedBatch, Fatal, NoSpace, PenstockError, Unavailable
from ..model import TopicPartition
from .books import ALL_SERVED, Books, UnservedPartitions
from .client import Client
from .crash import aimed_power_cut
from .disk import SimDisk
from .driver import DriverHooks, SimDriver
from .event import Event, EventTime
from .fault_injector import FaultInjector
from .file_loss import FileLossTrials, PartitionOutage
from .operations import Tree
from .owner_book import REVOCATION_MS, OwnerBook
from .parameters import Parameters, draw_parameters
from .population import TOPIC, Population
from .recovery import require_same_recovery
from .schedule import MS, SECOND, Schedule, SimClock
from .schedule_book import SimZones
from .violation import Checker, Violation

_START_WALL_NS = 1_800_000_000 * SECOND
_EVENTS_SHOWN = 40
# One member that may hold three messages needs minutes for a backlog.
_HEAL_NS = 600 * SECOND
# Errors of the node that no caller is told to expect. Any other error is a bug of the simulation, and ends it.
_BUGS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
_SURPRISES = (*_BUGS, PenstockError)


@dataclass(frozen=True, slots=True)
class Result:
    """Counts of one run, and a hash of its events."""

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
    # Lost files and older parts, by outcome.
    file_losses: Counter[str]
    was_refused: bool
    trace: str


class World:
    """One simulation. `run` returns its counts, or raises a Violation with its story."""

    def __init__(self, seed: int, *, parameters: Parameters | None = None) -> None:
        self.seed, self.parameters = seed, parameters or draw_parameters(seed)
        self.entropy = Random(seed)  # noqa: S311  # A simulation has to be repeatable.
        self.clock = SimClock(_START_WALL_NS)
        self.schedule = Schedule(self.clock)
        self.disk = SimDisk()
        has_room = "full disk" not in self.parameters.kinds_of_faults
        self.file_losses = FileLossTrials(seed, has_room=has_room)
        self.faults = FaultInjector(self.parameters, self.schedule, self.entropy, self)
        self.books = Books(self.notice, is_disk_honest=not self.parameters.is_lying)
        self.owners = OwnerBook(self.books, has_room=has_room)
        self.driver: SimDriver | None = None
        self.event = self.new_event("nothing")
        self.life = self.events = self.restarts = 0
        self.was_refused = False
        self._ending, self._is_acting = "", False
        self.outage: PartitionOutage | None = None
        self._unserved = ALL_SERVED
        self._is_closed = self._is_restoring = False
        self._crashed_in = self.event
        self._boot_ns = 0
        self._slowness = 1
        self._recent: deque[str] = deque(maxlen=_EVENTS_SHOWN)
        self._trace = blake2b(digest_size=16)
        self.population = Population(self, seed)

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
        self.population.join_groups()
        for client in self.population.clients():
            self.wake_later(300, client)
        self._every(250, self._tick)
        self._every(1700, self._retain)
        self.faults.begin()

    def _run_until(self, until_ns: int) -> None:
        while not self.was_refused and self.schedule.step(until_ns):
            pass

    def _heal(self, seconds: int) -> None:
        """Stop the faults and let all clients finish. Violation: not everything comes to rest."""
        self.note("healing")
        self.faults.stop()
        self._restore()
        self.population.stop()
        for until_ns in range(seconds * SECOND, seconds * SECOND + _HEAL_NS, SECOND):
            self._run_until(until_ns)
            self._look_for_damage()
            if self.was_refused:
                return
            if self.driver is not None and not self._unrest():
                self._rest()
                return
        raise Violation(Checker.LIVENESS, "; ".join(self._unrest()) or "the node does not start")

    def _look_for_damage(self) -> None:
        """Look for delayed messages that cannot be read, of which no client hears unasked. Violation: see `_refuse`."""
        for partition in () if self.driver is None else self.driver.node.partitions():
            if stuck := partition.machine.delays.stuck:
                damage = delayed_messages.describe(partition, stuck.min()).damage
                assert damage is not None, "it is stuck because it cannot be read"
                self._refuse(damage)
                return

    def _unrest(self) -> list[str]:
        found = self.books.unfinished()
        found += [f"{name} waits for a reply" for name in self.population.outstanding()]
        if self.driver is not None and any(self.driver.waiting.values()):
            found.append("replies are held back")
        return found

    def _rest(self) -> None:
        """Close the node and start it once more. Violation: not everything is as it was."""
        assert self.driver is not None
        self.books.compare(self.driver.node)
        self.end_soon("restart")
        self._run_until(self.clock.monotonic_ns() + 10 * SECOND)
        if self.driver is None:
            raise Violation(Checker.LIVENESS, "the node does not start again")
        if unrest := self._unrest():
            raise Violation(Checker.LIVENESS, f"after a restart {'; '.join(unrest)}")

    # What clients see.

    def new_event(self, what: str) -> Event:
        return Event(EventTime(self.clock.now_ns(), self.clock.monotonic_ns()), what)

    def wake_later(self, mean_ms: int, client: Client) -> None:
        delay_ns = self.entropy.randint(mean_ms * MS // 10, mean_ms * MS * 19 // 10)
        self.schedule.after(delay_ns, client.wake)

    def act(self, event: Event, call: Callable[[], None]) -> None:
        self.event = event
        self.events += 1
        self.note(event.what)
        self._is_acting, seen = True, self.books.messages_seen
        try:
            call()
            if not self._ending:
                assert self.driver is not None
                self.books.follow(self.driver.node, self.event)
                self.owners.follow(self.driver.node, self.event)
                self.driver.sync_soon()
                if self.books.messages_seen > seen and self.entropy.random() < 0.7:
                    waiting = self.entropy.choice(self.population.members)
                    self.schedule.after(self.entropy.randint(0, 5) * MS, waiting.poll_now)
        except Fatal as error:
            self.note(f"fatal: {error}")
            self._end("power cut", self.event)
        except Damaged as error:
            self._refuse(error)
            return
        except Violation:
            raise
        except _SURPRISES as error:
            story = f"{event.what}: {type(error).__name__}: {error}"
            raise Violation(Checker.SURPRISE, story) from error
        finally:
            self._is_acting = False
        self._finish_event()

    def notice(self, moment: str) -> None:
        self.faults.notice(moment)

    def note(self, text: str) -> None:
        line = f"{self.clock.monotonic_ns() / SECOND:10.4f}  {text}"
        self._recent.append(line)
        self._trace.update(line.encode())

    # What faults do.

    def end_soon(self, kind: str) -> None:
        if self.driver is None:
            return
        self._ending = kind
        if kind == "power cut":
            # The present event cannot write any more.
            self.disk.power_off()
        if not self._is_acting:
            self._finish_event()

    def set_slowness(self, factor: int) -> None:
        self._slowness = factor
        if self.driver is not None:
            self.driver.slowness = factor

    def _finish_event(self) -> None:
        if self._ending:
            self._end(self._ending, self.event)

    def _end(self, kind: str, event: Event) -> None:
        """Stop the node, and schedule its next start."""
        driver, self.driver, self._ending = self.driver, None, ""
        if driver is None:
            return
        driver.is_over = True
        self._crashed_in = event
        if kind == "restart":
            kind = self._close(driver)
        self._is_closed = kind == "restart"
        self.note(kind)
        if kind == "power cut":
            self._lose_power()
        self.schedule.after(self.entropy.randint(5, 300) * MS, self._start)

    def _close(self, driver: SimDriver) -> str:
        try:
            driver.node.close()
        except Fatal:
            return "power cut"
        except NoSpace:
            return "kill"
        return "restart"

    def _lose_power(self) -> None:
        self.disk = aimed_power_cut(self.disk, self.parameters.model, entropy=self.entropy)
        self.faults.apply_to(self.disk)
        # A machine that comes up counts its monotonic time anew.
        self._boot_ns = self.clock.monotonic_ns()

    def _start(self) -> None:
        if self.driver is not None:
            return
        try:
            self._try_to_start()
        except Violation:
            raise
        except _BUGS as error:
            story = f"start: {type(error).__name__}: {error}"
            raise Violation(Checker.SURPRISE, story) from error

    def _try_to_start(self) -> None:
        now = Now(self.clock.now_ns(), self.clock.monotonic_ns() - self._boot_ns)
        if not self.parameters.is_lying:
            self._lose_and_restore(now)
        try:
            node = Node(
                self.disk, now=now, entropy=self.entropy, is_resuming=False, zones=SimZones()
            )
            if TOPIC not in node.open:
                settings = settings_of(self.parameters.config)
                create = CreateTopic(TOPIC, self.parameters.partitions, settings)
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
        faulty = {TopicPartition(one.topic, one.number): one.cause for one in node.faults()}
        lost = self.outage.partitions if self.outage is not None else frozenset()
        if healed := sorted(lost - faulty.keys()):
            raise Violation(Checker.DAMAGE_TOLD, f"{healed} serve again without what was lost")
        if unexpected := sorted(faulty.keys() - lost):
            self._refuse(faulty[unexpected[0]])
            return
        try:
            self._read_all(node)
        except DamagedBatch as error:
            self._refuse(error)
            return
        self._started(node, now)

    def _read_all(self, node: Node) -> None:
        """DamagedBatch: a log of messages was opened around one, which can be read no more."""
        for partition in node.partitions():
            messages = partition.messages
            deque(messages.batches_from(messages.start_offset), maxlen=0)

    def _lose_and_restore(self, now: Now) -> None:
        """Try losses of files before a start, lose some for a while, or put them back."""
        if self.outage is not None:
            if self._is_restoring:
                self.note(f"{self.outage.loss.path} is put back")
                self._replace_disk(self.outage.restored(self.disk.tree()))
                self.outage, self._is_restoring = None, False
            return
        if self._unserved.partitions or not self.parameters.file_losses_per_start:
            return
        promised = {
            name: (book.promises.messages, book.promises.state, book.delays.promised)
            for name, book in self.books.by_partition.items()
        }
        count = self.parameters.file_losses_per_start
        self.file_losses.try_some(self.disk.tree(), now, promised, count=count)
        if not self._is_closed or self.faults.is_stopped:
            return
        self.outage = self.file_losses.outage(self.disk.tree(), now)
        if self.outage is not None:
            self.note(f"{self.outage.loss.path} is lost")
            self._replace_disk(self.outage.loss.tree)
            self._unserved = UnservedPartitions(self.outage.partitions, self._crashed_in)
            self.schedule.after(self.entropy.randint(1000, 5000) * MS, self._restore)

    def _replace_disk(self, tree: Tree) -> None:
        self.disk = SimDisk(tree)
        self.faults.apply_to(self.disk)

    def _restore(self) -> None:
        """Let the operator stop the node, if it runs, and put back the lost files before the next start."""
        if self.outage is not None and not self._is_restoring:
            self._is_restoring = True
            self.end_soon("restart")

    def _refuse(self, error: PenstockError) -> None:
        """End the run: the node finds data missing. Violation: the disk has not lied."""
        if not self.faults.has_lied and not self.books.is_forgiving:
            story = f"what was durable is missing: {error}"
            raise Violation(Checker.NO_ACKED_LOSS, story) from error
        self.note(f"refused: {error}")
        self.was_refused = True

    def _started(self, node: Node, now: Now) -> None:
        self.life += 1
        self.restarts += 1
        hooks = DriverHooks(self._act_alone, self.notice, self._synced)
        node.assigned.revocation_ms = REVOCATION_MS
        self.owners.restarted()
        driver = SimDriver(node, self.schedule, self.entropy, hooks)
        driver.slowness, driver.boot_ns = self._slowness, self._boot_ns
        is_forgiven, self.faults.has_lied = self.faults.has_lied, False
        event = self.new_event("start")
        try:
            self.books.restarted(
                node,
                self._crashed_in,
                event,
                unserved=self._unserved,
                is_forgiven=is_forgiven,
            )
            for administrator in self.population.administrators:
                administrator.check(node, now.wall_ns, is_forgiven=is_forgiven)
            for registrant in self.population.schema_registrants:
                registrant.check(node, is_forgiven=is_forgiven)
            for owner in self.population.schedule_owners:
                owner.check(node, is_forgiven=is_forgiven)
            if self.outage is None:
                self._unserved = ALL_SERVED
            if self.entropy.random() < 0.3:
                require_same_recovery(node, self.disk, now)
            # What was decided is applied only now, so that the books see what the crash has left.
            node.transactions.resume(now)
            self.books.follow(node, event)
        except Fatal:
            self._lose_power()
            self.schedule.after(50 * MS, self._start)
            return
        self.event = self._crashed_in = event
        self.driver = driver
        ends = [(one.messages.end_offset, one.journal.log.end_offset) for one in node.partitions()]
        self.note(f"started with {ends}")
        self.notice("recovered")
        driver.sync_soon()
        self._finish_event()

    # What goes on by itself.

    def _every(self, mean_ms: int, call: Callable[[], None]) -> None:
        def again() -> None:
            self.schedule.after(self.entropy.randint(mean_ms // 2, mean_ms * 3 // 2) * MS, again)
            if self.driver is not None:
                call()

        self.schedule.after(mean_ms * MS, again)

    def _act_alone(self, what: str, call: Callable[[], None]) -> None:
        """Run a call that no client waits for. If the node refuses it now, a later event repeats it."""

        def tolerant() -> None:
            try:
                call()
            except Unavailable as error:
                self.note(f"put off: {error.code}")

        self.act(self.new_event(what), tolerant)

    def _tick(self) -> None:
        driver = self.driver
        assert driver is not None

        def pass_time() -> None:
            driver.tick()
            driver.node.pump(driver.now())

        self._act_alone("tick", pass_time)

    def _retain(self) -> None:
        assert self.driver is not None
        self._act_alone("retain", self.driver.retain)

    def _synced(self, partition: Partition, plan: PartitionPlan) -> None:
        # The removal of old segments after a snapshot syncs both logs to their ends, beyond the plan.
        journal_end = plan.state.up_to if partition.is_dirty else partition.journal.log.end_offset
        self.books.plan_reported(partition, journal_end)

    def _result(self, seconds: int) -> Result:
        return Result(
            self.seed,
            seconds,
            self.events,
            self.faults.struck.total(),
            self.faults.aimed.total(),
            self.restarts,
            self.books.messages_seen,
            self.books.records_seen,
            sum(one.acked for one in self.population.producers),
            sum(one.repeated for one in self.population.producers),
            sum(len(book.copies) for book in self.books.by_partition.values()),
            self.file_losses.outcomes,
            self.was_refused,
            self._trace.hexdigest(),
        )

    def _report(self, seconds: int) -> str:
        at_s = self.clock.monotonic_ns() / SECOND
        return "\n".join(
            [
                f"seed {self.seed} after {at_s:.4f} s of {seconds}, {self.events} events",
                f"{self.parameters}",
                "the last events:",
                *self._recent,
                f"repeat it: python -m penstock.sim {self.seed} --seconds {seconds}",
            ]
        )


def run_seed(seed: int, seconds: int = 60) -> Result:
    """Simulate one seed. Returns its counts, or raises a Violation with its story."""
    return World(seed).run(seconds)
