"""Producers that schedule messages, repeat requests, and cancel or move delays at the last moment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..api.delays import CancelDelayed, DelayedId, RescheduleDelayed
from ..api.publish import Delayed, Published, Schedule
from ..errors import NotFound, NotPending, PartlyPublished, Unavailable
from ..model import Message, TopicPartition
from .client import WorldView
from .delay_book import DelayBook, Fate
from .driver import PendingReply, SimDriver
from .schedule import MS
from .violation import Checker, Violation

# Shorter and longer than a tick of the driver, some due at once.
_DELAYS_MS = (0, 0, 40, 400, 3000, 9000)
_KEYS = 3


@dataclass(slots=True, eq=False)
class DelayRequest:
    """Messages that are sent together until the node acknowledges them."""

    delayed: list[Delayed]
    # The life of the node in which it was sent last, -1 if that has to happen again.
    sent_in: int = -1

    @property
    def values(self) -> frozenset[bytes]:
        return frozenset(one.message.value or b"" for one in self.delayed)


@dataclass(slots=True, eq=False)
class DelayProducer:
    """Schedules messages on one topic. `is_stopping`: repeats what has no reply yet, and sends nothing new."""

    name: str
    topic: str
    world: WorldView
    outstanding: list[DelayRequest] = field(default_factory=list)
    is_stopping: bool = False
    # Partition, id and value of what was acknowledged.
    known: list[tuple[int, int, bytes]] = field(default_factory=list)
    _made: int = 0

    def wake(self) -> None:
        world = self.world
        world.wake_later(100 if self.is_stopping else 500, self)
        driver = world.driver
        if driver is None:
            return
        if self.outstanding:
            request = self.outstanding[0]
            if request.sent_in != world.life or world.entropy.random() < 0.3:
                self._send(driver, request)
            return
        if self.is_stopping:
            return
        if self.known and world.entropy.random() < 0.4:
            self._cancel_or_move(driver)
        else:
            self._begin(driver)

    def _begin(self, driver: SimDriver) -> None:
        count = self.world.entropy.choice((1, 1, 2, 5))
        request = DelayRequest([self._delayed() for _ in range(count)])
        self.outstanding.append(request)
        self._send(driver, request)

    def _delayed(self) -> Delayed:
        self._made += 1
        entropy = self.world.entropy
        value = b"%s %d " % (self.name.encode(), self._made) + b"x" * entropy.randrange(200)
        delay_ns = entropy.randint(0, entropy.choice(_DELAYS_MS) * MS)
        due_ns = self.world.new_event("").time.wall_ns + delay_ns
        key = b"k%d" % entropy.randrange(_KEYS) if entropy.random() < 0.3 else None
        message = Message(value, key=value[-3:] if key is None else None, idempotency_key=value)
        return Delayed(message, due_ns, key)

    def _send(self, driver: SimDriver, request: DelayRequest) -> None:
        event = self.world.new_event(f"{self.name} delays {len(request.delayed)}")
        self.world.act(
            replace(event, values=request.values), lambda: self._schedule(driver, request)
        )
        if self.world.driver is driver and self.world.entropy.random() < 0.5:
            # A driver ticks at once when a message is due, before it can sync anything.
            self.world.act(self.world.new_event("tick for the delayed"), lambda: self._tick(driver))

    def _tick(self, driver: SimDriver) -> None:
        try:
            driver.tick()
            if self.world.entropy.random() < 0.3:
                driver.clear_side_logs()
        except Unavailable as error:
            self.world.note(f"put off: {error.code}")

    def _schedule(self, driver: SimDriver, request: DelayRequest) -> None:
        try:
            results = driver.execute(Schedule(self.topic, request.delayed))
        except PartlyPublished:
            request.sent_in = -1
            return
        except Unavailable as error:
            request.sent_in = -1
            self.world.note(f"refused: {error.code}")
            self.world.event = replace(self.world.event, values=frozenset())
            return
        request.sent_in = self.world.life
        self.world.books.follow(driver.node, self.world.event)
        self._await_reply(driver, request, results)

    def _await_reply(
        self, driver: SimDriver, request: DelayRequest, results: Sequence[Published]
    ) -> None:
        missing = {one.partition for one in results}

        def arrived(number: int) -> Callable[[], None]:
            def release() -> None:
                missing.discard(number)
                if not missing:
                    self._replied(request, results)

            return release

        for number in sorted(missing):
            here = [one for one in results if one.partition == number]
            stored = max((one.durable_at for one in here if not one.is_delayed), default=0)
            delayed = max((one.durable_at for one in here if one.is_delayed), default=0)
            target = driver.node.partition(self.topic, number)
            driver.hold(target, PendingReply(stored, 0, arrived(number), delayed_at=delayed))

    def _replied(self, request: DelayRequest, results: Sequence[Published]) -> None:
        for delayed, one in zip(request.delayed, results, strict=True):
            if not one.is_delayed:
                # A crash took it from the delay log, and it had fired: the reply names its offset in the messages.
                books = self.world.books
                book_of_all = books.by_partition[TopicPartition(self.topic, one.partition)]
                books.expect(book_of_all, delayed.message, one.offset)
                continue
            book = self._book(one.partition)
            book.promised = max(book.promised, one.offset + 1)
            value = delayed.message.value or b""
            entry = book.entries.get(one.offset)
            if entry is None or entry.value != value:
                story = f"{book.name}: {value!r} was said to wait as {one.offset}"
                raise Violation(Checker.NO_ACKED_LOSS, story)
            self.known.append((one.partition, one.offset, value))
        self.world.notice("replied")
        if self.world.entropy.random() < 0.15:
            request.sent_in = -1  # The reply is lost.
        elif request in self.outstanding:
            self.outstanding.remove(request)

    def _book(self, partition: int) -> DelayBook:
        return self.world.books.by_partition[TopicPartition(self.topic, partition)].delays

    def _waits(self, number: int, identity: int, value: bytes) -> bool:
        book = self._book(number)
        entry = book.entries.get(identity)
        return entry is not None and entry.value == value and book.fate(identity) is Fate.PENDING

    def _cancel_or_move(self, driver: SimDriver) -> None:
        """Cancel or move one of the last delays, most of which are due about now."""
        entropy = self.world.entropy
        candidates = self.known[-8:]
        if entropy.random() < 0.7:
            # Without this most changes would come too late.
            candidates = [one for one in candidates if self._waits(*one)] or candidates
        number, identity, value = entropy.choice(candidates)
        entry = self._book(number).entries.get(identity)
        if entry is None or entry.value != value:
            return  # The disk has lied and lost it.
        is_cancel = entropy.random() < 0.5
        due_ns = self.world.new_event("").time.wall_ns + entropy.choice(_DELAYS_MS) * MS

        def change() -> None:
            which = DelayedId(number, identity)
            try:
                if is_cancel:
                    driver.execute(CancelDelayed(self.topic, which))
                else:
                    driver.execute(RescheduleDelayed(self.topic, which, due_ns))
            except (NotPending, NotFound) as error:
                self._require_finished(number, identity, error)
                return
            except Unavailable:
                return
            self.world.books.follow(driver.node, self.world.event)
            self._await_change(driver, number)

        what = "cancels" if is_cancel else "moves"
        event = self.world.new_event(f"{self.name} {what} {number}/{identity}")
        self.world.act(event, change)

    def _require_finished(self, number: int, identity: int, error: Exception) -> None:
        if self._book(number).fate(identity) is Fate.PENDING:
            story = f"{self._book(number).name}: {identity} waits, but {error}"
            raise Violation(Checker.DELAY, story)

    def _await_change(self, driver: SimDriver, number: int) -> None:
        target = driver.node.partition(self.topic, number)
        journal_end = target.journal.log.end_offset
        promises = self.world.books.by_partition[TopicPartition(self.topic, number)].promises

        def replied() -> None:
            promises.state = max(promises.state, journal_end)
            self.world.notice("replied")

        driver.hold(target, PendingReply(0, journal_end, replied))
