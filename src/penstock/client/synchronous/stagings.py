# Made from ../asynchronous/stagings.py by tools/unasync.py; change that one.
"""Stagings of named commits: one process stages, several batches under way at once, and another one commits."""

import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self, Unpack

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ...api.answers import Kind
from ...api.arguments import partition_number, several, text
from ...api.command import Command
from ...api.commits import (
    DropStagings,
    OpenStaging,
    StageNamed,
    StageNamedAnswers,
    StageNamedBatch,
)
from ...api.contents import Content
from ...api.publish import Delayed
from ...api.topics import DescribeTopic
from ...api.units import Duration, duration_ms
from ...codec import Columns, encode
from ...codec.columns import columns_of
from ...errors import PenstockError, Refused
from ...model import Message
from ..commands import name_of
from ..leased_messages import Polled, Received
from ..poll import Receipts
from ..publish import Outgoing, PublishOptions, message_of, outgoing_of
from ..retry import may_repeat
from ..stagings import (
    IN_FLIGHT_MAX,
    CommitKey,
    StagingHandle,
    by_partition,
    delayed_by_partition,
    delayed_or_none,
)
from ..transaction_answers import WithheldMessages, lease_answers
from .connector import Call, Connector, Sent


class StagedBatch(NamedTuple):
    """A batch that was sent and not answered. `sent` is None if it could not be sent."""

    command: Command[Any]
    messages: int
    sent: Sent | None


