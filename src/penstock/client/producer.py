"""The state of a producer: its settings, the batches of every partition, what a failure means. No I/O."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from secrets import randbits
from threading import Lock
from typing import Any, Self, TypedDict

from ..api.arguments import (
    choice,
    flag,
    instance,
    number,
    plain_function,
    text,
    whole_number,
)
from ..api.contents import LIMITS, HeadersIn, pairs_of
from ..api.frames import ClientDefaults
from ..api.publish import PublishBatch
from ..codec import Compression, Marks, encode
from ..codec.schema_id import KEY_SCHEMA_ID, VALUE_SCHEMA_ID
from ..config import LimitsConfig
from ..errors import OutOfSequence, PartitionFaulty, PenstockError, Refused, Unreachable
from .commands import acks_of, name_of
from .failures import wait_asked_s
from .partition_queue import Numbering, PartitionQueue, Request
from .producer_batch import Batch, CheckedMessage, partition_of
from .publish import BatchStored
from .retry import RetryPolicy, chance, may_repeat
from .schema_codec import SchemaCodec
from .value_appender import BatchLimits

_LOG = logging.getLogger("penstock.client")

_COMPRESSIONS = {one.name.lower(): one for one in Compression}
_SCHEMA_ID_PLACES = {"content": False, "header": True}
_LINGER_S_MIN = 0.0001
# A day: a longer time is a mistake.
_LINGER_MS_MAX = 86_400_000
# The next `send` takes an answer that came; the background takes it if none comes for so many lingers.
_DUE_LINGERS = 4


class ProducerOptions(TypedDict, total=False):
    """`linger_ms`: how long a message may wait for others. `buffer_bytes_max`: beyond it `send` waits.

    `acks`, `linger_ms`, `batch_messages_max` and `batch_bytes_max` are as the broker is configured, section `producer`,
    where they are left out. `delivery_timeout_s`: after so long a batch that could not be stored is given up.
    `on_delivery` is called for every batch with the number of its messages and, if it failed, the error; what it raises
    is logged. With a `schema`, from `Client.schema` or `Client.register_schema`, values are what it describes, and with
    a `key_schema` keys are; `schema_id_in="header"` puts the ids of schemas into headers.
    """

    acks: str
    linger_ms: float
    batch_messages_max: int
    batch_bytes_max: int
    buffer_bytes_max: int
    delivery_timeout_s: float
    is_idempotent: bool
    compression: str
    on_delivery: Callable[[int, Exception | None], None] | None
    schema: SchemaCodec | None
    key_schema: SchemaCodec | None
    schema_id_in: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The options of a producer, checked, with their defaults.

    `of_server` has the defaults that a broker tells.
    """

    acks: str = "leader"
    linger_ms: float = 5
    batch_messages_max: int = 100_000
    batch_bytes_max: int = 1 << 20
    buffer_bytes_max: int = 32 << 20
    delivery_timeout_s: float = 120
    is_idempotent: bool = True
    compression: str = "none"
    on_delivery: Callable[[int, Exception | None], None] | None = None
    schema: SchemaCodec | None = None
    key_schema: SchemaCodec | None = None
    schema_id_in: str = "content"

    def __post_init__(self) -> None:
        whole_number("batch_messages_max", self.batch_messages_max, 1)
        whole_number("batch_bytes_max", self.batch_bytes_max, 1)
        whole_number("buffer_bytes_max", self.buffer_bytes_max, 0)
        number("delivery_timeout_s", self.delivery_timeout_s, 0)
        if number("linger_ms", self.linger_ms, 0) > _LINGER_MS_MAX:
            raise Refused(f"linger_ms must be at most {_LINGER_MS_MAX}, got {self.linger_ms!r}")
        choice("compression", text("compression", self.compression).lower(), _COMPRESSIONS)
        flag("is_idempotent", self.is_idempotent)
        plain_function("on_delivery", self.on_delivery)
        acks_of(self.acks)
        choice("schema_id_in", self.schema_id_in, _SCHEMA_ID_PLACES)
        for name in ("schema", "key_schema"):
            if getattr(self, name) is not None:
                instance(name, getattr(self, name), SchemaCodec)

    def encoded(self, value: Any, key: Any, headers: HeadersIn) -> tuple[Any, Any, HeadersIn]:
        """What the schemas make of a value and a key, and the headers with their ids, if they are to be there."""
        if self.schema_id_in == "content":
            value = value if self.schema is None else self.schema.encode(value)
            return value, key if self.key_schema is None else self.key_schema.encode(key), headers
        pairs = [*pairs_of(headers)]
        if self.schema is not None:
            named, value = self.schema.encode_apart(value)
            pairs.append((VALUE_SCHEMA_ID, named))
        if self.key_schema is not None and key is not None:
            named, key = self.key_schema.encode_apart(key)
            pairs.append((KEY_SCHEMA_ID, named))
        return value, key, pairs

    @classmethod
    def of_server(cls, defaults: ClientDefaults, options: ProducerOptions) -> Self:
        whole: ProducerOptions = {
            "acks": defaults.ack_mode,
            "linger_ms": defaults.linger_ms,
            "batch_messages_max": defaults.batch_size,
            "batch_bytes_max": defaults.batch_bytes,
        }
        whole.update(options)
        return cls(**whole)

    @property
    def linger_s(self) -> float:
        return max(self.linger_ms / 1000, _LINGER_S_MIN)


