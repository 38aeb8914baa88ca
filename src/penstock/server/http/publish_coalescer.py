"""Publishes of one turn of the loop go to the node together: one batch for each partition, one wait for the disk."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from ...api.publish import PublishEach, PublishOutcome, PublishValues
from ...broker.partition import Now
from ...errors import Internal, NotFound, PenstockError
from ...model import Message
from ...runtime.asynchronous import AsyncDriver


class Run(NamedTuple):
    """Plain values that were stored one after the other."""

    partition: int
    offset: int
    length: int


Answers = Run | list[PublishOutcome]


class _Share:
    """What one request wants to have stored, and the future that its answers go to. Plain values have no messages."""

    __slots__ = ("answered", "answers", "is_synced", "messages", "partition", "topic", "values")

    def __init__(
        self,
        topic: str,
        partition: int | None,
        content: Sequence[bytes] | Sequence[Message],
        *,
        is_synced: bool,
        answered: "asyncio.Future[Answers]",
    ) -> None:
        self.topic, self.partition = topic, partition
        self.is_synced, self.answered = is_synced, answered
        is_plain = type(content[0]) is bytes
        self.values: Sequence[bytes] = content if is_plain else ()  # type: ignore[assignment]  # Of one kind.
        self.messages: Sequence[Message] = () if is_plain else content  # type: ignore[assignment]  # Of one kind.
        self.answers: Answers = []


_Stored = tuple[PublishValues | PublishEach, list[_Share]]
"""A command, and the requests that it stores the messages of."""


class PublishCoalescer:
    """Gathers publishes until all requests that are ready in this turn of the loop have run, and stores them."""

    def __init__(self, driver: AsyncDriver, loop: asyncio.AbstractEventLoop) -> None:
        self._driver, self._loop = driver, loop
        self._is_always_synced = driver.is_always_synced
        self._shares: list[_Share] = []

    def publish(
        self,
        topic: str,
        partition: int | None,
        content: Sequence[bytes] | Sequence[Message],
        *,
        is_synced: bool,
        is_awaited: bool = True,
    ) -> "asyncio.Future[Answers]":
        """An answer or an error for each message, once they are stored; if `is_synced`, once they are on the disk.

        Plain values are answered by a `Run` if all of them were stored together. `is_awaited` false: even a broker that
        syncs everything does not make this one wait.
        """
        answered: asyncio.Future[Answers] = self._loop.create_future()
        is_waiting = is_synced or (is_awaited and self._is_always_synced)
        if not self._shares:
            self._loop.call_soon(self._flush)
        share = _Share(topic, partition, content, is_synced=is_waiting, answered=answered)
        self._shares.append(share)
        return answered

    def _flush(self) -> None:
        shares, self._shares = self._shares, []
        writers = sum(one.is_synced for one in shares)
        driver = self._driver.driver
        try:
            commands = [(driver.validated(one), some) for one, some in self._commands(shares)]
            _, ticket = driver.begin_change(lambda now: self._store(commands, now), writers=writers)
        except PenstockError as error:
            _settle(shares, error)
            return
        except Exception:
            # A bug of ours: each request says so to its client, which would otherwise wait for ever.
            self._driver.driver.logger.exception("a publish failed")
            _settle(shares, Internal())
            return
        _settle([one for one in shares if not one.is_synced], None)
        waiting = [one for one in shares if one.is_synced]
        if ticket is not None and waiting:
            ticket.notify(lambda: self._driver.call_soon(lambda: _settle(waiting, ticket.error)))

    def _commands(self, shares: Sequence[_Share]) -> list[_Stored]:
        """What to store, and for which requests. In topics that ask for schemas each message has its own answer."""
        bindings = self._driver.driver.node.bindings
        first = shares[0]
        is_plain = first.values and first.partition is None and first.topic not in bindings
        if len(shares) == 1 and is_plain:
            return [(PublishValues(first.topic, first.values), [first])]
        plain: dict[str, list[_Share]] = {}
        others: dict[tuple[str, int | None], list[_Share]] = {}
        for one in shares:
            if one.values and one.partition is None and one.topic not in bindings:
                plain.setdefault(one.topic, []).append(one)
            else:
                others.setdefault((one.topic, one.partition), []).append(one)
        found: list[_Stored] = []
        for topic, some in plain.items():
            values = some[0].values
            if len(some) > 1:
                values = [value for one in some for value in one.values]
            found.append((PublishValues(topic, values), some))
        for (topic, partition), some in others.items():
            found.append((PublishEach(topic, self._messages(some), partition), some))
        return found

    def _messages(self, shares: Sequence[_Share]) -> list[Message]:
        now_ns = self._driver.clock.now_ns()
        return [
            message
            for one in shares
            for message in one.messages
            or [Message(value, timestamp=now_ns) for value in one.values]
        ]

    def _store(self, commands: Sequence[_Stored], now: Now) -> None:
        for command, shares in commands:
            if isinstance(command, PublishValues):
                self._store_values(command, shares, now)
            else:
                self._store_each(command, shares, now)

    def _store_values(self, command: PublishValues, shares: Sequence[_Share], now: Now) -> None:
        try:
            stored = self._driver.driver.execute_locked(command, now)
            partition, offset, *_ = stored[0]
        except PenstockError:
            # Too large together, or one of them by itself, or no room for all: then each gets its own answer.
            self._store_each(PublishEach(command.topic, self._messages(shares)), shares, now)
            return
        for one in shares:
            one.answers = Run(partition, offset, len(one.values))
            offset += len(one.values)

    def _store_each(self, command: PublishEach, shares: Sequence[_Share], now: Now) -> None:
        try:
            answers = self._driver.driver.execute_locked(command, now)
        except NotFound as error:
            answers = [error.fresh()] * len(command.messages)
        first = 0
        for one in shares:
            count = len(one.messages or one.values)
            one.answers = answers[first : first + count]
            first += count


def _settle(shares: Sequence[_Share], error: PenstockError | None) -> None:
    for one in shares:
        # A client that left has cancelled its wait.
        if one.answered.done():
            continue
        if error is None:
            one.answered.set_result(one.answers)
        else:
            one.answered.set_exception(error.fresh())
