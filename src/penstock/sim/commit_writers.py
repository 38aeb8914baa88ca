"""Writers of named commits: they stage in several attempts, commit some of them, die, repeat, and come late."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from ..api.commits import (
    CommitStagings,
    NamedCommit,
    OpenStaging,
    StageNamed,
    StageNamedAnswers,
    StagingRef,
)
from ..api.transactions import Placed
from ..errors import (
    CommitInProgress,
    NotFound,
    RepeatDiffers,
    SequenceCommitted,
    StagingMismatch,
    Unavailable,
)
from ..model import Message
from ..transactions.names import STAGING_LIFE_NS
from .client import WorldView
from .driver import PendingReply, SimDriver
from .outsiders import key_of, try_as_outsider
from .transaction_book import SimTransaction, TransactionFate
from .transaction_inputs import InputTaker, TransactionInputs
from .transaction_producers import StagedBatch, hold_staged, next_batch
from .violation import Checker, Violation

_WRITER = "writer"


@dataclass(slots=True, eq=False)
class CommitAttempt:
    """A staging of one task. `staging` is empty until the node has answered."""

    transaction: SimTransaction
    batches_wanted: int
    staging: str = ""
    batches: list[StagedBatch] = field(default_factory=list)
    # The life of the node in which it was opened last, and when by its wall clock.
    opened_in: int = -1
    opened_ns: int = 0
    # What it has consumed; other attempts may have the same messages.
    inputs: TransactionInputs | None = None

    @property
    def is_staged(self) -> bool:
        is_full = len(self.batches) == self.batches_wanted
        is_full &= self.inputs is None or self.inputs.is_answered
        return is_full and all(one.is_answered for one in self.batches)

    @property
    def ref(self) -> StagingRef:
        return StagingRef(self.staging, sum(len(one.messages) for one in self.batches))


@dataclass(slots=True, eq=False)
class SimCommit:
    """A commit that was sent, as one transaction with all that it publishes."""

    sequence: int
    attempts: list[CommitAttempt]
    stagings: list[StagingRef]
    transaction: SimTransaction
    # What the node compares a repeat by; empty once it has refused one.
    fingerprint: str
    places: tuple[Placed, ...] = ()
    # Whether the node has told of it to the writer that sent it.
    is_told: bool = False


@dataclass(slots=True, eq=False)
class CommitWriter:
    """Commits sequences of one name to all partitions of one topic. `is_stopping`: ends the one that it has begun."""

    name: str
    topic: str
    world: WorldView
    # Whether some of its messages are delayed.
    is_delaying: bool = False
    is_stopping: bool = False
    sequence: int = 0
    attempts: list[CommitAttempt] = field(default_factory=list)
    attempts_wanted: int = 1
    commit: SimCommit | None = None
    # Commits of this sequence that a former self sent, and did not hear of.
    doubtful: list[SimCommit] = field(default_factory=list)
    last: SimCommit | None = None
    losers: list[CommitAttempt] = field(default_factory=list)
    # With one its tasks consume, too.
    taker: InputTaker | None = None
    committed: int = 0
    _made: int = 0
    # Stagings of a former self may have answered messages, which the next commit gives back.
    _has_dead: bool = False

    @property
    def outstanding(self) -> bool:
        return bool(self.attempts or self.commit or self.doubtful or self._has_dead)

    def wake(self) -> None:
        world = self.world
        world.wake_later(60 if self.outstanding or self.is_stopping else 300, self)
        driver = world.driver
        if driver is None:
            return
        chance = world.entropy.random()
        if self.losers and chance < 0.2:
            self._act(driver, "stages late", partial(self._stage_late, driver))
        elif self.last is not None and chance < 0.4:
            self._act(driver, "commits again", partial(self._commit_again, driver, self.last))
        if world.driver is not driver:
            return
        if self.commit is not None:
            self._act(driver, "commits", partial(self._commit, driver, self.commit))
        elif not self.is_stopping or self.outstanding:
            self._go_on(driver)

    def _act(self, driver: SimDriver, what: str, call: partial[None]) -> None:
        if self.world.driver is driver:
            self.world.act(self.world.new_event(f"{self.name} {what}"), call)

    def _go_on(self, driver: SimDriver) -> None:
        """Open the next staging, send what has no answer, or commit when all is answered."""
        entropy, life = self.world.entropy, self.world.life
        if self.is_stopping and self.taker is not None:
            self._commit_nothing(driver)
            return
        if not self.attempts:
            self.attempts_wanted = entropy.choice((1, 2, 3))
        for one in self.attempts:
            if not one.staging:
                if one.opened_in != life:
                    self._act(driver, "opens", partial(self._open, driver, one))
                return
            if one.inputs is not None and not one.inputs.is_answered:
                self._consume(driver, one, one.inputs)
                return
            if not one.is_staged:
                self._stage_next(driver, one)
                return
        if len(self.attempts) < self.attempts_wanted:
            self._made += 1
            attempt = CommitAttempt(
                SimTransaction(f"{self.name}/{self.sequence}/{self._made}"),
                entropy.choice((1, 1, 2, 3)),
            )
            self.world.books.transactions.begin(attempt.transaction)
            self.attempts.append(attempt)
            if self.taker is not None:
                self._take(driver, self.taker, attempt)
            return
        if entropy.random() < 0.1 and not self.is_stopping:
            self._die()
            return
        self._choose()

    def _commit_nothing(self, driver: SimDriver) -> None:
        """Give back what attempts have consumed: what they hold may be why nothing more can be staged."""
        self._give_up(self.attempts)
        self.attempts, self._has_dead = [], True
        if driver.node.commits.is_known(self.name):
            self.commit = self._new_commit([])
        else:
            self._has_dead = False

    def _take(self, driver: SimDriver, taker: InputTaker, attempt: CommitAttempt) -> None:
        """Messages for a task: those of another attempt, or new ones, or none."""
        lot = self.world.entropy.random()
        other = next((one.inputs for one in self.attempts if one.inputs is not None), None)
        if lot < 0.5 and other is not None:
            attempt.inputs = TransactionInputs(other.received, other.kind)
        elif lot < 0.8:
            attempt.inputs = taker.poll(driver)

    def _consume(
        self, driver: SimDriver, attempt: CommitAttempt, inputs: TransactionInputs
    ) -> None:
        """Send the answers, or see that they came too late: then the attempt is given up."""
        if inputs.is_refused:
            self._give_up([attempt])
            self.attempts.remove(attempt)
        elif inputs.sent_in != self.world.life or self.world.entropy.random() < 0.3:
            self._act(driver, "answers", partial(self._answer, driver, attempt, inputs))

    def _answer(self, driver: SimDriver, attempt: CommitAttempt, inputs: TransactionInputs) -> None:
        assert self.taker is not None
        self.world.books.transactions.consume(attempt.transaction, inputs.places())
        command = StageNamedAnswers(attempt.staging, inputs.answers())
        try:
            self.taker.stage(driver, command, inputs, driver.node.commits.home(self.name))
        except NotFound as error:
            self._lost(driver, [attempt], f"a staging is gone: {error}")

    def _open(self, driver: SimDriver, attempt: CommitAttempt) -> None:
        command = OpenStaging(self.name, self.sequence, _WRITER)
        try_as_outsider(driver, command)
        try:
            staging = driver.execute(command, key_of(self.name))
        except Unavailable as error:
            self.world.note(f"refused: {error.code}")
            return
        except SequenceCommitted as error:
            self._require(bool(self.doubtful), f"refused, and nothing was committed: {error}")
            # A former self has committed it, or a disk has lied.
            self._give_up(self.attempts)
            self.attempts = []
            self.commit = self._new_commit([])
            return
        attempt.opened_in = life = self.world.life
        attempt.opened_ns = driver.now().wall_ns
        self.world.books.follow(driver.node, self.world.event)

        def replied() -> None:
            if self.world.life == life:
                attempt.staging = staging

        home = driver.node.commits.home(self.name)
        driver.hold(home, PendingReply(0, home.journal.log.end_offset, replied))

    def _stage_next(self, driver: SimDriver, attempt: CommitAttempt) -> None:
        entropy, life = self.world.entropy, self.world.life
        waiting = [one for one in attempt.batches if not one.is_answered]
        if waiting:
            if waiting[0].sent_in != life or entropy.random() < 0.3:
                for batch in waiting:
                    self._act(driver, "stages", partial(self._stage, driver, attempt, batch))
            return
        partitions = len(driver.node.topic(self.topic).partitions)
        batch = next_batch(
            self.world,
            attempt.transaction,
            attempt.batches,
            partitions,
            is_delaying=self.is_delaying,
        )
        self._act(driver, "stages", partial(self._stage, driver, attempt, batch))

    def _stage(self, driver: SimDriver, attempt: CommitAttempt, batch: StagedBatch) -> None:
        command = StageNamed(
            attempt.staging,
            self.topic,
            batch.undelayed,
            batch.partition,
            batch.sequence,
            delayed=batch.delayed,
        )
        try:
            driver.execute(command)
        except Unavailable as error:
            batch.sent_in = -1
            self.world.note(f"refused: {error.code}")
            return
        except NotFound as error:
            self._lost(driver, [attempt], f"a staging is gone: {error}")
            return
        home = driver.node.commits.home(self.name)
        hold_staged(
            self.world, driver, batch, home, driver.node.partition(self.topic, batch.partition)
        )

    # The commit.

    def _choose(self) -> None:
        """Commit some of the attempts; the others are losers."""
        entropy = self.world.entropy
        count = entropy.randint(1, len(self.attempts))
        chosen = _distinct(entropy.sample(self.attempts, count))
        self.losers = [one for one in self.attempts if one not in chosen]
        self.attempts = []
        self.commit = self._new_commit(chosen)

    def _new_commit(self, chosen: list[CommitAttempt]) -> SimCommit:
        """Returns the commit of some attempts: one transaction, which all of their messages belong to from now on."""
        books = self.world.books.transactions
        self._made += 1
        transaction = SimTransaction(f"{self.name}/{self.sequence}/commit {self._made}")
        transaction.is_commit_asked = True
        books.begin(transaction)
        for attempt in chosen:
            for partition, messages in attempt.transaction.messages.items():
                books.stage(transaction, partition, messages)
            transaction.delayed |= attempt.transaction.delayed
            attempt.transaction.messages = {}
            books.consume(transaction, attempt.transaction.inputs)
            attempt.transaction.inputs = set()
        refs = [one.ref for one in chosen]
        return SimCommit(self.sequence, chosen, refs, transaction, transaction.name)

    def _commit(self, driver: SimDriver, commit: SimCommit) -> None:
        try:
            done = self._sent(driver, commit)
        except (Unavailable, CommitInProgress) as error:
            self.world.note(f"refused: {error.code}")
            return
        except RepeatDiffers as error:
            held = {one.fingerprint for one in self.doubtful}
            self._require(error.fields["held"] in held, f"refused, and it was not: {error}")
            # What a former self has committed counts, whatever this one would have.
            commit.fingerprint = ""
            return
        except (NotFound, StagingMismatch) as error:
            story = f"a commit of what was answered is refused: {error}"
            self._lost(driver, commit.attempts, story)
            return
        self.world.books.follow(driver.node, self.world.event)
        self.world.notice("intent")
        if not done.is_complete:
            if self.world.entropy.random() < 0.03:
                self._die()
            return
        self._require(done.last_sequence == commit.sequence, f"{commit.sequence} is not {done}")
        self._require(done.is_repeat or not commit.is_told, f"{done} is told twice")
        commit.is_told = True
        self._settle(commit, done)
        if self.world.entropy.random() < 0.15:
            return  # The reply is lost, so the writer asks again.
        self._finish()

    def _sent(self, driver: SimDriver, commit: SimCommit) -> NamedCommit:
        return driver.execute(
            CommitStagings(
                *(self.name, commit.sequence, _WRITER, commit.stagings),
                fingerprint=commit.fingerprint,
            )
        )

    def _settle(self, commit: SimCommit, done: NamedCommit) -> None:
        """Violation: the answer does not say where the messages are, or messages of two commits are there."""
        books = self.world.books
        if books.is_forgiving:
            return
        mine = [*self.doubtful, commit]
        if not done.is_repeat:
            winner = commit
        else:
            # One of its former selves may have been it.
            there = [one for one in mine if books.transactions.is_there(one.transaction)]
            self._require(len(there) <= 1, "two commits of one sequence were published")
            winner = there[0] if there else commit
            is_same = winner is commit or not commit.fingerprint
            self._require(is_same, f"{commit.fingerprint} passes for {winner.fingerprint}")
        for one in mine:
            if one is winner:
                books.transactions.committed(one.transaction, done.places)
                one.places = done.places
            else:
                books.transactions.ended(one.transaction, TransactionFate.ABORTED)
        self.doubtful, self.commit = [], winner

    def _finish(self) -> None:
        self._give_up(self.losers)
        self.last, self.commit, self.doubtful = self.commit, None, []
        self.committed += 1
        self._has_dead = False
        self.sequence += self.world.entropy.choice((1, 1, 1, 4))

    def _give_up(self, attempts: list[CommitAttempt]) -> None:
        if not self.world.books.is_forgiving:
            for one in attempts:
                self.world.books.transactions.ended(one.transaction, TransactionFate.ABORTED)

    def _die(self) -> None:
        """Forget the stagings, and what became of a commit, and begin the sequence anew."""
        self.world.note(f"{self.name} dies")
        self._give_up(self.attempts)
        self._give_up(self.losers)
        self.attempts, self.losers = [], []
        self._has_dead = True
        if self.commit is not None:
            self.doubtful.append(self.commit)
            self.commit = None

    def _lost(self, driver: SimDriver, attempts: Sequence[CommitAttempt], story: str) -> None:
        """Violation: stagings of these are gone before their time."""
        now_ns = driver.now().wall_ns
        if any(now_ns - one.opened_ns >= STAGING_LIFE_NS for one in attempts):
            # The wall clock has stepped: only a restart goes by it.
            self._die()
            return
        self._require(False, story)
        self._begin_again()

    def _begin_again(self) -> None:
        """After a disk that lied: nothing is known of what was staged."""
        self.attempts, self.losers, self.doubtful = [], [], []
        self.commit = self.last = None
        self._has_dead = True

    # What must not happen.

    def _commit_again(self, driver: SimDriver, commit: SimCommit) -> None:
        """Violation: a commit that was answered is not known any more."""
        if self.commit is not None or self.doubtful:
            return  # The name may have a later one.
        try:
            done = self._sent(driver, commit)
        except Unavailable:
            return
        except (NotFound, StagingMismatch, CommitInProgress) as error:
            self._require(False, f"{commit.sequence} is forgotten: {error}")
            self.last = None
            return
        self.world.books.follow(driver.node, self.world.event)
        is_repeat = done.is_repeat or not commit.is_told
        commit.is_told = True
        is_known = is_repeat and done.is_complete and done.places == commit.places
        self._require(is_known, f"{commit.sequence} is answered {done}, and was {commit.places}")

    def _stage_late(self, driver: SimDriver) -> None:
        """Violation: a loser may stage after the commit, or a new attempt for its sequence may."""
        late = self.losers.pop()
        if self.commit is not None or self.last is None or not late.staging:
            return
        command = StageNamed(late.staging, self.topic, [Message(b"late of %s" % _text(late))])
        with suppress(NotFound, Unavailable):
            driver.execute(command)
            self._require(False, f"{command} was not refused")
        again = OpenStaging(self.name, self.last.sequence, _WRITER)
        with suppress(SequenceCommitted, Unavailable):
            driver.execute(again)
            self._require(False, f"{again} was not refused")

    def _require(self, is_so: bool, story: str) -> None:
        if not is_so and not self.world.books.is_forgiving:
            raise Violation(Checker.NAMED_COMMIT, f"{self.name}: {story}")


def _distinct(attempts: list[CommitAttempt]) -> list[CommitAttempt]:
    """Of attempts that have answered the same messages, one."""
    chosen: list[CommitAttempt] = []
    seen: set[str] = set()
    for one in attempts:
        receipts = set() if one.inputs is None else {each.receipt for each in one.inputs.received}
        if not receipts & seen:
            chosen.append(one)
            seen |= receipts
    return chosen


def _text(attempt: CommitAttempt) -> bytes:
    return attempt.transaction.name.encode()
