"""The consumer: a member of a group, with the heartbeats, extensions and answers that go on in its background."""

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Self

from ...api.answers import Kind, nack_delay_ms
from ...api.arguments import several, text, whole_number
from ...api.topics import DescribeTopic
from ...api.transaction_answers import StageOffsets
from ...api.transactions import ProducerSession
from ...api.units import Duration, Moment, duration_s
from ...errors import NotOwner, PenstockError, Refused, StaleGeneration, Unavailable, UnknownMember
from ...model import check_name
from ..ack_batcher import AnswerBuffer, OneOrMany, offsets_after
from ..calls import Call
from ..consumer_options import BACKGROUND_S_MIN, ConsumerSettings, topics_of
from ..forks import note_made
from ..leased_messages import Delivered, Polled, parts_of
from ..membership import Membership, plan_of, reset_commands
from ..membership import commit as commit_command
from ..membership import poll as poll_command
from ..retry import chance
from ..transaction_answers import WithheldMessages, staged_offsets
from .ack_batcher import AsyncAckBatcher
from .connection import Pending
from .connector import AsyncConnector
from .io import Background, Event, check_callback
from .member import AsyncMember
from .worker_pool import stopping_on_signals

# The longest wait of one request: a proxy in between might end a longer one.
_WAIT_S = 20.0
# How long an answer waits for others, unless a poll sends it.
_ANSWER_S = 0.1
# While a partition cannot be released because its messages are unanswered, the server answers every poll at once.
_REVOKING_S = 0.05
_EXTENSIONS_A_LEASE = 3