class Staging:
    """Messages of one attempt for a named commit. Made by `client.staging`, for one task at a time:

        with client.staging("nightly", 7, "job-12") as staging:
            staging.publish("orders", b"...", key="customer-7")
            staging.stage_columns("orders", 3, Columns(values=[...], timestamps=now_ns))
        handle = staging.handle

    Up to four batches are under way at once; one whose answer is lost is sent again, and stored once. At the end of the
    block all are stored; if it raises they are given up. The handle goes to the process that commits, within 24 hours.
    `ack`, `nack` and `reject` answer consumed messages with the commit.
    """

    def __init__(self, connector: Connector, key: CommitKey, attempt: str) -> None:
        self._connector, self._key = connector, key
        self._attempt = text("the attempt of a staging", attempt)
        self._staging = ""
        self._is_done = False
        self._messages = 0
        self._in_flight: deque[StagedBatch] = deque()
        # Of each partition that it has messages in: the sequence of the next one.
        self._next: dict[tuple[str, int], int] = {}
        self._partitions: dict[str, int] = {}
        self._turn = 0
        self._withheld = WithheldMessages()

    @property
    def handle(self) -> StagingHandle:
        """What is committed: small, and fit for pickle and JSON. Refused before the block has ended well."""
        if not self._is_done:
            raise Refused("a staging has a handle once its `with` block has ended well")
        return StagingHandle(*self._key, self._staging, self._messages)

    def __enter__(self) -> Self:
        if self._staging:
            raise Refused("a staging is for one `with` block")
        command = OpenStaging(*self._key, self._attempt)
        self._staging = (self._connector.execute(command)).value
        return self

    def publish(
        self, topic: str, value: Content | UnsetType = UNSET, **options: Unpack[PublishOptions]
    ) -> None:
        """Stage a message, a value or any object as `json`. It is seen once the staging is committed.

        With `delay` or `deliver_at` it is scheduled then, and seen once it is due.
        """
        self._stage(topic, [outgoing_of(value, options)])

    def publish_many(self, topic: str, messages: Iterable[Outgoing | Content]) -> None:
        """Stage several messages; those for one partition together."""
        self._stage(topic, [outgoing_of(one, {}) for one in several("messages", messages)])

    def _stage(self, topic: str, sent: list[Outgoing]) -> None:
        now_ns, name = time.time_ns(), name_of("topic", topic)
        messages: list[tuple[int | None, Message]] = []
        delayed: list[tuple[int | None, Delayed]] = []
        for one in sent:
            place = None if one.partition is None else partition_number(one.partition)
            later = delayed_or_none(one, now_ns)
            if later is not None:
                delayed.append((place, later))
                continue
            message = message_of(one, now_ns, None)
            messages.append((place, replace(message, timestamp=now_ns)))
        count = self.partition_count(name)
        for partition, some in delayed_by_partition(delayed, count, self._turn).items():
            self._stage_delayed(name, partition, some)
        for partition, batches in by_partition(messages, count, self._turn).items():
            for batch in batches:
                self.stage_columns(name, partition, columns_of(batch))
        self._turn += 1

    def _stage_delayed(self, topic: str, partition: int, delayed: list[Delayed]) -> None:
        self._require_open()
        where, count = (topic, partition), len(delayed)
        sequence = self._next.get(where, 0)
        command = StageNamed(self._staging, topic, [], partition, sequence, delayed)
        self._settle(IN_FLIGHT_MAX - 1)
        self._next[where] = sequence + count
        self._send(command, count)

    def ack(self, held: Receipts) -> None:
        """Finish messages of a poll, or receipts, with the commit. Until it ends they belong to this staging.

        StaleReceipt: the lease of one is over, and it may be in the hands of another consumer. Nothing is acked then.
        """
        self._answer(held, Kind.ACK)

    def nack(self, held: Receipts, reason: str = "", *, delay: Duration | None = None) -> None:
        """Have messages tried again after the commit and a backoff, or `delay`; as `ack`."""
        ms = None if delay is None else duration_ms(delay, "delay")
        self._answer(held, Kind.NACK, reason, ms)

    def reject(self, held: Receipts, reason: str = "") -> None:
        """Make dead letters of messages with the commit; as `ack`."""
        self._answer(held, Kind.REJECT, reason)

    def _answer(self, held: Receipts, kind: Kind, reason: str = "", ms: int | None = None) -> None:
        self._require_open()
        if not isinstance(held, Received | Polled | str):
            held = [*several("messages", held)]
        answers = lease_answers(held, kind, reason, ms)
        self._withheld.add(held)
        if answers:
            command = StageNamedAnswers(self._staging, answers)
            self._connector.execute(command, may_repeat=True)

    def _require_open(self) -> None:
        if not self._staging or self._is_done:
            raise Refused("a staging is used inside of its `with` block")

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, asked for once. NotFound."""
        if topic not in self._partitions:
            found = (self._connector.execute(DescribeTopic(name_of("topic", topic)))).value
            self._partitions[topic] = len(found.partitions)
        return self._partitions[topic]

    def stage_columns(self, topic: str, partition: int, columns: Columns) -> None:
        """Stage a batch of messages as columns: the way for many. Returns when no more than three are under way.

        An error may be about a batch before it; then nothing of this staging can be committed.
        """
        self._require_open()
        count = len(columns.values)
        if not count:
            return
        batch = encode(columns).to_bytes()
        where = topic, partition
        sequence = self._next.get(where, 0)
        command = StageNamedBatch(self._staging, topic, partition, sequence, batch)
        self._settle(IN_FLIGHT_MAX - 1)
        self._next[where] = sequence + count
        self._send(command, count)

    def _send(self, command: Command[Any], count: int) -> None:
        sent = None
        # One whose answer was lost is sent again in its turn: the broker refuses those behind it before that.
        if all(one.sent is not None for one in self._in_flight):
            try:
                sent = self._connector.begin(Call(command))
            except PenstockError as error:
                if not may_repeat(error, is_repeatable=True):
                    raise
        self._in_flight.append(StagedBatch(command, count, sent))

    def flush(self) -> None:
        """Return when everything staged so far is stored."""
        self._settle(0)

    def _settle(self, left: int) -> None:
        """Collect answers until at most so many batches have none."""
        while len(self._in_flight) > left:
            first = self._in_flight[0]
            try:
                if first.sent is None:
                    self._connector.execute(first.command, may_repeat=True)
                else:
                    self._connector.end(first.sent)
            except PenstockError as error:
                if first.sent is None or not may_repeat(error, is_repeatable=True):
                    raise
                # Those behind it have to be sent again, too: the broker refused them if it does not have this one.
                again = [one._replace(sent=None) for one in self._in_flight]
                self._cancel()
                self._in_flight.extend(again)
                continue
            self._in_flight.popleft()
            self._messages += first.messages

    def _cancel(self) -> None:
        """Wait for no answer any more."""
        for one in self._in_flight:
            if one.sent is not None:
                one.sent.pending.cancel()
        self._in_flight.clear()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.flush()
            self._is_done = True
            return
        # What it could not give up is collected with the next commit of its name, or after a day.
        self._cancel()
        self._withheld.restore()
        with suppress(PenstockError):
            self._connector.execute(DropStagings([self._staging]))
