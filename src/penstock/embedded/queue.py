"""A durable FIFO queue in a directory."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any, Unpack

from ..api.arguments import whole_count
from ..api.consume import Poll
from ..api.dead_letters import BrowseDeadLetters
from ..api.fetch import Peek
from ..api.groups import OpenGroup
from ..api.principals import LOCAL
from ..api.received import Received
from ..api.topics import ConfigureTopic, CreateTopic, ListTopics
from ..api.units import Duration, duration_ns
from ..broker import consumption
from ..broker.backlog import require_room
from ..broker.dead_letters import dead_letter_topic
from ..broker.partition import Now, Partition
from ..config import OFF, DeliveryConfig, FsyncPolicy
from ..delivery import Delivery, commands
from ..errors import PenstockError, Refused
from ..model import Message, Priority
from ..runtime.threads import FOR_EVER
from ..runtime.ticker import NEVER_NS
from ..runtime.waiting import Waiter
from .aio import AsyncQueue
from .answers import QueueAnswers
from .browsing import Compacted, compact, offset_of, stats_of
from .dead_letters import QueueDeadLetters
from .delay import QueueDelays, is_delayed
from .gone import Gone, OpenOnce, disown, own
from .inlet import FLUSH_MESSAGES, SMALL_BYTES_MAX, Inlet, size_of
from .intake import NOT_TAKEN, Entries, Pack, pack_of
from .messages import MessageOptions, Value, listed, make_message
from .opening import Opened
from .outlet import Outlet
from .stats import QueueStats, Timings

TOPIC = GROUP = "queue"
MANUAL = "manual"
# How long a put may stay in the process before it is written.
LINGER_NS = 5_000_000
_FLUSH_MASK = FLUSH_MESSAGES - 1
_NONE_SMALL = -1
# A queue keeps what nobody has finished, however old or large it gets, and knows for ever how far it was read.
QUEUE_SETTINGS: dict[str, Any] = {
    "keep_unread": True,
    "keep_unread_bytes_max": 1 << 60,
    "group_retention_hours": OFF,
    # All members are threads of this process: what holds for the group is enough.
    "max_in_flight_per_consumer": DeliveryConfig().max_in_flight,
}
_RETRY_NS = 1_000_000_000
# They are read one by one to be counted.
_DEAD_LETTERS_COUNTED_MAX = 10_000


class Queue(OpenOnce, QueueAnswers, QueueDelays, QueueDeadLetters):
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
        self._opened, self._driver = opened, opened.driver
        self.is_auto_ack = auto_ack
        self._is_always = opened.driver.config.fsync is FsyncPolicy.ALWAYS
        self._after_put = opened.driver.sync if self._is_always else self._after_lazy_put
        self._timings = Timings()
        self._make_topic(settings)
        config = self._partition().config
        is_limited = max(config.max_backlog_messages, config.max_backlog_bytes) != OFF
        self._small_bytes_max = _NONE_SMALL if is_limited else SMALL_BYTES_MAX
        with self._driver.lock:
            self._inlet = Inlet(
                self._driver, self._partition, self._timings, bytes_max=self._small_bytes_max
            )
        self._intake = self._inlet.intake
        self._outlet = Outlet(self._driver, self._partition, GROUP)
        self._ready = self._outlet.ready
        self._driver.change(self._take_over)
        # Whether the ticker sleeps, because there is nothing to write or to ack, and has to be told of a put or a get.
        self._is_idle = True
        # The same for a put, which is also wanted by those who wait for messages, or has to wait for its own sync.
        self._is_wanted = True
        self._driver.on_tick, self._driver.before_sync = self._tick, self._inlet.flush
        own(self)

    def _make_topic(self, settings: dict[str, Any]) -> None:
        driver = self._driver
        for fault in driver.look(lambda _now: driver.node.faults()):
            # A queue has one partition: without it there is nothing to open.
            if fault.topic == TOPIC:
                raise fault.cause
        topics = driver.execute(ListTopics())
        if TOPIC not in topics:
            driver.execute(CreateTopic(TOPIC, 1, QUEUE_SETTINGS | settings))
        elif settings:
            driver.execute(ConfigureTopic(TOPIC, settings))
            if "on_damage" in settings and dead_letter_topic(TOPIC) in topics:
                policy = {"on_damage": settings["on_damage"]}
                driver.execute(ConfigureTopic(dead_letter_topic(TOPIC), policy))
        driver.execute(OpenGroup(GROUP, (TOPIC,)))

    def _take_over(self, now: Now) -> None:
        """Leases of a former process are void: nobody is left who could answer them."""
        self._outlet.take_over(now)
        consumption.release(self._partition(), self._delivery(), MANUAL, now)

    def _partition(self) -> Partition:
        return self._driver.node.open[TOPIC].partitions[0]

    def _delivery(self) -> Delivery:
        return self._partition().group(GROUP)

    def put(self, value: Value, **options: Unpack[MessageOptions]) -> int:
        """Add a message at the end; return its id: 1, 2, 3, ...

        `key`, `headers` and `priority` travel with the message. After `ttl` (30, "30s", "2h") it is not handed out any
        more. A repeated `idempotency_key` stores nothing and returns the id of the first message that had it; an empty
        one is none.

        With `delay` ("30s", "2h") or `deliver_at` (a datetime) it comes then, and gets its id then; what is returned is
        the number by which `cancel`, `reschedule` and `delayed_get` know it. One with the `delay_key` of another that
        still waits takes its place.
        """
        if options:
            return self._put_carefully(value, options)
        # Into a name first: to call it as if it were a method would have Python look for one in the class, every time.
        take_in = self._intake.take_in
        try:
            number = take_in(value)  # type: ignore[arg-type]  # What is not bytes is not taken.
        except (ValueError, StopIteration):
            number = self._intake.take_in_patiently(value)  # type: ignore[arg-type]  # The same.
        if self._is_wanted or not number & _FLUSH_MASK:
            if number == NOT_TAKEN:
                return self._put_carefully(value, options)
            self._after_put()
        return number

    def put_many(self, values: Iterable[Value], **options: Unpack[MessageOptions]) -> range:
        """Add several messages, one after the other; return their ids. Options hold for each of them.

        Several with one `idempotency_key` or `delay_key` would be one message, so those are for `put`.
        """
        batch: list[Any] = values if type(values) is list else listed(values)
        pack = None if options else self._packed(batch)
        if pack is None:
            return self._put_many_carefully(batch, options)
        take_in = self._intake.take_in
        try:
            number = take_in(pack)
        except (ValueError, StopIteration):
            number = self._intake.take_in_patiently(pack)
        if self._is_wanted or len(self._intake.waiting) >= FLUSH_MESSAGES:
            self._after_put()
        return range(number - len(batch) + 1, number + 1)

    def _packed(self, values: list[Any]) -> Pack | None:
        """Values that can be taken in without another look; None if one of them is large, or no bytes."""
        if not 0 < len(values) <= FLUSH_MESSAGES:
            return None
        try:
            return pack_of(values, self._small_bytes_max)
        except (TypeError, PenstockError):
            return None

    def _after_lazy_put(self) -> None:
        if len(self._intake.waiting) >= FLUSH_MESSAGES:
            self._driver.change_at_once(self._inlet.flush)
        else:
            self._wake()

    def _wake(self) -> None:
        """Have the ticker look soon: at once for those who wait, otherwise when the lingering is over."""
        with self._driver.lock:
            self._is_idle = False
            self._is_wanted = self._is_always or self._driver.is_awaited
            linger_ns = 0 if self._driver.is_awaited else LINGER_NS
            self._driver.expect(self._driver.clock.monotonic_ns() + linger_ns)

    def _put_carefully(self, value: Value, options: MessageOptions) -> int:
        if is_delayed(options):
            return self.put_later([value], options)[0]
        return self._driver.change(lambda now: self._admit(value, options, now))

    def _put_many_carefully(self, values: list[Any], options: MessageOptions) -> range:
        if options.get("idempotency_key") or "delay_key" in options:
            raise Refused("a key names one message; use put")
        if is_delayed(options):
            return self.put_later(values, options)

        def admit_all(now: Now) -> range:
            # All of them are looked at before the first one is taken in.
            messages = [make_message(value, options, now_ns=now.wall_ns) for value in values]
            self._require_room(messages, now)
            if not messages:
                return range(0)
            self._intake.is_mixed = True
            last = self._intake.take_in_under_lock(Entries(messages))
            self._inlet.flush(now)
            self._outlet.recall(now)
            return range(last - len(messages) + 1, last + 1)

        return self._driver.change(admit_all)

    def _admit(self, value: Value, options: MessageOptions, now: Now) -> int:
        message = make_message(value, options, now_ns=now.wall_ns)
        key = message.idempotency_key
        if key is not None:
            self._inlet.flush(now)
            kept = self._partition().machine.dedup.find(key, now.wall_ns)
            if kept is not None:
                return kept.position + 1
        self._require_room([message], now)
        self._intake.is_mixed = True
        number = self._intake.take_in_under_lock(Entries([message]))
        is_small = len(message.value or b"") <= self._small_bytes_max
        if message.priority < Priority.NORMAL:
            self._inlet.flush(now)
            self._outlet.recall(now)
        elif key is not None or not is_small or self._is_always:
            self._inlet.flush(now)
        else:
            self._driver.expect(now.monotonic_ns + LINGER_NS)
        return number

    def _require_room(self, messages: list[Message], now: Now) -> None:
        # All at once, or they would be refused when half of them are written.
        if self._small_bytes_max == _NONE_SMALL:
            self._inlet.flush(now)
            require_room(self._partition(), len(messages), sum(map(size_of, messages)))

    def _tick(self, now: Now) -> float:
        """Write what was put and ack what was handed out. Returns when to look again."""
        due_ns = self._inlet.due_ns(LINGER_NS)
        # A queue that is filled so fast that it is written again and again is left alone: its time is known.
        is_early = now.monotonic_ns < due_ns != NEVER_NS and not self._driver.is_awaited
        # Before anything else: whoever comes from here on says so, and whatever came before is dealt with now.
        self._is_idle = not is_early
        self._is_wanted = self._is_always or self._is_idle
        if not is_early:
            self._inlet.try_again(now)
            self._inlet.flush(now)
            due_ns = NEVER_NS
        self._outlet.ack(now)
        # A delayed message may have come, or one of another thread.
        self._outlet.recall(now)
        self._outlet.renew(now)
        retry_ns = now.monotonic_ns + _RETRY_NS if self._inlet.is_refusing else NEVER_NS
        return min(due_ns, retry_ns, self._outlet.renew_at_ns)

    def get(self, timeout: Duration | None = 0) -> Received | None:
        """The next message, or None if there is none before the time is up (None: wait as long as it takes)."""
        try:
            message = self._ready.popleft()
        except IndexError:
            pass  # And on outside of it: a Ctrl-C of who waits is not an error about an error.
        else:
            if self._is_idle:
                self._wake()
            if message.expires_at is None or message.expires_at > self._driver.clock.now_ns():
                return message
            self._outlet.set_aside(message)
            if (other := self.get_if_ready()) is not None:
                return other
        return self._get_next(timeout)

    def _get_next(self, timeout: Duration | None) -> Received | None:
        timeout_ns = FOR_EVER if timeout is None else duration_ns(timeout)
        if not self.is_auto_ack:
            return _first(self._lend(1, timeout_ns))
        until_ns = self._driver.clock.monotonic_ns() + timeout_ns
        while True:
            while self._driver.change_at_once(self._fetch):
                # Others may be quicker; then perhaps there is more.
                if (message := self.get_if_ready()) is not None:
                    return message
            if timeout_ns == 0:
                return None
            wait_ns = timeout_ns
            if timeout_ns > 0:
                wait_ns = max(0, until_ns - self._driver.clock.monotonic_ns())
            message = self._wait_for_one(wait_ns)
            if message is not None or not self._ready:
                return message

    def _wait_for_one(self, timeout_ns: int) -> Received | None:
        """Wait in the queue of those who wait; not if somebody else has fetched messages by now."""
        command, has_ready = self._outlet.poll_of_one(), self._has_ready
        message = _first(self._driver.poll(command, timeout_ns, is_needless=has_ready))
        if message is not None:
            self._timings.hand_out((message,), self._driver.clock.now_ns())
            self._outlet.note_single(message)
            self._wake()
        return message

    def _has_ready(self) -> bool:
        return bool(self._ready)

    def _fetch(self, now: Now) -> bool:
        """Make ready what there is, including what was put a moment ago."""
        self._is_wanted = True
        self._inlet.flush(now)
        if self._driver.is_awaited:
            # They came first, and what is fetched for one who does not wait may stay with him for long.
            self._driver.serve()
        has_some = self._outlet.fetch(now)
        if has_some:
            # Others take from it without the lock, and may have taken all by now.
            with suppress(IndexError):
                self._timings.hand_out((self._ready[0],), now.wall_ns)
        return has_some

    def _lend(self, limit: int, timeout_ns: int) -> list[Received]:
        self._driver.change_at_once(self._prepare)
        messages = self._driver.poll(Poll(TOPIC, GROUP, MANUAL, limit), timeout_ns)
        self._timings.hand_out(messages, self._driver.clock.now_ns())
        return messages

    def put_if_quick(self, value: Value, options: MessageOptions) -> int | None:
        """Put a small value if that needs no lock and no disk; None: it does, and nothing has happened."""
        if options or self._is_always or len(self._intake.waiting) >= FLUSH_MESSAGES:
            return None
        take_in = self._intake.take_in
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
            if message.expires_at is None or message.expires_at > self._driver.clock.now_ns():
                break
            self._outlet.set_aside(message)
        if self._is_idle:
            self._wake()
        return message

    def begin_get(
        self, limit: int, timeout: Duration | None, on_settled: Callable[[], None]
    ) -> Waiter | None:
        """Start getting messages without waiting for them; `on_settled` says when `end_get` has them.

        None: some are in memory now, for `get_if_ready`.
        """
        timeout_ns = FOR_EVER if timeout is None else duration_ns(timeout)
        if self.is_auto_ack:
            if self._driver.change_at_once(self._fetch):
                return None
            command = self._outlet.poll_of_one()
        else:
            self._driver.change_at_once(self._prepare)
            command = Poll(TOPIC, GROUP, MANUAL, limit)
        waiter = self._driver.enter(
            command, LOCAL, timeout_ns, on_settled, is_needless=self._has_ready
        )
        return None if waiter.is_settled and not waiter.messages and self._ready else waiter

    def end_get(self, waiter: Waiter) -> list[Received]:
        """What a waiter that is settled has got."""
        messages = waiter.outcome().messages()
        self._timings.hand_out(messages, self._driver.clock.now_ns())
        if self.is_auto_ack and messages:
            for message in messages:
                self._outlet.note_single(message)
            self._wake()
        return messages

    def abandon_get(self, waiter: Waiter) -> None:
        """Give back what nobody is there to take any more."""
        self._driver.abandon(waiter)

    def _prepare(self, now: Now) -> None:
        self._is_wanted = True
        self._inlet.flush(now)

    def get_many(self, limit: int = 500, timeout: Duration | None = 0) -> list[Received]:
        """Up to `limit` messages at once; an empty list if there is none before the time is up."""
        limit = limit if type(limit) is int and limit > 0 else whole_count("limit", limit)
        if not self.is_auto_ack:
            return self._lend(limit, FOR_EVER if timeout is None else duration_ns(timeout))
        messages: list[Received] = []
        while len(messages) < limit and (message := self.get(0)) is not None:
            messages.append(message)
        if not messages and limit and timeout != 0 and (message := self.get(timeout)) is not None:
            messages.append(message)
        return messages

    def stream(self, timeout: Duration | None = None) -> Iterator[Received]:
        """Messages as they come, for ever; or until none came for `timeout`.

        Several streams in several threads share the messages, each message going to one of them.
        """
        while (message := self.get(timeout)) is not None:
            yield message

    def peek(self) -> Received | None:
        """The message that `get` would return, without taking it."""
        return _first(self.peek_many(1))

    def peek_many(self, limit: int = 10) -> list[Received]:
        """The next messages in the order in which they would be handed out, without taking them."""
        count = whole_count("limit", limit)
        return self._driver.change_at_once(lambda now: self._peek(count, now))

    def _peek(self, limit: int, now: Now) -> list[Received]:
        self._inlet.flush(now)
        fetched = list(islice(self._ready.copy(), limit))
        rest = Peek(TOPIC, 0, GROUP, limit - len(fetched))
        return fetched + self._driver.execute_locked(rest, now)

    def seek(self, to: int | datetime) -> int:
        """Go on from a message id, or from the first message put at a time or later; return that id.

        Backwards hands finished messages out once more; forwards skips, up to the next id that `put` would give.
        Receipts given before are void. OffsetOutOfRange: no such message is kept; nothing has changed.
        """
        return self._driver.change(lambda now: self._seek(to, now))

    def _seek(self, to: int | datetime, now: Now) -> int:
        self._inlet.flush(now)
        offset = offset_of(self._partition().messages, to)
        self._outlet.empty(now)
        self._partition().record(commands.rewind(self._delivery(), offset), now)
        return offset + 1

    def compact(self, older_than: Duration | None = None) -> Compacted:
        """Free the disk space of finished messages: of those past retention, or older than you say.

        Whole files go, so a few finished messages may stay. Messages that are not finished always stay.
        """
        return self._driver.rearrange(lambda now: self._compact(older_than, now))

    def _compact(self, older_than: Duration | None, now: Now) -> Compacted:
        self._inlet.flush(now)
        self._outlet.ack(now)
        return compact(self._partition(), older_than, now)

    def flush(self) -> None:
        """Return once everything put so far is written: it survives the end of the process, not of the power."""
        self._driver.change_at_once(self._inlet.flush)

    def sync(self) -> None:
        """Return once everything put and every answer given so far is on the disk."""
        self._driver.sync()

    def stats(self) -> QueueStats:
        """Counts, sizes and percentiles, as of now."""
        dead = self._driver.execute(BrowseDeadLetters(TOPIC, limit=_DEAD_LETTERS_COUNTED_MAX))
        return self._driver.change_at_once(lambda now: self._stats(len(dead.letters), now))

    def _stats(self, dead_letters: int, now: Now) -> QueueStats:
        self._inlet.flush(now)
        self._outlet.ack(now)
        return stats_of(
            self._partition(),
            GROUP,
            self._timings,
            unread=len(self._ready),
            dead_letters=dead_letters,
        )

    def close(self) -> None:
        """Write and sync everything, give back what nobody took, and let go of the directory."""
        disown(self)
        self._driver.close(self._finish)
        self._opened.give_up_disk()
        self.let_go(Gone("the queue is closed"))

    def let_go(self, gone: Any) -> None:
        """Refuse everything from now on."""
        self._driver = self._intake = self._opened = gone
        self._ready.clear()

    def _finish(self, now: Now) -> None:
        self._inlet.close(now)
        self._outlet.empty(now)
        consumption.release(self._partition(), self._delivery(), MANUAL, now)

    @property
    def aio(self) -> AsyncQueue:
        """The same queue for asyncio."""
        return AsyncQueue(self)

    def __iter__(self) -> Iterator[Received]:
        """Everything that is there now, one by one."""
        return self.stream(timeout=0)


def _first(messages: list[Received]) -> Received | None:
    return messages[0] if messages else None
