"""Transactions of an embedded broker: messages for any of its topics, all of them or none; and what a queue's share."""

from collections.abc import Iterable, Sequence
from threading import Lock
from types import TracebackType
from typing import Self, Unpack

from msgspec import UNSET, UnsetType

from ..api.answers import Kind, LeaseAnswer, nack_delay_ms
from ..api.arguments import several, text, whole_number
from ..api.publish import Delayed
from ..api.transaction_answers import StageAnswers, StagedOffset, StageOffsets
from ..api.transactions import (
    EndTransaction,
    InitProducer,
    Placed,
    ProducerSession,
    Stage,
    TransactionEnd,
)
from ..api.units import Duration, duration_ms
from ..errors import PenstockError, Refused
from ..model import Message
from ..runtime.threads import ThreadDriver
from .answers import Held, lease_answers
from .delay import delayed_of, is_delayed
from .messages import MessageOptions, Value, make_message, message_of


class Sessions:
    """Sessions of the broker's own producers: one for each transaction that is open at the same time. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._free: dict[int, list[ProducerSession]] = {}
        self._made = 0

    def take(self, driver: ThreadDriver, timeout_ms: int) -> ProducerSession:
        with self._lock:
            free = self._free.get(timeout_ms)
            if free:
                return free.pop()
            self._made += 1
            name = f"embedded-{self._made}"
        return driver.execute(InitProducer(name, timeout_ms))

    def give_back(self, session: ProducerSession, timeout_ms: int) -> None:
        with self._lock:
            self._free.setdefault(timeout_ms, []).append(session)


class TransactionBlock:
    """What a `with` block of a broker and one of a queue have in common: committed at its end, aborted if it raises."""

    def __init__(self, driver: ThreadDriver, sessions: Sessions, timeout: Duration) -> None:
        self._driver, self._sessions = driver, sessions
        self._timeout_ms = duration_ms(timeout)
        self._session: ProducerSession | None = None
        self.places: tuple[Placed, ...] = ()
        """Where the messages are, once it is committed: runs of topic, partition, first offset, count."""

    def __enter__(self) -> Self:
        if self._session is not None:
            raise Refused("a transaction is for one `with` block")
        self._session = self._sessions.take(self._driver, self._timeout_ms)
        return self

    def ack(self, held: Held | Iterable[Held]) -> None:
        """Finish messages, or receipts, with the commit. Until then they are this transaction's; StaleReceipt."""
        self._answer(lease_answers(Kind.ACK, held))

    def nack(
        self, held: Held | Iterable[Held], reason: str = "", *, delay: Duration | None = None
    ) -> None:
        """Have messages tried again, after the commit and a backoff, or after `delay`."""
        delay_ms = nack_delay_ms(delay)
        self._answer(lease_answers(Kind.NACK, held, reason=reason, ms=delay_ms))

    def reject(self, held: Held | Iterable[Held], reason: str = "") -> None:
        """Make dead letters of messages, with the commit."""
        self._answer(lease_answers(Kind.REJECT, held, reason=reason))

    def _answer(self, answers: list[LeaseAnswer]) -> None:
        self._driver.stage(StageAnswers(*self._open(), answers))

    def _open(self) -> ProducerSession:
        if self._session is None:
            raise Refused("a transaction is used inside of its `with` block")
        return self._session

    def _stage(
        self,
        topic: str,
        messages: list[Message],
        partition: int | None,
        delayed: Sequence[Delayed] = (),
    ) -> None:
        session, topic = self._open(), text("a topic's name", topic)
        # Not waited for: the commit waits until all of it is on the disk.
        self._driver.stage(Stage(*session, topic, messages, partition, delayed=delayed))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None, "it was entered"
        session, self._session = self._session, None
        try:
            end = self._end(session, is_commit=error is None)
        except PenstockError:
            # One that raised already says why: what was staged goes with its time-out, or with the next session.
            if error is None:
                raise
            return
        self.places = end.places
        next_session = ProducerSession(session.producer_id, end.epoch)
        self._sessions.give_back(next_session, self._timeout_ms)

    def _end(self, session: ProducerSession, *, is_commit: bool) -> TransactionEnd:
        return self._driver.execute(EndTransaction(*session, is_commit=is_commit))


class Transaction(TransactionBlock):
    """Made by `Broker.transaction`, for one `with` block."""

    def publish(
        self,
        topic: str,
        value: Value | UnsetType = UNSET,
        *,
        partition: int | None = None,
        **options: Unpack[MessageOptions],
    ) -> None:
        """Add a message. It has an offset, and is seen, once the block has ended; with a delay, once it is due."""
        now_ns = self._driver.now().wall_ns
        if is_delayed(options):
            self._stage(topic, [], partition, [delayed_of(value, options, now_ns)])
            return
        self._stage(topic, [make_message(value, options, now_ns=now_ns)], partition)

    def publish_many(
        self, topic: str, messages: Iterable[Message | Value], *, partition: int | None = None
    ) -> None:
        """Add several messages."""
        now_ns = self._driver.now().wall_ns
        ready = [
            message_of(one, {}, now_ns=now_ns)
            for one in several("the messages of publish_many", messages)
        ]
        self._stage(topic, ready, partition)

    def commit(
        self, topic: str, partition: int, group: str, offset: int, *, member: str = ""
    ) -> None:
        """Finish everything below an offset for a group, with the commit; as the `member` that reads the partition."""
        name, end = text("group", group), whole_number("offset", offset)
        reached = StagedOffset(
            text("a topic's name", topic), whole_number("partition", partition), end
        )
        session = self._open()
        self._driver.stage(StageOffsets(*session, name, (reached,), text("member", member)))
