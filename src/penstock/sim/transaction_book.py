"""What must be true of transactions: nothing of one is read before it is decided, all of it or nothing after, once.

The book knows what clients asked for and were told. Where messages are it learns from the message logs, and when a
decision was durable from the journals of coordinators.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from ..api.transactions import Placed
from ..model import Message, TopicPartition
from ..transactions.commit_records import NamedStagingsDecided
from ..transactions.records import TransactionDecided
from ..transactions.stagings import NAMED_NUMBER
from .violation import Checker, Violation

INPUT_GROUP = "inputs"
InputPlace = tuple[TopicPartition, int]


class TransactionFate(Enum):
    """What its producer knows of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    # Its producer was replaced before it heard of the end: all of it is there, or nothing.
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class SimTransaction:
    """A transaction as its producer sees it: the messages that it has staged, by partition."""

    name: str
    messages: dict[int, list[Message]] = field(default_factory=dict)
    # Values of those that are delayed: the commit schedules them.
    delayed: set[bytes] = field(default_factory=set)
    fate: TransactionFate = TransactionFate.OPEN
    is_commit_asked: bool = False
    # Messages that it acks.
    inputs: set[InputPlace] = field(default_factory=set)

    def values(self) -> list[bytes]:
        return [one.value or b"" for some in self.messages.values() for one in some]


