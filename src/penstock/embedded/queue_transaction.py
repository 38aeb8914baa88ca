"""Transactions of a queue: messages that are put and messages that are answered, all of it or nothing."""

from abc import abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import Unpack

from msgspec import UNSET, UnsetType

from ..api.answers import LeaseAnswer
from ..api.publish import CheckBacklog
from ..api.transactions import (
    EndTransaction,
    ForceAbort,
    ListTransactions,
    ProducerSession,
    TransactionEnd,
)
from ..api.units import Duration
from ..broker.partition.publishing import size_of
from ..errors import PenstockError, Refused
from ..model import Message, Priority
from ..runtime.threads import ThreadDriver
from ..transactions.states import TransactionState
from .delay import delayed_of, is_delayed
from .messages import MessageOptions, Value, listed, make_message
from .prefetch import Prefetch
from .transaction import Sessions, TransactionBlock
from .write_buffer import TOPIC, WriteBuffer

_NEVER_NS = 1 << 63


def abort_open(driver: ThreadDriver) -> None:
    """Abort the transactions that a former process had open, so that what it had answered is there at once."""
    for one in driver.execute(ListTransactions(state=TransactionState.ONGOING.value)):
        driver.execute(ForceAbort(one.transaction_id))


class QueueTransaction(TransactionBlock):
    """Made by `Queue.transaction`, for one `with` block: committed at its end, aborted if it raises."""

    def __init__(self, queue: "QueueTransactions", timeout: Duration) -> None:
        super().__init__(queue._driver, queue._sessions, timeout)
        self._queue = queue
        self._messages = self._bytes = 0
        self._is_urgent = False
        # When the first of its delayed messages is due.
        self._due_ns = _NEVER_NS

    @property
    def ids(self) -> list[int]:
        """The ids of messages in the order in which they were put, once the block has ended; not of delayed ones."""
        runs = (range(one.offset + 1, one.offset + 1 + one.message_count) for one in self.places)
        return [number for run in runs for number in run]

    def put(self, value: Value | UnsetType = UNSET, **options: Unpack[MessageOptions]) -> None:
        """Add a message. It has an id, and is handed out, once the block has ended; with a delay, once it is due."""
        self._put([value], options)

    def put_many(self, values: Iterable[Value], **options: Unpack[MessageOptions]) -> None:
        """Add several messages. Options hold for each of them."""
        if "delay_key" in options:
            raise Refused("a key names one message; use put")
        self._put(listed(values), options)

    def _put(self, values: list[Value | UnsetType] | list[Value], options: MessageOptions) -> None:
        now_ns = self._driver.now().wall_ns
        if is_delayed(options) and values:
            delayed = [delayed_of(one, options, now_ns) for one in values]
            self._stage(TOPIC, [], 0, delayed)
            self._due_ns = min(self._due_ns, *(one.due_ns for one in delayed))
            return
        messages: list[Message] = [make_message(one, options, now_ns=now_ns) for one in values]
        if not messages:
            return
        self._queue._prefetch.with_room(partial(self._stage, TOPIC, messages, 0))
        self._messages += len(messages)
        self._bytes += sum(map(size_of, messages))
        self._is_urgent |= messages[0].priority < Priority.NORMAL

    def _answer(self, answers: list[LeaseAnswer]) -> None:
        if self._queue.is_auto_ack:
            raise Refused(
                "this queue finishes a message when it hands it out; open it with auto_ack=False"
            )
        super()._answer(answers)

    def _end(self, session: ProducerSession, *, is_commit: bool) -> TransactionEnd:
        end = self._ended(session, is_commit=is_commit)
        if is_commit and self._due_ns < _NEVER_NS:
            self._queue._expect_due(self._due_ns)
        return end

    def _ended(self, session: ProducerSession, *, is_commit: bool) -> TransactionEnd:
        if not is_commit or not self._messages:
            return super()._end(session, is_commit=is_commit)
        # The commit appends to the queue: no put is numbered meanwhile.
        try:
            with self._queue._buffer.committing():
                end = self._commit(session)
        finally:
            # The ticker has puts accepted again, if they are refused for now.
            self._queue._wake()
        if self._is_urgent:
            self._queue._prefetch.empty()
        return end

    def _commit(self, session: ProducerSession) -> TransactionEnd:
        try:
            check = CheckBacklog(TOPIC, 0, self._messages, self._bytes)
            self._queue._prefetch.with_room(partial(self._driver.execute, check))
        except PenstockError:
            self._driver.execute(EndTransaction(*session, is_commit=False))
            raise
        return super()._end(session, is_commit=True)


class QueueTransactions:
    """The part of a queue that makes transactions."""

    _driver: ThreadDriver
    _buffer: WriteBuffer
    _prefetch: Prefetch
    _sessions: Sessions
    is_auto_ack: bool

    @abstractmethod
    def _expect_due(self, due_ns: int) -> None:
        """A message is to come at a time."""

    @abstractmethod
    def _wake(self) -> None:
        """Have the ticker look soon."""

    def transaction(self, *, timeout: Duration = "60s") -> QueueTransaction:
        """Put messages and answer those that were gotten, all or nothing, whatever crashes.

            job = queue.get()
            with queue.transaction() as t:
                t.put(b"the next step")
                t.ack(job)

        Nothing of it is seen before the block has ended, and nothing ever if it raises. `t.ids` are the new ids then.
        Open for longer than `timeout` (at most 15 minutes) it is aborted, and the end of the block raises
        `TransactionEnded`.
        """
        return QueueTransaction(self, timeout)
