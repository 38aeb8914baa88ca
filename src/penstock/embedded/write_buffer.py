"""Messages that were put and are not in the log yet: many puts become one batch.

A put is given its id here, so the order of the ids is the order of the list. To number it and to append it has to be
one step for all threads, and a lock costs more than everything else in a `put` together. A running generator cannot be
entered a second time, which makes it a lock that costs nothing: a thread that comes while another one is inside gets
ValueError and tries again. A Ctrl-C inside ends the generator; then a new one goes on from what is in the list.
"""

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from operator import countOf
from threading import Lock
from time import sleep
from typing import Any, NamedTuple

import msgspec

from ..api.groups import DescribeBacklog
from ..api.health import SeeHealth
from ..api.publish import CheckBacklog, PublishAt
from ..api.transactions import SeeTransactionStats
from ..broker.admission import NEARLY_FULL
from ..broker.partition.publishing import size_of
from ..codec.blobs import Blobs, JoinedBlobs, blobs_of
from ..codec.numbers import Numbers
from ..config import FsyncPolicy
from ..errors import NoSpace, PenstockError, Refused, Unavailable
from ..model import Buffer, Message
from ..runtime.commit import Committer, SyncPoint
from ..runtime.threads import ThreadDriver
from ..runtime.ticker import NEVER_NS
from ..transactions.states import TransactionState
from .stats import Timings

TOPIC = GROUP = "queue"
NOT_TAKEN = 0
UNEVEN = -1
# How long a put may stay in the process before it is written.
LINGER_NS = 5_000_000
# Larger values are put as messages, which are counted: a batch of small ones cannot grow over its limit of 16 MiB.
SMALL_BYTES_MAX = 1024
# A power of two. The fixed cost of a batch, some 100 us, is 12 ns a message at this many.
FLUSH_MESSAGES = 8192
# More than a flush has if many values came at once with the last ones.
_BATCH_MESSAGES_MAX = 12_288
_BATCH_BYTES_MAX = 4 << 20
# So many are encoded as quickly without their common size.
_FEW = 16

Content = bytes | Message
"""A bare value, or a message with more to it than a value."""


class Pack(msgspec.Struct, frozen=True):
    """Small values that were put together, and their bytes, joined: nothing else of them is looked at later."""

    values: list[Any]
    blob: Buffer
    # Of each of them, or UNEVEN; then `lengths` knows.
    size: int
    lengths: Numbers | None = None

    def blobs(self) -> Blobs:
        return Blobs(self.size if self.lengths is None else self.lengths, None, self.blob)


def pack_of(values: list[Any], bytes_max: int) -> Pack:
    """At least one value, of at most so many bytes each. TypeError or PenstockError: one of them is something else."""
    blob = b"".join(values)
    size = len(values[0])
    # Most are of one size, and to count those is quicker than to keep all sizes. Wider numbers than bytes are more
    # bytes than numbers, so the total has to agree as well.
    is_even = size * len(values) == len(blob) and countOf(map(len, values), size) == len(values)
    if is_even and size <= bytes_max:
        return Pack(values, blob, size)
    lengths, _, blob_again = blobs_of(values, "value", limit=bytes_max)
    return Pack(values, blob_again, UNEVEN, lengths)


class Entries(NamedTuple):
    """Messages that were checked. Bare objects are a caller's: of those only small bytes are taken."""

    messages: list[Message]


Contents = bytes | Pack | Entries

WithRoom = Callable[[Callable[[], object]], object]
"""Run a function that may raise BacklogFull; once more, if messages were acked meanwhile."""


