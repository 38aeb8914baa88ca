"""Transactions: sessions of producers, messages that are staged, and the commit or abort that ends it."""

from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, NamedTuple, TypeVar

import msgspec

from ..errors import NotFound, PartitionFaulty, TransactionEnded
from ..model import Buffer, Message, TopicPartition
from .bounds import DISTINCT, NAMES_MAX, PAGE_MAX, PUBLISH_MESSAGES_MAX, Bound, Unit, Within, items
from .command import EVERY_TOPIC, Command
from .forms import Form, Http, Named
from .principals import Action
from .publish import Delayed

_ONE = "/transactions/{transaction=transaction_id}"
TIMEOUT_MS = 60_000
TIMEOUT_MS_MAX = 15 * 60_000
MESSAGES_STAGED = Bound("messages", Unit.ITEMS, 1, PUBLISH_MESSAGES_MAX)
"""Those that come at once and those that are delayed together."""

R = TypeVar("R")


class ProducerSession(NamedTuple):
    """A producer that may begin transactions: its id, and the epoch that it says with every command."""

    producer_id: int
    epoch: int


class InitProducer(Command[ProducerSession], frozen=True):
    """Begin a session of the producer of this name. An earlier one is fenced, and its open transaction aborted.

    The first producer of a node makes the topic in which transactions are decided. With `former`, only if that is the
    present session, or asks once more and gets the same answer: ProducerFenced. `keeps_epoch`: commits and aborts of
    the session leave its epoch as it is, so a late one may meet the next transaction. Refused: the name or the time-out
    is out of its limits. Forbidden: another key has the name. TransactionInProgress: the epochs of the producer are
    used up, and its last is being applied.
    """

    action: ClassVar[Action] = Action.PUBLISH
    is_structural: ClassVar[bool] = True
    name: str
    timeout_ms: int = TIMEOUT_MS
    former: ProducerSession | None = None
    keeps_epoch: bool = False


class OfProducer(msgspec.Struct, frozen=True):
    """What a producer says of itself with each command."""

    producer_id: int
    epoch: int


class ProducerHeartbeat(OfProducer, Command[None], frozen=True):
    """Say that a producer is alive: the time-out of its open transaction counts from now, up to 15 minutes in all.

    NotFound, ProducerFenced.
    """

    action: ClassVar[Action] = Action.PUBLISH
    is_volatile: ClassVar[bool] = True
    # If it is given, it has to be the producer's.
    name: str = ""


class BeginTransaction(OfProducer, Command[str], frozen=True):
    """Begin a transaction, if none is open, and have these partitions take part; its id. `Stage` does the same.

    NotFound, ProducerFenced, PartitionFaulty; TransactionInProgress: the last one is being applied, or with `is_first`
    one is open.
    """

    action: ClassVar[Action] = Action.PUBLISH
    partitions: Annotated[tuple[TopicPartition, ...], items(NAMES_MAX), DISTINCT] = ()
    is_first: bool = False

    def topics(self) -> Iterable[str]:
        return {one.topic for one in self.partitions}


class Staged(NamedTuple):
    """A message that waits for its transaction's end: it has no offset yet.

    `sequence` is its number among the stagings of its producer in this partition.
    """

    partition: int
    sequence: int
    is_duplicate: bool


class Stage(OfProducer, Command[Sequence[Staged]], frozen=True):
    """Stage messages, or delayed ones, in the open transaction of a producer, which begins with this; all or none.

    Delayed ones are scheduled with the commit; what is due by then comes at once. With a sequence, that of the first
    message, a repeat is recognised; it counts in the partition that the command names, or in that of the only message's
    key. With `may_begin_anywhere` the first one of a session in a partition is any number.

    NotFound, ProducerFenced, OutOfSequence, TransactionInProgress; Refused: a message has an idempotency key.
    """

    action: ClassVar[Action] = Action.PUBLISH
    packed_bytes_max: ClassVar[int | None] = None
    is_durable: ClassVar[bool] = True
    is_repeatable: ClassVar[bool] = False
    topic: str
    messages: Annotated[Sequence[Message], items(PUBLISH_MESSAGES_MAX)]
    partition: int | None = None
    sequence: int | None = None
    delayed: Annotated[Sequence[Delayed], items(PUBLISH_MESSAGES_MAX)] = ()
    may_begin_anywhere: bool = False

    def topics(self) -> Iterable[str]:
        return (self.topic,)

    def check_sums(self) -> None:
        MESSAGES_STAGED.check(len(self.messages) + len(self.delayed))


