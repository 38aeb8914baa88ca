"""A whole broker in the process: topics, groups, retries, dead letters, without a server."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from logging import Logger
from typing import Any, Unpack

from msgspec import UNSET, UnsetType

from ..api.answers import Kind, ReleaseMember, nack_delay_ms
from ..api.arguments import (
    choice,
    flag,
    function,
    several,
    shown,
    text,
    whole_count,
    whole_number,
)
from ..api.consume import Poll
from ..api.contents import Content, HeadersIn
from ..api.dead_letters import (
    REDRIVE_LIMIT,
    BrowseDeadLetters,
    DeadLetter,
    DiscardDeadLetters,
    RedriveDeadLetters,
    Target,
)
from ..api.fetch import Read
from ..api.groups import (
    CloseGroup,
    Commit,
    DescribeGroup,
    DescribeLag,
    DescribeLanes,
    GroupFacts,
    InFlight,
    ListGroups,
    ListInFlight,
    OpenGroup,
    PartitionLag,
    PartitionLanes,
    PartitionOffset,
    PlanReset,
    ResetGroup,
)
from ..api.letters import (
    ALL_LETTERS,
    Discarded,
    Letters,
    Redriven,
    edit_of,
    redriven_of,
    selection_of,
)
from ..api.members import JoinGroup
from ..api.publish import Acks, Publish, Schedule
from ..api.received import Received
from ..api.start import EARLIEST, LATEST, Start
from ..api.topics import (
    PARTITIONS_DEFAULT,
    AddPartitions,
    ConfigureTopic,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    ListTopics,
    PartitionFacts,
    SweepTopics,
    Swept,
)
from ..api.units import Duration, datetime_ns, duration_ms, duration_ns, priority_of
from ..errors import AlreadyExists, Refused
from ..model import Message, Priority
from ..ports import Clock
from ..runtime.group_polls import FOR_EVER
from ..runtime.publishing import Published, publish
from .answers import Held, answer
from .delay import BrokerDelays, Later, check_later, delayed_of, is_delayed
from .directory import Path, open_driver, storage_of
from .handle import Handle
from .journeys import BrokerJourneys
from .member import ASSIGNORS, ORDERS, Member, Told
from .messages import MessageOptions, Value, make_message, message_of
from .schedules import BrokerSchedules
from .transaction import Sessions, Transaction

Place = str | int | datetime
"""Where to begin: "earliest", "latest", an offset, or the first message published at a time or later."""

ACKS = {"none": Acks.NONE, "leader": Acks.LEADER, "all": Acks.ALL}


class Broker(Handle, BrokerDelays, BrokerJourneys, BrokerSchedules):
    """Topics and groups in a directory, or in memory if there is no path. Safe to share between threads.

        with penstock.Broker("./data") as broker:
            broker.create_topic("orders", partitions=3, max_retries=5, exist_ok=True)
            broker.publish("orders", b"...", key="customer-7")
            for message in broker.poll("orders", "billing", timeout=5):
                broker.ack(message)

    Every group sees every message once; members of a group share them. With a clock from `penstock.testing` time
    stands still until `broker.clock.advance("3d")`. `cache_bytes` (64 MiB) is memory for messages read lately.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        clock: Clock | None = None,
        fsync: str = "interval",
        fsync_interval_ms: int = 1000,
        min_free_bytes: int | None = None,
        cache_bytes: int | None = None,
        logger: Logger | None = None,
    ) -> None:
        storage = storage_of(fsync, fsync_interval_ms, min_free_bytes, cache_bytes)
        opened = open_driver(path, storage, clock=clock, logger=logger)
        # For programs that build on the broker: benchmarks, tools.
        self.driver, self._give_up_disk = opened
        self._sessions = Sessions()
        self._opened(self.driver)

    @property
    def clock(self) -> Any:
        """The clock that was handed in, or the system's."""
        return self.driver.clock

    def create_topic(
        self,
        name: str,
        /,
        *,
        partitions: int = PARTITIONS_DEFAULT,
        exist_ok: bool = False,
        **settings: Any,
    ) -> None:
        """Make a topic with settings: `max_retries`, `retention_hours`, `ttl_ms`, ...

        AlreadyExists, unless `exist_ok`: then a topic that is there stays as it is. InvalidConfig names every setting
        that is wrong.
        """
        try:
            self.driver.execute(CreateTopic(name, whole_number("partitions", partitions), settings))
        except AlreadyExists:
            if not exist_ok:
                raise

    def configure_topic(self, name: str, /, **changes: Any) -> None:
        """Change settings of a topic; they hold from the next call on."""
        self.driver.execute(ConfigureTopic(text("a topic's name", name), changes))

    def add_partitions(self, name: str, total: int) -> None:
        """More partitions, up to a new total."""
        topic = text("a topic's name", name)
        self.driver.execute(AddPartitions(topic, whole_number("total", total)))

    def delete_topic(self, name: str) -> None:
        """Remove a topic with everything in it. One that is made again under its name begins empty."""
        self.driver.execute(DeleteTopic(text("a topic's name", name)))

    def topics(self) -> list[str]:
        """The names of all topics."""
        return self.driver.execute(ListTopics())

    def describe(self, topic: str) -> list[PartitionFacts]:
        """Every partition of a topic: first and next offset, messages, bytes."""
        return list(self.driver.execute(DescribeTopic(_topic(topic))).partitions)

    def settings(self, topic: str) -> dict[str, Any]:
        """The settings of a topic, defaults included."""
        return self.driver.execute(DescribeTopic(_topic(topic))).settings

    def publish(
        self,
        topic: str,
        value: Value | UnsetType = UNSET,
        *,
        acks: str = "leader",
        partition: int | None = None,
        **options: Unpack[MessageOptions],
    ) -> Published:
        """Store a message and say where, and how safe it is: see `Published.guarantee`.

        Instead of a value it may have `json`: any object that JSON has a form for.

        `acks`: "none" and "leader" return when it is written, or fsynced if the broker was opened with
        `fsync="always"`; "all" returns when it is fsynced, whatever the policy.

        With `delay` ("30s", "2h") or `deliver_at` (a datetime) it is delivered then, and `Published.offset` is its id
        among those that wait. One with the `delay_key` of another that still waits takes its place.
        """
        now_ns = self.driver.now().wall_ns
        if is_delayed(options):
            delayed = [delayed_of(value, options, now_ns)]
            return publish(self.driver, Schedule(_topic(topic), delayed, partition), acks_of(acks))[
                0
            ]
        message = make_message(value, options, now_ns=now_ns)
        return self.publish_many(topic, [message], acks=acks, partition=partition)[0]

    def publish_many(
        self,
        topic: str,
        messages: Iterable[Message | Value],
        *,
        acks: str = "leader",
        partition: int | None = None,
        **when: Unpack[Later],
    ) -> list[Published]:
        """Store several messages, or none of them; results in their order. All with one `delay` or `deliver_at`."""
        now_ns = self.driver.now().wall_ns
        if when:
            check_later(when)
            given = several("the messages of publish_many", messages)
            delayed = [delayed_of(one, when, now_ns) for one in given]
            return publish(self.driver, Schedule(_topic(topic), delayed, partition), acks_of(acks))
        ready = [
            message_of(one, {}, now_ns=now_ns)
            for one in several("the messages of publish_many", messages)
        ]
        return publish(self.driver, Publish(_topic(topic), ready, partition), acks_of(acks))

    def transaction(self, *, timeout: Duration = "60s") -> Transaction:
        """Publish to several topics and partitions, all or none.

            with broker.transaction() as t:
                t.publish("orders", b"...", key="customer-7")
                t.publish("audit", b"...")

        No reader sees any of it before the block has ended, and none of it if the block raises. Open for longer than
        `timeout` (at most 15 minutes) it is aborted, and the end of the block raises `TransactionEnded`.
        """
        return Transaction(self.driver, self._sessions, timeout)

    def read(
        self, topic: str, partition: int, start: Place = "earliest", *, limit: int = 500
    ) -> list[Message]:
        """Messages by position: no group, no lease, nothing is finished by it."""
        place, count = start_of(start), whole_count("limit", limit, least=1)
        return self.driver.execute(Read(_topic(topic), partition, place, count)).messages

    def open_group(self, topic: str, group: str, *, start: Place = "earliest") -> None:
        """Make a group that begins somewhere else than at the earliest message; one that exists stays as it is."""
        place, name = start_of(start), text("group", group)
        self.driver.execute(OpenGroup(name, (_topic(topic),), place))

    def poll(
        self,
        topic: str,
        group: str,
        *,
        member: str = "main",
        limit: int = 500,
        timeout: Duration | None = 0,
        visibility_timeout: Duration | None = None,
        priority: str | int | None = None,
        request_id: str = "",
    ) -> list[Received]:
        """Messages for a member of a group, the most urgent first; an empty list if none comes before the time is up.

        Each is lent for `visibility_timeout` (the topic's, if not said): ack it, or it comes back. With `priority`
        only messages of that lane. A `request_id` that comes again gets the same messages again.
        """
        timeout_ns = FOR_EVER if timeout is None else duration_ns(timeout)
        lane = None if priority is None else Priority(priority_of(priority))
        command = Poll(
            _topic(topic),
            text("group", group),
            text("member", member),
            whole_count("limit", limit),
            None if visibility_timeout is None else duration_ms(visibility_timeout),
            lane,
            text("request_id", request_id),
        )
        return self.driver.polls.poll(command, timeout_ns)

    def stream(
        self, topic: str, group: str, *, member: str = "main", timeout: Duration | None = None
    ) -> Iterator[Received]:
        """Messages one by one as they come, for ever; or until none came for `timeout`.

        Streams that wait are served in turn, so several of them share the work.
        """
        while messages := self.poll(topic, group, member=member, limit=1, timeout=timeout):
            yield from messages

    def ack(self, held: Held | Iterable[Held]) -> None:
        """Finish messages, or receipts. Repeating an ack does no harm; StaleReceipt if they are not yours any more."""
        answer(self.driver, Kind.ACK, held)

    def nack(
        self, held: Held | Iterable[Held], reason: str = "", *, delay: Duration | None = None
    ) -> None:
        """Failed: try again after a backoff that grows with each attempt, or after `delay`."""
        delay_ms = nack_delay_ms(delay)
        answer(self.driver, Kind.NACK, held, reason=reason, ms=delay_ms)

    def reject(self, held: Held | Iterable[Held], reason: str = "") -> None:
        """No attempt will ever succeed: a dead letter, at once."""
        answer(self.driver, Kind.REJECT, held, reason=reason)

    def extend(self, held: Held | Iterable[Held], duration: Duration) -> None:
        """Still working on it: a new deadline, counted from now."""
        answer(self.driver, Kind.EXTEND, held, ms=duration_ms(duration))

    def release(self, topic: str, group: str, member: str) -> None:
        """A member went away: what it holds is ready again at once, and only the oldest keeps its attempt."""
        release = ReleaseMember(_topic(topic), text("group", group), text("member", member))
        self.driver.execute(release)

    def commit(self, topic: str, partition: int, group: str, offset: int) -> bool:
        """Finish everything below an offset for a group; False if it was."""
        place = PartitionOffset(_topic(topic), partition, whole_number("offset", offset))
        return self.driver.execute(Commit(text("group", group), (place,)))

    def join(
        self,
        topics: str | Iterable[str],
        group: str,
        *,
        member: str | None = None,
        assignor: str | None = None,
        order: str | None = None,
        session_timeout: Duration | None = None,
        start: Place = "earliest",
        auto_commit: bool = False,
        on_revoked: Told | None = None,
        on_assigned: Told | None = None,
    ) -> Member:
        """Become a member of an assigned group: each partition is read by one member, and moves only if it has to.

        `assignor`: sticky (the default), range or round_robin. `order`: relaxed (the default), or strict: offset order,
        and a failed message holds its partition until it is finished. Joining under a `member` name that is taken
        replaces the member that has it. `auto_commit`: the next poll finishes what the last one returned, and so do 5
        seconds. ModeConflict: the group shares this topic, or reads it in another order.
        """
        function("on_revoked", on_revoked)
        function("on_assigned", on_assigned)
        named = several("topics", [topics] if isinstance(topics, str) else topics)
        command = JoinGroup(
            text("group", group),
            "" if member is None else text("member", member),
            tuple(_topic(one) for one in named),
            session_ms=0 if session_timeout is None else max(1, duration_ms(session_timeout)),
            assignor=None if assignor is None else choice("assignor", assignor, ASSIGNORS),
            mode=None if order is None else choice("order", order, ORDERS),
            start=start_of(start),
            is_auto_commit=flag("auto_commit", auto_commit),
        )
        joined = self.driver.execute(command)
        return Member(
            self.driver, command.group, joined, on_revoked=on_revoked, on_assigned=on_assigned
        )

    def describe_group(self, group: str) -> GroupFacts:
        """Members, what each of them owns, and why the last rebalances happened."""
        return self.driver.execute(DescribeGroup(text("group", group)))

    def groups(self) -> dict[str, list[str]]:
        """Every group with the topics that it reads."""
        return self.driver.execute(ListGroups())

    def lag(self, group: str) -> list[PartitionLag]:
        """How far a group is behind on each partition, in messages and in seconds."""
        return self.driver.execute(DescribeLag(text("group", group))).partitions

    def lanes(self, topic: str, group: str) -> list[PartitionLanes]:
        """What waits in each priority lane of a group, how much of it was handed out, how fast and after what wait."""
        lanes = DescribeLanes(topic=_topic(topic), group=text("group", group))
        return self.driver.execute(lanes)[topic].partitions

    def in_flight(self, group: str) -> list[InFlight]:
        """What the members of a group hold."""
        return self.driver.execute(ListInFlight(text("group", group)))

    def reset(
        self,
        group: str,
        to: Place,
        *,
        topic: str | None = None,
        partitions: Iterable[int] | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> list[dict[str, Any]]:
        """Start a group again from another place. What was done, or would be (`dry_run`), a row for each partition.

        On all of its topics, on one, or on some `partitions` of one. While members hold messages: GroupBusy, unless
        forced.
        """
        place, name, is_forced = start_of(to), text("group", group), flag("force", force)
        only = None if topic is None else _topic(topic)
        numbers = None
        if partitions is not None:
            found = several("partitions", partitions)
            numbers = tuple(whole_count("a partition", one) for one in found)
        plan = PlanReset(name, topic=only, to=place, partitions=numbers)
        reset = ResetGroup(name, topic=only, to=place, partitions=numbers, is_forced=is_forced)
        moves = self.driver.execute(plan if flag("dry_run", dry_run) else reset)
        return [{"topic": one, **move._asdict()} for one, some in moves.items() for move in some]

    def forget_group(self, topic: str, group: str) -> None:
        """Remove a group from a topic, with its progress."""
        self.driver.execute(CloseGroup(text("group", group), topic=_topic(topic)))

    def dead_letters(
        self, topic: str, *, selection: Letters = ALL_LETTERS, limit: int = 100
    ) -> list[DeadLetter]:
        """Messages of a topic that were given up, as they were, each with its provenance; oldest first."""
        command = BrowseDeadLetters(
            _topic(topic), selection_of(selection), whole_count("limit", limit)
        )
        self.driver.settle()
        return self.driver.execute(command).letters

    def redrive(
        self,
        topic: str,
        *,
        selection: Letters = ALL_LETTERS,
        target: str = "topic",
        edit: dict[str, Content] | None = None,
        headers: HeadersIn | None = None,
        dry_run: bool = False,
        limit: int | None = None,
    ) -> Redriven:
        """Send dead letters back: to the topic, for every group, or only to the group that failed.

        `edit` changes `key` and `value`, `headers` takes the place of theirs. Without `limit` 10,000 at most.
        """
        where = choice("target", target, {one.value: one for one in Target})
        chosen, changes = selection_of(selection), edit_of(edit, headers)
        most = REDRIVE_LIMIT if limit is None else whole_number("limit", limit)
        is_dry = flag("dry_run", dry_run)
        command = RedriveDeadLetters(_topic(topic), chosen, where, changes, most, is_dry_run=is_dry)
        self.driver.settle()
        reply = self.driver.execute(command)
        self.driver.settle()
        return redriven_of(reply.matched, [reply], is_dry_run=is_dry)

    def discard(
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
        chosen, is_dry = selection_of(selection), flag("dry_run", dry_run)
        most = REDRIVE_LIMIT if limit is None else whole_number("limit", limit, 1)
        command = DiscardDeadLetters(_topic(topic), chosen, most, is_dry)
        self.driver.settle()
        reply = self.driver.execute(command)
        return Discarded(reply.matched, reply.discarded, is_dry)

    def retain(self, topic: str | None = None) -> dict[str, Swept]:
        """Remove what retention lets go, now, of one topic or of all; compact what is to be compacted.

        The broker does so by itself, every `retention_check_ms` and `compaction_check_ms` of a topic.
        """
        name = None if topic is None else _topic(topic)
        return self.driver.execute(SweepTopics(name))

    def sync(self) -> None:
        """Return once everything done so far is on the disk."""
        self.driver.sync()

    def _close(self) -> None:
        """Leases stay: their time goes on when the directory is opened again."""
        self.driver.close()

    def _replace_parts(self, closed: Any) -> None:
        self.driver = self._sessions = closed


def acks_of(acks: str) -> Acks:
    return choice("acks", acks, ACKS)


def start_of(place: Place) -> Start:
    if isinstance(place, datetime):
        return Start.at_time(datetime_ns(place, "start"))
    if isinstance(place, int) and not isinstance(place, bool):
        return Start.at_offset(place)
    named = {"earliest": EARLIEST, "latest": LATEST}
    if not isinstance(place, str) or place not in named:
        raise Refused(
            f"start must be earliest, latest, an offset or a datetime, got {shown(place)}"
        )
    return named[place]


def _topic(name: str) -> str:
    return text("a topic's name", name)