class NumberedMessages:
    """Values and messages in the order of their ids. `last_out` is the id of the last one that left.

    `take_in` takes a small value, or several messages, and returns the id of the last one, or NOT_TAKEN. It needs no
    lock, and raises ValueError while another thread is inside, StopIteration after `stop` or a Ctrl-C. The buffer's
    lock is held for everything else.
    """

    def __init__(self, last_id: int, bytes_max: int) -> None:
        """Bare values have at most `bytes_max`."""
        self.last_out, self._bytes_max = last_id, bytes_max
        self.waiting: list[Content] = []
        # The size of all of `waiting`, if these are bare values of one size. It changes before they do, and back to a
        # size only while there are none.
        self._size = UNEVEN
        # Those of `waiting` that came as packs, each with the id of its last value.
        self._packs: deque[tuple[int, Pack]] = deque()
        # Not all of `waiting` are small bare values. Set before they come in.
        self.is_mixed = False
        self.take_in: Callable[[Contents], int]
        self.start()

    def start(self) -> None:
        """Give out ids, from the last one in here on."""
        self._numbers = generator = self._counting(self.last_out + len(self.waiting))
        next(generator)
        self.take_in = generator.send if _is_one_thread_at_a_time() else _locked(generator)

    def stop(self) -> None:
        """Give out no id until `start`."""
        while True:
            try:
                return self._numbers.close()
            except ValueError:
                sleep(0)  # Another thread is inside.

    def take_out(self, last_id: int) -> None:
        """Forget everything up to an id: it is in the log."""
        count = last_id - self.last_out
        # No call and no loop in these two lines, so neither a thread nor a Ctrl-C gets in between.
        del self.waiting[:count]
        self.last_out = last_id
        if not self.waiting:
            self.is_mixed = False
        while self._packs and self._packs[0][0] <= last_id:
            self._packs.popleft()

    def drop(self) -> None:
        """Forget everything that waits, and give out no id until `start`: their ids are given out again."""
        self.stop()
        self.waiting.clear()
        self._packs.clear()
        self.is_mixed = False

    def first(self, count: int) -> Sequence[Content]:
        """The first so many of `waiting`, or as many as there are."""
        if self._size != UNEVEN and not self.is_mixed:
            contents = self.waiting[:count]
            # Once more, since one of another size may have come before they were copied; later ones do no harm.
            size = self._size
            if size == UNEVEN or len(contents) < _FEW:
                return contents
            joined = b"".join(contents)  # type: ignore[arg-type]  # Not mixed: bare values.
            return JoinedBlobs([(Blobs(size, None, joined), len(contents))])
        count = min(count, len(self.waiting))
        last_id = self.last_out + count
        # A copy, which is one step: other threads add to them at any time.
        packs = [one for one in self._packs.copy() if one[0] - len(one[1].values) < last_id]
        if not self.is_mixed and self._is_all_of(packs, count):
            return _joined_packs([pack for _, pack in packs], count)
        contents = self.waiting[:count]
        for pack_id, pack in packs:
            # The caller may have changed a buffer since; and the first and the last may be here in part.
            size = len(pack.values)
            start = pack_id - size - self.last_out
            values = pack.blobs().items(size, b"")[max(0, -start) : count - start]
            contents[max(0, start) : start + size] = values
        return contents

    def _is_all_of(self, packs: list[tuple[int, Pack]], count: int) -> bool:
        """Whether packs are just the first so many of `waiting`: from the first one on, to the last, and no gap."""
        if not packs or packs[-1][0] != self.last_out + count:
            return False
        sizes = [len(pack.values) for _, pack in packs]
        # Of the first one a part may be out already, and as many others may stand between two packs.
        return packs[0][0] - sizes[0] == self.last_out and sum(sizes) == count

    def _counting(self, last_id: int) -> Generator[int, Any, None]:
        """Values are checked here and nowhere before: to check twice would cost as much as to take them in."""
        waiting, bytes_max, size = self.waiting, self._bytes_max, self._size
        contents = yield last_id
        while True:
            while type(contents) is bytes and len(contents) == size:
                waiting.append(contents)
                last_id += 1
                contents = yield last_id
            if type(contents) is not bytes or len(contents) > bytes_max:
                count = self._take_several(contents, last_id)
                size, last_id = self._size, last_id + count
                contents = yield last_id if count else NOT_TAKEN
            elif waiting:
                size = self._size = UNEVEN
                while waiting and type(contents) is bytes and len(contents) <= bytes_max:
                    waiting.append(contents)
                    last_id += 1
                    contents = yield last_id
            else:
                size = self._size = len(contents)

    def _take_several(self, contents: object, last_id: int) -> int:
        """How many were taken: none of what is a bare object, and neither small nor bytes."""
        if type(contents) is Pack:
            self._size = UNEVEN
            self.waiting.extend(contents.values)
            self._packs.append((last_id + len(contents.values), contents))
            return len(contents.values)
        if type(contents) is Entries:
            self._size = UNEVEN
            self.waiting.extend(contents.messages)
            return len(contents.messages)
        return 0


class Numbering:
    """Ids from one failure to the next. Those over `last_written` were dropped then, and are given out once more."""

    def __init__(self) -> None:
        self.failure: NoSpace | None = None
        self.last_written = 0

    def check(self, last_id: int) -> None:
        """Raise if the messages up to an id were dropped."""
        if self.failure is not None and last_id > self.last_written:
            raise self.failure.fresh()


