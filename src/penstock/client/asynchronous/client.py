"""The client: one method for everything that a server can be asked."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from ...api.arguments import instance, several, whole_number
from ...api.units import Duration
from ...errors import NotFound
from ...model import Message
from .. import delays
from .. import fetch as fetch_calls
from .. import groups as group_calls
from .. import poll as poll_calls
from .. import publish as publish_calls
from .. import topics as topic_calls
from ..address import DEFAULT_URL, Address
from ..calls import Call, Content, Moment, get
from ..consumer_options import ConsumerOptions, ConsumerSettings
from ..delays import Delayed, DelayedPlace, DelayStats
from ..fetch import Fetched, FetchOptions, FetchRequest
from ..groups import ALL_LETTERS, DeadLetter, Group, GroupName, Lag, Letters, Redrive, Redriven
from ..leased_messages import Delivered, Polled, Received
from ..poll import AnswerResult, Receipts, Results, all_or_first_error, receipts_of
from ..producer import ProducerOptions, ProducerSettings
from ..publish import BatchStored, Outgoing, Published, PublishOptions
from ..settings import ClientSettings
from ..stats import Lanes, Reliability, Stats
from ..stats import lanes as lanes_call
from ..topics import Compaction, Topic, TopicCreated, TopicGrown
from ..worker import WorkerOptions
from .pool import AsyncPool

if TYPE_CHECKING:
    from .consumer import AsyncConsumer
    from .producer import AsyncProducer
    from .worker import AsyncWorker

T = TypeVar("T")
_PAGE_ITEMS_MAX = 500


class AsyncClient:
    """A client of one server. Safe to share; connections are kept and used again.

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
        if settings is None:
            settings = ClientSettings()
        instance("settings", settings, ClientSettings)
        self.pool = AsyncPool(Address.parse(url), key, settings)
        # The owner of what `poll` leases: the server must tell this client's messages from those of another.
        self._name = f"client-{token_hex(6)}"

    @property
    def url(self) -> str:
        return self.pool.name

    async def run(self, call: Call[T]) -> T:
        """The result of any call; see the modules of `penstock.client`."""
        return await self.pool.run(call)

    async def _pages(self, call_of: Callable[[str | None], Call[Any]]) -> AsyncIterator[Any]:
        """All pages of a list. `call_of` makes the call for the page at a cursor."""
        page = await self.run(call_of(None))
        yield page
        while page.cursor is not None:
            page = await self.run(call_of(page.cursor))
            yield page

    # Topics

    async def create_topic(
        self, name: str, *, partitions: int | None = None, config: Mapping[str, Any] | None = None
    ) -> TopicCreated:
        """Make a topic. AlreadyExists; InvalidConfig names every setting that is wrong."""
        return await self.run(topic_calls.create(name, partitions, config))

    async def topics(self) -> list[str]:
        """The names of all topics that this client's key may see."""
        return [one async for page in self._pages(topic_calls.names) for one in page.topics]

    async def describe_topics(self) -> list[Topic]:
        return [one async for page in self._pages(topic_calls.describe_all) for one in page.topics]

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
        message = publish_calls.message_json(value, options)
        return (await self.run(publish_calls.publish(topic, [message], acks)))[0]

    async def publish_many(
        self, topic: str, messages: Iterable[Outgoing | Content], *, acks: str = "leader"
    ) -> list[Published]:
        """Publish messages with one request. PartlyPublished has a result or an error for each."""
        items = [*map(publish_calls.outgoing_json, several("messages", messages))]
        return await self.run(publish_calls.publish(topic, items, acks))

    async def append_batch(
        self, topic: str, partition: int, batch: bytes, *, acks: str = "leader"
    ) -> BatchStored:
        """Publish a batch that `penstock.codec` encoded, whole."""
        whole_batch = instance("a batch", batch, bytes)
        call = publish_calls.append_batch(topic, partition, whole_batch, acks, is_numbered=False)
        return await self.run(call)

    async def fetch(self, topic: str, partition: int, **options: Unpack[FetchOptions]) -> Fetched:
        """Messages of a partition from an `offset` or a time on. Belongs to no group, and finishes no message."""
        return await self.run(fetch_calls.fetch(FetchRequest(topic, partition, **options)))

    async def fetches(
        self, topic: str, partition: int, **options: Unpack[FetchOptions]
    ) -> AsyncIterator[Fetched]:
        """Fetches up to the end of the partition; with a `timeout`, until no message comes for so long.

        The server prepares the next one while the caller uses one, so two are in memory at once. Close the iterator:
        until then it keeps a connection.
        """
        from .prefetch import AsyncPrefetch

        options.setdefault("limit", fetch_calls.LIMIT_MAX_BATCHES)
        options.setdefault("max_bytes", fetch_calls.PREFETCH_BYTES)
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
        described = await self.topic(topic)
        reader = fetch_calls.topic_reader(described, start, partition, is_followed=is_followed)
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
        """Lease messages to a group; answer each, or it comes back after its visibility timeout. See `consumer`.

        A client may have 1000 unanswered messages of a partition, or `max_in_flight_per_consumer` of the topic; a poll
        brings no more.
        """
        call = poll_calls.poll(
            topic,
            group,
            limit=limit,
            timeout=timeout,
            owner=self._name if owner is None else owner,
            visibility_timeout=visibility_timeout,
            priority=priority,
        )
        return await self.run(call)

    async def ack(self, held: Receipts) -> list[AnswerResult]:
        """Finish messages. StaleReceipt if the lease of one is over; the others are finished all the same."""
        return await self._answer(held, poll_calls.ack)

    async def nack(
        self, held: Receipts, reason: str = "", *, delay: Duration | None = None
    ) -> list[AnswerResult]:
        """Failed: try again after a backoff, or after `delay`; a dead letter if that was the last attempt."""
        return await self._answer(held, lambda found: poll_calls.nack(found, reason, delay))

    async def reject(self, held: Receipts, reason: str = "") -> list[AnswerResult]:
        """No attempt will ever succeed: a dead letter, at once."""
        return await self._answer(held, lambda found: poll_calls.reject(found, reason))

    async def extend(self, held: Receipts, timeout: Duration) -> list[AnswerResult]:  # noqa: ASYNC109 - the server's
        """Still working on it: the lease ends so long from now."""
        return await self._answer(held, lambda found: poll_calls.extend(found, timeout))

    async def _answer(
        self, held: Receipts, call_of: Callable[[Sequence[str]], Call[Results]]
    ) -> list[AnswerResult]:
        receipts = receipts_of(held)
        return all_or_first_error(await self.run(call_of(receipts)) if receipts else [])

    async def answer_ack(self, receipts: list[str]) -> Results:
        """Finish messages by receipt; returns a result or an error for each."""
        return await self.run(poll_calls.ack(receipts)) if receipts else []

    # Groups and dead letters

    async def groups(self) -> list[GroupName]:
        return [one async for page in self._pages(group_calls.names) for one in page.groups]

    async def group(self, name: str) -> Group:
        return await self.run(group_calls.describe(name))

    async def delete_group(self, name: str) -> None:
        """Forget a group and its progress."""
        await self.run(group_calls.delete(name))

    async def lag(self, group: str) -> Lag:
        """How far a group is behind, in all and on every partition."""
        return await self.run(group_calls.lag(group))

    async def offsets(self, group: str) -> dict[str, dict[str, int]]:
        """The offset that the group reads next, by topic and partition."""
        return (await self.run(group_calls.offsets(group))).offsets

    async def commit(self, group: str, offsets: Mapping[str, Mapping[int, int]]) -> bool:
        """Finish everything below some offsets; False if it was finished already."""
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
        call = group_calls.reset(group, to, topic=topic, is_dry_run=is_dry_run, is_forced=is_forced)
        return (await self.run(call)).partitions

    async def in_flight(self, group: str) -> list[dict[str, Any]]:
        """The messages that members of a group hold: place, consumer, attempts, deadline."""
        pages = self._pages(lambda cursor: group_calls.in_flight(group, cursor))
        return [one async for page in pages for one in page.in_flight]

    async def dead_letters(
        self, topic: str, letters: Letters = ALL_LETTERS, *, limit: int = 1000
    ) -> list[DeadLetter]:
        """The first `limit` dead letters that match, and why each was given up."""
        limit = whole_number("limit", limit, 1)
        size = min(limit, _PAGE_ITEMS_MAX)
        found: list[DeadLetter] = []
        async for page in self._pages(
            lambda cursor: group_calls.dead_letters(topic, letters, size, cursor)
        ):
            found += page.dead_letters
            if len(found) >= limit:
                break
        return found[:limit]

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
        size = min(limit, _PAGE_ITEMS_MAX)
        found: list[Delayed] = []
        async for page in self._pages(lambda cursor: delays.listed(topic, size, cursor)):
            found += page.messages
            if len(found) >= limit:
                break
        return found[:limit]

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
        return await self.run(get("/stats", Stats))

    async def reliability(self) -> Reliability:
        """How many messages are leased, wait for a retry, or were given up; in all and by group."""
        return await self.run(get("/reliability/stats", Reliability))

    async def lanes(self, group: str | None = None) -> Lanes:
        """The backlog of each priority lane: of a group, or of the one that is furthest behind on each topic."""
        return await self.run(lanes_call(group))

    async def health(self) -> dict[str, Any]:
        return await self.run(get("/health", dict[str, Any]))

    # Producers, consumers and workers

    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> "AsyncProducer":
        """Sends messages one by one and stores them in large batches, each exactly once."""
        from .producer import AsyncProducer

        return AsyncProducer(self.pool, topic, ProducerSettings(**options))

    def consumer(
        self, topics: str | Sequence[str], group: str, **options: Unpack[ConsumerOptions]
    ) -> "AsyncConsumer":
        """A member of a group that takes messages, with heartbeats, and answers in batches."""
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

    async def __aexit__(self, *_error: object) -> None:
        await self.close()
