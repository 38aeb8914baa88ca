"""What the broker says of the partitions of some topics, and how a lake goes on from there."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...errors import NotFound, Refused
from .manifest import Gap, Place, Span
from .ranges import EXPIRED, RangeTask, cut, share

if TYPE_CHECKING:
    from ...client import Client

NOT_ASKED = "before the start"


class Partition(NamedTuple):
    """One partition now. `log` tells it from any other, also from one that had its name before."""

    place: Place
    earliest: int
    latest: int
    log: int
    is_compacted: bool


def look(client: "Client", topics: Iterable[str]) -> list[Partition]:
    """All partitions of some topics. NotFound names the topic that is not there."""
    found: list[Partition] = []
    for name in topics:
        try:
            topic = client.topic(name)
        except NotFound:
            raise NotFound("topic", f"{name} at {client.url}") from None
        is_compacted = topic.config.get("cleanup") == "compact"
        for number in range(topic.partitions):
            latest = topic.ends(number).latest
            fetched = client.fetch(name, number, offset=latest, limit=1)
            place = Place(name, number)
            found.append(Partition(place, fetched.earliest, latest, fetched.seed, is_compacted))
    return found


def keep_unread(client: "Client", topics: Iterable[str]) -> None:
    """Have retention wait for groups. Forbidden, unless we may change topics."""
    for name in topics:
        if not client.topic(name).config.get("keep_unread"):
            client.configure_topic(name, {"keep_unread": True})


def require_same(lake: object, known: Mapping[Place, Span], now: Iterable[Partition]) -> None:
    """Refused, if a topic in the lake is not the one in the broker: deleted and made again, or of another broker."""
    for one in now:
        before = known.get(one.place)
        if before is not None and (before.log != one.log or before.end > one.latest):
            raise Refused(
                f"{lake} holds another topic of the name {one.place.topic}: partition {one.place.partition} of "
                f"the broker is not the log that was archived up to offset {before.end}; use another lake"
            )


def nothing_at(one: Partition, start: int, end: int, reason: str) -> Span:
    """A span of which nothing can be had."""
    return Span(
        topic=one.place.topic,
        partition=one.place.partition,
        start=start,
        end=end,
        rows=0,
        log=one.log,
        gap_offsets=end - start,
        gaps=[Gap(start, end, reason)] if end > start else [],
    )


class Plan(NamedTuple):
    """A commit to be: ranges to read, and what is known to be gone before anything is read."""

    tasks: list[RangeTask]
    gone: list[Span]


def plan(
    known: Mapping[Place, Span],
    targets: Iterable[Partition],
    *,
    commit_messages_max: int,
    task_messages_max: int,
    skips_damage: bool,
) -> Plan:
    """The next commit towards the ends of some partitions; nothing in it: they are reached."""
    partitions = {one.place: one for one in targets}
    lasts = {place: known[place].end if place in known else 0 for place in partitions}
    starts = {place: max(lasts[place], one.earliest) for place, one in partitions.items()}
    waiting = {place: one.latest - starts[place] for place, one in partitions.items()}
    planned = Plan([], [])
    for place, count in share(waiting, commit_messages_max).items():
        one, start = partitions[place], starts[place]
        if lasts[place] < start:
            planned.gone.append(nothing_at(one, lasts[place], start, EXPIRED))
        whole = RangeTask(*place, start, start + count, one.log, one.is_compacted, skips_damage)
        planned.tasks.extend(cut(whole, task_messages_max))
    return planned


def lag(known: Mapping[Place, Span], now: Iterable[Partition]) -> int:
    """How many messages a lake has still to get."""
    total = 0
    for one in now:
        last = known[one.place].end if one.place in known else 0
        total += max(one.latest - max(last, one.earliest), 0)
    return total
