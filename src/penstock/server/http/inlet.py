"""Publishes of one turn of the loop go to the node together: one batch for each partition, one wait for the disk."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ...api.publish import PublishEach, PublishOutcome, PublishValues
from ...broker.partition import Now
from ...errors import NotFound, PenstockError
from ...model import Message
from ...runtime.asynchronous import AsyncDriver
from .prompt import Left, Work, begun


class Run(NamedTuple):
    """Plain values that were stored one after the other."""

    partition: int
    offset: int
    length: int


# As calling the class does it, without a call of its own.
_run: Callable[[tuple[int, int, int]], Run] = partial(tuple.__new__, Run)
Answers = Run | list[PublishOutcome]
Store = Callable[[Now], None]
Serve = Callable[[Work], None]
# More save nothing by sharing, and what they hold until the end of the turn no longer fits in the caches.
_TOGETHER_MAX = 64


class _Parcel:
    """What one request wants to have stored, and who waits for the answers. Plain values have no messages."""

    __slots__ = (
        "answered",
        "answers",
        "is_synced",
        "messages",
        "partition",
        "resume",
        "topic",
        "values",
    )

    def __init__(
        self,
        topic: str,
        content: Sequence[bytes] | Sequence[Message],
        *,
        is_synced: bool,
        answered: "asyncio.Future[Answers] | None",
    ) -> None:
        self.topic, self.is_synced, self.answered = topic, is_synced, answered
        is_plain = type(content[0]) is bytes
        self.values: Sequence[bytes] = content if is_plain else ()  # type: ignore[assignment]  # Of one kind.
        self.messages: Sequence[Message] = () if is_plain else content  # type: ignore[assignment]  # Of one kind.
        self.partition: int | None = None
        self.answers: Answers = []
        # Work that waits for the answers, and what to do with it if it has to wait again.
        self.resume: tuple[Left, Serve] | None = None


class Inlet:
    """Stores what comes first in a turn at once, and gathers the rest until those that are ready now have run.

    So one who is alone waits for nobody, and where many come, all but the first share the work.
    """

    def __init__(self, driver: AsyncDriver, loop: asyncio.AbstractEventLoop) -> None:
        self._driver, self._loop = driver, loop
        self._is_always_synced = driver.is_always_synced
        self._parcels: list[_Parcel] = []
        # Whether nobody has come yet in this turn.
        self.is_free = True
        # Those of this turn that were answered before its end.
        self.served_early = 0
        self.turn = 0

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
        parcel = _Parcel(topic, content, is_synced=is_waiting, answered=answered)
        parcel.partition = partition
        is_first = self.is_free
        if is_first:
            self._await_end()
        # Whoever waits for the disk loses nothing by waiting for the others, who share its sync.
        if is_first and not is_waiting:
            self._flush([parcel])
        else:
            self._parcels.append(parcel)
        return answered

    def resumes(self, left: Left, serve: Serve) -> bool:
        """Work that waits for what it handed in just now goes on as soon as that is stored, and needs no task.

        False: it waits for something else, or for the disk. `serve` gets it if it has to wait once more.
        """
        last = self._parcels[-1] if self._parcels else None
        if last is None or last.is_synced or left.waits_for is not last.answered:
            return False
        last.resume = (left, serve)
        if len(self._parcels) >= _TOGETHER_MAX:
            parcels, self._parcels = self._parcels, []
            self.served_early += sum(one.resume is not None for one in parcels)
            self._flush(parcels)
        return True

    def begin_turn(self) -> None:
        """Whoever comes from here on comes later than those who were served."""
        self.turn += 1
        self.served_early = 0

    def publish_now(self, topic: str, values: Sequence[bytes]) -> Answers:
        """The same for plain values that come first in a turn and wait for nothing."""
        assert self.is_free, "somebody looked"
        self.is_free = False
        self._loop.call_soon(self._end_turn)
        return self._driver.change_promptly(partial(self._stored, topic, values))

    def _stored(self, topic: str, values: Sequence[bytes], now: Now) -> Answers:
        try:
            stored = self._driver.driver.execute_locked(PublishValues(topic, values), now)
            partition, offset, *_ = stored[0]
        except PenstockError:
            parcel = _Parcel(topic, values, is_synced=False, answered=None)
            self._store_messages(topic, None, [parcel], now)
            return parcel.answers
        return _run((partition, offset, len(values)))

    def _await_end(self) -> None:
        self.is_free = False
        self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        parcels, self._parcels, self.is_free = self._parcels, [], True
        self.begin_turn()
        if parcels:
            self._flush(parcels)

    def _flush(self, parcels: Sequence[_Parcel]) -> None:
        writers = sum(one.is_synced for one in parcels)
        try:
            _, ticket = self._driver.driver.begin_change(
                lambda now: self._store(parcels, now), writers=writers
            )
        except Exception as error:
            # Also a bug of ours: each of them says so to its client, who would otherwise wait for ever.
            _settle(parcels, error)
            return
        if not writers:
            _settle(parcels, None)
            return
        _settle([one for one in parcels if not one.is_synced], None)
        waiting = [one for one in parcels if one.is_synced]
        assert ticket is not None, "somebody waits for the disk"
        ticket.notify(lambda: self._driver.call_soon(lambda: _settle(waiting, ticket.error)))

    def _store(self, parcels: Sequence[_Parcel], now: Now) -> None:
        if len(parcels) == 1 and parcels[0].values and parcels[0].partition is None:
            self._store_values(parcels[0].topic, parcels, now)
            return
        plain: dict[str, list[_Parcel]] = {}
        others: dict[tuple[str, int | None], list[_Parcel]] = {}
        for one in parcels:
            if one.values and one.partition is None:
                plain.setdefault(one.topic, []).append(one)
            else:
                others.setdefault((one.topic, one.partition), []).append(one)
        for topic, some in plain.items():
            self._store_values(topic, some, now)
        for (topic, partition), some in others.items():
            self._store_messages(topic, partition, some, now)

    def _store_values(self, topic: str, parcels: Sequence[_Parcel], now: Now) -> None:
        values = parcels[0].values
        if len(parcels) > 1:
            values = [value for one in parcels for value in one.values]
        try:
            stored = self._driver.driver.execute_locked(PublishValues(topic, values), now)
            partition, offset, *_ = stored[0]
        except PenstockError:
            # Too large together, or one of them by itself, or no room for all: then each gets its own answer.
            self._store_messages(topic, None, parcels, now)
            return
        for one in parcels:
            one.answers = Run(partition, offset, len(one.values))
            offset += len(one.values)

    def _store_messages(
        self, topic: str, partition: int | None, parcels: Sequence[_Parcel], now: Now
    ) -> None:
        messages: list[Message] = []
        for one in parcels:
            messages += one.messages or [
                Message(value, timestamp=now.wall_ns) for value in one.values
            ]
        command = PublishEach(topic, messages, partition)
        try:
            answers = self._driver.driver.execute_locked(command, now)
        except NotFound as error:
            answers = [error] * len(messages)
        first = 0
        for one in parcels:
            count = len(one.messages or one.values)
            one.answers = answers[first : first + count]
            first += count


def _settle(parcels: Sequence[_Parcel], error: BaseException | None) -> None:
    for parcel in parcels:
        # A client that left has cancelled its wait.
        if parcel.answered is None or parcel.answered.done():
            continue
        if error is None:
            parcel.answered.set_result(parcel.answers)
        else:
            parcel.answered.set_exception(error)
        if parcel.resume is not None:
            _resume(*parcel.resume)


def _resume(left: Left, serve: Serve) -> None:
    again = begun(left.work)
    if again is not None:
        serve(again)
