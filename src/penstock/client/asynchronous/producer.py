"""The producer: `send` one by one, stored in large batches, each exactly once."""

import time
from collections.abc import Callable
from secrets import randbits
from types import TracebackType
from typing import Self

import msgspec

from ...api.arguments import number, plain_function, whole_number
from ...api.units import Duration, duration_s
from ...errors import PenstockError, Refused, Unreachable
from ..calls import Call, Content
from ..failures import wait_asked_s
from ..producer_batch import (
    Batch,
    CheckedMessage,
    Next,
    Numbering,
    Tally,
    Wanted,
    after,
    call_of,
    compression_of,
    extra_of,
    given,
    partition_of,
    room_of,
)
from ..publish import BatchStored, HeadersIn, Published
from ..settings import chance
from ..topics import describe
from .io import Background, Connection, Guard, Lock, Signal
from .partition_queue import AsyncPartitionQueue
from .pool import AsyncPool

_ROOM_CHECK_S = 1.0
# A server nearby has answered by then; and the background, which would have to be woken, is slower than whoever sends.
_SOON_S = 0.005
# An answer that came is taken by whoever sends next; only if nobody does, the background asks for it.
_LEFT_ALONE_LINGERS = 4
# The least that the background waits for answers at a time: it goes round all the time while one is missing.
_ROUND_S_MIN = 0.001
_LINGER_S_MIN = 0.0001


class AsyncDelivery(msgspec.Struct, frozen=True, gc=False):
    """One message on its way."""

    batch: Batch
    index: int

    async def result(self, timeout_s: float | None = None) -> Published:
        """Where it is stored, once it is; or the error. TimeoutError if that takes too long."""
        batch = self.batch
        longest_s = None if timeout_s is None or batch.settled.is_set else duration_s(timeout_s)
        if not await batch.settled.wait(longest_s):
            raise TimeoutError(f"not stored within {longest_s:g} s; it still may be")
        if batch.error is not None:
            raise batch.error
        stored = batch.stored
        assert stored is not None, "settled means stored or failed"
        offset = stored.base_offset + self.index
        return Published(stored.partition, offset, stored.duplicate, stored.guarantee)


def _left_s(until_s: float) -> float:
    return max(0.0, until_s - time.monotonic())


def _nobody(_value: bytes) -> AsyncDelivery:
    raise StopIteration