class BatchQueues:
    """The queues of all partitions. Safe to share between threads; no method waits for the server.

    `wake` is set when the background has something to do, `has_space` when a batch is settled. Events and locks are
    those of asyncio or of threads.
    """

    def __init__(
        self,
        topic: str,
        settings: ProducerSettings,
        retry: RetryPolicy,
        *,
        event: Callable[[], Any],
        lock: Callable[[], Any],
        delivery_of: Callable[[Batch, int], Any],
    ) -> None:
        self.topic = name_of("topic", topic)
        self._event, self._lock, self._delivery_of = event, lock, delivery_of
        self.configure(settings, retry)
        self._compression = _COMPRESSIONS[settings.compression.lower()]
        self._producer_id = randbits(62) if settings.is_idempotent else None
        self.delivery_timeout_s = settings.delivery_timeout_s
        # Tasks never wait for it, because none holds it over an await; threads do, for a moment.
        self._guard = Lock()
        self.queues: list[PartitionQueue] = []
        # Decides which partition gets messages without a key. Those that cannot be used have no turn.
        self._turn = randbits(16)
        self._faulty: set[int] = set()
        self.wake, self.has_space = event(), event()
        self.is_closed = False
        # What ended the background, without which nothing is sent that waits.
        self.failure: Exception | None = None
        # Why a batch was refused that is sent again; None: since then one was stored.
        self.refusal: PenstockError | None = None
        self._is_asleep, self._flushing = True, 0
        self.stored = self.failed = self.buffered_bytes = 0
        self._first_error: PenstockError | None = None
        # Batches that are sealed and not settled, the oldest first.
        self._unsettled: dict[Batch, None] = {}
        self._orders = count()

    def leave_to_parent(self, reason: str) -> None:
        """After a fork: fail here what the parent goes on to send. Threads of it may hold the locks of before."""
        self._guard, self.wake, self.has_space = Lock(), self._event(), self._event()
        # Not sealed: a thread that is in the middle of an `append` does not go on in this process.
        opened = [one.open_batch for one in self.queues if one.open_batch is not None]
        for batch in [*self._unsettled, *opened]:
            batch.error = self._first_error = Refused(reason)
            batch.settled = self._event()
            batch.settled.set()
        self._unsettled.clear()
        self.queues, self.buffered_bytes = [], 0

    def configure(self, settings: ProducerSettings, retry: RetryPolicy) -> None:
        """Take other settings, before the first batch."""
        self.settings, self._retry = settings, retry
        self._take_limits(LIMITS)

    def _take_limits(self, limits: LimitsConfig) -> None:
        """Fill the batches that are opened from now on so far that a server with these limits takes them."""
        self._server_limits, settings = limits, self.settings
        self._limits = BatchLimits(
            min(settings.batch_bytes_max, limits.batch_bytes_max // 2),
            # Beside its bytes a message takes up to 21: two lengths, a count of headers, a priority and a time.
            min(settings.batch_messages_max, max(1, limits.batch_bytes_max // 64)),
            limits.value_bytes_max,
        )

    @property
    def is_full(self) -> bool:
        return self.buffered_bytes > self.settings.buffer_bytes_max

    def grow(self, partitions: int, faulty: Iterable[int] = ()) -> None:
        """Add queues up to this number of partitions; it never shrinks. Some of them cannot be used."""
        with self._guard:
            self._faulty.update(faulty)
            for number in range(len(self.queues), partitions):
                identity = self._producer_id
                numbering = None if identity is None else Numbering(identity)
                self.queues.append(PartitionQueue(number, numbering, self._lock()))

    def add(
        self, message: CheckedMessage, partition: int | None, limits: LimitsConfig
    ) -> tuple[Any, list[PartitionQueue]]:
        """Add a message; returns its delivery, and the queues whose open batch was full and is sealed now.

        TooLarge: the message is over the `limits` of the server.
        """
        full: list[PartitionQueue] = []
        if limits is not LIMITS:
            message.require_within(limits)
        with self._guard:
            if limits is not self._server_limits:
                self._take_limits(limits)
            while True:
                queue = self._queue_of(message.key, partition)
                batch = queue.open_batch or self._open_batch(queue)
                delivery = batch.add(message)
                if delivery is not None:
                    return delivery, full
                self._seal(queue, batch)
                full.append(queue)

    def _queue_of(self, key: bytes | None, partition: int | None) -> PartitionQueue:
        count = len(self.queues)
        if partition is not None:
            if type(partition) is not int:
                partition = whole_number("partition", partition, 0)
            if not 0 <= partition < count:
                raise Refused(f"partition must be in 0..{count - 1}, got {partition}")
            return self.queues[partition]
        if key is not None:
            return self.queues[partition_of(key, count)]
        if self._faulty:
            turns = [one for one in self.queues if one.number not in self._faulty] or self.queues
            return turns[self._turn % len(turns)]
        return self.queues[self._turn % count]

    def _open_batch(self, queue: PartitionQueue) -> Batch:
        if self.is_closed:
            raise Refused("the producer was closed")
        if self.failure is not None:
            raise self.failure
        now = time.time_ns(), time.monotonic()
        batch = Batch(queue.number, now, self._limits, self._event(), self._delivery_of)
        queue.open_batch = batch
        if self._is_asleep:
            self.wake.set()
        return batch

    def _seal(self, queue: PartitionQueue, batch: Batch) -> None:
        """Seal the open batch of a partition; the next partition has its turn."""
        batch.seal()
        queue.open_batch = None
        if not batch.count:
            # A Ctrl-C came between the batch and its first message.
            return
        if queue is self._queue_of(None, None):
            self._turn += 1
        self._unsettled[batch] = None
        self.buffered_bytes += batch.weight
        queue.sealed.append(batch)

    def _seal_all(self, before_s: float) -> None:
        for queue in self.queues:
            if queue.open_batch is not None and queue.open_batch.created_s <= before_s:
                self._seal(queue, queue.open_batch)

    def seal_late(self) -> None:
        """Seal the batches whose first message has waited long enough."""
        with self._guard:
            self._is_asleep = False
            self._seal_all(time.monotonic() - self.settings.linger_s)

    def begin_flush(self) -> list[Batch]:
        """Seal every batch; returns those that are not settled. `end_flush` has to follow."""
        with self._guard:
            self._seal_all(time.monotonic())
            self._flushing += 1
            return list(self._unsettled)

    def end_flush(self) -> None:
        with self._guard:
            self._flushing -= 1

    def take_error(self) -> PenstockError | None:
        """The first error since the last call; None if there was none."""
        with self._guard:
            error, self._first_error = self._first_error, None
        return error

    def idle_wait_s(self) -> float | None:
        """How long the background may wait for `wake`; None: until it is set."""
        with self._guard:
            self._is_asleep = all(one.is_idle for one in self.queues)
        return None if self._is_asleep else self.settings.linger_s

    def is_over(self) -> bool:
        """Whether the producer is closed and every batch is settled."""
        with self._guard:
            return self.is_closed and all(one.is_idle for one in self.queues)

    def is_answer_due(self, queue: PartitionQueue) -> bool:
        """Whether the background should collect the answer, because no `send` will do it soon."""
        if not queue.in_flight:
            return False
        request, sent = queue.in_flight[0]
        if queue.retry or not queue.open_batch or self._flushing or request.batch.tries > 1:
            return True
        sent_at_s: float = sent.pending.sent_at_s
        return time.monotonic() - sent_at_s > _DUE_LINGERS * self.settings.linger_s

    def next_request(self, queue: PartitionQueue) -> Request | None:
        """The request of the oldest sealed batch; None, and the batch has failed, if it cannot be encoded.

        The batch stays where it is until there is a request: after a Ctrl-C in between it is the next one again.
        """
        batch, request = queue.sealed[0], None
        try:
            request = self._request(queue, batch, next(self._orders))
        except PenstockError as error:
            self.settle(batch, None, error)
        del queue.sealed[0]
        return request

    def _request(self, queue: PartitionQueue, batch: Batch, order: int) -> Request:
        numbering = queue.numbering
        marks = Marks() if numbering is None else numbering.marks()
        encoded = encode(batch.columns(), compression=self._compression, marks=marks)
        pieces: Any = encoded.pieces()  # As good as one buffer, for what is only sent.
        request = Request(order, batch, PublishBatch(self.topic, batch.partition, pieces), marks)
        # Last: a Ctrl-C before it leaves the numbers to the next try.
        if numbering is not None:
            numbering.use(batch.count)
        return request

    def interrupt(self, queue: PartitionQueue, request: Request, server: str) -> None:
        """The task that waited for a request was cancelled: the background goes on with the batch."""
        request.batch.is_doubtful = True
        if queue.numbering is None:
            # Without numbers a second request might store it twice.
            error = Unreachable(server, "it was interrupted", is_sent=True)
            self.settle(request.batch, None, error)
            return
        queue.put_back(request, time.monotonic())
        self.wake.set()

    def fail(self, queue: PartitionQueue, request: Request, error: PenstockError) -> None:
        """A try failed: the batch is sent again after a pause, or has failed."""
        if isinstance(error, OutOfSequence) and queue.numbering is not None:
            self._refused_number(queue, queue.numbering, request, error)
            return
        now_s, batch, numbering = time.monotonic(), request.batch, queue.numbering
        batch.is_doubtful |= isinstance(error, Unreachable) and error.is_sent
        is_late = now_s - batch.created_s > self.delivery_timeout_s
        if is_late or not may_repeat(error, is_repeatable=numbering is not None):
            self._give_up(queue, request, error)
            return
        pause_s = self._retry.pause_s(batch.tries, chance())
        self.refusal = error.fresh()
        queue.put_back(request, now_s + max(pause_s, wait_asked_s(error)))
        self.wake.set()

    def _refused_number(
        self, queue: PartitionQueue, numbering: Numbering, request: Request, error: OutOfSequence
    ) -> None:
        """The server expected another number.

        It is right if a batch ahead of this one failed; this one follows when that one is stored. Otherwise the one
        ahead never comes, or the server does not know this producer any more: the batch gets new numbers. If an
        earlier try may have stored it, those would store it twice.
        """
        batch, now_s = request.batch, time.monotonic()
        # It could not succeed, so it does not count.
        batch.tries -= 1
        if queue.retry and queue.retry[0].order < request.order:
            queue.put_back(request, now_s)
            return
        if batch.is_doubtful or batch.tries or batch.is_renumbered:
            self._give_up(queue, request, error)
            return
        batch.is_renumbered = True
        if request.marks.producer_epoch == numbering.epoch:
            numbering.start_again()
        queue.put_back(self._request(queue, batch, request.order), now_s)
        self.wake.set()

    def _give_up(self, queue: PartitionQueue, request: Request, error: PenstockError) -> None:
        if queue.numbering is not None:
            if request.batch.is_doubtful:
                queue.numbering.start_again()
            else:
                queue.numbering.give_back(request.marks, request.batch.count)
        self.settle(request.batch, None, error)

    def settle(self, batch: Batch, stored: BatchStored | None, error: PenstockError | None) -> None:
        """A batch is stored, or has failed."""
        with self._guard:
            if batch not in self._unsettled:
                return
            batch.stored, batch.error = stored, error
            del self._unsettled[batch]
            self.buffered_bytes -= batch.weight
            if error is None:
                self.refusal = None
                self.stored += batch.count
                self._faulty.discard(batch.partition)
            else:
                if isinstance(error, PartitionFaulty):
                    self._faulty.add(batch.partition)
                self.failed += batch.count
                self._first_error = self._first_error or error
        batch.clear()
        batch.settled.set()
        self.has_space.set()
        if stored is not None and stored.partitions > len(self.queues):
            self.grow(stored.partitions)
        if self.settings.on_delivery is not None:
            try:
                self.settings.on_delivery(batch.count, error)
            except Exception:
                # A mistake of the program must not keep the other batches from being sent.
                _LOG.exception("on_delivery of a producer for %s raised", self.topic)