class WriteBuffer:
    """Writes what was put to the only partition of a queue. Thread-safe.

    Threads that wait for a sync meet at a sync point, whose leader writes for all of them and then syncs.

    Where the disk has no room, what was put stays in memory, because its caller has the id, and later puts are refused.
    With `fsync="always"` no caller has an id of what waits: it is dropped, and the puts raise.
    """

    def __init__(
        self, driver: ThreadDriver, timings: Timings, with_room: WithRoom | None = None
    ) -> None:
        """`with_room`: the backlog of the queue is limited. Then every message is counted before it is taken in."""
        self._driver, self._clock, self._timings = driver, driver.clock, timings
        self._with_room = with_room
        self._is_always = driver.config.fsync is FsyncPolicy.ALWAYS
        self.small_bytes_max = SMALL_BYTES_MAX if with_room is None else -1
        self.messages = NumberedMessages(self._end_offset(), self.small_bytes_max)
        # Of what waits now. With `fsync="always"` every put comes by `add`, so that it is known whose is whose.
        self._numbering = Numbering()
        self._refusal: PenstockError | None = None
        # A transaction may be committed and not in the log yet, where it comes at any time. A start may have left one.
        self._is_committing = True
        self._emptied_ns = 0
        self._committer = Committer(driver.config, driver.clock, on_fatal=lambda _error: None)
        self._point: SyncPoint[WriteBuffer] = SyncPoint(self, self._committer)
        self.lock = self._point.lock
        self._restart()

    def _end_offset(self) -> int:
        return self._driver.execute(DescribeBacklog(TOPIC, 0, GROUP)).end

    def take_in_patiently(self, contents: Contents) -> int:
        """`take_in` after a failed try: another thread was inside, or a Ctrl-C or a refusal had ended the generator."""
        while True:
            take_in = self.messages.take_in
            try:
                return take_in(contents)
            except ValueError:
                sleep(0)
            except StopIteration:
                self._end_refusal()
                with self.lock:
                    if self.messages.take_in is take_in:
                        self._restart()

    def add(self, contents: Contents) -> int:
        """Take in messages, all or none; the id of the last one. With `fsync="always"` they are on the disk then.

        BacklogFull, NeverFits. NoSpace: none is there; of more than a batch perhaps the first are.
        """
        self._end_refusal()
        with self.lock:
            if type(contents) is Entries:
                if self._with_room is not None:
                    # All at once, or they would be refused when half of them are written.
                    self._write_all()
                    size = sum(map(size_of, contents.messages))
                    check = CheckBacklog(TOPIC, 0, len(contents.messages), size)
                    self._with_room(partial(self._driver.execute, check))
                self.messages.is_mixed = True
            last_id, numbering = self._take_in(contents), self._numbering
        if self._is_always:
            self._point.wait()
            numbering.check(last_id)
        return last_id

    def _take_in(self, contents: Contents) -> int:
        """With the lock held."""
        while True:
            try:
                return self.messages.take_in(contents)
            except ValueError:
                sleep(0)
            except StopIteration:
                self._check()
                self._restart()

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal.fresh()

    def _end_refusal(self) -> None:
        """Raise if puts are refused. Whether the disk has room again is tried first."""
        if isinstance(self._refusal, NoSpace):
            self.try_again()
        self._check()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Everything is written before the block, and until its end no id is given out: the block may append."""
        with self.lock:
            self.messages.stop()
            try:
                self._write_all()
                yield
            finally:
                self._restart()

    @contextmanager
    def committing(self) -> Iterator[None]:
        """`exclusive` for a block that commits a transaction. Puts are refused until it is in the log."""
        with self.exclusive():
            self._is_committing = True
            yield

    def _restart(self) -> None:
        """Give out ids from the end of the log on, which a block of `exclusive` may have moved."""
        if self._is_committing:
            states = self._driver.execute(SeeTransactionStats()).states
            if states.get(TransactionState.PREPARE_COMMIT.value):
                self.refuse(
                    Unavailable("a transaction is committed and not applied yet; try again")
                )
                return
            self._is_committing = False
        if not self.messages.waiting:
            self.messages.last_out = self._end_offset()
        if self._refusal is None:
            self.messages.start()

    def due_ns(self) -> int:
        """When what waits has to be written: nothing in there is older than the last time it was empty."""
        return self._emptied_ns + LINGER_NS if self.messages.waiting else NEVER_NS

    @property
    def is_refusing(self) -> bool:
        return self._refusal is not None

    def flush(self) -> None:
        """Write everything that was put so far. NoSpace: it stays in memory, and puts are refused.

        With `fsync="always"` only the puts raise that.
        """
        if self.messages.waiting:
            with self.lock:
                self._write_all()
        else:
            self._emptied_ns = self._clock.monotonic_ns()

    def _write_all(self) -> None:
        messages = self.messages
        while messages.waiting:
            started_ns = self._clock.monotonic_ns()
            try:
                # A Ctrl-C before `take_out` does no harm: the next try is told that the batch is in the log.
                (next_offset, is_disk_full), _ = self._driver.begin(self._next_batch())
            except NoSpace as error:
                if self._is_always:
                    self._drop(error.fresh())
                    break
                self.refuse(error)
                raise
            messages.take_out(next_offset)
            self._timings.write.add(self._clock.monotonic_ns() - started_ns)
            if is_disk_full:
                self.refuse(NoSpace(reason=NEARLY_FULL))
        self._emptied_ns = self._clock.monotonic_ns()

    def _drop(self, failure: NoSpace) -> None:
        """Forget what waits. Each put has its numbering, and finds there that it has failed."""
        numbering, self._numbering = self._numbering, Numbering()
        numbering.last_written, numbering.failure = self.messages.last_out, failure
        self.messages.drop()

    def _next_batch(self) -> PublishAt:
        contents, offset = self.messages.first(_BATCH_MESSAGES_MAX), self.messages.last_out
        if not self.messages.is_mixed:
            return PublishAt(TOPIC, 0, offset, contents)  # type: ignore[arg-type]  # Not mixed: bare values.
        batch: list[Message] = []
        size = 0
        for one in islice(contents, FLUSH_MESSAGES):
            message = Message(one) if isinstance(one, bytes) else one
            size += size_of(message)
            if size > _BATCH_BYTES_MAX and batch:
                break
            batch.append(message)
        return PublishAt(TOPIC, 0, offset, messages=batch)

    def sync(self) -> None:
        """Return once everything put, and all that the driver was asked for so far, is on the disk."""
        self._point.wait()

    def plan_sync(self) -> "WriteBuffer":
        """For the sync point: this buffer is what it runs."""
        return self

    def run(self) -> None:
        self.flush()
        self._driver.sync()

    def synced(self, plan: "WriteBuffer") -> None:
        """For the sync point."""

    def refuse(self, reason: PenstockError) -> None:
        """Take in nothing more until `try_again`."""
        self._refusal = reason.fresh()
        self.messages.stop()

    def try_again(self) -> None:
        """Accept puts again if the disk has room again, and the transaction that was committed is applied."""
        if self._is_committing:
            # Decisions go on with a sync.
            self._driver.sync()
            with self.lock:
                self._refusal = None
                self._restart()
        elif isinstance(self._refusal, NoSpace) and not self._driver.execute(SeeHealth()).is_full:
            with self.lock:
                if isinstance(self._refusal, NoSpace):
                    self._refusal = None
                    # Before another put is taken in: while there is no room there must not be more and more of them.
                    self._write_all()
                    self._restart()

    def close(self) -> None:
        """Refuse from now on, and write what is left."""
        try:
            with self.lock:
                self.refuse(Refused("the queue is closed"))
                self._write_all()
        finally:
            self._committer.close()


def packed(values: list[Any], bytes_max: int) -> Pack | None:
    """Values that can be taken in without another look; None if one of them is large, or no bytes."""
    if not 0 < len(values) <= FLUSH_MESSAGES:
        return None
    try:
        return pack_of(values, bytes_max)
    except (TypeError, PenstockError):
        return None


def _joined_packs(packs: list[Pack], count: int) -> JoinedBlobs:
    sizes = {pack.size for pack in packs}
    size = sizes.pop()
    if sizes or size == UNEVEN:
        return JoinedBlobs([(pack.blobs(), len(pack.values)) for pack in packs])
    return JoinedBlobs([(Blobs(size, None, b"".join([pack.blob for pack in packs])), count)])


def _locked(numbers: Generator[int, Any, None]) -> Callable[[Any], int]:
    """For interpreters that run threads side by side: there only a lock is a lock."""
    lock = Lock()

    def take_in(contents: Any) -> int:
        with lock:
            return numbers.send(contents)

    return take_in


def _is_one_thread_at_a_time() -> bool:
    is_enabled: Callable[[], bool] | None = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or is_enabled()
