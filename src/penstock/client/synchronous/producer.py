# Made from ../asynchronous/producer.py by tools/unasync.py; change that one.
"""The producer: `send` one by one, stored in large batches, each exactly once."""

import time
from collections.abc import Callable
from typing import Any, Self

import msgspec
from msgspec import UNSET

from ...api.arguments import value_of
from ...api.contents import HeadersIn
from ...api.topics import DescribeTopic
from ...api.units import Duration, duration_s
from ...errors import PenstockError, Refused
from ..calls import Call
from ..commands import acks_of
from ..forks import note_made
from ..partition_queue import PartitionQueue, Request
from ..producer import BatchQueues, ProducerOptions, ProducerSettings
from ..producer_batch import Batch, checked_message, extra_of
from ..publish import Published, batch_stored_of
from .connector import Connector
from .io import Background, Event, Lock, acquire_within

_SPACE_CHECK_S = 1.0
# A server nearby has answered by then, and `send` takes the answer sooner than a background that has to be woken.
_SOON_S = 0.005
# The least time that the background waits for answers in one round.
_ROUND_S_MIN = 0.001


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
        return Published(
            stored.partition,
            offset,
            stored.duplicate,
            stored.guarantee,
            copies=stored.copies,
        )


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

    def __init__(self, connector: Connector, topic: str, options: ProducerOptions) -> None:
        self.topic, self._connector, self._options = topic, connector, options
        self.settings = ProducerSettings(**options)
        self._acks = acks_of(self.settings.acks)
        self._queues = BatchQueues(
            topic,
            self.settings,
            connector.retry,
            event=Event,
            lock=Lock,
            delivery_of=Delivery,
        )
        # Appends plain values to the open batch that has its turn.
        self._append: Callable[[bytes], Delivery] = _no_batch
        self._background: Background | None = None
        self._start_lock = Lock()
        note_made(self)

    def leave_to_parent(self, reason: str) -> None:
        """After a fork: `send` finds no partition, asks for them, and is refused by the connector."""
        self._append, self._start_lock = _no_batch, Lock()
        self._queues.leave_to_parent(reason)

    @property
    def stored(self) -> int:
        """How many messages are stored so far."""
        return self._queues.stored

    @property
    def refusal(self) -> PenstockError | None:
        """Why messages were refused last that are sent again; None: since then some were stored."""
        return self._queues.refusal

    @property
    def failed(self) -> int:
        return self._queues.failed

    @property
    def buffered_bytes(self) -> int:
        """How much is sealed and not stored yet, counted as `buffer_bytes_max` is."""
        return self._queues.buffered_bytes

    def send(
        self,
        value: Any = UNSET,
        key: Any = None,
        headers: HeadersIn | None = None,
        priority: int | str | None = None,
        ttl: Duration | None = None,
        *,
        partition: int | None = None,
        json: Any = UNSET,
    ) -> Delivery:
        """Take a message: a value, or any object as `json`.

        Without `partition` its key decides, and without a key batches take turns.

        `priority` is 0 (first) to 4, usually 2, or its name; with `ttl` a message is not delivered after so long.
        Value and key are bytes, text or None, or what the producer's schemas describe; Refused if they are not.
        TooLarge names the limit: that of the server where it is lower than the client's own.
        """
        # The plain case in as few steps as possible: a million messages a second take this way.
        if (
            type(value) is bytes
            and key is None
            and headers is None
            and priority is None
            and ttl is None
            and partition is None
            and json is UNSET
        ):
            try:
                return self._append(value)
            except (StopIteration, ValueError):
                # The batch is full or sealed, or another thread is appending to it.
                pass
        schema, key_schema = self.settings.schema, self.settings.key_schema
        if schema is None:
            value = value_of(value, json)
        elif json is not UNSET:
            raise Refused("json is for producers without a schema: give the value as it is")
        if schema is not None or key_schema is not None:
            value, key, headers = self.settings.encoded(value, key, headers or ())
        message = checked_message(value, key, extra_of(headers or (), priority, ttl))
        if not self._queues.queues:
            self._start()
        # Plain values come here once a batch, all others each time.
        self._wait_for_space()
        delivery: Delivery
        delivery, full = self._queues.add(message, partition, self._connector.limits)
        if message.key is None and partition is None and schema is None:
            self._append = delivery.batch.append
        for queue in full:
            self._send_sealed(queue, _SOON_S)
            self._wait_for_space()
        return delivery

    def _start(self) -> None:
        """Ask for the number of partitions, and start the background. NotFound if there is no such topic.

        What the program did not say is as the server says.
        """
        with self._start_lock:
            if not self._queues.queues:
                reply = self._connector.execute(DescribeTopic(self._queues.topic))
                told = (self._connector.hello()).defaults
                self.settings = ProducerSettings.of_server(told, self._options)
                self._acks = acks_of(self.settings.acks)
                self._queues.configure(self.settings, self._connector.retry)
                self._background = Background(self._run_background, "penstock-producer")
                partitions = reply.value.partitions
                faulty = [one.number for one in partitions if one.fault]
                self._queues.grow(len(partitions), faulty)

    def _wait_for_space(self) -> None:
        while self._queues.is_full:
            # Cleared before the second look: a batch that is settled in between sets it again.
            self._queues.has_space.clear()
            if self._queues.is_full:
                self._raise_failure()
                self._queues.wake.set()
                self._queues.has_space.wait(_SPACE_CHECK_S)

    def _send_sealed(self, queue: PartitionQueue, within_s: float | None = None) -> None:
        """Send the sealed batches. The answers to the last ones are collected later, while the next batch is filled.

        With `within_s` an answer that takes longer is left to the background, with the batches behind it, and so long
        this waits for the background to send: two threads that send take far longer than one after the other.
        """
        if not queue.sealed or queue.retry or not acquire_within(queue.lock, within_s or 0):
            return
        try:
            while queue.sealed and not queue.retry:
                if queue.in_flight and (not queue.may_send or queue.is_answered):
                    if not self._collect_within(queue, within_s):
                        return
                elif (request := self._queues.next_request(queue)) is not None:
                    self._send(queue, request)
        finally:
            queue.lock.release()

    def _collect_within(self, queue: PartitionQueue, within_s: float | None) -> bool:
        """Collect the oldest answer; False if it takes longer. One over the timeout is an error."""
        request, sent = queue.in_flight[0]
        is_late = within_s is not None and not sent.pending.is_answered(within_s)
        if (
            is_late
            and time.monotonic() - sent.pending.sent_at_s < self._connector.settings.timeout_s
        ):
            self._queues.wake.set()
            return False
        queue.in_flight.popleft()
        try:
            reply = self._connector.end(sent)
        except PenstockError as error:
            self._queues.fail(queue, request, error)
        except BaseException:
            self._queues.interrupt(queue, request, self._connector.name)
            raise
        else:
            self._queues.settle(request.batch, batch_stored_of(reply.value, reply.safety), None)
        return True

    def _send(self, queue: PartitionQueue, request: Request) -> None:
        request.batch.tries += 1
        try:
            sent = self._connector.begin(Call(request.command, self._acks))
        except PenstockError as error:
            self._queues.fail(queue, request, error)
            return
        except BaseException:
            self._queues.interrupt(queue, request, self._connector.name)
            raise
        queue.in_flight.append((request, sent))

    def _run_background(self) -> None:
        try:
            self._send_what_waits()
        except Exception as error:
            # `send`, `flush` and `close` raise it.
            self._queues.failure = error
            self._queues.has_space.set()
            raise

    def _send_what_waits(self) -> None:
        """Seal batches that have waited long enough, collect answers that no `send` collects, send failed ones again.

        It waits for answers no longer than for messages, so that a silent partition does not delay the others.
        """
        queues, round_s = self._queues, max(self.settings.linger_s, _ROUND_S_MIN)
        while not queues.is_over():
            queues.wake.wait(queues.idle_wait_s())
            queues.wake.clear()
            queues.seal_late()
            until_s = time.monotonic() + round_s
            for queue in queues.queues:
                self._send_sealed(queue, _left_s(until_s))
                if queue.retry or queues.is_answer_due(queue):
                    self._finish(queue, _left_s(until_s))

    def _finish(self, queue: PartitionQueue, within_s: float | None = None) -> None:
        """Collect the answers, and send failed requests again whose time has come."""
        if not acquire_within(queue.lock, 0):
            return
        try:
            while queue.in_flight or queue.may_send_again:
                if not queue.in_flight:
                    self._send(queue, queue.retry.pop(0))
                elif not self._collect_within(queue, within_s):
                    return
        finally:
            queue.lock.release()

    def _raise_failure(self) -> None:
        if self._queues.failure is not None:
            raise self._queues.failure

    def flush(self) -> None:
        """Return when everything sent so far is stored. If some could not be stored, the first error is raised."""
        self._raise_failure()
        unsettled = self._queues.begin_flush()
        try:
            for queue in self._queues.queues:
                self._send_sealed(queue)
            for queue in self._queues.queues:
                self._finish(queue)
            for batch in unsettled:
                while not batch.settled.is_set():
                    self._raise_failure()
                    self._queues.wake.set()
                    batch.settled.wait(_SPACE_CHECK_S)
        finally:
            self._queues.end_flush()
        if (error := self._queues.take_error()) is not None:
            raise error

    def close(self) -> None:
        """Flush and stop. If it is interrupted (Ctrl-C), it waits for one more try of each batch, no longer."""
        try:
            self.flush()
        except BaseException as error:
            if not isinstance(error, Exception):
                self._queues.delivery_timeout_s = 0
            raise
        finally:
            self._queues.is_closed = True
            self._queues.wake.set()
            if self._background is not None:
                self._background.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