class AsyncConsumer:
    """Takes messages of a group's topics. Made by `client.consumer`.

        async with client.consumer("orders", "billing") as consumer:
            async for message in consumer:
                ...
                message.ack()

    Answers (`ack`, `nack`, `reject`, `extend`) are sent together, with the next poll or a tenth of a second later;
    `flush` returns when the server has them. In the background the consumer sends heartbeats and extends the leases of
    messages that have no answer yet. `close`, or the end of the block, sends the answers, gives back the other messages
    and leaves the group.

    One task or thread polls; any may answer.
    """

    def __init__(
        self,
        connector: AsyncConnector,
        group: str,
        topics: str | Sequence[str],
        settings: ConsumerSettings,
    ) -> None:
        self.group, self.topics, self.settings = group, topics_of(topics), settings
        for name in ("on_assigned", "on_revoked", "on_lost"):
            check_callback(name, getattr(settings, name))
        self._connector = connector
        self._buffer = AnswerBuffer()
        self._ack_batcher = AsyncAckBatcher(connector, self._buffer, settings.on_error)
        # Always under a name: a join whose answer was lost can be repeated then.
        name = settings.member or f"member-{token_hex(6)}"
        membership = Membership(check_name(text("the name of a group", group), "group"), name)
        self._member = AsyncMember(connector, settings, membership, self.topics)
        # Messages of the last poll that an iteration has not given to the program.
        self._unseen: deque[Delivered] = deque()
        # What auto commit acks when more is asked for.
        self._uncommitted: Delivered | Polled[Delivered] | None = None
        self._request_id = ""
        self._polling: Pending | None = None
        self._background: Background | None = None
        self._stop, self._wake, self._send_now = Event(), Event(), Event()
        self._is_closed = False
        self._lease_s = self._heartbeat_s = 0.0
        # A worker gives back the messages of these partitions that no handler has.
        self.on_drop: Callable[[Sequence[str]], None] | None = None
        note_made(self)

    def leave_to_parent(self, _reason: str) -> None:
        """After a fork: the connector refuses, and threads of the parent may hold the locks of these events."""
        self._stop, self._wake, self._send_now = Event(), Event(), Event()
        self._polling = None

    @property
    def member(self) -> str:
        """The consumer's name in the group."""
        return self._member.membership.member

    @property
    def assigned(self) -> list[str]:
        """The partitions that this member has now, such as "orders/0"; empty in a shared group."""
        return sorted(self._member.assigned)

    # Take

    async def poll(self, limit: int | None = None, wait: Duration = 0) -> Polled[Delivered]:
        """Messages that are ready, waiting for the first of them at most `wait`.

        Unreachable, or another Unavailable, if the server does not answer in as many tries as the client makes.
        """
        await self.start()
        self._auto_commit()
        # Messages that an iteration has left behind come again, in their turn.
        self._drop([one.part.place for one in self._unseen])
        until_s: float | None = None
        limit = self.settings.max_poll if limit is None else whole_number("limit", limit, 1)
        while not self._stop.is_set():
            await self.rebalance()
            await self._ack_batcher.send()
            # Counted from when the server is there and knows this member.
            until_s = until_s or time.monotonic() + duration_s(wait)
            polled = await self._poll_once(limit, min(until_s - time.monotonic(), _WAIT_S))
            if polled is None:
                until_s = None
                continue
            if polled and self._member.has_changes:
                # The program hears of a partition before it gets messages of it, and gets none of one that it lost.
                try:
                    await self.rebalance()
                except BaseException:
                    # The program gets the error in place of the messages, so another poll has to bring them.
                    self.give_back(polled)
                    raise
                polled.parts = [one for one in polled.parts if self._buffer.is_held(one)]
            if polled:
                self._uncommitted = polled if self.settings.auto_commit else None
                return polled
            if time.monotonic() >= until_s:
                break
        return Polled([], Delivered)

    async def stream(self, idle: Duration | None = None) -> AsyncIterator[Delivered]:
        """Messages one by one, for ever; or until none has come for `idle`, or `stop` was called.

        SIGTERM and Ctrl-C end it, too, unless the program (or asyncio) handles them itself; a second one has its usual
        effect. While the server is away it waits and goes on, up to the consumer's `patience`.
        """
        idle_s = _WAIT_S if idle is None else duration_s(idle)
        with stopping_on_signals(self.stop, is_polite=True):
            while not self._stop.is_set():
                if not self._unseen:
                    polled = await self.poll_patiently(self.settings.max_poll, idle_s)
                    self._uncommitted = None
                    self._unseen.extend(polled)
                    if not polled and idle is not None:
                        return
                while self._unseen and not self._stop.is_set():
                    message = self._unseen.popleft()
                    self._uncommitted = message if self.settings.auto_commit else None
                    yield message
                    self._auto_commit()
                    if self._member.has_changes:
                        await self.rebalance()

    def _auto_commit(self) -> None:
        if self._uncommitted is not None:
            messages, self._uncommitted = self._uncommitted, None
            self._buffer.add_many(messages, Kind.ACK)

    def __aiter__(self) -> AsyncIterator[Delivered]:
        return self.stream()

    async def poll_patiently(self, limit: int, wait: Duration) -> Polled[Delivered]:
        """Poll again while the server is away, up to the consumer's `patience`."""
        since_s, tries = time.monotonic(), 0
        while True:
            try:
                return await self.poll(limit, wait)
            except Unavailable:
                if time.monotonic() - since_s > duration_s(self.settings.patience):
                    raise
                tries += 1
            if await self._stop.wait(self._connector.retry.pause_s(tries, chance())):
                return Polled([], Delivered)

    async def _poll_once(self, limit: int, wait_s: float) -> Polled[Delivered] | None:
        """The answer of the server to a poll; None if the group has to be rebalanced first, or after `stop`."""
        if self._member.revoking:
            wait_s = 0.0
        # Kept until there is an answer: the server answers a repeated poll with the same messages.
        self._request_id = self._request_id or token_hex(8)
        try:
            polled = await self._poll_with_retries(limit, max(0.0, wait_s))
        except (UnknownMember, StaleGeneration) as error:
            self._member.note_refusal(error)
            return None
        if polled is None:
            return None
        self._request_id = ""
        self._buffer.track(polled.parts, time.monotonic())
        self._wake.set()
        self._member.note_poll(polled)
        if not polled and self._member.revoking:
            await self._stop.wait(_REVOKING_S)
        return polled

    async def _poll_with_retries(self, limit: int, wait_s: float) -> Polled[Delivered] | None:
        tries, until_s = 0, self._connector.until_s(wait_s)
        while not self._stop.is_set():
            tries += 1
            command = poll_command(
                self._member.membership, self.settings, limit=limit, request_id=self._request_id
            )
            try:
                sent = await self._connector.begin(Call(command, wait_s=wait_s))
                self._polling = sent.pending
                # `stop` sets the event and then looks for a poll, so one of the two ends this one.
                if self._stop.is_set():
                    sent.pending.cancel()
                found = (await self._connector.end(sent)).value
                changes = 0 if found.standing is None else found.standing.changes
                return Polled(parts_of(found.parts, self._connector.name), Delivered, changes)
            except PenstockError as error:
                retry, left_s = self._connector.retry, until_s - time.monotonic()
                pause_s = retry.wait_s(error, tries, chance(), is_repeatable=True, left_s=left_s)
                if pause_s is None and not self._stop.is_set():
                    raise
            finally:
                self._polling = None
            await self._stop.wait(pause_s)
        return None

    def stop(self) -> None:
        """End an iteration, and a poll that waits; `close` is still to be called.

        From any thread; with asyncio from that of the loop (`loop.call_soon_threadsafe(consumer.stop)`).
        """
        self._stop.set()
        polling = self._polling
        if polling is not None:
            polling.cancel()

    # Answer

    def ack(self, messages: OneOrMany) -> None:
        """Finish messages: one, several, or all of a poll."""
        self._buffer.add_many(messages, Kind.ACK)

    def nack(self, messages: OneOrMany, reason: str = "", *, delay: Duration | None = None) -> None:
        """Failed: try again after the backoff, or after `delay`; a dead letter if that was the last attempt."""
        self._buffer.add_many(messages, Kind.NACK, reason, nack_delay_ms(delay))

    def reject(self, messages: OneOrMany, reason: str = "") -> None:
        """No attempt will ever succeed: dead letters, at once."""
        self._buffer.add_many(messages, Kind.REJECT, reason)

    def give_back(self, messages: OneOrMany) -> None:
        """Not looked at: other members may have them at once, and no attempt counts."""
        self._buffer.add_many(messages, Kind.RELEASE)

    async def flush(self) -> None:
        """Return when the server has every answer so far. Unavailable: it has not, and they are kept."""
        await self._ack_batcher.send()

    async def commit(self, reached: OneOrMany | Mapping[str, int]) -> bool:
        """Finish everything up to these messages, or below these offsets ("orders/0": 17); False if it was already.

        Only in an assigned group, and for partitions that are ours: NotOwner, UnknownMember.
        """
        if not self.settings.is_assigned:
            raise Refused("commit is for mode='assigned'; in a shared group each message is acked")
        offsets = offsets_after(reached)
        await self._ack_batcher.send()
        done = await self._connector.execute(commit_command(self._member.membership, offsets))
        for place, offset in offsets.items():
            self._buffer.finish_below(place, offset)
        return bool(done.value)

    async def stage_commit(
        self,
        session: ProducerSession,
        reached: OneOrMany | Mapping[str, int],
        withheld: WithheldMessages,
    ) -> None:
        """Commit with the transaction of a producer; what that is about is withheld. For `transaction.commit`."""
        if not self.settings.is_assigned:
            raise Refused("commit is for mode='assigned'; in a shared group each message is acked")
        offsets = offsets_after(reached)
        membership = self._member.membership
        command = StageOffsets(
            *session,
            membership.group,
            staged_offsets(offsets),
            membership.member,
            membership.generation or None,
        )
        await self._ack_batcher.send()
        withheld.add_below(self._buffer.held_parts(), offsets)
        await self._connector.execute(command)

    async def seek(self, to: Moment, places: Sequence[str] | None = None) -> None:
        """Go on from another place: earliest, latest, an offset, a moment, or a span ("15m": so long ago).

        On all partitions that this member reads, or on these ("orders/0"). It moves the group, so it takes the right to
        change groups: messages that members hold of these partitions are void, and come again if they are behind the
        new place. NotOwner: in an assigned group a partition is not ours. OffsetOutOfRange: nothing has moved.
        """
        await self.start()
        await self.rebalance()
        named = self._places_to_seek(places)
        resets = reset_commands(self._member.membership, to, named)
        for one in resets:
            await self._connector.execute(plan_of(one))
        moved = (
            [*self._buffer.held_partitions(), *self._member.assigned] if places is None else named
        )
        self._auto_commit()
        self._drop(moved)
        await self._ack_batcher.send()
        for one in resets:
            await self._connector.execute(one)
        self._buffer.forget(moved)

    def _places_to_seek(self, places: Sequence[str] | None) -> Sequence[str]:
        """Partitions, and in a shared group whole topics, by name."""
        if places is None:
            return self.assigned if self.settings.is_assigned else self.topics
        named = [text("a partition", one) for one in several("places", places)]
        for one in named if self.settings.is_assigned else ():
            if one not in self._member.assigned:
                raise NotOwner(self.group, one[:60], member=self.member, owner="")
        return named

    # Be a member

    async def start(self) -> None:
        """Join, unless that is done. The beginning of a `with` block, and the first poll, do it too."""
        if self._is_closed:
            raise Refused("the consumer was closed")
        if self._background is not None:
            if self._background.is_over and (failure := self._background.failure()) is not None:
                raise failure
            return
        if self.settings.visibility_timeout is not None:
            self._lease_s = duration_s(self.settings.visibility_timeout)
        else:
            found = [await self._connector.execute(DescribeTopic(topic)) for topic in self.topics]
            leases_ms = [one.value.settings["visibility_timeout_ms"] for one in found]
            self._lease_s = min(leases_ms) / 1000
        await self._member.join()
        told = (await self._connector.hello()).defaults
        self._heartbeat_s = self.settings.heartbeat_s(told)
        self._background = Background(self._run_background, "penstock-consumer")

    async def rebalance(self) -> None:
        """Take and release the partitions that the group has moved. Every poll does it."""
        while self._member.has_changes and not self._stop.is_set():
            change = await self._member.refresh()
            self._drop(change.lost)
            if not change.is_rejoin:
                # After a restart of the server the leases are still ours, and their acks count.
                self._buffer.forget(change.lost)
            if change.to_release and not await self._release(change.to_release):
                self._member.has_changes = True
                return

    async def _release(self, places: Sequence[str]) -> bool:
        """Release partitions; False if none of them can be released before its messages are answered."""
        self._drop(places)
        await self._member.call_on_revoked(places)
        await self._ack_batcher.send()
        held = set() if self.settings.on_revoked is not None else self._buffer.held_partitions()
        free = [one for one in places if one not in held]
        if free:
            await self._member.release(free)
            self._buffer.forget(free)
        return bool(free)

    def _drop(self, places: Sequence[str]) -> None:
        """Give back the messages of some partitions that the program has not seen."""
        unseen, self._unseen = self._unseen, deque[Delivered]()
        for message in unseen:
            if message.part.place in places:
                message.give_back()
            else:
                self._unseen.append(message)
        if self.on_drop is not None and places:
            self.on_drop(places)

    async def _run_background(self) -> None:
        """Send heartbeats and answers, and extend leases, until `close`."""
        extend_s = max(BACKGROUND_S_MIN, self._lease_s / _EXTENSIONS_A_LEASE)
        heartbeat_at = extend_at = time.monotonic()
        while not self._is_closed:
            now_s = time.monotonic()
            if now_s >= heartbeat_at:
                await self._member.heartbeat()
                heartbeat_at = now_s + self._heartbeat_s
            if now_s >= extend_at:
                # Not those of the last moment, which have time until the next round.
                ages_s = now_s - duration_s(self.settings.extend_for), now_s - extend_s / 2
                self._buffer.extend_held(round(self._lease_s * 1000), *ages_s)
                extend_at = now_s + extend_s
            # Cleared before the work is looked for: whatever comes in between sets it again.
            self._send_now.clear()
            await self._ack_batcher.try_to_send()
            self._wake.clear()
            if self._is_closed:
                break
            if self._buffer.is_idle:
                await self._wake.wait(max(0.0, heartbeat_at - time.monotonic()))
            else:
                await self._send_now.wait(min(_ANSWER_S, extend_s))

    def wake(self) -> None:
        """Have the background send answers now: the server may keep back the next messages until it has them."""
        self._send_now.set()

    # The end

    async def close(self) -> None:
        """Send the answers, give back messages that the program has not seen, and leave the group.

        Later answers return False. Unavailable: the answers could not be sent, so those messages will come again.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._send_now.set()
        self._wake.set()
        if self._background is None:
            return
        await self._background.join()
        self._auto_commit()
        self._drop([one.part.place for one in self._unseen])
        await self._give_back_unheard()
        try:
            try:
                await self._member.call_on_revoked(self.assigned)
            finally:
                self._buffer.close()
                await self._ack_batcher.send()
        finally:
            with suppress(PenstockError):
                await self._member.leave()

    async def _give_back_unheard(self) -> None:
        """Give back the messages of a poll that was ended while its answer was under way.

        A member that leaves with them has seen none of them, and yet the oldest would have lost an attempt.
        """
        if not self._request_id:
            return
        # Of nothing more than what the server has leased for this request.
        command = poll_command(
            self._member.membership, self.settings, limit=0, request_id=self._request_id
        )
        with suppress(PenstockError):
            found = (await self._connector.end(await self._connector.begin(Call(command)))).value
            polled = Polled(parts_of(found.parts, self._connector.name), Delivered)
            self._buffer.track(polled.parts, time.monotonic())
            self.give_back(polled)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, *_error: object) -> None:
        if kind is not None:
            self._uncommitted = None  # The program failed over this one.
        await self.close()
