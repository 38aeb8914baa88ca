"""What users of a queue can see of it without changing it: the next messages, and figures."""

from collections import deque
from itertools import islice

from ..api.arguments import whole_count
from ..api.dead_letters import BrowseDeadLetters
from ..api.fetch import Peek
from ..api.groups import DescribeBacklog
from ..api.received import Received
from ..runtime.threads import ThreadDriver
from .prefetch import Prefetch
from .stats import QueueStats, Timings
from .write_buffer import GROUP, TOPIC, WriteBuffer

# They are read one by one to be counted, so many at a time: other threads wait meanwhile.
_DEAD_LETTERS_A_PAGE = 10_000


class QueueInspection:
    """The part of a queue that looks."""

    _driver: ThreadDriver
    _buffer: WriteBuffer
    _prefetch: Prefetch
    _ready: deque[Received]
    _timings: Timings

    def peek(self) -> Received | None:
        """The message that `get` would return, without taking it."""
        return next(iter(self.peek_many(1)), None)

    def peek_many(self, limit: int = 10) -> list[Received]:
        """The next messages in the order in which they would be handed out, without taking them."""
        count = whole_count("limit", limit)
        self._buffer.flush()
        with self._prefetch.lock:
            fetched = list(islice(self._ready.copy(), count))
            return fetched + self._driver.execute(Peek(TOPIC, 0, GROUP, count - len(fetched)))

    def stats(self) -> QueueStats:
        """Counts, sizes and percentiles, as of now. Dead letters are read to be counted: many take a while."""
        self._driver.settle()
        dead_letters = self._count_dead_letters()
        self._buffer.flush()
        with self._prefetch.lock:
            self._prefetch.ack_locked()
            # These are leased to the queue itself, and no caller has got them yet.
            unread = len(self._ready)
            found = self._driver.execute(DescribeBacklog(TOPIC, 0, GROUP))
        return QueueStats(
            put=found.end,
            waiting=found.unfinished - found.in_flight + unread,
            in_flight=found.in_flight - unread,
            done=found.end - found.unfinished,
            expired=found.expired,
            dead_letters=dead_letters,
            first_id=found.start + 1,
            next_id=found.end + 1,
            bytes=found.size_bytes,
            segments=found.segments,
            write=self._timings.write.percentiles(),
            age=self._timings.age.percentiles(),
            delayed=found.delayed,
        )

    def _count_dead_letters(self) -> int:
        found, cursor = 0, (0, 0)
        while True:
            command = BrowseDeadLetters(TOPIC, limit=_DEAD_LETTERS_A_PAGE, cursor=cursor)
            page = self._driver.execute(command)
            found += len(page.letters)
            if page.cursor is None:
                return found
            cursor = page.cursor