class AsyncProducer:
    """Collects messages and stores them in batches, when one is full or its first message has waited `linger_ms`.

        async with client.producer("orders") as producer:
            for line in lines:
                await producer.send(line)
        # everything is stored here, or an error was raised

    `send` waits only when the buffer is full. A batch whose answer is lost is sent again with the same number, so it is
    stored once. What could not be stored is said by the delivery, by `on_delivery`, and by the next `flush` or `close`.
    """

    def __init__(
        self,
        pool: AsyncPool,
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
        whole_number("batch_messages_max", batch_messages_max, 1)
        whole_number("batch_bytes_max", batch_bytes_max, 1)
        whole_number("buffer_bytes_max", buffer_bytes_max, 0)
        number("delivery_timeout_s", delivery_timeout_s, 0)
        plain_function("on_delivery", on_delivery)
        self.topic = topic
        self._pool = pool
        self._wanted = Wanted(topic, acks, compression_of(compression))
        self._linger_s = max(number("linger_ms", linger_ms, 0) / 1000, _LINGER_S_MIN)
        self._batch_room = room_of(batch_bytes_max, batch_messages_max)
        self._buffer_bytes_max = buffer_bytes_max
        self._delivery_timeout_s = delivery_timeout_s
        self._producer_id = randbits(62) if is_idempotent else None
        self._on_delivery = on_delivery
        self._guard = Guard()
        self._outlets: list[AsyncPartitionQueue] = []
        # Whose turn it is, and what takes plain values for it.
        self._turn = randbits(16)
        self._append: Callable[[bytes], AsyncDelivery] = _nobody
        self._tally = Tally()
        self._room, self._wake, self._stop = Signal(), Signal(), Signal()
        self._background: Background | None = None
        # Whether the background has nothing to do, and how many wait for everything to be stored.
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

    async def send(
        self,
        value: Content,
        key: Content = None,
        headers: HeadersIn | None = None,
        priority: int | None = None,
        ttl: Duration | None = None,
        *,
        partition: int | None = None,
    ) -> AsyncDelivery:
        """Take a message. Without `partition` its key decides, and without a key batches take turns.

        `priority` is 0 (first) to 4, usually 2; with `ttl` a message is not delivered after so long.
        """
        # The plain case, in as few steps as it can be done: this is what a million messages a second go through.
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
                # It is full, or sealed; or another thread is just inside.
                pass
        one = given(value, key, extra_of(headers or (), priority, ttl))
        return await self._send_with_care(one, partition)

    async def _send_with_care(self, one: CheckedMessage, partition: int | None) -> AsyncDelivery:
        if not self._outlets:
            await self._start()
        # However batches were sealed: plain values come by here once a batch, all others each time.
        if self._tally.buffered_bytes > self._buffer_bytes_max:
            await self._await_room()
        full: list[AsyncPartitionQueue] = []
        with self._guard:
            while True:
                outlet = self._outlet_of(one.key, partition)
                batch = outlet.filling or self._opened(outlet)
                delivery: AsyncDelivery | None = batch.add(one)
                if delivery is not None:
                    break
                self._seal(outlet, batch)
                full.append(outlet)
            if one.key is None and partition is None:
                self._append = batch.append
        for outlet in full:
            await self._push(outlet)
        return delivery

    def _outlet_of(self, key: bytes | None, partition: int | None) -> AsyncPartitionQueue:
        count = len(self._outlets)
        if partition is not None:
            if type(partition) is not int:
                partition = whole_number("partition", partition, 0)
            if not 0 <= partition < count:
                raise Refused(f"partition must be in 0..{count - 1}, got {partition}")
            return self._outlets[partition]
        return self._outlets[self._turn % count if key is None else partition_of(key, count)]

    def _opened(self, outlet: AsyncPartitionQueue) -> Batch:
        """A batch to fill. Guard held."""
        if self._stop.is_set:
            raise Refused("the producer was closed")
        now = time.time_ns(), time.monotonic()
        batch = Batch(outlet.number, now, self._batch_room, Signal(), AsyncDelivery)
        outlet.filling = batch
        if self._is_asleep:
            self._wake.set()
        return batch

    def _seal(self, outlet: AsyncPartitionQueue, batch: Batch) -> None:
        """Close the batch that is being filled; then it is the next one's turn. Guard held."""
        batch.seal()
        if outlet is self._outlet_of(None, None):
            self._turn += 1
        outlet.filling = None
        outlet.queue.append(batch)
        self._tally.sealed(batch)

    def _seal_all(self, before_s: float) -> None:
        """Close all that were begun by then. Guard held."""
        for outlet in self._outlets:
            if outlet.filling is not None and outlet.filling.created_s <= before_s:
                self._seal(outlet, outlet.filling)

    async def _start(self) -> None:
        """Learn how many partitions there are. NotFound."""
        await self._start_lock.acquire()
        try:
            if self._outlets:
                return
            topic = await self._pool.run(describe(self.topic))
            self._background = Background(self._tend_all, "penstock-producer")
            self._grow(topic.partitions)
        finally:
            self._start_lock.release()

    def _grow(self, partitions: int) -> None:
        """There are so many partitions now; it is never fewer."""
        with self._guard:
            for number in range(len(self._outlets), partitions):
                identity = self._producer_id
                numbering = None if identity is None else Numbering(identity)
                self._outlets.append(AsyncPartitionQueue(number, numbering))

    async def _push(self, outlet: AsyncPartitionQueue) -> None:
        """Send what is full, and wait while too much is on its way."""
        await self._pump(outlet, _SOON_S)
        await self._await_room()

    async def _await_room(self) -> None:
        while True:
            # Cleared before looking: what is settled in between sets it again.
            self._room.clear()
            if self._tally.buffered_bytes <= self._buffer_bytes_max:
                return
            self._wake.set()
            await self._room.wait(_ROOM_CHECK_S)

    async def _pump(
        self, outlet: AsyncPartitionQueue, within_s: float | None = None, *, is_patient: bool = True
    ) -> None:
        """Send what is queued. The last one stays under way: its answer travels while the next is filled.

        With `within_s` an answer that does not come soon is left to the background, and with it what waits behind. As
        long the background may send before we go on: two threads at it take far longer than one after the other.
        `is_patient`: see `_posted`.
        """
        if not outlet.queue or outlet.trouble or not await self._is_ours(outlet, within_s):
            return
        try:
            while outlet.queue and not outlet.trouble:
                if not await self._is_collected(outlet, within_s):
                    return
                if not outlet.trouble:
                    await self._begin(outlet, outlet.queue.popleft(), is_patient=is_patient)
        finally:
            outlet.lock.release()

    async def _is_ours(self, outlet: AsyncPartitionQueue, within_s: float | None) -> bool:
        if await outlet.lock.try_acquire():
            return True
        return within_s is not None and await outlet.lock.acquire_within(within_s)

    async def _is_collected(self, outlet: AsyncPartitionQueue, within_s: float | None) -> bool:
        """Take the answer; whether it came so soon. One that takes too long is an error."""
        if outlet.sent is None:
            return True
        waited_s = 0.0
        if within_s is not None and not await outlet.sent[2].is_answered(within_s):
            waited_s = time.monotonic() - outlet.sent_s
            if waited_s < self._pool.settings.timeout_s:
                self._wake.set()
                return False
        await self._collect(outlet, waited_s)
        return True

    async def _begin(self, outlet: AsyncPartitionQueue, batch: Batch, *, is_patient: bool) -> None:
        try:
            call = call_of(batch, self._wanted, outlet.numbering)
        except PenstockError as error:
            self._settle(outlet, batch, None, error)
            return
        await self._post(outlet, batch, call, is_patient=is_patient)

    async def _post(
        self,
        outlet: AsyncPartitionQueue,
        batch: Batch,
        call: Call[BatchStored],
        *,
        is_patient: bool,
    ) -> None:
        batch.tries += 1
        try:
            connection = await self._posted(call, is_patient=is_patient)
        except PenstockError as error:
            self._failed(outlet, batch, call, error)
            return
        except BaseException:
            self._interrupted(outlet, batch, call)
            raise
        if connection is None:
            batch.tries -= 1
            outlet.trouble = (batch, call, time.monotonic())
            return
        outlet.sent_s = time.monotonic()
        outlet.sent = (batch, call, connection)

    async def _posted(self, call: Call[BatchStored], *, is_patient: bool) -> Connection | None:
        """None: not now. While answers wait for the background, it cannot wait for room: they may have all of it."""
        if is_patient or not any(one.sent for one in self._outlets):
            return await self._pool.begin(call)
        return await self._pool.begin_now(call)

    async def _collect(self, outlet: AsyncPartitionQueue, waited_s: float) -> None:
        assert outlet.sent is not None, "there is an answer to come"
        (batch, call, connection), outlet.sent = outlet.sent, None
        try:
            stored = await self._pool.end(call, connection, waited_s=waited_s)
        except PenstockError as error:
            self._failed(outlet, batch, call, error)
            return
        except BaseException:
            self._interrupted(outlet, batch, call)
            raise
        self._settle(outlet, batch, stored, None)

    def _interrupted(
        self, outlet: AsyncPartitionQueue, batch: Batch, call: Call[BatchStored]
    ) -> None:
        """Whoever waited was cancelled, which the batch has nothing to do with: the background goes on with it."""
        batch.is_doubtful = True
        if outlet.numbering is None:
            # Sent once more it might be stored twice.
            where, why = self._pool.name, "it was interrupted"
            self._settle(outlet, batch, None, Unreachable(where, why, is_sent=True))
            return
        outlet.trouble = (batch, call, time.monotonic())
        self._wake.set()

    def _failed(
        self,
        outlet: AsyncPartitionQueue,
        batch: Batch,
        call: Call[BatchStored],
        error: PenstockError,
    ) -> None:
        now_s = time.monotonic()
        is_late = now_s - batch.created_s > self._delivery_timeout_s
        numbering = outlet.numbering
        what = after(error, batch, is_numbered=numbering is not None, is_late=is_late)
        if what is Next.GIVE_UP:
            if numbering is not None and batch.is_doubtful:
                numbering.start_again()
            self._settle(outlet, batch, None, error)
            return
        if what is Next.RENUMBER and numbering is not None:
            numbering.start_again()
            call = call_of(batch, self._wanted, numbering)
        pause_s = self._pool.settings.retry.pause_s(batch.tries, chance())
        # What the server asks for is the least.
        outlet.trouble = (batch, call, now_s + max(pause_s, wait_asked_s(error)))
        self._wake.set()

    def _settle(
        self,
        outlet: AsyncPartitionQueue,
        batch: Batch,
        stored: BatchStored | None,
        error: PenstockError | None,
    ) -> None:
        if stored is not None and outlet.numbering is not None:
            outlet.numbering.stored(batch.count)
        batch.stored, batch.error = stored, error
        with self._guard:
            self._tally.settled(batch)
        batch.clear()
        batch.settled.set()
        self._room.set()
        if stored is not None and stored.partitions > len(self._outlets):
            self._grow(stored.partitions)
        if self._on_delivery is not None:
            self._on_delivery(batch.count, error)

    async def _tend_all(self) -> None:
        """The background: seals what has waited long enough, takes answers nobody takes, tries again what failed.

        It waits for answers no longer than for messages, so that a partition that is silent does not delay the others.
        """
        while True:
            with self._guard:
                self._is_asleep = self._is_idle()
                if self._is_asleep and self._stop.is_set:
                    return
            await self._wake.wait(None if self._is_asleep else self._linger_s)
            self._wake.clear()
            with self._guard:
                self._is_asleep = False
                self._seal_all(time.monotonic() - self._linger_s)
            until_s = time.monotonic() + max(self._linger_s, _ROUND_S_MIN)
            for outlet in self._outlets:
                await self._tend(outlet, until_s)

    def _is_idle(self) -> bool:
        return all(one.is_idle for one in self._outlets)

    async def _tend(self, outlet: AsyncPartitionQueue, until_s: float) -> None:
        await self._pump(outlet, _left_s(until_s), is_patient=False)
        if outlet.trouble or self._is_left_alone(outlet):
            await self._finish(outlet, _left_s(until_s), is_patient=False)

    def _is_left_alone(self, outlet: AsyncPartitionQueue) -> bool:
        """Whether nobody else would take the answer soon."""
        sent = outlet.sent
        if sent is None:
            return False
        if not outlet.filling or self._flushing or sent[0].tries > 1:
            return True
        return time.monotonic() - outlet.sent_s > _LEFT_ALONE_LINGERS * self._linger_s

    async def _finish(
        self, outlet: AsyncPartitionQueue, within_s: float | None = None, *, is_patient: bool = True
    ) -> None:
        """Try again what failed if it is time, and take the answer that is due."""
        if not await outlet.lock.try_acquire():
            return
        try:
            if outlet.trouble is not None and outlet.trouble[2] <= time.monotonic():
                (batch, call, _), outlet.trouble = outlet.trouble, None
                await self._post(outlet, batch, call, is_patient=is_patient)
            await self._is_collected(outlet, within_s)
        finally:
            outlet.lock.release()

    async def flush(self) -> None:
        """Return when everything sent so far is stored. If some could not be stored, the first error is raised."""
        with self._guard:
            self._seal_all(time.monotonic())
            waiting = list(self._tally.unsettled)
            self._flushing += 1
        try:
            await self._settle_all(waiting)
        finally:
            with self._guard:
                self._flushing -= 1
        with self._guard:
            if (error := self._tally.take_error()) is not None:
                raise error

    async def _settle_all(self, waiting: list[Batch]) -> None:
        for outlet in self._outlets:
            await self._pump(outlet)
        for outlet in self._outlets:
            await self._finish(outlet)
        for batch in waiting:
            if not batch.settled.is_set:
                self._wake.set()
                await batch.settled.wait()

    async def close(self) -> None:
        """Flush and stop. Who is interrupted in it (Ctrl-C) waits for one more try of what is left, no longer."""
        try:
            await self.flush()
        except BaseException as error:
            if not isinstance(error, Exception):
                self._delivery_timeout_s = 0
            raise
        finally:
            self._stop.set()
            self._wake.set()
            if self._background is not None:
                await self._background.join()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
