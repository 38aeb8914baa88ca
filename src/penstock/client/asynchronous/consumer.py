"""A consumer: a member of a group, with everything that has to go on beside the program that uses it."""

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from types import TracebackType
from typing import Self

from ...api.answers import Kind
from ...api.arguments import whole_number
from ...api.units import Duration, duration_ms, duration_s
from ...errors import PenstockError, Refused, StaleGeneration, Unavailable, UnknownMember
from ..ack_batcher import AnswerBuffer, Delivered, OneOrMany, PendingAnswer, messages_of, shortened
from ..consumer_options import ConsumerSettings, topics_of
from ..leased_messages import Polled
from ..membership import MemberPoll
from ..membership import commit as commit_call
from ..membership import poll as poll_call
from ..settings import chance
from ..topics import describe
from .ack_batcher import AsyncAckBatcher
from .io import Background, Connection, Signal, check_callback
from .member import AsyncMember
from .pool import AsyncPool

# One request of a long wait: a proxy in between should not find it too long.
_WAIT_S = 20.0
# What was said waits so long for company, unless a poll comes by.
_ANSWER_S = 0.1
# While messages that stop a hand-over are in somebody's hands, the server would answer every poll at once.
_HAND_OVER_S = 0.05
_EXTENSIONS_A_LEASE = 3


