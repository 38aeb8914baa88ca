"""The client: everything that a server can be asked, one method for each."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from secrets import token_hex
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from ...api.arguments import instance, whole_number
from ...api.units import Duration
from ...errors import NotFound
from ...model import Message
from .. import delays
from .. import fetch as fetch_calls
from .. import groups as group_calls
from .. import poll as poll_calls
from .. import publish as publish_calls
from .. import stats as stats_calls
from .. import topics as topic_calls
from ..ack_batcher import Delivered
from ..address import DEFAULT_URL, Address
from ..calls import Call, Content, Moment
from ..consumer_options import ConsumerOptions, ConsumerSettings
from ..delays import Delayed, DelayedPlace, DelayStats
from ..fetch import (
    LIMIT_MAX_BATCHES,
    PREFETCH_BYTES,
    Fetched,
    FetchOptions,
    FetchRequest,
    topic_reader,
)
from ..groups import (
    ALL_LETTERS,
    DeadLetter,
    Group,
    GroupName,
    Lag,
    Letters,
    Redrive,
    Redriven,
    ResetAsked,
)
from ..leased_messages import Polled, Received
from ..options import ProducerOptions, PublishOptions
from ..poll import AnswerResult, Receipts, Results, all_or_first_error, receipts_of
from ..publish import BatchStored, Outgoing, Published
from ..settings import ClientSettings
from ..stats import Lanes, Reliability, Stats
from ..topics import Compaction, Topic, TopicCreated, TopicGrown
from ..worker import WorkerOptions
from .pool import AsyncPool

if TYPE_CHECKING:
    from .consumer import AsyncConsumer
    from .producer import AsyncProducer
    from .worker import AsyncWorker

T = TypeVar("T")


class AsyncClient:
    """A server's client. Safe to share; connections are kept and used again.

        async with AsyncClient("http://127.0.0.1:8080") as client:
            await client.create_topic("orders")
            placed = await client.publish("orders", b"lamp", key=b"ann")

    Errors are those of `penstock.errors`. Calls that can be repeated without harm are tried again when the server does
    not answer or asks for patience; the others raise at once, and `Unreachable.is_sent` says whether they may have been
    carried out.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        key: str | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        chosen = (
            ClientSettings() if settings is None else instance("settings", settings, ClientSettings)
        )
        self.pool = AsyncPool(Address.parse(url), key, chosen)
        # Who holds what it polls: another client's polls must not be taken for ours.
        self._name = f"client-{token_hex(6)}"

    @property
    def url(self) -> str:
        return self.pool.name

    async def run(self, call: Call[T]) -> T:
        """Any call; see the modules beside this one."""
        return await self.pool.run(call)

    # Topics

    async def create_topic(
        self, name: str, *, partitions: int | None = None, config: Mapping[str, Any] | None = None
    ) -> TopicCreated:
        """Make a topic. AlreadyExists; InvalidConfig names every setting that is wrong."""
        return await self.run(topic_calls.create(name, partitions, config))

    async def topics(self) -> list[str]:
        """The names of all topics that we may see."""
        found, cursor = [], None
        while True:
            page = await self.run(topic_calls.names(cursor))
            found += page.topics
            cursor = page.cursor
            if cursor is None:
                return found

    async def describe_topics(self) -> list[Topic]:
        found, cursor = [], None
        while True:
            page = await self.run(topic_calls.describe_all(cursor))
            found += page.topics
            cursor = page.cursor
            if cursor is None:
                return found

    async def topic(self, name: str) -> Topic:
        """Partitions, offsets, sizes and settings of a topic. NotFound."""
        return await self.run(topic_calls.describe(name))

    async def configure_topic(self, name: str, config: Mapping[str, Any]) -> Topic:
        """Change some settings; the others stay."""
        return await self.run(topic_calls.configure(name, config))

    async def add_partitions(self, name: str, total: int) -> TopicGrown:
        """More partitions, up to a new total. Keys may then go elsewhere than before."""
        return await self.run(topic_calls.grow(name, total))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with everything in it, dead letters included."""
        await self.run(topic_calls.delete(name))

    async def compact_topic(self, name: str) -> Compaction:
        """Remove what retention lets go, now."""
        return await self.run(topic_calls.compact(name))

    # Publish and read

    async def publish(
        self,
        topic: str,
        value: Content,
        *,
        acks: str = "leader",
        **options: Unpack[PublishOptions],
    ) -> Published:
        """Publish one message and wait for it. With an `idempotency_key` a lost answer is asked for again."""
        if options:
            call = publish_calls.publish(topic, [Outgoing(value, **options)], acks)
        else:
            call = publish_calls.publish_value(topic, value, acks)
        return (await self.pool.run(call))[0]

    async def publish_many(
        self, topic: str, messages: Iterable[Outgoing | Content], *, acks: str = "leader"
    ) -> list[Published]:
        """Publish messages with one request. PartlyPublished has a result or an error for each."""
        return await self.run(publish_calls.publish(topic, messages, acks))

    async def append_batch(
        self, topic: str, partition: int, batch: bytes, *, acks: str = "leader"
    ) -> BatchStored:
        """Publish a batch that `penstock.codec` encoded, whole."""
        whole_batch = instance("a batch", batch, bytes)
        call = publish_calls.append_batch(topic, partition, whole_batch, acks, is_numbered=False)
        return await self.run(call)

    async def fetch(self, topic: str, partition: int, **options: Unpack[FetchOptions]) -> Fetched:
        """Messages of a partition from an `offset` or a time on, in binary; no group, nothing is finished by it."""
        return await self.pool.run(
            fetch_calls.fetch(fetch_calls.FetchRequest(topic, partition, **options))
        )

    async def fetches(
        self, topic: str, partition: int, **options: Unpack[FetchOptions]
    ) -> AsyncIterator[Fetched]:
        """The same again and again, to the end of the partition; with a `timeout`, until nothing comes for so long.

        The server prepares the next while one is looked at, so two are in memory at once. Close the iterator, or what
        is under way goes on until it is forgotten.
        """
        from .prefetch import AsyncPrefetch

        options.setdefault("limit", LIMIT_MAX_BATCHES)
        options.setdefault("max_bytes", PREFETCH_BYTES)
        request: FetchRequest | None = FetchRequest(topic, partition, **options)
        prefetch = AsyncPrefetch(self.pool)
        try:
            while request is not None:
                fetched = await prefetch.fetch(request, request.at)
                if fetched:
                    yield fetched
                request = request.after(fetched)
        finally:
            prefetch.drop()

    async def read(
        self,
        topic: str,
        *,
        start: Moment = "earliest",
        partition: int | None = None,
        is_followed: bool = False,
    ) -> AsyncIterator[tuple[int, Message]]:
        """All messages of a topic as (partition, message), in order within each partition.

        `start`: earliest, latest, an offset, or a moment. It ends where the topic ended when it began, unless
        `is_followed`: then it waits for more, for ever.
        """
        reader = topic_reader(await self.topic(topic), start, partition, is_followed=is_followed)
        while (reading := reader.next()) is not None:
            fetched = await self.run(fetch_calls.fetch(reading.request))
            for message in fetched:
                if reading.end is None or message.offset < reading.end:
                    yield reading.request.partition, message
            reader.advance(fetched)

    # Shared groups

    async def poll(
        self,
        topic: str,
        group: str,
        *,
        limit: int = 100,
        timeout: Duration = 0,  # noqa: ASYNC109 - the server's, in its own form
        owner: str | None = None,
        visibility_timeout: Duration | None = None,
        priority: str | None = None,
    ) -> Polled[Received]:
        """Messages lent to a group; answer each, or it comes back after its visibility timeout. See `consumer`.

        Never more than we may have unanswered: 1000 of a partition, unless the topic says another
        `max_in_flight_per_consumer`.
        """
        name = self._name if owner is None else owner
        asked = poll_calls.PollRequest(
            topic, group, limit, timeout, name, visibility_timeout, priority
        )
        return await self.run(poll_calls.poll(asked))

    async def ack(self, held: Receipts) -> list[AnswerResult]:
        """Finish messages. StaleReceipt if one of them is no longer ours; the others are finished all the same."""
        return all_or_first_error(await self.answer_ack(receipts_of(held)))

    async def nack(
        self,
        held: Receipts,
        reason: str = "",
        *,
        delay: Duration | None = None,
    ) -> list[AnswerResult]:
        """Failed: try again after a backoff, or after `delay`; a dead letter if that was the last attempt."""
        receipts = receipts_of(held)
        if not receipts:
            return []
        return all_or_first_error(await self.run(poll_calls.nack(receipts, reason, delay)))

    async def reject(self, held: Receipts, reason: str = "") -> list[AnswerResult]:
        """No attempt will ever succeed: a dead letter, at once."""
        receipts = receipts_of(held)
        if not receipts:
            return []
        return all_or_first_error(await self.run(poll_calls.reject(receipts, reason)))

    async def extend(self, held: Receipts, timeout: Duration) -> list[AnswerResult]:  # noqa: ASYNC109 - the server's
        """Still working on it: the lease ends so long from now."""
        receipts = receipts_of(held)
        if not receipts:
            return []
        return all_or_first_error(await self.run(poll_calls.extend(receipts, timeout)))

    async def answer_ack(self, receipts: list[str]) -> Results:
        """Finish messages by receipt; an answer or an error for each."""
        return await self.run(poll_calls.ack(receipts)) if receipts else []

    # Groups and dead letters

    async def groups(self) -> list[GroupName]:
        found, cursor = [], None
        while True:
            page = await self.run(group_calls.names(cursor))
            found += page.groups
            cursor = page.cursor
            if cursor is None:
                return found

    async def group(self, name: str) -> Group:
        return await self.run(group_calls.describe(name))

    async def delete_group(self, name: str) -> None:
        """Forget a group and its progress."""
        await self.run(group_calls.delete(name))

    async def lag(self, group: str) -> Lag:
        """How far a group is behind, in all and on every partition."""
        return await self.run(group_calls.lag(group))

    async def offsets(self, group: str) -> dict[str, dict[str, int]]:
        """By topic and partition the offset that the group reads next."""
        return (await self.run(group_calls.offsets(group))).offsets

    async def commit(self, group: str, offsets: Mapping[str, Mapping[int, int]]) -> bool:
        """Finish everything below some offsets; whether anything moved."""
        return (await self.run(group_calls.commit(group, offsets))).advanced

    async def reset(
        self,
        group: str,
        to: Moment,
        *,
        topic: str | None = None,
        is_dry_run: bool = False,
        is_forced: bool = False,
    ) -> list[dict[str, Any]]:
        """Start a group again from earliest, latest, an offset or a moment. GroupBusy while messages are held."""
        asked = ResetAsked(group, to, topic, is_dry_run, is_forced)
        return (await self.run(group_calls.reset(asked))).partitions

    async def in_flight(self, group: str) -> list[dict[str, Any]]:
        """What the members of a group hold: place, consumer, attempts, deadline."""
        found, cursor = [], None
        while True:
            page = await self.run(group_calls.in_flight(group, cursor))
            found += page.in_flight
            cursor = page.cursor
            if cursor is None:
                return found

    async def dead_letters(
        self, topic: str, letters: Letters = ALL_LETTERS, *, limit: int = 1000
    ) -> list[DeadLetter]:
        """What was given up, and why; the first `limit` that match."""
        limit = whole_number("limit", limit, 1)
        found: list[DeadLetter] = []
        cursor = None
        while True:
            size = min(limit - len(found), 500)
            page = await self.run(group_calls.dead_letters(topic, letters, size, cursor))
            found += page.dead_letters
            cursor = page.cursor
            if cursor is None or len(found) >= limit:
                return found

    async def dead_letter(self, topic: str, partition: int, offset: int) -> DeadLetter:
        """One dead letter by its place. NotFound, also if it was redriven."""
        page = await self.run(group_calls.dead_letter(topic, partition, offset))
        for one in page.dead_letters:
            if (one.partition, one.offset) == (partition, offset):
                return one
        raise NotFound("dead letter", f"{topic} {partition}/{offset}")

    async def count_dead_letters(
        self, topic: str, by: str = "reason", letters: Letters = ALL_LETTERS
    ) -> list[dict[str, Any]]:
        """How many there are by reason, error or consumer."""
        return (await self.run(group_calls.count_dead_letters(topic, by, letters))).groups

    async def redrive(self, topic: str, order: Redrive) -> Redriven:
        """Send dead letters back to the topic, or only to the group that failed."""
        return await self.run(group_calls.redrive(topic, order))

    # Messages for later

    async def delayed(self, topic: str, *, limit: int = 1000) -> list[Delayed]:
        """Messages that wait for their time, the next to come first; at most `limit`."""
        limit = whole_number("limit", limit, 1)
        found: list[Delayed] = []
        cursor = None
        while True:
            page = await self.run(delays.listed(topic, min(limit - len(found), 500), cursor))
            found += page.messages
            cursor = page.cursor
            if cursor is None or len(found) >= limit:
                return found

    async def delayed_get(self, place: DelayedPlace) -> Delayed:
        """A delayed message, also if it is finished. NotFound."""
        return await self.run(delays.describe(place))

    async def cancel_delayed(self, place: DelayedPlace) -> Delayed:
        """Never deliver it. NotPending if it came already, or was cancelled."""
        return await self.run(delays.cancel(place))

    async def reschedule(
        self,
        place: DelayedPlace,
        *,
        delay: Duration | None = None,
        deliver_at: Moment | None = None,
    ) -> Delayed:
        """Deliver it at another time. NotPending if it came already, or was cancelled."""
        return await self.run(delays.reschedule(place, delay, deliver_at))

    async def delay_stats(self) -> DelayStats:
        """How many messages wait for their time, in all and by topic."""
        return await self.run(delays.stats())

    # Figures

    async def stats(self) -> Stats:
        """Sizes of everything."""
        return await self.run(stats_calls.stats())

    async def reliability(self) -> Reliability:
        """What is lent, waits, was given up; in all and by group."""
        return await self.run(stats_calls.reliability())

    async def lanes(self, group: str | None = None) -> Lanes:
        """What waits in each priority lane: of a group, or of the one that is furthest behind on each topic."""
        return await self.run(stats_calls.lanes(group))

    async def health(self) -> dict[str, Any]:
        return await self.run(publish_calls.health())

    # Whoever works for longer

    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> "AsyncProducer":
        """Sends messages one by one and stores them in large batches, each exactly once."""
        from .producer import AsyncProducer

        return AsyncProducer(self.pool, topic, **options)

    def consumer(
        self, topics: str | Sequence[str], group: str, **options: Unpack[ConsumerOptions]
    ) -> "AsyncConsumer":
        """A member of a group that takes messages for as long as it likes; with heartbeats, and answers in batches."""
        from .consumer import AsyncConsumer

        return AsyncConsumer(self.pool, group, topics, ConsumerSettings(**options))

    def worker(
        self,
        topics: str | Sequence[str],
        group: str,
        handler: Callable[[Delivered], Any],
        **options: Unpack[WorkerOptions],
    ) -> "AsyncWorker":
        """Calls a handler for every message, several at once, and answers for it: `await client.worker(...).run()`."""
        from .worker import AsyncWorker

        return AsyncWorker(self, topics, group, handler, **options)

    async def close(self) -> None:
        await self.pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
