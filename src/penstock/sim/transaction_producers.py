"""Producers with transactions: they stage, repeat, commit, abort, are too slow, and come back as zombies."""

from dataclasses import dataclass, field
from functools import partial

from ..api.publish import Delayed
from ..api.transaction_answers import StageAnswers
from ..api.transactions import (
    EndTransaction,
    InitProducer,
    ProducerSession,
    Stage,
    Staged,
    TransactionEnd,
)
from ..broker.partition import Partition
from ..errors import (
    OutOfSequence,
    ProducerFenced,
    TransactionEnded,
    TransactionInProgress,
    Unavailable,
)
from ..model import Message
from .client import WorldView
from .driver import PendingReply, SimDriver
from .outsiders import key_of, try_as_outsider
from .schedule import MS
from .transaction_book import SimTransaction, TransactionFate
from .transaction_inputs import InputTaker, TransactionInputs
from .violation import Checker, Violation

_TIMEOUTS_MS = (700, 3000, 60_000)
# Some are due before their transaction is committed.
_DELAYS_MS = (0, 40, 400, 3000)


@dataclass(slots=True, eq=False)
class StagedBatch:
    """Messages that are sent to one partition until the node says that they are staged."""

    partition: int
    sequence: int
    messages: list[Message]
    # When its messages are due; 0: with the commit.
    due_ns: int = 0
    is_answered: bool = False
    # The life of the node in which it was sent last; -1: it has to be sent again.
    sent_in: int = -1

    @property
    def undelayed(self) -> list[Message]:
        return [] if self.due_ns else self.messages

    @property
    def delayed(self) -> list[Delayed]:
        return [Delayed(one, self.due_ns) for one in self.messages] if self.due_ns else []


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """The transaction that a session works on."""

    session: ProducerSession
    transaction: SimTransaction
    batches: list[StagedBatch] = field(default_factory=list)
    batches_wanted: int = 1
    is_commit: bool = True
    is_ending: bool = False
    # What it has consumed, if anything; answered before its first batch is sent.
    inputs: TransactionInputs | None = None
    # What the node calls it, once it is over.
    transaction_id: str = ""


