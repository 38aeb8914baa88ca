"""Stagings of named commits: one process stages, several batches under way at once, and another one commits."""

import time
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from ...api.answers import LeaseAnswer
from ...api.arguments import text
from ...api.command import Command
from ...api.commits import DropStagings, OpenStaging, StageNamed, StageNamedAnswers, StageNamedBatch
from ...api.publish import Delayed
from ...api.topics import DescribeTopic
from ...codec import Columns, encode
from ...codec.columns import columns_of
from ...errors import PenstockError, Refused
from ..calls import Call
from ..commands import name_of
from ..publish import Outgoing
from ..retry import may_repeat
from ..stagings import (
    IN_FLIGHT_MAX,
    CommitKey,
    StagingHandle,
    by_partition,
    delayed_by_partition,
    staged_apart,
    staged_bytes_of,
)
from .connector import AsyncConnector, Sent
from .staged_work import AsyncStagedWork


class StagedBatch(NamedTuple):
    """A batch that was sent and not answered. `sent` is None if it could not be sent."""

    command: Command[Any]
    messages: int
    sent: Sent | None


class AsyncStaging(AsyncStagedWork):
    """Messages of one attempt for a named commit. Made by `client.staging`, for one task at a time:

        async with client.staging("nightly", 7, "job-12") as staging:
            await staging.publish("orders", b"...", key="customer-7")
            await staging.stage_columns("orders", 3, Columns(values=[...], timestamps=now_ns))
        handle = staging.handle

    Up to four batches are under way at once; one whose answer is lost is sent again, and stored once. At the end of the
    block all are stored; if it raises they are given up. The handle goes to the process that commits, within 24 hours.
    `ack`, `nack` and `reject` answer consumed messages with the commit.
    """

    def __init__(self, connector: AsyncConnector, key: CommitKey, attempt: str) -> None:
        super().__init__()
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

    @property
    def handle(self) -> StagingHandle:
        """What is committed: small, and fit for pickle and JSON. Refused before the block has ended well."""
        if not self._is_done:
            raise Refused("a staging has a handle once its `with` block has ended well")
        return StagingHandle(*self._key, self._staging, self._messages)

    async def __aenter__(self) -> Self:
        if self._staging:
            raise Refused("a staging is for one `with` block")
        command = OpenStaging(*self._key, self._attempt)
        self._staging = (await self._connector.execute(command)).value
        return self

    async def _stage(self, topic: str, sent: list[Outgoing]) -> None:
        name = name_of("topic", topic)
        messages, delayed = staged_apart(sent, time.time_ns())
        count = await self.partition_count(name)
        size = self.batch_bytes
        for partition, later in delayed_by_partition(delayed, count, self._turn, size).items():
            for some in later:
                await self._stage_delayed(name, partition, some)
        for partition, batches in by_partition(messages, count, self._turn, size).items():
            for batch in batches:
                await self.stage_columns(name, partition, columns_of(batch))
        self._turn += 1

    async def _stage_delayed(self, topic: str, partition: int, delayed: list[Delayed]) -> None:
        self._require_open()
        where = topic, partition
        sequence = self._next.get(where, 0)
        command = StageNamed(self._staging, topic, [], partition, sequence, delayed)
        await self._send(command, where, len(delayed))

    async def _stage_answers(self, answers: list[LeaseAnswer]) -> None:
        await self._connector.execute(StageNamedAnswers(self._staging, answers), may_repeat=True)

    def _require_open(self) -> None:
        if not self._staging or self._is_done:
            raise Refused("a staging is used inside of its `with` block")

    async def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, asked for once. NotFound."""
        if topic not in self._partitions:
            found = (await self._connector.execute(DescribeTopic(name_of("topic", topic)))).value
            self._partitions[topic] = len(found.partitions)
        return self._partitions[topic]

    @property
    def batch_bytes(self) -> int:
        """How many bytes of messages are good for one batch."""
        return staged_bytes_of(self._connector.limits)

    async def stage_columns(self, topic: str, partition: int, columns: Columns) -> None:
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
        await self._send(command, where, count)

    async def _send(self, command: Command[Any], where: tuple[str, int], count: int) -> None:
        await self._settle(IN_FLIGHT_MAX - 1)
        self._next[where] = self._next.get(where, 0) + count
        sent = None
        # One whose answer was lost is sent again in its turn: the broker refuses those behind it before that.
        if all(one.sent is not None for one in self._in_flight):
            try:
                sent = await self._connector.begin(Call(command))
            except PenstockError as error:
                if not may_repeat(error, is_repeatable=True):
                    raise
        self._in_flight.append(StagedBatch(command, count, sent))

    async def flush(self) -> None:
        """Return when everything staged so far is stored."""
        await self._settle(0)

    async def _settle(self, left: int) -> None:
        """Collect answers until at most so many batches have none."""
        while len(self._in_flight) > left:
            first = self._in_flight[0]
            try:
                if first.sent is None:
                    await self._connector.execute(first.command, may_repeat=True)
                else:
                    await self._connector.end(first.sent)
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.flush()
            self._is_done = True
            return
        # What it could not give up is collected with the next commit of its name, or after a day.
        self._cancel()
        self._withheld.restore()
        with suppress(PenstockError):
            await self._connector.execute(DropStagings([self._staging]))
