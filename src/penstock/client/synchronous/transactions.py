# Made from ../asynchronous/transactions.py by tools/unasync.py; change that one.
"""Transactions of a client: messages for any topics and partitions, all of them or none."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ...api.answers import LeaseAnswer
from ...api.arguments import text
from ...api.transaction_answers import StageAnswers
from ...api.transactions import (
    EndTransaction,
    InitProducer,
    Placed,
    ProducerSession,
    Stage,
    TransactionEnd,
)
from ...api.units import Duration, duration_ms
from ...errors import PenstockError, Refused
from ..commands import name_of
from ..publish import Outgoing
from ..stagings import staged_runs
from .staged_work import StagedWork

if TYPE_CHECKING:
    from ..ack_batcher import OneOrMany
    from .client import Client
    from .consumer import Consumer


class TransactionalProducer:
    """A producer under a name, which only one process has at a time. Made by `client.transactional_producer`:

        producer = client.transactional_producer("billing-1")
        with producer.transaction() as t:
            t.publish("orders", b"...", key="customer-7")
            t.publish("audit", json={"order": 7})

    The first transaction begins a session. A later session of the same name, in another process perhaps, ends it: what
    was open is aborted, and this one is refused with ProducerFenced. One transaction at a time.
    """

    def __init__(self, client: "Client", name: str, timeout: Duration) -> None:
        self.client, self.name = client, text("the name of a producer", name)
        self._timeout_ms = duration_ms(timeout, "timeout")
        self._session: ProducerSession | None = None
        self._is_busy = False

    def transaction(self) -> "Transaction":
        """Publish to several topics and partitions, all or none: committed where the block ends, aborted if it raises.

        No reader sees any of it before. Open for longer than the time-out it is aborted, and the end of the block
        raises TransactionEnded.
        """
        return Transaction(self)

    def begin(self) -> ProducerSession:
        """The session for a transaction. Refused while another one is open."""
        if self._is_busy:
            raise Refused(f"producer {self.name} has a transaction open: one at a time")
        self._is_busy = True
        if self._session is None:
            try:
                found = self.client.execute(InitProducer(self.name, self._timeout_ms))
            except BaseException:
                self._is_busy = False
                raise
            self._session = ProducerSession(*found)
        return self._session

    def end(self, session: ProducerSession, *, is_commit: bool) -> TransactionEnd:
        """Commit or abort; asked again if the answer is lost. Without one the next transaction begins a session."""
        self._session, self._is_busy = None, False
        end = self.client.execute(EndTransaction(*session, is_commit=is_commit))
        self._session = ProducerSession(session.producer_id, end.epoch)
        return end


class Transaction(StagedWork):
    """One `with` block of a transactional producer: committed at its end, aborted if it raises."""

    def __init__(self, producer: TransactionalProducer) -> None:
        super().__init__()
        self._producer = producer
        self._session: ProducerSession | None = None
        self._is_used = False
        self.transaction_id = ""
        self.places: tuple[Placed, ...] = ()
        """Where the messages are, once it is committed: runs of topic, partition, first offset, count."""

    def __enter__(self) -> Self:
        if self._is_used:
            raise Refused("a transaction is for one `with` block")
        self._session, self._is_used = self._producer.begin(), True
        return self

    def commit(self, consumer: "Consumer", reached: "OneOrMany | Mapping[str, int]") -> None:
        """Finish everything up to these messages of an assigned consumer, or below these offsets, with the commit.

        NotOwner, UnknownMember. Until the transaction ends, the group gets nothing more of these partitions.
        """
        consumer.stage_commit(self._open(), reached, self._withheld)

    def _open(self) -> ProducerSession:
        if self._session is None:
            raise Refused("a transaction is used inside of its `with` block")
        return self._session

    def _require_open(self) -> None:
        self._open()

    def _stage(self, topic: str, sent: list[Outgoing]) -> None:
        """In their order; those for one partition together, and delayed ones apart."""
        name, session = name_of("topic", topic), self._open()
        # As much at once as the server takes in one batch: each command waits for the disk.
        size = self._producer.client.connector.limits.batch_bytes_max // 2
        for partition, messages, delayed in staged_runs(sent, time.time_ns(), size):
            command = Stage(*session, name, messages, partition, delayed=delayed)
            self._producer.client.execute(command)

    def _stage_answers(self, answers: list[LeaseAnswer]) -> None:
        self._producer.client.execute(StageAnswers(*self._open(), answers))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None, "it was entered"
        session, self._session = self._session, None
        if error is not None:
            self._withheld.restore()
        try:
            end = self._producer.end(session, is_commit=error is None)
        except PenstockError:
            # One that raised already says why: what was staged goes with its time-out, or with the next session.
            if error is None:
                raise
            return
        self.transaction_id, self.places = end.transaction_id, end.places
