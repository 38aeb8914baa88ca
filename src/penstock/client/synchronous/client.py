# Made from ../asynchronous/client.py by tools/unasync.py; change that one.
"""The client: one method for everything that a server can be asked."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self, Unpack

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ...api.answers import Kind, nack_delay_ms
from ...api.arguments import instance, partition_number, several, text, whole_number
from ...api.commits import CommitStagings, DropStagings, NamedCommit, OpenStaging
from ...api.consume import Poll
from ...api.contents import Content
from ...api.delays import DelayedId, GetDelayed
from ...api.publish import PublishBatch, PublishEach, PublishValues, Schedule
from ...api.units import Duration, Moment, duration_ms, duration_s, priority_of, time_text
from ...contexts import server_and_key
from ...errors import NotFound, PartitionFaulty, PenstockError, Refused, SequenceCommitted
from ...model import Message, Priority
from .. import fetch as fetching
from ..address import Address
from ..commands import acks_or_none, name_of, start_of
from ..consumer_options import ConsumerOptions, ConsumerSettings
from ..fetch import Fetched, FetchOptions, FetchRequest
from ..leased_messages import Delivered, Polled, Received, parts_of, reason_text
from ..poll import AnswerResult, ReceiptAnswers, Receipts, Results, all_or_first_error, receipts_of
from ..producer import ProducerOptions
from ..publish import (
    Batches,
    BatchStored,
    Outgoing,
    Published,
    PublishOptions,
    batch_stored_of,
    outgoing_of,
    published_of,
)
from ..schema_codec import SchemaCodec
from ..settings import ClientSettings
from ..stagings import StagingHandle, commit_key, handles_of, refs_of
from ..worker import WorkerOptions
from .connector import Connector
from .schedules import Schedules
from .schemas import Schemas

if TYPE_CHECKING:
    from .consumer import Consumer
    from .producer import Producer
    from .stagings import Staging
    from .transactions import TransactionalProducer
    from .worker import Worker


class Client(Schedules, Schemas):
    """A client of one server. Safe to share: all requests go over one connection, and bulk reads over another.

        with Client("penstock://127.0.0.1:9092") as client:
            client.create_topic("orders")
            placed = client.publish("orders", b"lamp", key=b"ann")

    Without an address the server is the one that `penstock` on the command line would talk to: that of
    PENSTOCK_SERVER (with PENSTOCK_KEY and PENSTOCK_CA_FILE), of `context` or PENSTOCK_CONTEXT, of the current context,
    or this machine's.

    Errors are those of `penstock.errors`. What can be repeated without harm is tried again when the server does not
    answer or asks for patience; the rest raises at once, and `Unreachable.is_sent` says whether it may have been
    carried out.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        context: str | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        if settings is None:
            settings = ClientSettings()
        instance("settings", settings, ClientSettings)
        if url is not None and context is not None:
            raise Refused("a client has an address or a context, not both")
        if url is None:
            name = None if context is None else text("context", context)
            found, known_key = server_and_key(name=name)
            url, key = found.server, known_key if key is None else key
            if settings.ca_file is None:
                settings = dataclasses.replace(settings, ca_file=found.ca_file)
        self.connector = Connector(Address.parse_all(url), key, settings)
        # The owner of what `poll` leases: the server must tell this client's messages from those of another.
        self._name = f"client-{token_hex(6)}"
        self._schemas: dict[int | bytes, SchemaCodec] = {}

    @property
    def url(self) -> str:
        """The address of the server, as it was given or found."""
        return self.connector.name

    # Publish and read

    def publish(
        self,
        topic: str,
        value: Content | UnsetType = UNSET,
        *,
        acks: str | None = None,
        **options: Unpack[PublishOptions],
    ) -> Published:
        """Publish one message, a value or any object as `json`, and wait for it. `acks`: none, leader, all; None: as
        the broker is configured, which is leader if it does not say.

        With an `idempotency_key` a lost answer is asked for again.
        """
        if type(value) is bytes and not options:
            command = PublishValues(name_of("topic", topic), [value])
            reply = self.connector.execute(command, acks=acks_or_none(acks))
            return published_of(reply.value.first, reply.safety)
        return (self._publish(topic, [outgoing_of(value, options)], acks))[0]

    def publish_many(
        self, topic: str, messages: Iterable[Outgoing | Content], *, acks: str | None = None
    ) -> list[Published]:
        """Publish messages together. PartlyPublished has a result or an error for each."""
        items = [outgoing_of(one, {}) for one in several("messages", messages)]
        return self._publish(topic, items, acks)

    def _publish(self, topic: str, items: list[Outgoing], acks: str | None) -> list[Published]:
        """Requests for each partition that is named and for all other messages, and one for each delayed one."""
        name, wanted, now_ns, batches = (
            name_of("topic", topic),
            acks_or_none(acks),
            time.time_ns(),
            Batches(),
        )
        if not items:
            self.topic(name)
            return []
        for index, one in enumerate(items):
            try:
                batches.add(index, one, now_ns)
            except PenstockError as error:
                if len(items) == 1:
                    raise
                batches.results[index] = error
        for partition, found in batches.runs():
            command = PublishEach(name, [message for _, message in found], partition)
            try:
                reply = self.connector.execute(command, acks=wanted)
            except PenstockError as error:
                batches.results.update((index, error) for index, _ in found)
                continue
            for (index, _), stored in zip(found, reply.value, strict=True):
                is_error = isinstance(stored, PenstockError)
                made = stored if is_error else published_of(stored, reply.safety)
                batches.results[index] = made
        for index, partition, delayed in batches.delayed:
            try:
                reply = self.connector.execute(Schedule(name, [delayed], partition), acks=wanted)
                batches.results[index] = published_of(reply.value[0], reply.safety, delayed.due_ns)
            except PenstockError as error:
                batches.results[index] = error
        self._add_moments(name, batches)
        return batches.in_order()

    def _add_moments(self, topic: str, batches: Batches) -> None:
        """Of a message that repeats an earlier one, which is delayed: when that one comes."""
        for index, one in batches.results.items():
            if isinstance(one, Published) and one.duplicate and one.delayed:
                which = DelayedId(one.partition, one.offset)
                try:
                    first = self.execute(GetDelayed(topic, which))
                except NotFound:
                    batches.results[index] = replace(one, deliver_at=None)
                else:
                    batches.results[index] = replace(one, deliver_at=time_text(first.due_ns))

    def append_batch(
        self, topic: str, partition: int, batch: bytes, *, acks: str | None = None
    ) -> BatchStored:
        """Publish a batch that `penstock.codec` encoded, whole."""
        whole_batch = instance("a batch", batch, bytes)
        command = PublishBatch(name_of("topic", topic), partition_number(partition), whole_batch)
        reply = self.connector.execute(command, acks=acks_or_none(acks))
        return batch_stored_of(reply.value, reply.safety)

    def fetch(self, topic: str, partition: int, **options: Unpack[FetchOptions]) -> Fetched:
        """Messages of a partition from an `offset` or a time on. Belongs to no group, and finishes no message."""
        from .prefetch import fetch

        return fetch(self.connector, FetchRequest(topic, partition, **options))

    def fetches(
        self, topic: str, partition: int, **options: Unpack[FetchOptions]
    ) -> Iterator[Fetched]:
        """Fetches up to the end of the partition; with a `timeout`, until no message comes for so long.

        The server prepares the next one while the caller uses one, so two are in memory at once.
        """
        from .prefetch import Prefetch

        options.setdefault("limit", fetching.LIMIT_MAX_BATCHES)
        options.setdefault("max_bytes", fetching.PREFETCH_BYTES)
        request: FetchRequest | None = FetchRequest(topic, partition, **options)
        prefetch = Prefetch(self.connector)
        try:
            while request is not None:
                fetched = prefetch.fetch(request, request.at)
                if fetched:
                    yield fetched
                request = request.after(fetched)
        finally:
            prefetch.drop()

    def read(
        self,
        topic: str,
        *,
        start: Moment = "earliest",
        until: Moment | None = None,
        partition: int | None = None,
        follow: bool = False,
    ) -> Iterator[tuple[int, Message]]:
        """All messages of a topic as (partition, message), in order within each partition.

        `start`: earliest, latest, an offset, a moment, or a span ("15m": so long ago). It ends where the topic ended
        when it began, or before the offset or the moment of `until`. With `follow` it waits for more, for ever,
        and for five minutes at most for a server that is away.

        PartitionFaulty: one cannot be read; that comes when the others are done, and with `follow` at once.
        """
        from .prefetch import fetch

        if follow and until is not None:
            raise Refused("a read that follows has no end: give one of follow and until")
        described = self.topic(topic)
        reader = fetching.topic_reader(described, start, partition, follow=follow)
        patience_s = fetching.FOLLOW_PATIENCE_S if follow else 0.0
        if until is not None:
            for one in reader.partitions():
                found = fetch(self.connector, fetching.request_of_end(one, until))
                one.end_before(found.offset)
            reader.forget_done()
        while (reading := reader.next()) is not None:
            try:
                fetched = fetch(self.connector, reading.request, patience_s=patience_s)
            except PartitionFaulty as fault:
                reader.leave_out(fault)
                continue
            for message in fetched:
                if reading.end is None or message.offset < reading.end:
                    yield reading.request.partition, message
            reader.advance(fetched)

    # Shared groups

    def poll(
        self,
        topic: str,
        group: str,
        *,
        limit: int = 100,
        timeout: Duration = 0,
        owner: str | None = None,
        visibility_timeout: Duration | None = None,
        priority: str | None = None,
        start: Moment = "earliest",
    ) -> Polled[Received]:
        """Lease messages to a group; answer each, or it comes back after its visibility timeout. See `consumer`.

        A group that is new begins at `start`: earliest, latest, an offset, a moment, or a span ("15m": so long ago).

        A client may have 1000 unanswered messages of a partition, or `max_in_flight_per_consumer` of the topic; a poll
        brings no more. Repeated because its answer was lost, it brings the messages of the first time, and no attempt
        counts.
        """
        lease = visibility_timeout
        command = Poll(
            name_of("topic", topic),
            name_of("group", group),
            self._name if owner is None else text("the name of an owner", owner),
            whole_number("limit", limit, 1),
            None if lease is None else duration_ms(lease, "visibility_timeout"),
            None if priority is None else Priority(priority_of(priority)),
            token_hex(8),
            start=start_of(start),
        )
        found: Any = self.execute(command, wait_s=duration_s(timeout, "timeout"))
        return Polled(parts_of(found.parts, self.connector.name), Received)

    def ack(self, held: Receipts) -> list[AnswerResult]:
        """Finish messages. StaleReceipt if the lease of one is over; the others are finished all the same."""
        return all_or_first_error(self._answer(held, Kind.ACK))

    def nack(
        self, held: Receipts, reason: str = "", *, delay: Duration | None = None
    ) -> list[AnswerResult]:
        """Failed: try again after a backoff, or after `delay`; a dead letter if that was the last attempt."""
        ms = nack_delay_ms(delay)
        return all_or_first_error(self._answer(held, Kind.NACK, reason, ms))

    def reject(self, held: Receipts, reason: str = "") -> list[AnswerResult]:
        """No attempt will ever succeed: a dead letter, at once."""
        return all_or_first_error(self._answer(held, Kind.REJECT, reason))

    def extend(self, held: Receipts, timeout: Duration) -> list[AnswerResult]:
        """Still working on it: the lease ends so long from now."""
        ms = duration_ms(timeout, "timeout")
        return all_or_first_error(self._answer(held, Kind.EXTEND, ms=ms))

    def answer_ack(self, receipts: list[str]) -> Results:
        """Finish messages by receipt; returns a result or an error for each."""
        return self._answer(receipts, Kind.ACK)

    def _answer(
        self, held: Receipts, kind: Kind, reason: str = "", ms: int | None = None
    ) -> Results:
        receipts = receipts_of(held)
        answers = ReceiptAnswers(kind, receipts, reason_text(reason), ms)
        if not receipts:
            return []
        return answers.results(self.execute(answers.command()), time.time_ns())

    # Producers, consumers and workers

    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> "Producer":
        """Sends messages one by one and stores them in large batches, each exactly once."""
        from .producer import Producer

        return Producer(self.connector, topic, options)

    def transactional_producer(
        self, name: str, *, timeout: Duration = "60s"
    ) -> "TransactionalProducer":
        """Publishes to many topics and partitions, all or nothing: `with producer.transaction() as t: ...`.

        A producer of the same name that begins later takes its place. A transaction that is open for longer than
        `timeout` (at most 15 minutes) is aborted.
        """
        from .transactions import TransactionalProducer

        return TransactionalProducer(self, name, timeout)

    def staging(self, name: str, sequence: int, writer: str, *, attempt: str = "") -> "Staging":
        """Messages for one sequence of a named commit: `with client.staging(...) as s: ...`, then `s.handle`.

        Another process may commit the handle, and choose between those of several attempts. CommitNameTaken: another
        writer uses the name. SequenceCommitted: it is too late.
        """
        from .stagings import Staging

        return Staging(self.connector, commit_key(name, sequence, writer), attempt)

    def commit_stagings(
        self,
        name: str,
        sequence: int,
        writer: str,
        handles: Iterable[StagingHandle],
        *,
        one_off: bool = False,
        fingerprint: str = "",
    ) -> NamedCommit:
        """Publish exactly these stagings, once, for ever. `is_repeat`: this sequence was committed before.

        `fingerprint` says what the commit holds, such as a count and a sum, in at most 100 characters. RepeatDiffers:
        it is a repeat of the last sequence, which was committed with another one.

        All others of the sequence and of lower ones are dropped. `one_off`: no other commit of this name comes, and it
        is forgotten after a day. CommitNameTaken, UnknownStaging, StagingMismatch: nothing was published.
        """
        key = commit_key(name, sequence, writer)
        refs = refs_of(key, handles)
        if not refs:
            # The first staging makes the name, and a commit without any may be the first.
            with suppress(SequenceCommitted):
                self.execute(OpenStaging(*key))
        return self.execute(CommitStagings(*key, refs, one_off, fingerprint))

    def drop_stagings(self, handles: Iterable[StagingHandle]) -> int:
        """Give stagings up before their commit; how many there were."""
        ids = [one.staging for one in handles_of(handles)]
        return self.execute(DropStagings(ids))

    def consumer(
        self, topics: str | Sequence[str], group: str, **options: Unpack[ConsumerOptions]
    ) -> "Consumer":
        """A member of a group that takes messages, with heartbeats, and answers in batches."""
        from .consumer import Consumer

        return Consumer(self.connector, group, topics, ConsumerSettings(**options))

    def worker(
        self,
        topics: str | Sequence[str],
        group: str,
        handler: Callable[[Delivered], Any],
        **options: Unpack[WorkerOptions],
    ) -> "Worker":
        """Calls a handler for every message, several at once, and answers for it: `client.worker(...).run()`."""
        from .worker import Worker

        return Worker(self, topics, group, handler, **options)

    def close(self) -> None:
        """Close the connections. Producers, consumers and workers are closed before, each by its own block."""
        self.connector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
