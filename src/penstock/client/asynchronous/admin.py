"""What a client asks of a server beside messages: topics, groups, dead letters, delayed messages, figures."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from ...api.arguments import flag, instance, partition_number, text, utf8, whole_number
from ...api.bounds import NAMES_MAX
from ...api.command import Command
from ...api.contents import Content, HeadersIn
from ...api.dead_letters import BrowseDeadLetters, CountDeadLetters, RedriveReply, Selection
from ...api.delays import (
    FIRST_PLACE,
    CancelDelayed,
    DescribeDelays,
    GetDelayed,
    ListDelayed,
    RescheduleDelayed,
)
from ...api.frames import HelloReply
from ...api.groups import (
    CloseGroup,
    Commit,
    DescribeGroup,
    DescribeLag,
    DescribeLanes,
    ListGroups,
    ListInFlight,
)
from ...api.health import SeeHealth, SeeReliability
from ...api.journeys import (
    DescribeJourney,
    DescribeJourneys,
    FindTrace,
    Journey,
    JourneyPage,
    JourneyRow,
    JourneyStats,
    ListJourneys,
    SearchJourneys,
)
from ...api.json.dead_letters import count_out
from ...api.json.groups import held_out, moves_out
from ...api.letters import ALL_LETTERS, Discarded, Letters, Redriven, redriven_of, selection_of
from ...api.topics import (
    AddPartitions,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    DescribeTopics,
    ListTopics,
    SweepTopics,
    TopicDescription,
)
from ...api.units import Duration, Moment
from ...errors import AlreadyExists, NotFound, Refused, TraceNotFound
from ..commands import name_of
from ..dead_letters import (
    DeadLetter,
    Redrive,
    discard_command,
    group_by,
    letter_of,
    redrive_command,
)
from ..delays import Delayed, DelayStats, delayed_of, due_ns, which_of
from ..delays import stats_of as delay_stats_of
from ..groups import (
    Group,
    GroupName,
    Lag,
    committed_offsets,
    floors_of,
    group_of,
    lag_of,
    reset_of,
)
from ..membership import plan_of
from ..stats import Lanes, Reliability, Stats, health_of, lanes_of, reliability_of, stats_of
from ..topics import Compaction, Topic, TopicCreated, TopicGrown, topic_of
from .connector import AsyncConnector
from .io import sleep

R = TypeVar("R")
_PAGE_ITEMS_MAX = 500
_PARTITIONS_MAX = 10_000
# A redrive with a rate ends after so many seconds.
_PACED_ROUNDS = 10
_PACE_S = 1.0


class AsyncAdmin:
    """The part of `AsyncClient` that looks after a server."""

    connector: AsyncConnector

    async def execute(self, command: Command[R], *, wait_s: float = 0.0) -> R:
        """The reply to any command of `penstock.api`. `wait_s`: how long the server may wait for messages."""
        return (await self.connector.execute(command, wait_s=wait_s)).value  # type: ignore[no-any-return]  # By its kind.

    async def server(self) -> HelloReply:
        """What the server says of itself: its version, its limits, and where it serves HTTP."""
        return await self.connector.hello()

    # Topics

    async def create_topic(
        self,
        name: str,
        /,
        *,
        partitions: int | None = None,
        exist_ok: bool = False,
        **settings: Any,
    ) -> TopicCreated:
        """Make a topic with settings: `max_retries`, `retention_hours`, `ttl_ms`, ...

        AlreadyExists, unless `exist_ok`: then a topic that is there stays as it is. InvalidConfig names every setting
        that is wrong.
        """
        count = 0
        if partitions is not None:
            count = whole_number("partitions", partitions, 1, _PARTITIONS_MAX)
        try:
            await self.execute(CreateTopic(name_of("topic", name), count, settings))
        except AlreadyExists:
            if not exist_ok:
                raise
            count = 0
        # Without a number there are as many as the settings of the server say.
        return TopicCreated(name, count or (await self.topic(name)).partitions)

    async def topics(self) -> list[str]:
        """The names of all topics that this client's key may see."""
        return await self.execute(ListTopics())

    async def describe_topics(self) -> list[Topic]:
        """Every topic that the key may see, each as `topic` shows it."""
        return [topic_of(topic) for topic in await self._described()]

    async def _described(self) -> list[TopicDescription]:
        names, described = await self.topics(), list[TopicDescription]()
        for start in range(0, len(names), NAMES_MAX):
            part = await self.execute(DescribeTopics(names[start : start + NAMES_MAX]))
            described += part
        return described

    async def topic(self, name: str) -> Topic:
        """Partitions, offsets, sizes and settings of a topic. NotFound."""
        return topic_of(await self.execute(DescribeTopic(name_of("topic", name))))

    async def configure_topic(self, name: str, /, **changes: Any) -> Topic:
        """Change settings; the others stay. InvalidConfig names every setting that is wrong."""
        if not changes:
            raise Refused("there is nothing to change: name settings and their values")
        return topic_of(await self.execute(ConfigureTopic(name_of("topic", name), changes)))

    async def add_partitions(self, name: str, total: int) -> TopicGrown:
        """More partitions, up to a new total. Keys may then go elsewhere than before."""
        count = whole_number("total", total, 1, _PARTITIONS_MAX)
        return TopicGrown(await self.execute(AddPartitions(name_of("topic", name), count)), count)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with everything in it, dead letters included."""
        await self.execute(DeleteTopic(name_of("topic", name)))

    async def compact_topic(self, name: str) -> Compaction:
        """Remove what retention lets go, now."""
        swept = (await self.execute(SweepTopics(name_of("topic", name))))[name]
        return Compaction(swept.segments_removed, swept.bytes_freed)

    # Groups and dead letters

    async def groups(self) -> list[GroupName]:
        """Every group, with the topics that it reads."""
        return [GroupName(*one) for one in (await self.execute(ListGroups())).items()]

    async def group(self, name: str) -> Group:
        """Members of a group, and how far it is in each of its topics. NotFound."""
        return group_of(await self.execute(DescribeGroup(name_of("group", name))))

    async def delete_group(self, name: str) -> None:
        """Forget a group and its progress."""
        await self.execute(CloseGroup(name_of("group", name)))

    async def lag(self, group: str) -> Lag:
        """How far a group is behind, in all and on every partition."""
        return lag_of(group, await self.execute(DescribeLag(name_of("group", group))))

    async def offsets(self, group: str) -> dict[str, dict[int, int]]:
        """The offset that the group reads next, by topic and partition."""
        return floors_of(await self.execute(DescribeLag(name_of("group", group))))

    async def commit(
        self, group: str, offsets: Mapping[str, Mapping[int, int]], *, lake: str = ""
    ) -> bool:
        """Finish everything below some offsets; False if it was finished already.

        `lake` says where an archive has put these messages, for their journeys.
        """
        name, where = name_of("group", group), utf8(text("lake", lake), "lake")
        return await self.execute(Commit(name, committed_offsets(offsets), True, where))

    async def reset(
        self,
        group: str,
        to: Moment,
        *,
        topic: str | None = None,
        partitions: Iterable[int] | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> list[dict[str, Any]]:
        """Start a group again from earliest, latest, an offset or a moment. What was done, or would be (`dry_run`).

        On all of its topics, on one, or on some `partitions` of one. GroupBusy while messages are held, unless forced.
        """
        reset = reset_of(group, to, topic, partitions, is_forced=flag("force", force))
        return moves_out(await self.execute(plan_of(reset) if flag("dry_run", dry_run) else reset))

    async def in_flight(self, group: str) -> list[dict[str, Any]]:
        """The messages that members of a group hold: place, consumer, attempts, deadline."""
        found = await self.execute(ListInFlight(name_of("group", group)))
        now_ns = time.time_ns()
        return [held_out(one, group, now_ns) for one in found]

    async def dead_letters(
        self, topic: str, *, selection: Letters = ALL_LETTERS, limit: int = 1000
    ) -> list[DeadLetter]:
        """The first `limit` dead letters that match, and why each was given up."""
        limit = whole_number("limit", limit, 1)
        size = min(limit, _PAGE_ITEMS_MAX)
        command = BrowseDeadLetters(name_of("topic", topic), selection_of(selection), size)
        found: list[DeadLetter] = []
        while True:
            page = await self.execute(command)
            found += map(letter_of, page.letters)
            if page.cursor is None or len(found) >= limit:
                return found[:limit]
            command = replace(command, cursor=page.cursor)

    async def dead_letter(self, topic: str, partition: int, offset: int) -> DeadLetter:
        """One dead letter by its place. NotFound, also if it was redriven."""
        place = partition_number(partition), partition_number(offset)
        command = BrowseDeadLetters(name_of("topic", topic), limit=1, cursor=place)
        for one in (await self.execute(command)).letters:
            if (one.partition, one.offset) == place:
                return letter_of(one)
        raise NotFound("dead letter", f"{topic} {partition}/{offset}")

    async def count_dead_letters(
        self, topic: str, by: str = "reason", *, selection: Letters = ALL_LETTERS
    ) -> list[dict[str, Any]]:
        """How many there are by reason, error or consumer."""
        grouped = group_by(by)
        command = CountDeadLetters(name_of("topic", topic), grouped, selection_of(selection))
        return [count_out(grouped, one) for one in await self.execute(command)]

    async def discard(
        self,
        topic: str,
        *,
        selection: Letters = ALL_LETTERS,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Discarded:
        """Have dead letters listed no more, without sending them anywhere. Their messages stay in the dead-letter
        topic for its retention. Without `limit` 10,000 at most.
        """
        reply = await self.execute(discard_command(topic, selection, limit, dry_run))
        return Discarded(reply.matched, reply.discarded, dry_run)

    async def redrive(
        self,
        topic: str,
        *,
        selection: Letters = ALL_LETTERS,
        target: str = "topic",
        edit: dict[str, Content] | None = None,
        headers: HeadersIn | None = None,
        dry_run: bool = False,
        limit: int | None = None,
        rate: int | None = None,
    ) -> Redriven:
        """Send dead letters back: to the topic, for every group, or only to the group that failed.

        `edit` changes `key` and `value`, `headers` takes the place of theirs. Without `limit` 10,000 at most. With
        `rate`, so many a second; then a call ends after some seconds, and `Redriven.matched` says how many there were.
        """
        command = redrive_command(
            topic, Redrive(selection, target, edit, limit, dry_run, rate, headers)
        )
        if rate is None or dry_run:
            reply = await self.execute(command)
            return redriven_of(reply.matched, [reply], is_dry_run=command.is_dry_run)
        planned = await self.execute(replace(command, is_dry_run=True))
        replies: list[RedriveReply] = [replace(planned, redriven=0)]
        left = planned.places
        for _ in range(_PACED_ROUNDS):
            some, left = left[:rate], left[rate:]
            if some:
                these = Selection(offsets=frozenset(some))
                replies.append(
                    await self.execute(replace(command, selection=these, limit=len(some)))
                )
            if not left:
                break
            # Also after the last round, so that a caller that calls again at once keeps to the rate.
            await sleep(_PACE_S)
        return redriven_of(planned.matched, replies, is_dry_run=False)

    # Messages for later

    async def delayed(self, topic: str, *, limit: int = 1000) -> list[Delayed]:
        """Messages that wait for their time, the next to come first; at most `limit`."""
        limit = whole_number("limit", limit, 1)
        name, size = name_of("topic", topic), min(limit, _PAGE_ITEMS_MAX)
        found: list[Delayed] = []
        after = FIRST_PLACE
        while True:
            page = await self.execute(ListDelayed(name, size, after))
            now_ns = time.time_ns()
            found += [delayed_of(one, now_ns) for one in page.messages]
            if page.cursor is None or len(found) >= limit:
                return found[:limit]
            after = page.cursor

    async def delayed_get(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        delay_key: str | None = None,
    ) -> Delayed:
        """A delayed message, by its place or its `delay_key`, also if it is finished. NotFound."""
        asked = name_of("topic", topic), which_of(partition, offset, delay_key)
        return delayed_of(await self.execute(GetDelayed(*asked)), time.time_ns())

    async def cancel_delayed(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        delay_key: str | None = None,
    ) -> Delayed:
        """Never deliver it. NotPending if it came already, or was cancelled."""
        asked = name_of("topic", topic), which_of(partition, offset, delay_key)
        return delayed_of(await self.execute(CancelDelayed(*asked)), time.time_ns())

    async def reschedule(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | None = None,
        *,
        delay_key: str | None = None,
        delay: Duration | None = None,
        deliver_at: Moment | None = None,
    ) -> Delayed:
        """Deliver it at another time. NotPending if it came already, or was cancelled."""
        asked = name_of("topic", topic), which_of(partition, offset, delay_key)
        due = due_ns(delay, deliver_at, time.time_ns())
        if due is None:
            raise Refused("give one of delay and deliver_at", field="delay")
        return delayed_of(await self.execute(RescheduleDelayed(*asked, due)), time.time_ns())

    async def delay_stats(self) -> DelayStats:
        """How many messages wait for their time, in all and by topic."""
        return delay_stats_of(await self.execute(DescribeDelays()))

    # Journeys

    async def journey(self, topic: str, partition: int, offset: int) -> Journey:
        """Everything that happened to a message, for every group. NotFound, OffsetOutOfRange."""
        place = (partition_number(partition), partition_number(offset))
        return await self.execute(DescribeJourney(name_of("topic", topic), *place))

    async def trace(self, trace_id: str, *, topic: str | None = None) -> Journey:
        """The journey of a trace id, derived or sent. For one that was sent, messages are searched. TraceNotFound."""
        command = FindTrace(
            topic=None if topic is None else name_of("topic", topic),
            trace_id=utf8(text("a trace id", trace_id), "a trace id"),
        )
        while True:
            try:
                return await self.execute(command)
            except TraceNotFound as error:
                cursor = error.fields.get("cursor")
                if not isinstance(cursor, str):
                    raise
                command = replace(command, cursor=cursor)

    async def journeys(self, topic: str | None = None, *, limit: int = 20) -> list[JourneyRow]:
        """The journeys of the messages that were published last, the latest first."""
        name = None if topic is None else name_of("topic", topic)
        command = ListJourneys(topic=name, limit=whole_number("limit", limit, 1))
        return (await self.execute(command)).rows

    async def search_journeys(self, search: SearchJourneys) -> JourneyPage:
        """One page of a search, which reads so many bytes of messages at most; its cursor is where to go on."""
        return await self.execute(instance("a search", search, SearchJourneys))

    async def journey_stats(self) -> JourneyStats:
        """What is kept for journeys, and how long messages take."""
        return await self.execute(DescribeJourneys())

    # Figures

    async def stats(self) -> Stats:
        """Sizes of everything."""
        return stats_of(await self.server(), await self._described())

    async def reliability(self) -> Reliability:
        """How many messages are leased, wait for a retry, or were given up; in all and by group."""
        return reliability_of(await self.execute(SeeReliability()))

    async def lanes(self, group: str | None = None) -> Lanes:
        """The backlog of each priority lane: of a group, or of the one that is furthest behind on each topic."""
        name = None if group is None else name_of("group", group)
        return lanes_of(await self.execute(DescribeLanes(group=name)))

    async def health(self) -> dict[str, Any]:
        """`status` is `pass`, or `warn` if one of the `checks` is."""
        return health_of(await self.execute(SeeHealth()), await self.server())
