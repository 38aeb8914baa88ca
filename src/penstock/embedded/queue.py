"""A durable FIFO queue in a directory."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Unpack

from msgspec import UNSET, UnsetType

from ..api.answers import ReleaseMember
from ..api.arguments import whole_count, whole_number
from ..api.consume import Poll
from ..api.delays import FireDelayed
from ..api.groups import ResetGroup
from ..api.principals import LOCAL
from ..api.publish import Publish
from ..api.received import Received
from ..api.start import Start
from ..api.topics import SweepTopics
from ..api.units import Duration, datetime_ns, duration_ns
from ..config import FsyncPolicy
from ..errors import Fatal, Internal, NoSpace, OffsetOutOfRange, PenstockError, Refused
from ..model import Priority
from ..runtime.group_polls import FOR_EVER
from ..runtime.ticker import NEVER_NS, Ticker
from ..runtime.waiting_polls import PollWaiter
from .aio import AsyncQueue
from .answers import QueueAnswers
from .dead_letters import QueueDeadLetters
from .delay import QueueDelays, is_delayed
from .directory import Opened
from .handle import Handle
from .messages import MessageOptions, Value, listed, make_message
from .prefetch import AUTO, AUTO_WAITING, Prefetch
from .queue_inspection import QueueInspection
from .queue_topic import make_topic
from .queue_transaction import QueueTransactions, abort_open
from .stats import Timings
from .transaction import Sessions
from .write_buffer import (
    FLUSH_MESSAGES,
    GROUP,
    LINGER_NS,
    NOT_TAKEN,
    TOPIC,
    Entries,
    WriteBuffer,
    packed,
)

MANUAL = "manual"
_FLUSH_MASK = FLUSH_MESSAGES - 1
_RETRY_NS = 1_000_000_000


class Compacted(NamedTuple):
    """What was removed from the disk."""

    segments_removed: int
    bytes_freed: int


class Queue(
    Handle, QueueAnswers, QueueDelays, QueueDeadLetters, QueueInspection, QueueTransactions
):
    """A FIFO queue that survives the process. Made by `penstock.open`; safe to share between threads.

        with penstock.open("./jobs") as queue:
            queue.put(b"resize cat.jpg")            # returns 1, the message's id
            message = queue.get()                   # None when the queue is empty
            print(message.value)

    With `auto_ack` (the default) a message is finished once `get` has returned it. Opened with `auto_ack=False` it is
    only lent: `ack` finishes it, `nack` tries again later, and without an answer it comes back by itself after
    `visibility_timeout_ms`. After `max_retries` retries it becomes a dead letter.

    A `put` returns as soon as the message has its place in the queue; it is written 5 ms later, so that thousands of
    puts become one write. `sync` and `close` return when everything is on the disk, and with
    `fsync="always"` every `put` does. docs/embedded.md says what each level loses when the process or the power dies.
    """

    _topic = TOPIC

    def __init__(self, opened: Opened, settings: dict[str, Any], *, auto_ack: bool) -> None:
        self._opened_driver, self._driver = opened.driver, opened.driver
        self._give_up_disk = opened.give_up_disk
        self._clock = opened.driver.clock
        self.is_auto_ack = auto_ack
        self._is_always = opened.driver.config.fsync is FsyncPolicy.ALWAYS
        self._timings = Timings()
        is_limited = make_topic(self._driver, settings)
        # Transactions and leases of a former process are void: no caller is left to end them, or to answer.
        abort_open(self._driver)
        for member in (AUTO, AUTO_WAITING):
            self._driver.execute(ReleaseMember(TOPIC, GROUP, member, is_unseen=True))
        self._driver.execute(ReleaseMember(TOPIC, GROUP, MANUAL))
        self._prefetch = Prefetch(self._driver)
        with_room = self._prefetch.with_room if is_limited else None
        self._buffer = WriteBuffer(self._driver, self._timings, with_room)
        self._messages = self._buffer.messages
        self._sessions = Sessions()
        self._ready = self._prefetch.ready
        # Whether the ticker sleeps, because there is nothing to write or to ack, and has to be told of a put or a get.
        self._is_idle = True
        # The same for a put, which is also wanted by a get that waits, or has to wait for its own sync.
        self._is_wanted = True
        # When the next delayed message is due, in wall time; changed with the buffer's lock held.
        self._due_ns = 0
        self._ticker = Ticker(self._tick, self._clock)
        self._tick()
        self._ticker.start()
        self._opened(self._driver)

    def put(self, value: Value | UnsetType = UNSET, **options: Unpack[MessageOptions]) -> int:
        """Add a message at the end; return its id: 1, 2, 3, ...  `json` is an object, instead of the value.

        `key`, `headers` and `priority` travel with the message. After `ttl` (30, "30s", "2h") it is not handed out any
        more. A repeated `idempotency_key` stores nothing and returns the id of the first message that had it; an empty
        one is none.

        With `delay` ("30s", "2h") or `deliver_at` (a datetime) it comes then, and gets its id then; what is returned is
        the number by which `cancel`, `reschedule` and `delayed_get` know it. One with the `delay_key` of another that
        still waits takes its place.

        NoSpace: the message is not in the queue, and never comes. Tried again, it is put once there is room.
        """
        if options or self._is_always:
            return self._put_carefully(value, options)
        # Into a name first: to call it as if it were a method would have Python look for one in the class, every time.
        take_in = self._messages.take_in
        try:
            number = take_in(value)  # type: ignore[arg-type]  # What is not bytes is not taken.
        except (ValueError, StopIteration):
            number = self._buffer.take_in_patiently(value)  # type: ignore[arg-type]  # As above.
        if self._is_wanted or not number & _FLUSH_MASK:
            if number == NOT_TAKEN:
                return self._put_carefully(value, options)
            self._after_put()
        return number

    def put_many(self, values: Iterable[Value], **options: Unpack[MessageOptions]) -> range:
        """Add several messages, one after the other; return their ids. Options hold for each of them.

        Several with one `idempotency_key` or `delay_key` would be one message, so those are for `put`.

        NoSpace: none is in the queue; with `fsync="always"` the first may be, if they are more than a batch.
        """
        batch: list[Any] = values if type(values) is list else listed(values)
        pack = None if options else packed(batch, self._buffer.small_bytes_max)
        if pack is None:
            return self._put_many_carefully(batch, options)
        if self._is_always:
            number = self._buffer.add(pack)
            return range(number - len(batch) + 1, number + 1)
        take_in = self._messages.take_in
        try:
            number = take_in(pack)
        except (ValueError, StopIteration):
            number = self._buffer.take_in_patiently(pack)
        if self._is_wanted or len(self._messages.waiting) >= FLUSH_MESSAGES:
            self._after_put()
        return range(number - len(batch) + 1, number + 1)

    def _after_put(self) -> None:
        if len(self._messages.waiting) >= FLUSH_MESSAGES:
            self._write_put()
        else:
            self._wake()

    def _write_put(self) -> None:
        """Write what was taken in just now. On a full disk it stays in memory, as puts of 5 ms do: it has its id."""
        try:
            self._buffer.flush()
        except NoSpace:
            self._wake()

    def _wake(self) -> None:
        """Have the ticker look soon: at once if a get waits, otherwise when the lingering is over."""
        # Not of `self._driver`: what a call has put or taken while another thread closes the queue is put or taken.
        is_awaited = self._opened_driver.is_awaited
        # Before `expect`: a tick that begins in between sets them again, and then there is another one.
        self._is_idle, self._is_wanted = False, self._is_always or is_awaited
        self._ticker.expect(self._clock.monotonic_ns() + (0 if is_awaited else LINGER_NS))

    def _put_carefully(self, value: Value | UnsetType, options: MessageOptions) -> int:
        """Put a message that has options, is large or no bytes, whose queue is limited, or that waits for its sync."""
        if is_delayed(options):
            return self.put_later([value], options)[0]
        if not options and type(value) is bytes and len(value) <= self._buffer.small_bytes_max:
            return self._buffer.add(value)
        message = make_message(value, options, now_ns=self._clock.now_ns())
        key, is_urgent = message.idempotency_key, message.priority < Priority.NORMAL
        if key is not None:
            publish = partial(self._driver.begin, Publish(TOPIC, [message], 0))
            with self._buffer.exclusive():
                ((stored,), _) = self._prefetch.with_room(publish)
            number = stored.offset + 1
        else:
            number = self._buffer.add(Entries([message]))
        if self._is_always:
            if key is not None:
                self._buffer.sync()
        elif is_urgent or len(message.value or b"") > self._buffer.small_bytes_max:
            self._write_put()
        else:
            self._wake()
        if is_urgent:
            self._prefetch.empty()
        return number

    def _put_many_carefully(self, values: list[Any], options: MessageOptions) -> range:
        if options.get("idempotency_key") or "delay_key" in options:
            raise Refused("a key names one message; use put")
        if is_delayed(options):
            return self.put_later(values, options)
        now_ns = self._clock.now_ns()
        # All of them are checked before the first one is taken in.
        messages = [make_message(value, options, now_ns=now_ns) for value in values]
        if not messages:
            return range(0)
        last = self._buffer.add(Entries(messages))
        if not self._is_always:
            self._write_put()
        if messages[0].priority < Priority.NORMAL:
            self._prefetch.empty()
        return range(last - len(messages) + 1, last + 1)

    def _tick(self) -> None:
        """Write what was put, ack what was handed out, let delayed messages come; and set the next time."""
        try:
            self._ticker.expect(self._work())
        except Fatal:
            return  # Every call from now on raises it.
        except PenstockError as error:
            self._driver.logger.warning("cannot go on yet: %s", error)
            self._ticker.expect(self._clock.monotonic_ns() + _RETRY_NS)
        except BaseException:
            # A bug of ours. Without the ticker's thread nothing would be written in time any more.
            self._buffer.refuse(Internal())
            raise

    def _work(self) -> float:
        now_ns, due_ns = self._clock.monotonic_ns(), self._buffer.due_ns()
        # A queue that is filled so fast that it is written again and again is left alone: its time is known.
        is_early = now_ns < due_ns != NEVER_NS and not self._driver.is_awaited
        # Before anything else: a put or get from here on wakes the ticker, and those before are dealt with now.
        self._is_idle = not is_early
        self._is_wanted = self._is_always or not is_early
        if not is_early:
            self._buffer.try_again()
            self._buffer.flush()
            due_ns = NEVER_NS
        self._prefetch.ack()
        self._fire()
        self._prefetch.renew()
        retry_ns = now_ns + _RETRY_NS if self._buffer.is_refusing else NEVER_NS
        return min(due_ns, retry_ns, self._prefetch.renew_at_ns, self._monotonic_of(self._due_ns))

    def _monotonic_of(self, wall_ns: int) -> int:
        return self._clock.monotonic_ns() + max(0, wall_ns - self._clock.now_ns())

    def _fire(self) -> None:
        """Let delayed messages come that are due. They are numbered by the log, so no put is meanwhile."""
        while self._due_ns <= self._clock.now_ns():
            with self._buffer.exclusive():
                fired, _ = self._driver.start(FireDelayed(TOPIC, 0))
                self._due_ns = NEVER_NS if fired.next_due_ns is None else fired.next_due_ns
            if fired.is_urgent:
                self._prefetch.empty()
            if not fired.messages:
                return

    def _expect_due(self, due_ns: int) -> None:
        with self._buffer.lock:
            self._due_ns = min(self._due_ns, due_ns)
        self._ticker.expect(self._monotonic_of(due_ns))

    def get(self, timeout: Duration | None = 0) -> Received | None:
        """The next message, or None if there is none before the time is up (None: wait as long as it takes)."""
        try:
            message = self._ready.popleft()
        except IndexError:
            pass  # And on outside of it: a Ctrl-C while it waits is not an error about an error.
        else:
            if self._is_idle:
                self._wake()
            if message.expires_at is None or message.expires_at > self._clock.now_ns():
                return message
            self._prefetch.set_aside(message)
            if (other := self.get_if_ready()) is not None:
                return other
        return self._get_next(timeout)

    def _get_next(self, timeout: Duration | None) -> Received | None:
        timeout_ns = FOR_EVER if timeout is None else duration_ns(timeout)
        if not self.is_auto_ack:
            return _first(self._lease(1, timeout_ns))
        until_ns = self._clock.monotonic_ns() + timeout_ns
        while True:
            while self._fetch():
                # Others may be quicker; then perhaps there is more.
                if (message := self.get_if_ready()) is not None:
                    return message
            if timeout_ns == 0:
                return None
            wait_ns = timeout_ns
            if timeout_ns > 0:
                wait_ns = max(0, until_ns - self._clock.monotonic_ns())
            waiter = None
            try:
                waiter = self._prefetch.enter(wait_ns)
                if waiter is not None:
                    self._driver.polls.wait_for(waiter, wait_ns)
                    return _first(self.end_get(waiter))
            except PenstockError:
                raise
            except BaseException:
                self._prefetch.note_torn(waiter)
                raise

    def _fetch(self) -> bool:
        """Make ready what there is, including what was put a moment ago."""
        self._is_wanted = True
        self._buffer.flush()
        has_some = self._prefetch.fetch()
        if has_some:
            # Others take from it without a lock, and may have taken all by now.
            with suppress(IndexError):
                self._timings.hand_out((self._ready[0],), self._clock.now_ns())
        return has_some

    def _lease(self, limit: int, timeout_ns: int) -> list[Received]:
        self._is_wanted = True
        self._buffer.flush()
        messages = self._driver.polls.poll(Poll(TOPIC, GROUP, MANUAL, limit), timeout_ns)
        self._timings.hand_out(messages, self._clock.now_ns())
        return messages

    def put_if_quick(self, value: Value | UnsetType, options: MessageOptions) -> int | None:
        """Put a small value if that needs no lock and no disk; None: it does, and nothing has happened."""
        if options or self._is_always or len(self._messages.waiting) >= FLUSH_MESSAGES:
            return None
        take_in = self._messages.take_in
        try:
            number = take_in(value)  # type: ignore[arg-type]  # What is not bytes is not taken.
        except (ValueError, StopIteration):
            return None
        if number == NOT_TAKEN:
            return None
        if self._is_wanted:
            self._wake()
        return number

    def get_if_ready(self) -> Received | None:
        """The next message if it is in memory already."""
        while True:
            try:
                message = self._ready.popleft()
            except IndexError:
                return None
            if message.expires_at is None or message.expires_at > self._clock.now_ns():
                break
            self._prefetch.set_aside(message)
        if self._is_idle:
            self._wake()
        return message

    def begin_get(
        self, limit: int, timeout: Duration | None, on_settled: Callable[[], None]
    ) -> PollWaiter | None:
        """Start getting messages without waiting for them; `on_settled` says when `end_get` has them.

        None: some are in memory now, for `get_if_ready`.
        """
        timeout_ns = FOR_EVER if timeout is None else duration_ns(timeout)
        if self.is_auto_ack:
            return None if self._fetch() else self._prefetch.enter(timeout_ns, on_settled)
        self._is_wanted = True
        self._buffer.flush()
        return self._driver.polls.enter(
            Poll(TOPIC, GROUP, MANUAL, limit), LOCAL, timeout_ns, on_settled
        )

    def end_get(self, waiter: PollWaiter) -> list[Received]:
        """What a waiter that is settled has got."""
        messages = waiter.outcome().messages()
        self._timings.hand_out(messages, self._clock.now_ns())
        if self.is_auto_ack and messages:
            for message in messages:
                self._prefetch.note_single(message)
            self._wake()
        return messages

    def abandon_get(self, waiter: PollWaiter) -> None:
        """Give back what no caller is there to take any more."""
        self._driver.polls.abandon(waiter)

    def get_many(self, limit: int = 500, timeout: Duration | None = 0) -> list[Received]:
        """Up to `limit` messages at once; an empty list if there is none before the time is up.

        There may be more than it returns: with `auto_ack` it takes those that were read from the disk together.
        """
        limit = limit if type(limit) is int and limit > 0 else whole_count("limit", limit)
        if not self.is_auto_ack:
            return self._lease(limit, FOR_EVER if timeout is None else duration_ns(timeout))
        messages: list[Received] = []
        if not limit:
            return messages
        try:
            # A fetch may fail, and acks what was handed out before: it comes only while none is taken.
            while not self._prefetch.take(limit, messages) and self._fetch():
                pass  # Others may be quicker; then perhaps there is more.
            if messages and self._is_idle:
                self._wake()
            if messages or timeout == 0:
                return messages
        except BaseException:
            self._prefetch.put_back(messages)
            raise
        message = self.get(timeout)
        return [] if message is None else [message]

    def stream(self, timeout: Duration | None = None) -> Iterator[Received]:
        """Messages as they come, for ever; or until none came for `timeout`.

        Several streams in several threads share the messages, each message going to one of them.
        """
        while (message := self.get(timeout)) is not None:
            yield message

    def seek(self, to: int | datetime) -> int:
        """Go on from a message id, or from the first message put at a time or later; return that id.

        Backwards hands finished messages out once more; forwards skips, up to the next id that `put` would give.
        Receipts given before are void. OffsetOutOfRange: no such message is kept; nothing has changed.
        """
        if isinstance(to, datetime):
            start = Start.at_time(datetime_ns(to, "seek"))
        else:
            start = Start.at_offset(whole_number("seek: an id", to) - 1)
        self._buffer.flush()
        reset = ResetGroup(GROUP, topic=TOPIC, to=start, is_forced=True)
        try:
            with self._prefetch.lock:
                self._prefetch.empty_locked()
                (move,) = self._driver.execute(reset)[TOPIC]
        except OffsetOutOfRange as error:
            asked, first, end = (
                int(str(error.fields[one])) + 1 for one in ("asked", "start", "end")
            )
            raise OffsetOutOfRange(asked, start=first, end=end, what="id") from None
        return move.floor_after + 1

    def compact(self, older_than: Duration | None = None) -> Compacted:
        """Free the disk space of finished messages: of those past retention, or older than you say.

        Whole files go, so a few finished messages may stay. Messages that are not finished always stay.
        """
        age_ns = None if older_than is None else duration_ns(older_than)
        self._buffer.flush()
        self._prefetch.ack()
        swept = self._driver.execute(SweepTopics(TOPIC, age_ns))[TOPIC]
        return Compacted(swept.segments_removed, swept.bytes_freed)

    def flush(self) -> None:
        """Return once everything put so far is written: it survives the end of the process, not of the power."""
        self._buffer.flush()

    def sync(self) -> None:
        """Return once everything put and every answer given so far is on the disk."""
        self._buffer.sync()

    def _close(self) -> None:
        """Write and sync everything, and give back what no caller took."""
        self._ticker.close()
        try:
            with suppress(Fatal):
                self._buffer.close()
                self._prefetch.close()
                self._driver.execute(ReleaseMember(TOPIC, GROUP, MANUAL))
        finally:
            self._driver.close()

    def _replace_parts(self, closed: Any) -> None:
        self._driver = self._buffer = self._prefetch = closed
        self._messages = self._sessions = closed
        self._ready.clear()

    @property
    def aio(self) -> AsyncQueue:
        """This queue for asyncio."""
        return AsyncQueue(self)

    def __iter__(self) -> Iterator[Received]:
        """Everything that is there now, one by one."""
        return self.stream(timeout=0)


def _first(messages: list[Received]) -> Received | None:
    return messages[0] if messages else None
