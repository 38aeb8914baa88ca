"""What a start does with files below `topics/` that no topic uses: those that an intent names, and unknown ones."""

from collections.abc import Iterator

from ..api.health import EventKind, RecoveryEvent
from ..errors import NoSpace, Refused
from ..ports import Disk
from .directories import (
    SET_ASIDE,
    ids_present,
    is_untouched,
    partition_number,
    paths_in_topics,
    remove_partition,
    remove_topic,
    set_aside,
    topic_entry,
)
from .topics import FilesPlanned, FilesRemoved, IdsUsed, TopicRecord, Topics


def tidy(disk: Disk, topics: Topics, events: list[RecoveryEvent]) -> list[TopicRecord]:
    """Remove what open intents name and set aside what meta does not know; what is to be recorded of it."""
    for facts in topics.deleted.values():
        _clear(disk, facts.directory, f"{facts.name} was deleted", (facts.name, -1), events)
    for plan in topics.planned.values():
        _clear_planned(disk, topics, plan, events)
    events += [
        RecoveryEvent(EventKind.SET_ASIDE, path, _set_aside(disk, path))
        for path in [*_unknown(disk, topics)]
    ]
    records: list[TopicRecord] = [FilesRemoved(one) for one in topics.deleted]
    records += [FilesRemoved(topic_id, first) for topic_id, first in topics.planned]
    next_id = max((one + 1 for one in ids_present(disk)), default=0)
    if next_id > topics.next_id:
        records.append(IdsUsed(next_id))
    return records


def _clear_planned(
    disk: Disk, topics: Topics, plan: FilesPlanned, events: list[RecoveryEvent]
) -> None:
    """Remove files that were made for partitions that meta never came to know.

    If they hold anything, the partitions were in use once, and it is the record of that which is lost: they stay, and
    are unknown.
    """
    directory = plan.directory
    paths = [f"{directory}/partition-{number}" for number in range(plan.first, plan.total)]
    if not all(is_untouched(disk, path) for path in paths):
        return
    if plan.topic_id not in topics.by_id:
        _clear(disk, directory, f"{plan.name} was never created", (plan.name, -1), events)
        return
    for number, path in enumerate(paths, plan.first):
        _clear(disk, path, "the partition was never added", (plan.name, number), events)


def _clear(
    disk: Disk, path: str, reason: str, place: tuple[str, int], events: list[RecoveryEvent]
) -> None:
    """Remove what an intent names."""
    if disk.exists(path):
        (remove_topic if place[1] < 0 else remove_partition)(disk, path)
        events.append(RecoveryEvent(EventKind.LEFTOVER_REMOVED, path, reason, *place))


def _unknown(disk: Disk, topics: Topics) -> Iterator[str]:
    """Directories of topics and partitions that meta does not know."""
    directories = {facts.directory: facts for facts in topics.by_id.values()}
    for path in paths_in_topics(disk):
        facts = directories.get(path)
        if facts is None:
            if topic_entry(path) is not None:
                yield path
            continue
        for one in disk.list(path):
            number = partition_number(one)
            if number is not None and number >= facts.partitions:
                yield f"{path}/{one}"


def _set_aside(disk: Disk, path: str) -> str:
    try:
        return f"meta does not know it; it is in {set_aside(disk, path)} now"
    except (Refused, NoSpace) as error:
        return f"meta does not know it, and it could not be moved to {SET_ASIDE}/: {error}"
