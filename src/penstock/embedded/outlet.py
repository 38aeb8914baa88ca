"""Messages on their way out of a queue that acks by itself: leased many at a time, handed out one by one.

Handing one out is taking it off a deque, which needs no lock. What was handed out is acked behind the caller's back:
when the next messages are fetched, a few milliseconds later by the ticker, or when the queue closes. What nobody took
goes back and does not count as an attempt.
"""

from collections import deque
from collections.abc import Callable, Sequence

from pyroaring import BitMap64

from ..api.consume import Poll
from ..api.leased import LeasedMessages
from ..api.received import Received
from ..broker import consumption
from ..broker.giving_back import give_back, give_back_all
from ..broker.partition import Now, Partition
from ..config import DeliveryConfig
from ..delivery import commands
from ..runtime.threads import ThreadDriver
from ..runtime.ticker import NEVER_NS

AUTO = "auto"
# What a lease and its ack cost once, some 150 us, is 20 ns a message at this many. They wait in memory, so large ones
# are fetched a few at a time.
FETCH_MESSAGES = 8192
FETCH_BYTES = 4 << 20
# What is fetched has passed the lanes already; with priorities about, few messages should have.
FETCH_MESSAGES_WITH_LANES = 64
# The longest there is, and renewed: nobody else can open the directory, so until this process ends all of it is ours.
HELD_MS = DeliveryConfig().visibility_timeout_ms_max
_RENEW_NS = HELD_MS * 1_000_000 // 2


class Outlet:
    """Not thread-safe but for `ready`: everything else with the driver's lock held."""

    def __init__(self, driver: ThreadDriver, find: Callable[[], Partition], group: str) -> None:
        self._driver, self._find, self._group = driver, find, group
        self.ready: deque[Received] = deque()
        # Of what was fetched last, from the first on. Not the messages: those are for whoever got them to let go of.
        self._offsets: Sequence[int] = ()
        self._lease = 0
        self._fetched_to = 0
        self._acked = 0
        self.renew_at_ns = NEVER_NS
        # LeasedMessages out by themselves, to somebody who waited: lease and offset.
        self._singles: deque[tuple[int, int]] = deque()
        # Taken off the deque and not handed out, because their time to live was over.
        self._late = BitMap64()
        self._aside: deque[Received] = deque()

    def take_over(self, now: Now) -> None:
        """What a former process had fetched and not finished is there again."""
        partition = self._find()
        give_back_all(partition, partition.group(self._group), AUTO, now)

    def fetch(self, now: Now) -> bool:
        """Lease the next messages; whether there are any. Only when all before are handed out."""
        # First of all: whoever takes some without the lock after the ack would never have them acked.
        if self.ready:
            return True  # Somebody else was quicker.
        self.ack(now)
        partition = self._find()
        command = Poll(partition.topic, self._group, AUTO, fetch_limit(partition), HELD_MS)
        fetched = self._driver.execute_locked(command, now)
        self._fetched_to = partition.messages.end_offset
        self._late.clear()
        # Straight from the columns, without a list in between: that is a tenth of a fetch. What is handed out is
        # counted after that, so that whoever is interrupted here acks nothing that nobody has seen.
        for part in fetched.parts:
            self.ready.extend(part.messages())
        self._lease = fetched.parts[0].lease if fetched else 0
        self._offsets, self._acked = offsets_of(fetched), 0
        self.renew_at_ns = now.monotonic_ns + _RENEW_NS if fetched else NEVER_NS
        return bool(fetched)

    def recall(self, now: Now) -> None:
        """Give back what nobody took, if something more urgent has come since it was fetched."""
        if self.ready and self._find().machine.lanes.last_urgent >= self._fetched_to:
            self.empty(now)

    def renew(self, now: Now) -> None:
        """Keep what is fetched, however slowly it is taken."""
        if now.monotonic_ns < self.renew_at_ns:
            return
        partition = self._find()
        delivery = partition.group(self._group)
        # The command itself, because the one for users first ends what is late: after a long jump of a test's clock
        # that would be everything.
        for lease in {one.lease for one in self.ready.copy()}:
            held = delivery.leases.holding(lease)
            outcome = commands.extend(delivery, lease, held, duration_ms=HELD_MS)
            partition.record(outcome.records, now)
        self.renew_at_ns = now.monotonic_ns + _RENEW_NS

    def poll_of_one(self) -> Poll:
        """The poll of a caller that waits."""
        return Poll(self._find().topic, self._group, AUTO, 1, HELD_MS)

    def note_single(self, message: Received) -> None:
        """Somebody who waited has got this one. Needs no lock."""
        self._singles.append((message.lease, message.offset))

    def ack(self, now: Now) -> None:
        """Finish everything that was handed out so far."""
        self._return_late(now)
        while self._singles:
            lease, offset = self._singles.popleft()
            self._finish(lease, BitMap64((offset,)), now)
        handed_out = len(self._offsets) - len(self.ready)
        if handed_out > self._acked:
            chunk = self._offsets[self._acked : handed_out]
            self._acked = handed_out
            self._finish(self._lease, BitMap64(chunk) - self._late, now)

    def _finish(self, lease: int, offsets: BitMap64, now: Now) -> None:
        partition = self._find()
        consumption.ack(partition, partition.group(self._group), lease, offsets, now)
        self._driver.note_change()

    def set_aside(self, message: Received) -> None:
        """Its time was over before its turn came: the next fetch deals with it as the queue says. Needs no lock."""
        self._late.add(message.offset)
        self._aside.append(message)

    def _return_late(self, now: Now) -> None:
        while self._aside:
            message = self._aside.popleft()
            partition, offsets = self._find(), BitMap64((message.offset,))
            give_back(partition, partition.group(self._group), message.lease, offsets, now)

    def empty(self, now: Now) -> None:
        """Finish what was handed out and give the rest back."""
        rest: list[Received] = []
        while self.ready:
            try:
                rest.append(self.ready.popleft())
            except IndexError:
                break  # Somebody took the last one; then it is theirs.
        if rest:
            offsets, partition = BitMap64([one.offset for one in rest]), self._find()
            give_back(partition, partition.group(self._group), rest[0].lease, offsets, now)
            self._late |= offsets
        self.ack(now)
        self._offsets, self._acked = (), 0
        self._late.clear()


def fetch_limit(partition: Partition) -> int:
    """As many messages of average size as should wait in memory."""
    log = partition.messages
    average = log.size // max(1, log.end_offset - log.start_offset) + 1
    most = FETCH_MESSAGES if partition.machine.lanes.is_flat else FETCH_MESSAGES_WITH_LANES
    return max(1, min(most, FETCH_BYTES // average))


def offsets_of(fetched: LeasedMessages) -> Sequence[int]:
    """Offsets of messages that came together. Many are mostly neighbours: the first and the last say it all."""
    count = len(fetched)
    # Fewer may have come by lanes, and then stand in the order of their priorities.
    if count > FETCH_MESSAGES_WITH_LANES:
        first, last = fetched.parts[0].offsets[0], fetched.parts[-1].offsets[-1]
        if last - first + 1 == count:
            return range(first, last + 1)
    return [offset for part in fetched.parts for offset in part.offsets]
