"""What a start does with files below `topics/` that no topic uses: those that an intent names, and unknown ones."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..api.health import EventKind, RecoveryEvent
from ..errors import NoSpace, Refused
from ..ports import Disk
from .directories import (
    SET_ASIDE,
    ids_present,
    is_untouched,
    partition_number,
    paths_in_topics,
    remove_empty,
    set_aside,
    topic_entry,
)
from .partition import Now
from .topic_works import TopicWorks
from .topics import FilesPlanned, FilesRemoved, IdsUsed, TopicRecord, Topics

if TYPE_CHECKING:
    from .catalogue import Catalogue


def tidy(catalogue: "Catalogue", now: Now) -> list[TopicRecord]:
    """Begin to remove what open intents name, and set aside what meta does not know; what is to be recorded of it."""
    disk, topics, works = catalogue.disk, catalogue.topics, catalogue.works
    for facts in topics.deleted.values():
        works.delete(facts, now, reason=f"{facts.name} was deleted")
    for plan in topics.planned.values():
        _begin_removal(catalogue, plan, now)
    catalogue.recovery += [
        RecoveryEvent(EventKind.SET_ASIDE, path, _set_aside(disk, path))
        for path in [*_unknown(disk, topics, works)]
        if not remove_empty(disk, path)
    ]
    records: list[TopicRecord] = [
        FilesRemoved(*place) for place in topics.planned if place not in works.removals
    ]
    next_id = max((one + 1 for one in ids_present(disk)), default=0)
    if next_id > topics.next_id:
        records.append(IdsUsed(next_id))
    return records


def _begin_removal(catalogue: "Catalogue", plan: FilesPlanned, now: Now) -> None:
    """Remove files that were made for partitions that meta never came to know.

    If they hold anything, the partitions were in use once, and it is the record of that which is lost: they stay, and
    are unknown.
    """
    paths = [f"{plan.directory}/partition-{number}" for number in range(plan.first, plan.total)]
    if not all(is_untouched(catalogue.disk, path) for path in paths):
        return
    is_new = plan.topic_id not in catalogue.topics.by_id
    reason = f"{plan.name} was never created" if is_new else "the partition was never added"
    catalogue.works.remove(plan, now, is_whole=is_new, reason=reason)


def _unknown(disk: Disk, topics: Topics, works: TopicWorks) -> Iterator[str]:
    """Directories of topics and partitions that meta does not know, and no intent names."""
    directories = {facts.directory: facts for facts in topics.by_id.values()}
    leaving = works.directories_removed()
    for path in paths_in_topics(disk):
        if path in leaving:
            continue
        facts = directories.get(path)
        if facts is None:
            if topic_entry(path) is not None:
                yield path
            continue
        for one in disk.list(path):
            number = partition_number(one)
            if number is None or f"{path}/{one}" in leaving:
                continue
            if number >= facts.partitions:
                yield f"{path}/{one}"


def _set_aside(disk: Disk, path: str) -> str:
    try:
        return f"meta does not know it; it is in {set_aside(disk, path)} now"
    except (Refused, NoSpace) as error:
        return f"meta does not know it, and it could not be moved to {SET_ASIDE}/: {error}"