@dataclass(slots=True, eq=False)
class TransactionProducer:
    """Sends to all partitions of one topic. `is_stopping`: ends what it has begun, and begins nothing new."""

    name: str
    topic: str
    world: WorldView
    # Whether some of its messages are delayed.
    is_delaying: bool = False
    is_stopping: bool = False
    session: ProducerSession | None = None
    open: OpenTransaction | None = None
    # A former self, which does not know that it was replaced.
    zombie: OpenTransaction | None = None
    # The transaction before: its commit may come once more, late, from a network that kept it.
    last: OpenTransaction | None = None
    # With one it consumes, too.
    taker: InputTaker | None = None
    committed: int = 0
    aborted: int = 0
    _is_asking: int = -1
    _made: int = 0

    @property
    def outstanding(self) -> bool:
        return self.open is not None

    def wake(self) -> None:
        world = self.world
        world.wake_later(60 if self.open is not None or self.is_stopping else 400, self)
        driver = world.driver
        if driver is None:
            return
        if self.zombie is not None and world.entropy.random() < 0.5:
            self._act_as_zombie(driver)
        elif self.last is not None and world.entropy.random() < 0.2:
            self._act(driver, "commits late", partial(self._haunt, driver, self.last, 0))
        if self.world.driver is not driver:
            return
        if self.session is None:
            self._init(driver)
        elif self.open is None:
            if not self.is_stopping:
                self._begin(driver, self.session)
        elif self.open.is_ending:
            self._end(driver, self.open)
        else:
            self._go_on(driver, self.open)

    def _act(self, driver: SimDriver, what: str, call: partial[None]) -> None:
        if self.world.driver is driver:
            self.world.act(self.world.new_event(f"{self.name} {what}"), call)

    # A session.

    def _init(self, driver: SimDriver) -> None:
        if self._is_asking != self.world.life:
            self._act(driver, "begins a session", partial(self._begin_session, driver))

    def _begin_session(self, driver: SimDriver) -> None:
        command = InitProducer(self.name, self.world.entropy.choice(_TIMEOUTS_MS))
        try_as_outsider(driver, command)
        try:
            session = driver.execute(command, key_of(self.name))
        except (Unavailable, TransactionInProgress) as error:
            self.world.note(f"refused: {error.code}")
            return
        self._is_asking = life = self.world.life
        self.world.books.follow(driver.node, self.world.event)

        def replied() -> None:
            if self.world.life == life:
                self.session, self._is_asking = session, -1

        home = driver.node.transactions.home(session.producer_id)
        driver.hold(home, PendingReply(0, home.journal.log.end_offset, replied))

    # A transaction.

    def _begin(self, driver: SimDriver, session: ProducerSession) -> None:
        entropy, self._made = self.world.entropy, self._made + 1
        transaction = SimTransaction(f"{self.name}/{self._made}")
        self.open = OpenTransaction(
            session,
            transaction,
            batches_wanted=entropy.choice((1, 2, 4)),
            is_commit=entropy.random() < 0.8,
        )
        self.world.books.transactions.begin(transaction)
        if self.taker is not None and entropy.random() < 0.7:
            self.open.inputs = self.taker.poll(driver)
        if self.world.driver is driver:
            self._go_on(driver, self.open)

    def _consume(self, driver: SimDriver, work: OpenTransaction, inputs: TransactionInputs) -> None:
        """Send the answers, or see that they came too late: then there is nothing to commit."""
        assert self.taker is not None
        if inputs.is_refused and inputs.times_sent > 1:
            self._forget(work, TransactionFate.ABORTED)  # The node may hold some of them for it.
        elif inputs.is_refused:
            if not self.world.books.is_forgiving:
                self.world.books.transactions.ended(work.transaction, TransactionFate.ABORTED)
            self.open = None
        elif inputs.sent_in != self.world.life or self.world.entropy.random() < 0.3:
            self._act(driver, "answers", partial(self._answer, driver, work, inputs))

    def _answer(self, driver: SimDriver, work: OpenTransaction, inputs: TransactionInputs) -> None:
        assert self.taker is not None
        self.world.books.transactions.consume(work.transaction, inputs.places())
        home = driver.node.transactions.home(work.session.producer_id)
        try:
            command = StageAnswers(*work.session, inputs.answers())
            self.taker.stage(driver, command, inputs, home)
        except (ProducerFenced, TransactionInProgress) as error:
            self.world.note(f"ended: {error.code}")
            self._lost(work)

    def _go_on(self, driver: SimDriver, work: OpenTransaction) -> None:
        """Send again what has no answer, or the next batch; or end the transaction when all are answered."""
        entropy, life = self.world.entropy, self.world.life
        if work.inputs is not None and not work.inputs.is_answered:
            self._consume(driver, work, work.inputs)
            return
        if work.inputs is not None and self.taker is not None and entropy.random() < 0.2:
            if entropy.random() < 0.5:
                self.taker.leave(driver)
            else:
                haunt = partial(self.taker.haunt, driver, work.inputs.received)
                self._act(driver, "answers outside", haunt)
            return
        waiting = [one for one in work.batches if not one.is_answered]
        if waiting:
            if entropy.random() < 0.2 and all(one.sent_in == life for one in waiting):
                # It does not wait for the answers. All has arrived, so all of it is committed, or nothing.
                work.transaction.is_commit_asked = work.is_commit
                work.batches_wanted = len(work.batches)
                self._end(driver, work)
            elif entropy.random() < 0.3 or any(one.sent_in != life for one in waiting):
                for batch in waiting:
                    self._send(driver, work, batch)
            return
        if len(work.batches) < work.batches_wanted:
            partitions = len(driver.node.topic(self.topic).partitions)
            batch = next_batch(
                self.world, work.transaction, work.batches, partitions, is_delaying=self.is_delaying
            )
            self._send(driver, work, batch)
            if entropy.random() < 0.2:
                self._send(driver, work, batch)  # As a client does whose timeout is too short.
            return
        if entropy.random() < 0.15 and not self.is_stopping:
            return  # It thinks for a while, perhaps until its time is up.
        work.is_ending = True
        work.transaction.is_commit_asked = work.is_commit
        self._end(driver, work)

    def _send(self, driver: SimDriver, work: OpenTransaction, batch: StagedBatch) -> None:
        what = f"stages {len(batch.messages)} in {batch.partition} ({batch.sequence})"
        self._act(driver, what, partial(self._stage, driver, work, batch))

    def _stage(self, driver: SimDriver, work: OpenTransaction, batch: StagedBatch) -> None:
        try:
            self._staged(driver, work, batch)
        except Unavailable as error:
            batch.sent_in = -1
            self.world.note(f"refused: {error.code}")
            return
        except (ProducerFenced, TransactionInProgress) as error:
            self.world.note(f"ended: {error.code}")
            if work.transaction.is_commit_asked:
                work.is_ending = True  # It has to ask how.
            elif isinstance(error, ProducerFenced):
                self._lost(work)
            else:
                batch.sent_in = -1
            return
        except OutOfSequence as error:
            if not self.world.books.is_forgiving:
                story = f"{self.name} was refused, and lost nothing: {error}"
                raise Violation(Checker.NO_DUP, story) from error
            self._lost(work)
            return
        home = driver.node.transactions.home(work.session.producer_id)
        hold_staged(
            self.world, driver, batch, home, driver.node.partition(self.topic, batch.partition)
        )

    def _staged(self, driver: SimDriver, work: OpenTransaction, batch: StagedBatch) -> Staged:
        command = Stage(
            *work.session,
            self.topic,
            batch.undelayed,
            partition=batch.partition,
            sequence=batch.sequence,
            delayed=batch.delayed,
        )
        return driver.execute(command)[0]

    def _end(self, driver: SimDriver, work: OpenTransaction) -> None:
        what = "commits" if work.is_commit else "aborts"
        self._act(driver, what, partial(self._ended, driver, work))
        if work.transaction.delayed:
            # A driver ticks at once when a message is due, before it can sync anything.
            self._act(driver, "waits for what is due", partial(self._tick, driver))

    def _tick(self, driver: SimDriver) -> None:
        try:
            driver.tick()
        except Unavailable as error:
            self.world.note(f"put off: {error.code}")

    def _ended(self, driver: SimDriver, work: OpenTransaction) -> None:
        books = self.world.books.transactions
        try:
            end: TransactionEnd = driver.execute(EndTransaction(*work.session, work.is_commit))
        except (Unavailable, TransactionInProgress) as error:
            self.world.note(f"refused: {error.code}")
            return
        except TransactionEnded as error:
            self.world.note(f"ended: {error}")
            self._lost(work)
            return
        except ProducerFenced as error:
            # Only a session that was replaced does not hear how its transaction ended.
            if not self.world.books.is_forgiving:
                raise Violation(Checker.TRANSACTION, f"{self.name}: {error}") from error
            self._forget(work, TransactionFate.UNKNOWN)
            return
        self.world.books.follow(driver.node, self.world.event)
        self.world.notice("intent")
        if not end.is_complete:
            return
        work.transaction_id = end.transaction_id
        if work.is_commit:
            books.committed(work.transaction, end.places)
            self.committed += 1
        else:
            books.ended(work.transaction, TransactionFate.ABORTED)
            self.aborted += 1
        if self.world.entropy.random() < 0.15:
            return  # The reply is lost, so the producer asks again.
        self.open, self.last = None, work
        self.session = ProducerSession(work.session.producer_id, end.epoch)
        if self.world.entropy.random() < 0.1:
            self._replace(work)

    def _lost(self, work: OpenTransaction) -> None:
        """The node has ended it: by its time-out, or because a crash was in the way."""
        is_known = work.transaction.fate in (TransactionFate.COMMITTED, TransactionFate.ABORTED)
        self._forget(work, work.transaction.fate if is_known else TransactionFate.ABORTED)

    def _forget(self, work: OpenTransaction, fate: TransactionFate) -> None:
        """Begin a new session; now and then the old one goes on as a zombie."""
        if not self.world.books.is_forgiving:
            self.world.books.transactions.ended(work.transaction, fate)
        else:
            work.transaction.fate = TransactionFate.OPEN
        self.aborted += fate is TransactionFate.ABORTED
        if self.open is work:
            self.open = self.session = None
        self.zombie = work

    def _replace(self, work: OpenTransaction) -> None:
        """Begin a new session under the same name, and leave the old one to itself."""
        self.zombie, self.session = work, None

    def _act_as_zombie(self, driver: SimDriver) -> None:
        work = self.zombie
        if work is None or self.session is None or self.session == work.session:
            return
        if self.world.entropy.random() < 0.3:
            self.zombie = None
        call = partial(self._haunt, driver, work, 0.5)
        self._act(driver, "goes on in an old epoch", call)

    def _haunt(self, driver: SimDriver, work: OpenTransaction, staging: float) -> None:
        """Violation: an old epoch stages or ends something, but for the repeat of its own commit.

        `staging`: how often it stages, between 0 and 1; otherwise it commits.
        """
        message = Message(b"zombie of %s" % self.name.encode())
        is_repeat = False
        try:
            if self.world.entropy.random() < staging:
                driver.execute(Stage(*work.session, self.topic, [message]))
            else:
                end = driver.execute(EndTransaction(*work.session, True))
                # A power cut may take the note that it was over: then it is on its way once more.
                is_known = end.is_complete or end.transaction_id == work.transaction_id
                is_repeat = is_known and work.transaction.fate is TransactionFate.COMMITTED
        except (ProducerFenced, TransactionEnded, TransactionInProgress, Unavailable):
            return
        if is_repeat:
            return
        if not self.world.books.is_forgiving:
            story = f"{self.name}: {work.session} was not fenced"
            raise Violation(Checker.FENCED, story)


