"""Messages that a queue which acks by itself has leased ahead: many at a time, handed out one by one.

To hand one out is to take it off a deque, which needs no lock. What was handed out is acked later: when the next
messages are fetched, a few milliseconds later by the ticker, or when the queue closes. What no caller took goes back
and does not count as an attempt.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import repeat
from threading import Lock
from typing import Any, TypeVar

from ..api.answers import Answer, Kind, LeaseAnswer, ReleaseMember
from ..api.command import Command
from ..api.consume import Poll
from ..api.leased import LeasedMessages
from ..api.principals import LOCAL
from ..api.receipts import Place
from ..api.received import Received
from ..config import DeliveryConfig
from ..errors import BacklogFull, PenstockError, Refused
from ..runtime.threads import ThreadDriver
from ..runtime.ticker import NEVER_NS
from ..runtime.waiting_polls import PollWaiter
from .write_buffer import GROUP, TOPIC

T = TypeVar("T")
AUTO = "auto"
# The member of callers that wait: to give back what an interrupted fetch had leased takes nothing from them.
AUTO_WAITING = "auto-waiting"
# What a lease and its ack cost once, some 150 us, is 20 ns a message at this many. They wait in memory, so large ones
# are fetched a few at a time.
FETCH_MESSAGES = 8192
FETCH_BYTES = 4 << 20
# What is fetched has passed the lanes already; with priorities about, few messages should have.
FETCH_MESSAGES_WITH_LANES = 64
# The longest there is, and renewed: no other process can open the directory, so until this one ends all of it is ours.
HELD_MS = DeliveryConfig().visibility_timeout_ms_max
_RENEW_NS = HELD_MS * 1_000_000 // 2
_FETCH = Poll(
    TOPIC,
    GROUP,
    AUTO,
    FETCH_MESSAGES,
    HELD_MS,
    bytes_max=FETCH_BYTES,
    limit_with_lanes=FETCH_MESSAGES_WITH_LANES,
)
_POLL_OF_ONE = Poll(TOPIC, GROUP, AUTO_WAITING, 1, HELD_MS)
_NO_PLACE = Place(TOPIC, 0, 0)


class Prefetch:
    """Thread-safe. Taking from `ready`, `note_single` and `set_aside` need no lock."""

    def __init__(self, driver: ThreadDriver) -> None:
        self._driver = driver
        self.lock = Lock()
        self.ready: deque[Received] = deque()
        # Of what was fetched last, from the first on. Not the messages: those belong to the callers that got them.
        self._offsets: Sequence[int] = ()
        self._place, self._lease = _NO_PLACE, 0
        self._acked = 0
        self.renew_at_ns = NEVER_NS
        # Handed out by themselves, to callers that waited: place, lease and offset.
        self._singles: deque[tuple[Place, int, int]] = deque()
        # Taken off the deque and not handed out, because their time to live was over.
        self._late: set[int] = set()
        self._aside: deque[Received] = deque()
        # What gives back what a fetch or a wait had leased that a Ctrl-C ended: that is in none of these.
        self._torn: deque[Command[Any]] = deque()
        self._is_closed = False

    def _check(self) -> None:
        if self._is_closed:
            raise Refused("the queue is closed")

    def fetch(self) -> bool:
        """Lease the next messages if all before are handed out; whether there are any."""
        with self.lock:
            # First of all: one that another thread takes after the ack would never be acked.
            if self.ready:
                return True
            self._check()
            self.ack_locked()
            while self._torn:
                self._driver.start(self._torn[0])
                self._torn.popleft()
            try:
                return self._fetch_locked()
            except PenstockError:
                raise
            except BaseException:
                # The count first: what is not in `ready` and counted would be acked, and no caller has seen it.
                self._offsets, self._acked = (), 0
                self.ready.clear()
                self._torn.append(ReleaseMember(TOPIC, GROUP, AUTO, is_unseen=True))
                raise

    def _fetch_locked(self) -> bool:
        fetched, _ = self._driver.start(_FETCH)
        self._late.clear()
        # Straight from the columns, without a list in between: that is a tenth of a fetch. What is handed out is
        # counted after that, so that a Ctrl-C here has nothing acked that no caller has seen.
        for part in fetched.parts:
            self.ready.extend(part.messages())
        if fetched:
            self._place, self._lease = fetched.parts[0].place, fetched.parts[0].lease
        self._offsets, self._acked = _offsets_of(fetched), 0
        now_ns = self._driver.clock.monotonic_ns()
        self.renew_at_ns = now_ns + _RENEW_NS if fetched else NEVER_NS
        return bool(fetched)

    def note_torn(self, waiter: PollWaiter | None) -> None:
        """A Ctrl-C ended the wait of a caller. What it was leased is not handed out; None: that is not known."""
        if waiter is None:
            self._torn.append(ReleaseMember(TOPIC, GROUP, AUTO_WAITING, is_unseen=True))
            return
        self._driver.polls.leave(waiter)
        for message in waiter.messages:
            with suppress(ValueError):
                self._singles.remove((message.place, message.lease, message.offset))
        if waiter.messages:
            self._torn.append(waiter.messages.release())

    def enter(
        self, timeout_ns: int, on_settled: Callable[[], None] | None = None
    ) -> PollWaiter | None:
        """Begin to wait for one message; None if another thread has fetched some by now."""
        with self.lock:
            self._check()
            return (
                None
                if self.ready
                else self._driver.polls.enter(_POLL_OF_ONE, LOCAL, timeout_ns, on_settled)
            )

    def note_single(self, message: Received) -> None:
        """A caller that waited has got this one. Refused: the queue was closed before; it comes after the next open."""
        single = message.place, message.lease, message.offset
        self._singles.append(single)
        if self._is_closed:
            # If it is not there any more, it was among those that the close has acked.
            with suppress(ValueError):
                self._singles.remove(single)
                self._check()

    def take(self, limit: int, taken: list[Received]) -> bool:
        """Move up to so many that are ready to the list of a caller; whether there were any.

        What the caller cannot return after that, because of a Ctrl-C, is for `put_back`.
        """
        with self.lock:
            # No Python code, and so no Ctrl-C, comes between the deque and the list. Others may take from it meanwhile.
            with suppress(IndexError):
                count = min(limit, len(self.ready))
                taken.extend(map(deque.popleft, repeat(self.ready, count)))
            now_ns = self._driver.clock.now_ns()
            late = [one for one in taken if one.expires_at is not None and one.expires_at <= now_ns]
            if late:
                for one in late:
                    self.set_aside(one)
                taken[:] = [one for one in taken if one.offset not in self._late]
        return bool(taken)

    def put_back(self, taken: list[Received]) -> None:
        """These were taken and no caller has seen them: they are the next again."""
        self.ready.extendleft(reversed(taken))

    def set_aside(self, message: Received) -> None:
        """A message whose time to live was over before its turn: the next fetch deals with it as the queue says."""
        self._late.add(message.offset)
        self._aside.append(message)

    def ack(self) -> None:
        """Finish everything that was handed out so far."""
        with self.lock:
            self.ack_locked()

    def with_room(self, work: Callable[[], T]) -> T:
        """What a call returns that adds messages. What was handed out and is not acked yet is not BacklogFull."""
        with suppress(BacklogFull):
            return work()
        self.ack()
        return work()

    def ack_locked(self, *more: LeaseAnswer) -> None:
        answers = [*more]
        while self._aside:
            one = self._aside.popleft()
            answers.append(LeaseAnswer(Kind.RELEASE, *one.place, one.lease, [one.offset]))
        while self._singles:
            place, lease, offset = self._singles.popleft()
            answers.append(LeaseAnswer(Kind.ACK, *place, lease, [offset]))
        handed_out = max(self._acked, len(self._offsets) - len(self.ready))
        if handed_out > self._acked:
            offsets = self._offsets[self._acked : handed_out]
            if self._late:
                offsets = [one for one in offsets if one not in self._late]
            answers.append(LeaseAnswer(Kind.ACK, *self._place, self._lease, offsets))
        if answers:
            self._driver.start(Answer(answers))
        self._acked = handed_out  # Now: what a Ctrl-C has ended is asked again, and a repeated ack does no harm.

    def renew(self) -> None:
        """Keep what is fetched, however slowly it is taken."""
        now_ns = self._driver.clock.monotonic_ns()
        if now_ns >= self.renew_at_ns:
            with self.lock:
                held = [one.offset for one in self.ready.copy()]
                self.ack_locked(
                    LeaseAnswer(Kind.EXTEND, *self._place, self._lease, held, ms=HELD_MS)
                )
                self.renew_at_ns = now_ns + _RENEW_NS

    def empty(self) -> None:
        """Finish what was handed out and give the rest back."""
        with self.lock:
            self.empty_locked()

    def close(self) -> None:
        """Empty it for good: what is handed out after this ack would come twice. Callers that wait are refused."""
        with self.lock:
            self._is_closed = True
            self.empty_locked()
        with self._driver.lock:
            self._driver.polls.dismiss(Refused("the queue is closed"))

    def empty_locked(self) -> None:
        rest: list[Received] = []
        while self.ready:
            try:
                rest.append(self.ready.popleft())
            except IndexError:
                break  # Another thread took the last one.
        if rest:
            offsets = [one.offset for one in rest]
            self._late.update(offsets)
            self.ack_locked(LeaseAnswer(Kind.RELEASE, *rest[0].place, rest[0].lease, offsets))
        else:
            self.ack_locked()
        self._offsets, self._acked = (), 0
        self._late.clear()


def _offsets_of(fetched: LeasedMessages) -> Sequence[int]:
    """Offsets of messages that came together. Many are mostly neighbours: the first and the last say it all."""
    count = len(fetched)
    # Fewer may have come by lanes, and then stand in the order of their priorities.
    if count > FETCH_MESSAGES_WITH_LANES:
        first, last = fetched.parts[0].offsets[0], fetched.parts[-1].offsets[-1]
        if last - first + 1 == count:
            return range(first, last + 1)
    return [offset for part in fetched.parts for offset in part.offsets]