class StageBatch(Command[Staged], frozen=True):
    """Stage a batch that a client encoded, whole, with its producer's marks: a repeat is recognised.

    As `Stage`; the reply is about its first message.
    """

    action: ClassVar[Action] = Action.PUBLISH
    is_durable: ClassVar[bool] = True
    topic: str
    partition: int
    batch: Buffer

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class StageRecords(StageBatch, frozen=True):
    """Stage one transactional record batch of a Kafka producer, in a partition that takes part: see BeginTransaction.

    As `StageBatch`; TransactionEnded: the partition does not take part, or no transaction is open.
    """


class Placed(NamedTuple):
    """Messages of a transaction that follow each other in a partition."""

    topic: str
    partition: int
    offset: int
    message_count: Annotated[int, Named("count")]


Places = Annotated[tuple[Placed, ...], Named("offsets")]


class TransactionEnd(NamedTuple):
    """Where the end of a transaction is.

    Drivers answer with it when it is complete; before that only if a partition cannot take its part now. Then the
    decision stands, and the same command tells later what came of it. `epoch` is the producer's for the next
    transaction, `places` is where its messages are, in the order in which partitions joined.
    """

    transaction_id: str
    state: str
    epoch: int
    is_complete: bool
    places: Places


class EndTransaction(OfProducer, Command[TransactionEnd], frozen=True):
    """Commit or abort the open transaction of a producer. Repeats are harmless, and get the same answer.

    With `transaction_id` it ends that one and no later one. NotFound; ProducerFenced: the epoch is an old one;
    TransactionEnded: it ended in the other way, by its time-out perhaps, or is not the last one; PartitionFaulty: a
    partition with stagings cannot be asked.
    """

    action: ClassVar[Action] = Action.PUBLISH
    takes_steps: ClassVar[bool] = True
    is_commit: bool
    transaction_id: str = ""

    def end_of(self) -> int | str:
        return self.producer_id


class ForceAbort(Command[TransactionEnd], frozen=True):
    """Abort the open transaction of a producer, whatever its epoch: for administrators.

    NotFound: there is no such producer, or it has no transaction. TransactionEnded: it is decided.
    """

    action = Action.ABORT_TRANSACTION
    takes_steps = True
    audit_line = "transaction {command.transaction_id} aborted"
    http = Http("POST", f"{_ONE}/force-abort", "Abort an open transaction of any producer")
    tag = "transactions"
    errors = (NotFound, TransactionEnded, PartitionFaulty)
    transaction_id: str

    def topics(self) -> Iterable[str]:
        return EVERY_TOPIC


class Participant(NamedTuple):
    """What a transaction has staged in a partition, and how many messages it has answered there."""

    topic: str
    partition: int
    messages: int
    size_bytes: Annotated[int, Named("bytes")]
    answers: int = 0


class Transaction(msgspec.Struct, frozen=True):
    """A producer's transaction: the open one, or the last."""

    transaction_id: str
    producer_id: int
    name: Annotated[str, Named("transactional_id")]
    epoch: int
    state: str
    timeout_ms: Annotated[int, Named("transaction_timeout_ms")]
    # How long it is open; None if it is not.
    open_ms: int | None
    participants: tuple[Participant, ...]
    places: Places
    reason: str


class _SeeTransactions(Command[R], frozen=True):
    action = Action.SEE_TRANSACTIONS
    is_query = True
    tag = "transactions"

    def topics(self) -> Iterable[str]:
        return EVERY_TOPIC


class ListTransactions(_SeeTransactions[list[Transaction]], frozen=True):
    """Transactions of all producers, ordered by producer id; those in one state, if it is given.

    A state is one of Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort.
    """

    is_walk = True
    http = Http(
        "GET",
        "/transactions",
        "The open or last transaction of every producer",
        items="transactions",
        cursor="producer_id",
    )
    state: str | None = None
    after: Annotated[int, Form.CURSOR, Named("cursor")] = -1
    limit: Annotated[int, Within(1, PAGE_MAX + 1, is_cut=True)] = 1000


class TransactionStats(msgspec.Struct, frozen=True):
    """Producers by the state of their transaction, and what is staged on this node."""

    states: dict[str, int]
    staged_messages: int
    staged_bytes: int
    # How long the oldest open transaction is open; None: there is none.
    oldest_open_ms: int | None
    active_transactions: int


class SeeTransactionStats(_SeeTransactions[TransactionStats], frozen=True):
    """How many transactions there are, and how much they have staged."""

    is_walk = True
    http = Http("GET", "/transactions/stats", "Transactions by state, and what is staged")


class DescribeTransaction(_SeeTransactions[Transaction], frozen=True):
    """One transaction, by its id. NotFound: it is neither the open one nor the last of its producer."""

    http = Http("GET", _ONE, "One transaction: what it has staged, or where its messages are")
    errors = (NotFound, PartitionFaulty)
    transaction_id: str