def next_batch(
    world: WorldView,
    transaction: SimTransaction,
    batches: list[StagedBatch],
    partitions: int,
    *,
    is_delaying: bool,
) -> StagedBatch:
    """One more batch of a transaction, for any of so many partitions."""
    entropy, partition = world.entropy, world.entropy.randrange(partitions)
    sequence = sum(len(one.messages) for one in batches if one.partition == partition)
    first = sum(len(one.messages) for one in batches)
    stem = transaction.name.encode()
    messages = [
        Message(b"%s %d " % (stem, first + one) + b"x" * entropy.randrange(150))
        for one in range(entropy.randint(1, 3))
    ]
    batch = StagedBatch(partition, sequence, messages)
    if is_delaying and entropy.random() < 0.4:
        batch.due_ns = world.new_event("").time.wall_ns + entropy.choice(_DELAYS_MS) * MS
    batches.append(batch)
    world.books.transactions.stage(transaction, partition, messages, is_delayed=bool(batch.due_ns))
    return batch


def hold_staged(
    world: WorldView, driver: SimDriver, batch: StagedBatch, home: Partition, target: Partition
) -> None:
    """Answer a batch when it and what its coordinator knows of it are durable; now and then the answer is lost."""
    batch.sent_in = life = world.life
    world.books.follow(driver.node, world.event)
    missing = {target, home}

    def arrived(which: object) -> None:
        missing.discard(which)
        if missing or world.life != life:
            return
        world.notice("replied")
        if world.entropy.random() < 0.15:
            batch.sent_in = -1  # The reply is lost.
        else:
            batch.is_answered = True

    for one in (target, home):
        waiting = PendingReply(
            0,
            one.journal.log.end_offset,
            partial(arrived, one),
            staging_at=one.staging.end_offset,
        )
        driver.hold(one, waiting)