class AsyncConsumer:
    """Takes messages of a group's topics. Made by `client.consumer`.

        async with client.consumer("orders", "billing") as consumer:
            async for message in consumer:
                ...
                message.ack()

    What is said about messages (`ack`, `nack`, `reject`, `extend`) is gathered and sent with the next poll, or a tenth
    of a second later; `flush` returns when the server has it. In the background it sends heartbeats, and has leases
    extended while messages are in our hands. `close`, or the end of the block, sends what was said, gives back the rest
    and leaves.

    One task or thread polls; any may answer.
    """

    def __init__(
        self,
        pool: AsyncPool,
        group: str,
        topics: str | Sequence[str],
        settings: ConsumerSettings,
    ) -> None:
        self.group, self.topics, self.settings = group, topics_of(topics), settings
        for name in ("on_assigned", "on_revoked", "on_lost"):
            check_callback(name, getattr(settings, name))
        self._pool = pool
        self._answers = AnswerBuffer()
        self._ack_batcher = AsyncAckBatcher(pool, self._answers, settings.on_error)
        self._member = AsyncMember(pool, settings, settings.joining(group, self.topics))
        self._buffer: deque[Delivered] = deque()
        # What auto commit finishes when more is asked for.
        self._last: Delivered | Polled[Delivered] | None = None
        self._request_id = ""
        self._waiting: Connection | None = None
        self._background: Background | None = None
        self._stop, self._wake, self._nudge = Signal(), Signal(), Signal()
        self._is_closed = False
        self._lease_s = 0.0
        # For a worker, which has messages of its own that nobody has looked at.
        self.on_drop: Callable[[Sequence[str]], None] | None = None

    @property
    def member(self) -> str:
        """Our name in the group."""
        return self._member.who.member

    @property
    def assigned(self) -> list[str]:
        """The partitions that are ours now, such as "orders/0"; of a shared group none is anybody's."""
        return sorted(self._member.assigned)

    # Take

    async def poll(self, limit: int | None = None, wait: Duration = 0) -> Polled[Delivered]:
        """Messages that are ready, waiting for the first of them at most `wait`.

        Unreachable, or another Unavailable, if the server does not answer in as many tries as the client makes.
        """
        await self.start()
        self._finish_last()
        # What an iteration has left behind comes again, in its turn.
        self._drop(self._buffer_places())
        until_s: float | None = None
        most = self.settings.max_poll if limit is None else whole_number("limit", limit, 1)
        while not self._stop.is_set:
            await self.rebalance()
            await self._ack_batcher.send()
            # Counted from when the server is there and knows us.
            until_s = until_s or time.monotonic() + duration_s(wait)
            left_s = until_s - time.monotonic()
            polled = await self._ask(most, min(left_s, _WAIT_S))
            if polled is None:
                until_s = None
                continue
            if polled:
                await self._rebalance_before(polled)
            if polled:
                self._last = polled if self.settings.auto_commit else None
                return polled
            if time.monotonic() >= until_s:
                break
        return Polled([], Delivered)

    async def _rebalance_before(self, polled: Polled[Delivered]) -> None:
        """The program hears of a partition before it gets messages of it, and gets none of what has passed on since."""
        if self._member.has_changes:
            await self.rebalance()
            polled.parts = [one for one in polled.parts if self._answers.is_held(one)]

    async def stream(self, idle: Duration | None = None) -> AsyncIterator[Delivered]:
        """Messages one by one, for ever; or until none has come for `idle`, or `stop` was called.

        While the server is away it waits and goes on, up to the consumer's `patience`.
        """
        idle_s = _WAIT_S if idle is None else duration_s(idle)
        while not self._stop.is_set:
            if not self._buffer:
                polled = await self.poll_patiently(self.settings.max_poll, idle_s)
                self._last = None
                self._buffer.extend(polled)
                if not polled and idle is not None:
                    return
            while self._buffer and not self._stop.is_set:
                message = self._buffer.popleft()
                self._last = message if self.settings.auto_commit else None
                yield message
                self._finish_last()
                if self._member.has_changes:
                    await self.rebalance()

    def _finish_last(self) -> None:
        """Whoever asks for more is done with what came last, where that is how it is finished."""
        if self._last is not None:
            last, self._last = self._last, None
            self._say(last, Kind.ACK)

    def __aiter__(self) -> AsyncIterator[Delivered]:
        return self.stream()

    async def poll_patiently(self, limit: int, wait: Duration) -> Polled[Delivered]:
        """The same as `poll`, outlasting a server that is away for no longer than our `patience`."""
        since_s, tries = time.monotonic(), 0
        while True:
            try:
                return await self.poll(limit, wait)
            except Unavailable:
                if time.monotonic() - since_s > duration_s(self.settings.patience):
                    raise
                tries += 1
            await self._stop.wait(self._pool.settings.retry.pause_s(tries, chance()))
            if self._stop.is_set:
                return Polled([], Delivered)

    async def _ask(self, limit: int, wait_s: float) -> Polled[Delivered] | None:
        """One poll; None: something has to be heard first."""
        if self._member.is_revoking:
            wait_s = min(wait_s, 0)
        # The same until it is answered: a repeat brings the same messages.
        self._request_id = self._request_id or token_hex(8)
        lent, lane = self.settings.visibility_timeout, self.settings.priority
        asked = MemberPoll(limit, max(0.0, wait_s), self._request_id, lent, lane)
        try:
            polled = await self._run(asked)
        except (UnknownMember, StaleGeneration) as error:
            self._member.note(error)
            return None
        if polled is None:
            return None
        self._request_id = ""
        self._answers.track(polled.parts, time.monotonic())
        self._wake.set()
        self._member.note_poll(polled)
        if not polled and self._member.is_revoking:
            await self._stop.wait(_HAND_OVER_S)
        return polled

    async def _run(self, asked: MemberPoll) -> Polled[Delivered] | None:
        """The call, with retries, until `stop`; then None."""
        tries = 0
        while not self._stop.is_set:
            tries += 1
            call = poll_call(self._member.who, asked)
            try:
                connection = await self._pool.begin(call)
                self._note_waiting(connection)
                return await self._pool.end(call, connection)
            except PenstockError as error:
                wait_s = self._pool.settings.retry.wait_s(
                    error, tries, chance(), is_repeatable=True
                )
                if wait_s is None and not self._stop.is_set:
                    raise
            finally:
                self._waiting = None
            await self._stop.wait(wait_s)
        return None

    def _note_waiting(self, connection: Connection) -> None:
        # Whoever stops us sets the signal and then looks for a connection: one of the two sees the other.
        self._waiting = connection
        if self._stop.is_set:
            connection.abort()

    def stop(self) -> None:
        """End an iteration, and a poll that waits; `close` is still to be called. From any thread, or from the loop."""
        self._stop.set()
        waiting = self._waiting
        if waiting is not None:
            waiting.abort()

    # Answer

    def ack(self, told: OneOrMany) -> None:
        """Finish messages: one, several, or all of a poll."""
        self._say(told, Kind.ACK)

    def nack(self, told: OneOrMany, reason: str = "", *, delay: Duration | None = None) -> None:
        """Failed: try again after the backoff, or after `delay`; a dead letter if that was the last attempt."""
        self._say(told, Kind.NACK, reason, None if delay is None else duration_ms(delay))

    def reject(self, told: OneOrMany, reason: str = "") -> None:
        """No attempt will ever succeed: dead letters, at once."""
        self._say(told, Kind.REJECT, reason)

    def give_back(self, told: OneOrMany) -> None:
        """Not looked at: somebody else may have them at once, and no attempt counts."""
        self._say(told, Kind.RELEASE)

    def _say(self, told: OneOrMany, kind: Kind, reason: str = "", ms: int | None = None) -> None:
        why = shortened(reason)
        if isinstance(told, Polled):
            for part in told.parts:
                self._answers.add_all(part, kind, why, ms)
            return
        for message in messages_of(told):
            self._answers.add(PendingAnswer(message.part, kind, why, ms), message.offset)

    async def flush(self) -> None:
        """Return when the server has everything that was said so far. Unavailable: it has not, and it is kept."""
        await self._ack_batcher.send()

    async def commit(self, reached: OneOrMany | Mapping[str, int]) -> bool:
        """Finish everything up to these messages, or below these offsets ("orders/0": 17); False if it was already.

        Only in an assigned group, and for partitions that are ours: NotOwner, UnknownMember.
        """
        if not self.settings.is_assigned:
            raise Refused("commit is for mode='assigned'; in a shared group each message is acked")
        offsets = reached if isinstance(reached, Mapping) else _next_offsets(reached)
        await self._ack_batcher.send()
        by_topic: dict[str, dict[str, int]] = {}
        for place, offset in offsets.items():
            topic, _, number = place.rpartition("/")
            by_topic.setdefault(topic, {})[number] = offset
        who = self._member.who._replace(generation=0)
        done = await self._pool.run(commit_call(who, by_topic))
        for place, offset in offsets.items():
            self._answers.finish_below(place, offset)
        return done.advanced

    # Be a member

    async def start(self) -> None:
        """Join, unless that is done. The beginning of a `with` block, and the first poll, do it too."""
        if self._is_closed:
            raise Refused("the consumer was closed")
        if self._background is not None:
            if self._background.is_over and (failure := self._background.failure()) is not None:
                raise failure
            return
        self._lease_s = await self._lease()
        await self._member.join()
        self._background = Background(self._tend, "penstock-consumer")

    async def _lease(self) -> float:
        """How long messages are lent, to extend in time."""
        if self.settings.visibility_timeout is not None:
            return duration_s(self.settings.visibility_timeout)
        found = [await self._pool.run(describe(topic)) for topic in self.topics]
        return min(float(one.config["visibility_timeout_ms"]) for one in found) / 1000

    async def rebalance(self) -> None:
        """Hear what the group wants of us, and do it, as every poll does. For whoever does not poll for a while."""
        while self._member.has_changes and not self._stop.is_set:
            heard = await self._member.refresh()
            self._drop(heard.lost)
            if not heard.is_rejoined:
                # After a restart of the server what we hold is still ours, and its acks count.
                self._answers.forget(heard.lost)
            if heard.to_release and not await self._hand_over(heard.to_release):
                self._member.has_changes = True
                return

    async def _hand_over(self, asked: Sequence[str]) -> bool:
        """Let go of what was asked back; False if there is something that has to wait."""
        self._drop(asked)
        await self._member.call_on_revoked(asked)
        await self._ack_batcher.send()
        held = set() if self.settings.on_revoked is not None else self._answers.held_partitions()
        free = [one for one in asked if one not in held]
        if free:
            await self._member.release(free)
            self._answers.forget(free)
        return bool(free)

    def _drop(self, places: Sequence[str]) -> None:
        """Give back what nobody has looked at."""
        kept: deque[Delivered] = deque()
        while self._buffer:
            message = self._buffer.popleft()
            if message.part.place in places:
                message.give_back()
            else:
                kept.append(message)
        self._buffer = kept
        if self.on_drop is not None and places:
            self.on_drop(places)

    async def _tend(self) -> None:
        """The background: heartbeats, what was said, and more time for what is in our hands."""
        heartbeat_s, extend_s = self.settings.heartbeat_s, self._lease_s / _EXTENSIONS_A_LEASE
        beat_at = extend_at = time.monotonic()
        while not self._is_closed:
            now_s = time.monotonic()
            if now_s >= beat_at:
                await self._member.heartbeat()
                beat_at = now_s + heartbeat_s
            if now_s >= extend_at:
                longest_s = duration_s(self.settings.extend_for)
                # What came a moment ago has time until the next round.
                ages_s = now_s - longest_s, now_s - extend_s / 2
                self._answers.extend_held(round(self._lease_s * 1000), *ages_s)
                extend_at = now_s + extend_s
            # First cleared, then looked: whatever comes in between is seen.
            self._nudge.clear()
            await self._ack_batcher.try_to_send()
            self._wake.clear()
            if self._is_closed:
                break
            if self._answers.is_idle:
                await self._wake.wait(max(0.0, beat_at - time.monotonic()))
            else:
                await self._nudge.wait(min(_ANSWER_S, extend_s))

    def wake(self) -> None:
        """Send what was said now and not a moment later: the server may keep back the next messages until then."""
        self._nudge.set()

    # The end

    async def close(self) -> None:
        """Send what was said, give back what was not looked at, and leave: what else we hold is ready again at once.

        Unavailable: what was said could not be sent, so those messages will come again.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._nudge.set()
        self._wake.set()
        if self._background is None:
            return
        await self._background.join()
        if self._last is not None:
            self._say(self._last, Kind.ACK)
        self._drop(self._buffer_places())
        try:
            await self._member.call_on_revoked(self.assigned)
            await self._ack_batcher.send()
        finally:
            with suppress(PenstockError):
                await self._member.leave()

    def _buffer_places(self) -> list[str]:
        return [one.part.place for one in self._buffer]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._last = None  # It failed over that one.
        await self.close()


def _next_offsets(reached: OneOrMany) -> dict[str, int]:
    offsets: dict[str, int] = {}
    for one in messages_of(reached):
        place = one.part.place
        offsets[place] = max(offsets.get(place, 0), one.offset + 1)
    return offsets
