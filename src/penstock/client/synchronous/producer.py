# Made from ../asynchronous/producer.py by tools/unasync.py; change that one.
"""The producer: `send` one by one, stored in large batches, each exactly once."""

import time
from collections import deque
from collections.abc import Callable
from secrets import randbits
from threading import Lock as Guard
from typing import NamedTuple, Self

import msgspec

from ...api.arguments import choice, number, plain_function, text, whole_number
from ...api.units import Duration, duration_s
from ...errors import PenstockError, Refused, Unreachable
from ..calls import Call, Content
from ..failures import wait_asked_s
from ..producer_batch import (
    COMPRESSIONS,
    LIMITS,
    AfterFailure,
    Batch,
    CheckedMessage,
    Numbering,
    Tally,
    after_failure,
    call_of,
    checked_message,
    extra_of,
    partition_of,
)
from ..publish import BatchStored, HeadersIn, Published
from ..retry import chance
from ..topics import describe
from ..value_appender import BatchLimits
from .io import Background, Connection, Event, Lock, acquire_within
from .pool import Pool

_SPACE_CHECK_S = 1.0
# A server nearby has answered by then, and `send` takes the answer sooner than a background that has to be woken.
_SOON_S = 0.005
# The next `send` takes an answer that came; the background takes it if none comes for so many lingers.
_DUE_LINGERS = 4
# The least time that the background waits for answers in one round.
_ROUND_S_MIN = 0.001
_LINGER_S_MIN = 0.0001


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One message on its way."""

    batch: Batch
    index: int

    def result(self, timeout_s: float | None = None) -> Published:
        """Where the message is stored, once it is. Raises the error if it failed, TimeoutError if it takes too long."""
        batch = self.batch
        longest_s = None if timeout_s is None or batch.settled.is_set() else duration_s(timeout_s)
        if not batch.settled.wait(longest_s):
            raise TimeoutError(f"not stored within {longest_s:g} s; it still may be")
        if batch.error is not None:
            raise batch.error
        stored = batch.stored
        assert stored is not None, "settled means stored or failed"
        offset = stored.base_offset + self.index
        return Published(stored.partition, offset, stored.duplicate, stored.guarantee)


class _Request(NamedTuple):
    """A batch and the call that stores it. A retry keeps the call, and with it the numbers of the messages."""

    batch: Batch
    call: Call[BatchStored]


class PartitionQueue:
    """The batches of one partition. They are stored in order, so one request is under way at a time."""

    def __init__(self, number: int, numbering: Numbering | None) -> None:
        self.number, self.numbering = number, numbering
        self.open_batch: Batch | None = None
        self.sealed: deque[Batch] = deque()
        # For the task or thread that sends and collects.
        self.lock = Lock()
        self.in_flight: tuple[_Request, Connection] | None = None
        self.sent_at_s = 0.0
        # A request that failed, and when to send it again.
        self.retry: tuple[_Request, float] | None = None

    @property
    def is_idle(self) -> bool:
        return not (self.open_batch or self.sealed or self.in_flight or self.retry)


def _left_s(until_s: float) -> float:
    return max(0.0, until_s - time.monotonic())


def _no_batch(_value: bytes) -> Delivery:
    raise StopIteration


class Producer:
    """Collects messages and stores them in batches, when one is full or its first message has waited `linger_ms`.

        with client.producer("orders") as producer:
            for line in lines:
                producer.send(line)
        # everything is stored here, or an error was raised

    `send` waits only when the buffer is full. A batch whose answer is lost is sent again with the same numbers, so it
    is stored once. The error of a message that could not be stored comes from its delivery, from `on_delivery`, and
    from the next `flush` or `close`.
    """

    def __init__(
        self,
        pool: Pool,
        topic: str,
        *,
        acks: str = "leader",
        linger_ms: float = 5,
        batch_messages_max: int = 100_000,
        batch_bytes_max: int = 1 << 20,
        buffer_bytes_max: int = 32 << 20,
        delivery_timeout_s: float = 120,
        is_idempotent: bool = True,
        compression: str = "none",
        on_delivery: Callable[[int, Exception | None], None] | None = None,
    ) -> None:
        whole_number("buffer_bytes_max", buffer_bytes_max, 0)
        number("delivery_timeout_s", delivery_timeout_s, 0)
        plain_function("on_delivery", on_delivery)
        self.topic = topic
        self._pool, self._acks = pool, acks
        self._compression = choice(
            "compression", text("compression", compression).lower(), COMPRESSIONS
        )
        self._linger_s = max(number("linger_ms", linger_ms, 0) / 1000, _LINGER_S_MIN)
        self._batch_limits = BatchLimits(
            whole_number("batch_bytes_max", batch_bytes_max, 1),
            whole_number("batch_messages_max", batch_messages_max, 1),
            LIMITS.value_bytes_max,
        )
        self._buffer_bytes_max = buffer_bytes_max
        self._delivery_timeout_s = delivery_timeout_s
        self._producer_id = randbits(62) if is_idempotent else None
        self._on_delivery = on_delivery
        # No task ever waits for the guard, because it is not held over an await; threads do.
        self._guard = Guard()
        self._queues: list[PartitionQueue] = []
        # The partition that gets messages without a key, and what appends plain values to its open batch.
        self._turn = randbits(16)
        self._append: Callable[[bytes], Delivery] = _no_batch
        self._tally = Tally()
        self._has_space, self._wake, self._stop = Event(), Event(), Event()
        self._background: Background | None = None
        # Whether the background has nothing to do, and how many flushes are under way.
        self._is_asleep, self._flushing = True, 0
        self._start_lock = Lock()

    @property
    def stored(self) -> int:
        """How many messages are stored so far."""
        return self._tally.stored

    @property
    def failed(self) -> int:
        return self._tally.failed

    @property
    def buffered_bytes(self) -> int:
        """How much is sealed and not stored yet, counted as `buffer_bytes_max` is."""
        return self._tally.buffered_bytes

    def send(
        self,
        value: Content,
        key: Content = None,
        headers: HeadersIn | None = None,
        priority: int | None = None,
        ttl: Duration | None = None,
        *,
        partition: int | None = None,
    ) -> Delivery:
        """Take a message. Without `partition` its key decides, and without a key batches take turns.

        `priority` is 0 (first) to 4, usually 2; with `ttl` a message is not delivered after so long.
        """
        # The plain case in as few steps as possible: a million messages a second take this way.
        if (
            type(value) is bytes
            and key is None
            and headers is None
            and priority is None
            and ttl is None
            and partition is None
        ):
            try:
                return self._append(value)
            except (StopIteration, ValueError):
                # The batch is full or sealed, or another thread is appending to it.
                pass
        message = checked_message(value, key, extra_of(headers or (), priority, ttl))
        return self._send_checked(message, partition)

    def _send_checked(self, message: CheckedMessage, partition: int | None) -> Delivery:
        if not self._queues:
            self._start()
        # Plain values come here once a batch, all others each time.
        self._wait_for_space()
        full: list[PartitionQueue] = []
        with self._guard:
            while True:
                queue = self._queue_of(message.key, partition)
                batch = queue.open_batch or self._open_batch(queue)
                delivery: Delivery | None = batch.add(message)
                if delivery is not None:
                    break
                self._seal(queue, batch)
                full.append(queue)
            if message.key is None and partition is None:
                self._append = batch.append
        for queue in full:
            self._send_sealed(queue, _SOON_S)
            self._wait_for_space()
        return delivery

    def _queue_of(self, key: bytes | None, partition: int | None) -> PartitionQueue:
        count = len(self._queues)
        if partition is not None:
            if type(partition) is not int:
                partition = whole_number("partition", partition, 0)
            if not 0 <= partition < count:
                raise Refused(f"partition must be in 0..{count - 1}, got {partition}")
            return self._queues[partition]
        return self._queues[self._turn % count if key is None else partition_of(key, count)]

    def _open_batch(self, queue: PartitionQueue) -> Batch:
        """Open a batch of a partition. The caller holds the guard."""
        if self._stop.is_set():
            raise Refused("the producer was closed")
        now = time.time_ns(), time.monotonic()
        batch = Batch(queue.number, now, self._batch_limits, Event(), Delivery)
        queue.open_batch = batch
        if self._is_asleep:
            self._wake.set()
        return batch

    def _seal(self, queue: PartitionQueue, batch: Batch) -> None:
        """Seal the open batch of a partition; the next partition has its turn. The caller holds the guard."""
        batch.seal()
        if queue is self._queue_of(None, None):
            self._turn += 1
        queue.open_batch = None
        queue.sealed.append(batch)
        self._tally.sealed(batch)

    def _seal_all(self, before_s: float) -> None:
        """Seal the batches that were opened before. The caller holds the guard."""
        for queue in self._queues:
            if queue.open_batch is not None and queue.open_batch.created_s <= before_s:
                self._seal(queue, queue.open_batch)

    def _start(self) -> None:
        """Ask for the number of partitions, and start the background. NotFound if there is no such topic."""
        with self._start_lock:
            if not self._queues:
                topic = self._pool.run(describe(self.topic))
                self._background = Background(self._run_background, "penstock-producer")
                self._grow(topic.partitions)

    def _grow(self, partitions: int) -> None:
        """Add queues up to this number of partitions; it never shrinks."""
        with self._guard:
            for number in range(len(self._queues), partitions):
                identity = self._producer_id
                numbering = None if identity is None else Numbering(identity)
                self._queues.append(PartitionQueue(number, numbering))

    def _wait_for_space(self) -> None:
        while self._tally.buffered_bytes > self._buffer_bytes_max:
            # Cleared before the second look: a batch that is settled in between sets it again.
            self._has_space.clear()
            if self._tally.buffered_bytes > self._buffer_bytes_max:
                self._wake.set()
                self._has_space.wait(_SPACE_CHECK_S)

    def _send_sealed(
        self,
        queue: PartitionQueue,
        within_s: float | None = None,
        *,
        is_patient: bool = True,
    ) -> None:
        """Send the sealed batches. The answer to the last one is collected later, while the next batch is filled.

        With `within_s` an answer that takes longer is left to the background, with the batches behind it, and so long
        this waits for the background to send: two threads that send take far longer than one after the other.
        `is_patient`: see `_send`.
        """
        if not queue.sealed or queue.retry or not acquire_within(queue.lock, within_s or 0):
            return
        try:
            while queue.sealed and not queue.retry:
                if not self._collect_within(queue, within_s):
                    return
                if not queue.retry:
                    self._send_batch(queue, queue.sealed.popleft(), is_patient=is_patient)
        finally:
            queue.lock.release()

    def _collect_within(self, queue: PartitionQueue, within_s: float | None) -> bool:
        """Collect the answer if there is one to come; False if it takes longer. One over the timeout is an error."""
        if queue.in_flight is None:
            return True
        waited_s = 0.0
        if within_s is not None and not queue.in_flight[1].is_answered(within_s):
            waited_s = time.monotonic() - queue.sent_at_s
            if waited_s < self._pool.settings.timeout_s:
                self._wake.set()
                return False
        (request, connection), queue.in_flight = queue.in_flight, None
        try:
            stored = self._pool.end(request.call, connection, waited_s=waited_s)
        except PenstockError as error:
            self._fail(queue, request, error)
        except BaseException:
            self._interrupt(queue, request)
            raise
        else:
            self._settle(queue, request.batch, stored, None)
        return True

    def _send_batch(self, queue: PartitionQueue, batch: Batch, *, is_patient: bool) -> None:
        try:
            request = self._request(queue, batch)
        except PenstockError as error:
            self._settle(queue, batch, None, error)
            return
        self._send(queue, request, is_patient=is_patient)

    def _request(self, queue: PartitionQueue, batch: Batch) -> _Request:
        numbering = queue.numbering
        call = call_of(batch, self.topic, self._acks, self._compression, numbering)
        return _Request(batch, call)

    def _send(self, queue: PartitionQueue, request: _Request, *, is_patient: bool) -> None:
        """Send a request. Not `is_patient`: only if a connection is free now, while there are answers to collect.

        The background is not patient: the requests whose answers it has to collect may have all connections.
        """
        request.batch.tries += 1
        try:
            if is_patient or not any(one.in_flight for one in self._queues):
                connection: Connection | None = self._pool.begin(request.call)
            else:
                connection = self._pool.begin_now(request.call)
        except PenstockError as error:
            self._fail(queue, request, error)
            return
        except BaseException:
            self._interrupt(queue, request)
            raise
        if connection is None:
            request.batch.tries -= 1
            queue.retry = (request, time.monotonic())
            return
        queue.sent_at_s = time.monotonic()
        queue.in_flight = (request, connection)

    def _interrupt(self, queue: PartitionQueue, request: _Request) -> None:
        """The task that waited for a request was cancelled: the background goes on with the batch."""
        request.batch.is_doubtful = True
        if queue.numbering is None:
            # Without numbers a second request might store it twice.
            error = Unreachable(self._pool.name, "it was interrupted", is_sent=True)
            self._settle(queue, request.batch, None, error)
            return
        queue.retry = (request, time.monotonic())
        self._wake.set()

    def _fail(self, queue: PartitionQueue, request: _Request, error: PenstockError) -> None:
        now_s, batch, numbering = time.monotonic(), request.batch, queue.numbering
        is_late = now_s - batch.created_s > self._delivery_timeout_s
        step = after_failure(error, batch, is_numbered=numbering is not None, is_late=is_late)
        if step is AfterFailure.GIVE_UP:
            if numbering is not None and batch.is_doubtful:
                numbering.start_again()
            self._settle(queue, batch, None, error)
            return
        if step is AfterFailure.RENUMBER and numbering is not None:
            numbering.start_again()
            request = self._request(queue, batch)
        pause_s = self._pool.settings.retry.pause_s(batch.tries, chance())
        queue.retry = (request, now_s + max(pause_s, wait_asked_s(error)))
        self._wake.set()

    def _settle(
        self,
        queue: PartitionQueue,
        batch: Batch,
        stored: BatchStored | None,
        error: PenstockError | None,
    ) -> None:
        if stored is not None and queue.numbering is not None:
            queue.numbering.stored(batch.count)
        batch.stored, batch.error = stored, error
        with self._guard:
            self._tally.settled(batch)
        batch.clear()
        batch.settled.set()
        self._has_space.set()
        if stored is not None and stored.partitions > len(self._queues):
            self._grow(stored.partitions)
        if self._on_delivery is not None:
            self._on_delivery(batch.count, error)

    def _run_background(self) -> None:
        """Seal batches that have waited long enough, collect answers that no `send` collects, send failed ones again.

        It waits for answers no longer than for messages, so that a silent partition does not delay the others.
        """
        while True:
            with self._guard:
                self._is_asleep = all(one.is_idle for one in self._queues)
                if self._is_asleep and self._stop.is_set():
                    return
            self._wake.wait(None if self._is_asleep else self._linger_s)
            self._wake.clear()
            with self._guard:
                self._is_asleep = False
                self._seal_all(time.monotonic() - self._linger_s)
            until_s = time.monotonic() + max(self._linger_s, _ROUND_S_MIN)
            for queue in self._queues:
                self._send_sealed(queue, _left_s(until_s), is_patient=False)
                if queue.retry or self._is_answer_due(queue):
                    self._finish(queue, _left_s(until_s), is_patient=False)

    def _is_answer_due(self, queue: PartitionQueue) -> bool:
        """Whether the background should collect the answer, because no `send` will do it soon."""
        if queue.in_flight is None:
            return False
        (batch, _), _ = queue.in_flight
        if not queue.open_batch or self._flushing or batch.tries > 1:
            return True
        return time.monotonic() - queue.sent_at_s > _DUE_LINGERS * self._linger_s

    def _finish(
        self,
        queue: PartitionQueue,
        within_s: float | None = None,
        *,
        is_patient: bool = True,
    ) -> None:
        """Send a failed request again if it is time, and collect the answer."""
        if not acquire_within(queue.lock, 0):
            return
        try:
            if queue.retry is not None and queue.retry[1] <= time.monotonic():
                (request, _), queue.retry = queue.retry, None
                self._send(queue, request, is_patient=is_patient)
            self._collect_within(queue, within_s)
        finally:
            queue.lock.release()

    def flush(self) -> None:
        """Return when everything sent so far is stored. If some could not be stored, the first error is raised."""
        with self._guard:
            self._seal_all(time.monotonic())
            unsettled = list(self._tally.unsettled)
            self._flushing += 1
        try:
            for queue in self._queues:
                self._send_sealed(queue)
            for queue in self._queues:
                self._finish(queue)
            for batch in unsettled:
                if not batch.settled.is_set():
                    self._wake.set()
                    batch.settled.wait()
        finally:
            with self._guard:
                self._flushing -= 1
        with self._guard:
            if (error := self._tally.take_error()) is not None:
                raise error

    def close(self) -> None:
        """Flush and stop. If it is interrupted (Ctrl-C), it waits for one more try of each batch, no longer."""
        try:
            self.flush()
        except BaseException as error:
            if not isinstance(error, Exception):
                self._delivery_timeout_s = 0
            raise
        finally:
            self._stop.set()
            self._wake.set()
            if self._background is not None:
                self._background.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
