"""Those who send messages for later, change their minds, and cancel at the last moment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..api.delays import CancelDelayed, DelayedId, RescheduleDelayed
from ..api.publish import Delayed, Published, Schedule
from ..errors import NotFound, NotPending, PartlyPublished, Unavailable
from ..model import Message
from .delaybook import DelayBook, Fate
from .place import Place
from .schedule import MS
from .shell import Shell, Waiting
from .violation import Checker, Violation

# Short and long against a tick of the shell, some at once.
_DELAYS_MS = (0, 0, 40, 400, 3000, 9000)
_KEYS = 3


@dataclass(slots=True, eq=False)
class Errand:
    """Messages that are sent together until somebody says that they wait."""

    delayed: list[Delayed]
    # The life of the node in which it was sent last, -1 if that has to happen again.
    sent_in: int = -1

    @property
    def values(self) -> frozenset[bytes]:
        return frozenset(one.message.value or b"" for one in self.delayed)


@dataclass(slots=True, eq=False)
class Delayer:
    """Schedules on one topic. `is_stopping`: finishes what it has begun, and begins nothing."""

    name: str
    topic: str
    place: Place
    outstanding: list[Errand] = field(default_factory=list)
    is_stopping: bool = False
    # Partition, id and value of what was acknowledged.
    known: list[tuple[int, int, bytes]] = field(default_factory=list)
    _made: int = 0

    def wake(self) -> None:
        place = self.place
        place.wake_later(100 if self.is_stopping else 500, self)
        shell = place.shell
        if shell is None:
            return
        if self.outstanding:
            errand = self.outstanding[0]
            if errand.sent_in != place.life or place.entropy.random() < 0.3:
                self._send(shell, errand)
            return
        if self.is_stopping:
            return
        if self.known and place.entropy.random() < 0.4:
            self._change_mind(shell)
        else:
            self._begin(shell)

    def _begin(self, shell: Shell) -> None:
        count = self.place.entropy.choice((1, 1, 2, 5))
        errand = Errand([self._delayed() for _ in range(count)])
        self.outstanding.append(errand)
        self._send(shell, errand)

    def _delayed(self) -> Delayed:
        self._made += 1
        entropy = self.place.entropy
        value = b"%s %d " % (self.name.encode(), self._made) + b"x" * entropy.randrange(200)
        delay_ns = entropy.randint(0, entropy.choice(_DELAYS_MS) * MS)
        due_ns = self.place.new_scene("").moment.wall_ns + delay_ns
        key = b"k%d" % entropy.randrange(_KEYS) if entropy.random() < 0.3 else None
        message = Message(value, key=value[-3:] if key is None else None, idempotency_key=value)
        return Delayed(message, due_ns, key)

    def _send(self, shell: Shell, errand: Errand) -> None:
        scene = self.place.new_scene(f"{self.name} delays {len(errand.delayed)}")
        self.place.act(replace(scene, values=errand.values), lambda: self._schedule(shell, errand))
        if self.place.shell is shell and self.place.entropy.random() < 0.5:
            # As a shell does that was told of something due: before anything could be synced.
            self.place.act(self.place.new_scene("tick for the delayed"), lambda: self._tick(shell))

    def _tick(self, shell: Shell) -> None:
        try:
            shell.node.tick(shell.now())
            if self.place.entropy.random() < 0.3:
                shell.clear_delayed()
        except Unavailable as error:
            self.place.note(f"put off: {error.code}")

    def _schedule(self, shell: Shell, errand: Errand) -> None:
        try:
            results = shell.execute(Schedule(self.topic, errand.delayed))
        except PartlyPublished:
            errand.sent_in = -1
            return
        except Unavailable as error:
            errand.sent_in = -1
            self.place.note(f"refused: {error.code}")
            self.place.scene = replace(self.place.scene, values=frozenset())
            return
        errand.sent_in = self.place.life
        self.place.books.follow(shell.node, self.place.scene)
        self._await_reply(shell, errand, results)

    def _await_reply(self, shell: Shell, errand: Errand, results: Sequence[Published]) -> None:
        missing = {one.partition for one in results}

        def arrived(number: int) -> Callable[[], None]:
            def release() -> None:
                missing.discard(number)
                if not missing:
                    self._replied(errand, results)

            return release

        for number in sorted(missing):
            here = [one for one in results if one.partition == number]
            stored = max((one.durable_at for one in here if not one.is_delayed), default=0)
            delayed = max((one.durable_at for one in here if one.is_delayed), default=0)
            target = shell.node.partition(self.topic, number)
            shell.hold(target, Waiting(stored, 0, arrived(number), delayed_at=delayed))

    def _replied(self, errand: Errand, results: Sequence[Published]) -> None:
        for delayed, one in zip(errand.delayed, results, strict=True):
            if not one.is_delayed:
                # The place where it had waited was lost, and where it went when it fired was not.
                books = self.place.books
                book_of_all = books.by_place[self.topic, one.partition]
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
        self.place.notice("replied")
        if self.place.entropy.random() < 0.15:
            errand.sent_in = -1  # The reply is lost.
        elif errand in self.outstanding:
            self.outstanding.remove(errand)

    def _book(self, partition: int) -> DelayBook:
        return self.place.books.by_place[self.topic, partition].delays

    def _waits(self, number: int, identity: int, value: bytes) -> bool:
        book = self._book(number)
        entry = book.entries.get(identity)
        return entry is not None and entry.value == value and book.fate(identity) is Fate.PENDING

    def _change_mind(self, shell: Shell) -> None:
        """Cancel or move one of the last, most of which are due about now."""
        entropy = self.place.entropy
        candidates = self.known[-8:]
        if entropy.random() < 0.7:
            # Otherwise it is too late for most of them.
            candidates = [one for one in candidates if self._waits(*one)] or candidates
        number, identity, value = entropy.choice(candidates)
        entry = self._book(number).entries.get(identity)
        if entry is None or entry.value != value:
            return  # The disk had lied about it.
        is_cancel = entropy.random() < 0.5
        due_ns = self.place.new_scene("").moment.wall_ns + entropy.choice(_DELAYS_MS) * MS

        def change() -> None:
            which = DelayedId(number, identity)
            try:
                if is_cancel:
                    shell.execute(CancelDelayed(self.topic, which))
                else:
                    shell.execute(RescheduleDelayed(self.topic, which, due_ns))
            except (NotPending, NotFound) as error:
                self._require_finished(number, identity, error)
                return
            except Unavailable:
                return
            self.place.books.follow(shell.node, self.place.scene)
            self._await_change(shell, number)

        what = "cancels" if is_cancel else "moves"
        scene = self.place.new_scene(f"{self.name} {what} {number}/{identity}")
        self.place.act(scene, change)

    def _require_finished(self, number: int, identity: int, error: Exception) -> None:
        if self._book(number).fate(identity) is Fate.PENDING:
            story = f"{self._book(number).name}: {identity} waits, but {error}"
            raise Violation(Checker.DELAY, story)

    def _await_change(self, shell: Shell, number: int) -> None:
        target = shell.node.partition(self.topic, number)
        journal_end = target.journal.log.end_offset
        promises = self.place.books.by_place[self.topic, number].promises

        def replied() -> None:
            promises.state = max(promises.state, journal_end)
            self.place.notice("replied")

        shell.hold(target, Waiting(0, journal_end, replied))