class TransactionBook:
    """All transactions of a run. `find` gives the places of a value, as the books of partitions have them.

    `is_scheduled` says of a value whether a delay log has it. `find_input` says of a consumed message whether it is
    finished, and whether a transaction has acked it.
    """

    def __init__(
        self,
        find: Callable[[bytes], list[tuple[TopicPartition, int]]],
        is_scheduled: Callable[[bytes], bool],
        find_input: Callable[[InputPlace], tuple[bool, bool]],
    ) -> None:
        self._find, self._is_scheduled, self._find_input = find, is_scheduled, find_input
        self.by_input: dict[InputPlace, list[SimTransaction]] = {}
        self.transactions: list[SimTransaction] = []
        self.by_value: dict[bytes, SimTransaction] = {}
        # Where coordinators recorded their decisions: the source's number, and the end of its journal then.
        self.decisions: dict[tuple[int, int], tuple[int, int]] = {}

    def begin(self, transaction: SimTransaction) -> None:
        self.transactions.append(transaction)

    def stage(
        self,
        transaction: SimTransaction,
        partition: int,
        messages: list[Message],
        *,
        is_delayed: bool = False,
    ) -> None:
        """Take note that its producer sends these for the first time."""
        transaction.messages.setdefault(partition, []).extend(messages)
        if is_delayed:
            transaction.delayed.update(one.value or b"" for one in messages)
        for one in messages:
            self.by_value[one.value or b""] = transaction

    def consume(self, transaction: SimTransaction, places: Iterable[InputPlace]) -> None:
        """Take note that its producer acks these messages inside."""
        transaction.inputs.update(places)
        for one in places:
            self.by_input.setdefault(one, []).append(transaction)

    def decided(
        self, source: int, record: TransactionDecided | NamedStagingsDecided, journal_end: int
    ) -> Callable[[], object]:
        """Take note of a decision in a journal. Returns a call that takes it back. Violation: there was one before."""
        if isinstance(record, NamedStagingsDecided):
            keys = [(one, NAMED_NUMBER) for one in (*record.published, *record.dropped)]
        else:
            keys = [(record.producer_id, record.number)]
        for key in keys:
            if key in self.decisions:
                raise Violation(Checker.TRANSACTION, f"{key} is decided a second time: {record}")
            self.decisions[key] = source, journal_end

        def undo() -> None:
            for key in keys:
                del self.decisions[key]

        return undo

    def published(
        self, where: str, key: tuple[int, int], value: bytes, durable_to: Callable[[int], int]
    ) -> None:
        """Take note that a message is in a partition, or waits there. Violation: it may not be, or not yet."""
        transaction = self.by_value.get(value)
        if transaction is None:
            raise Violation(Checker.NO_PHANTOM, f"{where}: no producer staged {value!r}")
        if transaction.fate is TransactionFate.ABORTED or not transaction.is_commit_asked:
            story = f"{where}: {value!r} of {transaction.name}, which is {transaction.fate.value}"
            raise Violation(Checker.TRANSACTION, story)
        self.require_decided(where, key, durable_to)

    def require_decided(
        self, where: str, key: tuple[int, int], durable_to: Callable[[int], int]
    ) -> None:
        """Violation: something of a transaction took effect before its decision was durable."""
        source, journal_end = self.decisions.get(key, (-1, 0))
        if source < 0 or durable_to(source) < journal_end:
            story = f"{where}: {key} took effect before its decision was durable"
            raise Violation(Checker.TRANSACTION, story)

    def ended(self, transaction: SimTransaction, fate: TransactionFate) -> None:
        """Take note of what a producer was told. Violation: it was told something else, or the messages differ."""
        before = transaction.fate
        if before in (TransactionFate.COMMITTED, TransactionFate.ABORTED) and before is not fate:
            story = f"{transaction.name} is {before.value}, and then {fate.value}"
            raise Violation(Checker.TRANSACTION, story)
        transaction.fate = fate
        self._require_whole(transaction)

    def committed(self, transaction: SimTransaction, places: tuple[Placed, ...]) -> None:
        """Take note that a commit was answered. Violation: not all of it is where the answer says."""
        self.ended(transaction, TransactionFate.COMMITTED)
        told = {
            (TopicPartition(one.topic, one.partition), one.offset + index)
            for one in places
            for index in range(one.message_count)
        }
        found = {place for value in transaction.values() for place in self._find(value)}
        if told != found:
            story = f"{transaction.name} is at {sorted(found)}, and {sorted(told)} was told"
            raise Violation(Checker.TRANSACTION, story)

    def is_there(self, transaction: SimTransaction) -> bool:
        """Whether anything of it is among the messages, or waits to be."""
        return any(self._found(transaction))

    def _found(self, transaction: SimTransaction) -> list[bytes]:
        return [
            value
            for value in transaction.values()
            if (self._is_scheduled if value in transaction.delayed else self._find)(value)
        ]

    def _require_whole(self, transaction: SimTransaction) -> None:
        if transaction.inputs:
            self._require_inputs(transaction)
        values = transaction.values()
        found = self._found(transaction)
        if transaction.fate is TransactionFate.COMMITTED and len(found) < len(values):
            missing = sorted(set(values) - set(found))
            story = f"{transaction.name} is committed, and {missing} are missing"
            raise Violation(Checker.TRANSACTION, story)
        if transaction.fate is TransactionFate.ABORTED and found:
            raise Violation(Checker.TRANSACTION, f"{transaction.name} is aborted, but {found}")
        if transaction.fate is TransactionFate.UNKNOWN and 0 < len(found) < len(values):
            story = f"{transaction.name}: of {len(values)} messages {len(found)} are there"
            raise Violation(Checker.TRANSACTION, story)

    def _require_inputs(self, transaction: SimTransaction) -> None:
        """Violation: outputs without the acks of their inputs, acks without outputs, or an input in two outputs."""
        is_committed = transaction.fate is TransactionFate.COMMITTED
        for place in transaction.inputs:
            is_finished, is_acked = self._find_input(place)
            others = [one for one in self.by_input[place] if one is not transaction]
            story = f"{transaction.name} is {transaction.fate.value}, and its input {place} is"
            if is_committed and not is_finished:
                raise Violation(Checker.TRANSACTION, f"{story} not acked")
            if is_committed and any(one.fate is TransactionFate.COMMITTED for one in others):
                raise Violation(Checker.TRANSACTION, f"{story} that of another one, too")
            if transaction.fate is TransactionFate.ABORTED and is_acked:
                asked = (one for one in others if one.is_commit_asked)
                if all(one.fate is TransactionFate.ABORTED for one in asked):
                    raise Violation(Checker.TRANSACTION, f"{story} acked")

    def require_whole(self) -> None:
        """Violation: a transaction that is over is there in part, or should not be there, or is not."""
        for transaction in self.transactions:
            if transaction.fate is not TransactionFate.OPEN:
                self._require_whole(transaction)
