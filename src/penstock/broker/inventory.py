"""Checking a data directory against its meta journal: what should be there and is not, and what meta does not know.

Nothing is changed: the meta journal is read in a copy.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

from ..errors import Damaged, PenstockError, Refused
from ..log import Log
from ..log.doctor.survey import ProblemKind
from ..log.doctor.verify import Problem, Severity
from ..log.layout import CHECKPOINT, SETTINGS, TEMPORARY, base_offset_of
from ..log.opening import KnownEnd, examine
from ..ports import Disk
from .directories import paths_in_topics
from .meta import meta_beyond, read_meta
from .partition import PartitionId
from .partition.opening import log_id_of
from .topics import TopicFacts, Topics

_META, _SET_ASIDE = "meta", "set-aside"
_PARTITION = "partition-"
# Both are made with the partition; a delay log only when it is needed.
_LOGS = {
    "messages": "its messages are missing",
    "state": "its state is missing: what groups have finished is not known; "
    "`penstock log repair DATA --forget-progress` opens it without",
}


@dataclass(slots=True)
class Inventory:
    """What a data directory holds, by meta, and what is wrong with it."""

    topics: int = 0
    partitions: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether there is everything that meta knows, and nothing else that holds messages."""
        return all(one.severity is Severity.NOTE for one in self.problems)

    @property
    def counts(self) -> Counter[Severity]:
        return Counter(one.severity for one in self.problems)


def take_inventory(disk: Disk, scratch: Disk) -> Inventory:
    """Compare a data directory with its meta journal, which is copied to an empty scratch disk and read there."""
    found = Inventory(problems=[*_set_aside(disk)])
    entries = [*paths_in_topics(disk)]
    try:
        if not disk.list(_META):
            if entries:
                raise Refused("it is missing or empty, and there are topics")
            return found
        _copy(disk, scratch, _META)
        machine, meta = read_meta(scratch)
    except PenstockError as error:
        reason = f"which topics there are cannot be read: {error}"
        found.problems.append(Problem(Severity.DAMAGE, ProblemKind.META, _META, reason))
        return found
    topics = machine.topics
    found.topics = len(topics.by_id)
    found.partitions = sum(one.partitions for one in topics.by_id.values())
    for facts in topics.by_id.values():
        found.problems += _missing(disk, facts)
        found.problems += _older(disk, facts, topics, meta)
    found.problems += _unknown(disk, entries, topics)
    return found


def _copy(disk: Disk, scratch: Disk, directory: str) -> None:
    scratch.make_directories(directory)
    for name in disk.list(directory):
        path = f"{directory}/{name}"
        with closing(disk.open(path)) as source, closing(scratch.create(path)) as copy:
            copy.append(source.read(0, source.size()))


def _set_aside(disk: Disk) -> Iterator[Problem]:
    for name in disk.list(_SET_ASIDE):
        reason = "a start found it, and meta did not know it; nothing uses it; `penstock topic adopt` takes it back"
        yield Problem(Severity.NOTE, ProblemKind.SET_ASIDE, f"{_SET_ASIDE}/{name}", reason)


def _missing(disk: Disk, facts: TopicFacts) -> Iterator[Problem]:
    for number in range(facts.partitions):
        directory = f"{facts.directory}/{_PARTITION}{number}"
        if not disk.list(directory):
            reason = "meta knows this partition, and it is missing"
            yield Problem(Severity.DAMAGE, ProblemKind.PARTITION, directory, reason)
            continue
        for log, reason in _LOGS.items():
            if not disk.list(f"{directory}/{log}"):
                path = f"{directory}/{log}"
                yield Problem(Severity.DAMAGE, ProblemKind.PARTITION, path, reason)


def _older(disk: Disk, facts: TopicFacts, topics: Topics, meta: Log) -> Iterator[Problem]:
    """Logs that do not reach as far as meta knows, and partitions that knew a later meta."""
    config = facts.config.log_config()
    for number in range(facts.partitions):
        directory = f"{facts.directory}/{_PARTITION}{number}"
        identity = PartitionId(facts.topic_id, number)
        ends = topics.ends.get((facts.topic_id, number))
        known = (
            {"messages": ends.messages, "state": ends.state, "delayed": ends.delayed}
            if ends
            else {}
        )
        for log, end in known.items():
            path = f"{directory}/{log}"
            is_told = log in _LOGS and not disk.list(path)
            if not end or is_told or not disk.list(directory):
                continue
            try:
                examined = examine(
                    disk,
                    path,
                    log_id=log_id_of(identity, log),
                    config=config,
                    may_create=False,
                    known=KnownEnd(*end),
                )
            except (Damaged, Refused) as error:
                where = str(error.fields.get("path", path))
                reason = str(error.fields.get("reason", error))
                yield Problem(Severity.DAMAGE, ProblemKind.PARTITION, where, reason)
                continue
            reason = meta_beyond(examined.log, meta) if log == "messages" else ""
            if reason:
                yield Problem(Severity.DAMAGE, ProblemKind.META, f"{path}/{CHECKPOINT}", reason)
            examined.log.discard()


def _unknown(disk: Disk, entries: list[str], topics: Topics) -> Iterator[Problem]:
    known = {facts.directory: facts.partitions for facts in topics.by_id.values()}
    # What an intent names is on its way, in or out. What is on its way in has no messages yet.
    leaving = {facts.directory for facts in topics.deleted.values()}
    planned = {plan.directory for plan in topics.planned.values()}
    for directory in entries:
        if directory in leaving:
            continue
        for name in _names_in(disk, directory):
            if name.removesuffix(TEMPORARY) == SETTINGS:
                continue
            number = name.removeprefix(_PARTITION)
            if directory in known and number.isdecimal() and int(number) < known[directory]:
                continue
            path = f"{directory}/{name}"
            size = _message_bytes(disk, path)
            if directory in planned and not size:
                continue
            severity = Severity.DAMAGE if size else Severity.NOTE
            adopted = path if directory in known else directory
            command = f"`penstock topic adopt {adopted} --data DATA`"
            reason = f"meta does not know it, so nothing uses it; {command} takes it back"
            yield Problem(severity, ProblemKind.UNKNOWN, path, reason, 0, size)


def _names_in(disk: Disk, directory: str) -> list[str]:
    try:
        return disk.list(directory)
    except Refused:  # A file, or not ours to look at.
        return []


def _message_bytes(disk: Disk, partition: str) -> int:
    """How many bytes of messages a directory holds."""
    directory = f"{partition}/messages"
    names = [one for one in _names_in(disk, directory) if base_offset_of(one) is not None]
    return sum(disk.size(f"{directory}/{name}") for name in names)
