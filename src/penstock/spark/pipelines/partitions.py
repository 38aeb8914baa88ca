"""The partitions of some topics as the broker has them, and the next commit of a lake from there."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...errors import NotFound, Refused
from ...model import TopicPartition
from .manifest import Gap, Span
from .ranges import EXPIRED, RangeTask, cut, share

if TYPE_CHECKING:
    from ...client import Client

NOT_ASKED = "before the start"


class BrokerPartition(NamedTuple):
    """A partition as it is now. `log` tells it from any other, also from one that had its name before."""

    name: TopicPartition
    earliest: int
    latest: int
    log: int
    is_compacted: bool


def query_partitions(client: "Client", topics: Iterable[str]) -> list[BrokerPartition]:
    """Returns all partitions of some topics. NotFound names the topic that is missing."""
    found: list[BrokerPartition] = []
    for name in topics:
        try:
            topic = client.topic(name)
        except NotFound:
            raise NotFound("topic", f"{name} at {client.url}") from None
        is_compacted = topic.config.get("cleanup") == "compact"
        for number in range(topic.partitions):
            latest = topic.ends(number).latest
            fetched = client.fetch(name, number, offset=latest, limit=1)
            partition = TopicPartition(name, number)
            found.append(
                BrokerPartition(partition, fetched.earliest, latest, fetched.seed, is_compacted)
            )
    return found


def keep_unread(client: "Client", topics: Iterable[str]) -> None:
    """Let retention of the topics wait for groups. Forbidden: the key may not change topics."""
    for name in topics:
        if not client.topic(name).config.get("keep_unread"):
            client.configure_topic(name, keep_unread=True)


def require_same(
    lake: object, known: Mapping[TopicPartition, Span], now: Iterable[BrokerPartition]
) -> None:
    """Refused: a topic in the lake is not the one in the broker, but deleted and made again, or of another broker."""
    for one in now:
        before = known.get(one.name)
        if before is not None and (before.log != one.log or before.end > one.latest):
            raise Refused(
                f"{lake} holds another topic of the name {one.name.topic}: partition {one.name.number} of "
                f"the broker is not the log that was archived up to offset {before.end}; use another lake"
            )


def empty_span(one: BrokerPartition, start: int, end: int, reason: str) -> Span:
    """Returns a span without rows, for one reason."""
    return Span(
        topic=one.name.topic,
        partition=one.name.number,
        start=start,
        end=end,
        rows=0,
        log=one.log,
        gap_offsets=end - start,
        gaps=[Gap(start, end, reason)] if end > start else [],
    )


class CommitPlan(NamedTuple):
    """The next commit: ranges to read, and spans that expired before."""

    tasks: list[RangeTask]
    expired: list[Span]


def plan(
    known: Mapping[TopicPartition, Span],
    targets: Iterable[BrokerPartition],
    *,
    commit_messages_max: int,
    task_messages_max: int,
    skips_damage: bool,
) -> CommitPlan:
    """Returns the next commit towards the ends of some partitions. It has no tasks when they are reached."""
    partitions = {one.name: one for one in targets}
    lasts = {name: known[name].end if name in known else 0 for name in partitions}
    starts = {name: max(lasts[name], one.earliest) for name, one in partitions.items()}
    waiting = {name: one.latest - starts[name] for name, one in partitions.items()}
    planned = CommitPlan([], [])
    for name, count in share(waiting, commit_messages_max).items():
        one, start = partitions[name], starts[name]
        if lasts[name] < start:
            planned.expired.append(empty_span(one, lasts[name], start, EXPIRED))
        whole = RangeTask(*name, start, start + count, one.log, one.is_compacted, skips_damage)
        planned.tasks.extend(cut(whole, task_messages_max))
    return planned


def lag(known: Mapping[TopicPartition, Span], now: Iterable[BrokerPartition]) -> int:
    """Returns how many messages are not in the lake yet."""
    total = 0
    for one in now:
        last = known[one.name].end if one.name in known else 0
        total += max(one.latest - max(last, one.earliest), 0)
    return total
