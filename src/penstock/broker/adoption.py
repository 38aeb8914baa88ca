"""Taking a topic back into meta: one that was set aside, or one in its place that meta knows otherwise.

What is adopted is taken as it is. Meta forgets how far it was, and its checkpoints forget which meta they saw; the logs
go on in a later epoch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..codec import seed_of
from ..config import TopicConfig
from ..errors import AlreadyExists, DamagedFile, NotFound, Refused, WrongLog
from ..log.checkpoint import NO_META, read_checkpoint
from ..log.identity import read_identity
from ..log.layout import CHECKPOINT, replace_file
from ..model import check_name
from ..ports import Disk
from .directories import (
    SET_ASIDE,
    TOPICS,
    TopicEntry,
    partition_number,
    set_aside_entry,
    topic_entry,
)
from .partition import Now, PartitionId
from .partition.opening import log_id_of
from .settings_file import kept_settings
from .topics import (
    INTERNAL_PREFIX,
    PARTITIONS_MAX,
    PartitionEnds,
    PartitionsAdded,
    TopicFacts,
    TopicRecord,
    Topics,
    config_from,
    created,
    settings_of,
    stored_config,
)

if TYPE_CHECKING:
    from .catalogue import Catalogue

# Below it every first segment is: what is adopted may begin anywhere.
ANYWHERE = 1 << 62


@dataclass(frozen=True, slots=True)
class Adoption:
    """What an adoption does: a directory to move, or none if it is in place, and what meta is to know."""

    source: str
    target: str
    topic: str
    topic_id: int
    # By number, where they will be.
    partitions: dict[int, str]
    records: Sequence[TopicRecord]


def adopt(
    catalogue: "Catalogue",
    path: str,
    now: Now,
    *,
    name: str = "",
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Adoption:
    """Take a topic, or a partition, from `set-aside/` into meta, or one in its place as it is now.

    A topic has the `settings` that are given, and otherwise those that are kept beside it. It is open after the
    next start. A crash on the way leaves it set aside, or the next start sets it aside again.
    """
    disk = catalogue.disk
    found = plan_adoption(
        disk,
        catalogue.topics,
        path,
        name=name,
        settings=settings,
        at_ns=now.wall_ns,
    )
    if found.source != found.target:
        parent = found.target.rpartition("/")[0]
        disk.make_directories(parent)
        disk.move(found.source, found.target)
        disk.sync_directory(parent)
        disk.sync_directory(SET_ASIDE)
    for number, directory in found.partitions.items():
        forget_meta(disk, directory, PartitionId(found.topic_id, number))
    catalogue.record_meta(found.records, now)
    return found


def plan_adoption(
    disk: Disk, topics: Topics, path: str, *, name: str, settings: Mapping[str, Any], at_ns: int
) -> Adoption:
    """What to do; changes nothing. Refused, AlreadyExists, NotFound, DamagedFile, WrongLog: why it cannot be done."""
    parent, _, entry = path.rpartition("/")
    is_in_place = parent == TOPICS or parent.startswith(f"{TOPICS}/")
    if not (is_in_place or parent == SET_ASIDE) or not disk.list(path):
        raise Refused(
            f"{path} is not a directory below {SET_ASIDE}/ or {TOPICS}/ with something in it",
            path=path,
        )
    found = (topic_entry if is_in_place else set_aside_entry)(entry)
    if found is None:
        raise Refused(f"{path} has not the name of a topic's directory: NAME.ID", path=path)
    if is_in_place:
        return _in_place(disk, topics, path, found, name)
    if found.partition >= 0:
        return _partition(disk, topics, path, found, at_ns)
    return _topic(disk, topics, path, replace_name(found, name), settings)


def replace_name(found: TopicEntry, name: str) -> TopicEntry:
    """The topic under the name that was asked for, if one was."""
    wanted = check_name(name or found.name, "topic")
    if wanted.startswith(INTERNAL_PREFIX):
        raise Refused(f"topic names that start with {INTERNAL_PREFIX!r} are internal: {wanted}")
    return found._replace(name=wanted)


def _topic(
    disk: Disk, topics: Topics, path: str, found: TopicEntry, settings: Mapping[str, Any]
) -> Adoption:
    if topics.get(found.name) is not None:
        raise AlreadyExists("topic", found.name)
    if (other := topics.by_id.get(found.topic_id)) is not None:
        raise Refused(f"the id {found.topic_id} is in use by the topic {other.name}", path=path)
    count = _partitions_in(disk, path)
    for number in range(count):
        _require_logs(disk, f"{path}/partition-{number}", PartitionId(found.topic_id, number))
    facts = TopicFacts(found.topic_id, found.name, count, _settings(disk, path, settings))
    if disk.exists(facts.directory):
        raise Refused(f"{facts.directory} is there already", path=facts.directory)
    partitions = {number: facts.partition_directory(number) for number in range(count)}
    return Adoption(path, facts.directory, facts.name, facts.topic_id, partitions, [created(facts)])


def _settings(disk: Disk, path: str, given: Mapping[str, Any]) -> TopicConfig:
    """DamagedFile: those that are kept cannot be read, and none are given."""
    kept: Mapping[str, Any] = {}
    try:
        kept = settings_of(stored_config(kept_settings(disk, path)))
    except DamagedFile:
        if not given:
            raise
    return config_from({**kept, **given})


def _partition(disk: Disk, topics: Topics, path: str, found: TopicEntry, at_ns: int) -> Adoption:
    """One partition more for a topic that is known."""
    facts = topics.by_id.get(found.topic_id)
    if facts is None:
        raise NotFound("topic with the id", found.topic_id)
    if found.partition != facts.partitions:
        raise Refused(
            f"{path} cannot be partition {found.partition} of {facts.name}: the next one is {facts.partitions}",
            path=path,
        )
    _require_logs(disk, path, PartitionId(found.topic_id, found.partition))
    target = facts.partition_directory(found.partition)
    if disk.exists(target):
        raise Refused(f"{target} is there already", path=target)
    added = PartitionsAdded(facts.topic_id, found.partition + 1, at_ns)
    partitions = {found.partition: target}
    return Adoption(path, target, facts.name, facts.topic_id, partitions, [added])


def _in_place(disk: Disk, topics: Topics, path: str, found: TopicEntry, name: str) -> Adoption:
    """A topic that meta knows: forget how far its partitions were."""
    facts = topics.by_id.get(found.topic_id)
    if facts is None or facts.directory != path:
        raise NotFound("topic in", path)
    if name and name != facts.name:
        raise Refused(f"{path} is known as {facts.name}: it cannot be adopted under another name")
    partitions = {one: facts.partition_directory(one) for one in range(facts.partitions)}
    for number, directory in partitions.items():
        _require_logs(disk, directory, PartitionId(found.topic_id, number))
    records = [_forgotten(facts.topic_id, one, topics) for one in partitions]
    return Adoption(path, path, facts.name, facts.topic_id, partitions, records)


def _forgotten(topic_id: int, number: int, topics: Topics) -> PartitionEnds:
    """Nothing of what was known but that later epochs have to begin."""
    known = topics.ends.get((topic_id, number)) or PartitionEnds(topic_id, number, (), ())
    messages, state, delayed = (
        (end[0] + 1, 0, ANYWHERE, -1) if end else ()
        for end in (known.messages, known.state, known.delayed)
    )
    return PartitionEnds(topic_id, number, messages, state, delayed)


def _partitions_in(disk: Disk, path: str) -> int:
    """How many partitions a directory has, from 0 on without a gap."""
    found = (partition_number(entry) for entry in disk.list(path))
    numbers = sorted(number for number in found if number is not None)
    if not numbers:
        raise Refused(f"{path} is not the directory of a topic: it has no partition-0", path=path)
    missing = sorted({*range(numbers[-1])} - {*numbers})
    if missing:
        raise DamagedFile(f"{path}/partition-{missing[0]}", "the partition is missing")
    if len(numbers) > PARTITIONS_MAX:
        raise Refused(f"{path} has {len(numbers)} partitions, the most is {PARTITIONS_MAX}")
    return len(numbers)


def _require_logs(disk: Disk, directory: str, identity: PartitionId) -> None:
    """Refuse a partition whose logs are not those of this topic and number."""
    kinds = ["messages", "state"]
    kinds += [one for one in ("delayed", "staging") if disk.list(f"{directory}/{one}")]
    for kind in kinds:
        path, expected = f"{directory}/{kind}", log_id_of(identity, kind)
        found = read_identity(disk, path)
        if found != expected:
            raise WrongLog(path, found=found, expected=expected)


def forget_meta(disk: Disk, directory: str, identity: PartitionId) -> None:
    """Let the checkpoint of a partition's messages know of no meta. One that cannot be read is made anew anyhow."""
    messages, seed = f"{directory}/messages", seed_of(log_id_of(identity, "messages"))
    try:
        found = read_checkpoint(disk, messages, seed)
    except DamagedFile:
        return
    if found is not None and found.meta_end != NO_META:
        content = replace(found, meta_end=NO_META).to_bytes(seed)
        replace_file(disk, messages, CHECKPOINT, content)
