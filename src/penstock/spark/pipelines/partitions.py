"""The partitions of some topics as the broker has them, and the next commit of a lake from there."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from ...errors import NotFound, OffsetOutOfRange, PartitionFaulty, Refused
from ...model import TopicPartition, check_name
from .manifest import Gap, Span
from .ranges import EXPIRED, RangeTask, cut, share
from .state import LakeState

if TYPE_CHECKING:
    from ...client import Client
    from ...client.fetch import Fetched

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
    return [one for name in topics for one in query_topic(client, name)]


def query_topic(client: "Client", name: str) -> list[BrokerPartition]:
    """Returns the partitions of a topic. NotFound; PartitionFaulty: the broker cannot read one of them."""
    try:
        topic = client.topic(name)
    except NotFound:
        raise NotFound("topic", f"{name} at {client.url}") from None
    for faulty, reason in topic.faulty.items():
        raise PartitionFaulty(name, int(faulty), name, reason)
    is_compacted = topic.config.get("cleanup") == "compact"
    found: list[BrokerPartition] = []
    for number in range(topic.partitions):
        latest = topic.ends(number).latest
        fetched = client.fetch(name, number, offset=latest, limit=1)
        partition = TopicPartition(name, number)
        found.append(
            BrokerPartition(partition, fetched.earliest, latest, fetched.seed, is_compacted)
        )
    return found


def kept_fetches(client: "Client", name: TopicPartition, start: int) -> Iterator["Fetched"]:
    """Yields what the broker has of a partition from an offset on.

    What retention takes meanwhile is passed over, so an answer may begin behind the end of the one before, at its
    `earliest`. A topic that is deleted meanwhile ends it.
    """
    at = start
    while True:
        try:
            for fetched in client.fetches(*name, offset=at):
                at = fetched.next_offset
                yield fetched
        except OffsetOutOfRange as error:
            earliest = error.fields.get("start")
            if not isinstance(earliest, int) or earliest <= at:
                raise
            at = earliest
        except NotFound:
            return
        else:
            return


def is_pattern(written: str) -> bool:
    """Whether a name has * or ?, which names of topics never have."""
    return "*" in written or "?" in written


def check_topic_or_pattern(written: str) -> str:
    """Returns a topic's name or a pattern of names. InvalidName."""
    check_name(written.replace("*", "x").replace("?", "x"), "topic")
    return written


def matching_topics(client: "Client", written: Iterable[str]) -> tuple[list[str], list[str]]:
    """Returns the topics that are named or match a pattern, and the patterns that nothing matches.

    Topics of the broker itself, whose names begin with __, are never matched.
    """
    found: dict[str, None] = {}
    empty: list[str] = []
    known = None
    for one in written:
        if not is_pattern(one):
            found[one] = None
            continue
        if known is None:
            known = [name for name in client.topics() if not name.startswith("__")]
        names = [name for name in known if fnmatchcase(name, one)]
        found.update(dict.fromkeys(names))
        if not names:
            empty.append(one)
    return list(found), empty


def keep_unread(client: "Client", topics: Iterable[str]) -> None:
    """Let retention of the topics wait for groups. Forbidden: the key may not change topics."""
    for name in topics:
        if not client.topic(name).config.get("keep_unread"):
            client.configure_topic(name, keep_unread=True)


def require_continued(state: LakeState, one: BrokerPartition) -> None:
    """Refused: a partition of the broker does not go on from the lake, nor is it a new log of its name."""
    before = state.ends.get(one.name)
    if before is None:
        return
    if before.log == one.log and one.latest < before.end:
        raise Refused(
            f"{one.name} ends at offset {one.latest} in the broker and at {before.end} in the lake: the broker has "
            "lost messages, or was restored from an older copy; use another lake"
        )
    if before.log != one.log and one.log in state.logs[one.name]:
        raise Refused(
            f"{one.name} is a log that another one has followed in the lake: two brokers share it; use another lake"
        )


def next_offset(known: Mapping[TopicPartition, Span], one: BrokerPartition) -> int:
    """Returns where the archive of a partition goes on: 0 if the log is another one, because the topic was remade."""
    last = known.get(one.name)
    return last.end if last is not None and last.log == one.log else 0


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
    """The next commit: ranges to read, and spans without rows: of what expired before, and of empty partitions."""

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
    """Returns the next commit towards the ends of some partitions. It has no tasks when they are reached.

    A log that the lake does not know is in it also if it has no messages: a topic is restored with all its partitions.
    """
    partitions = {one.name: one for one in targets}
    lasts = {name: next_offset(known, one) for name, one in partitions.items()}
    starts = {name: max(lasts[name], one.earliest) for name, one in partitions.items()}
    waiting = {name: one.latest - starts[name] for name, one in partitions.items()}
    planned = CommitPlan([], [])
    for name, count in share(waiting, commit_messages_max).items():
        one, start = partitions[name], starts[name]
        if lasts[name] < start:
            planned.expired.append(empty_span(one, lasts[name], start, EXPIRED))
        whole = RangeTask(*name, start, start + count, one.log, one.is_compacted, skips_damage)
        planned.tasks.extend(cut(whole, task_messages_max))
    for name, one in partitions.items():
        last = known.get(name)
        if planned.tasks and not waiting[name] and (last is None or last.log != one.log):
            planned.expired.append(empty_span(one, 0, starts[name], EXPIRED))
    return planned


def lag(known: Mapping[TopicPartition, Span], now: Iterable[BrokerPartition]) -> int:
    """Returns how many messages are not in the lake yet."""
    total = 0
    for one in now:
        total += max(one.latest - max(next_offset(known, one), one.earliest), 0)
    return total
