"""Which topics there are. Names are unique in a namespace; ids are never used again, and directories carry them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from enum import Enum
from math import isfinite
from typing import Any, get_type_hints

import msgspec

from ..api.units import setting_number
from ..config import TopicConfig
from ..errors import AlreadyExists, InvalidConfig, NotFound, Refused
from ..kernel import Outcome
from ..model import check_name
from .directories import DEFAULT_NAMESPACE, TOPIC_ID_MAX, topic_directory

# A partition costs two open logs; this many keep a start below a few seconds.
PARTITIONS_MAX = 10_000
INTERNAL_PREFIX = "__"
_NUMBER_BEYOND = 1 << 63


class _Record(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    topic_id: int


class TopicCreated(_Record, frozen=True, tag=1):
    """A topic came into being."""

    namespace: str
    name: str
    partitions: int
    config: dict[str, Any]
    # In a snapshot: how many partitions it had until when.
    former: tuple[tuple[int, int], ...] = ()


class TopicConfigured(_Record, frozen=True, tag=2):
    """All of its settings, as they are from now on."""

    config: dict[str, Any]


class PartitionsAdded(_Record, frozen=True, tag=3):
    """The number of partitions that a topic has from now on."""

    partitions: int
    at_ns: int


class TopicDeleted(_Record, frozen=True, tag=4):
    """Gone for users; its files may be removed from now on."""


class IdsUsed(_Record, frozen=True, tag=5):
    """Ids below this one were given, also to topics that are gone or were set aside."""


class FilesPlanned(_Record, frozen=True, tag=6):
    """The files of partitions from `first` up to, not including, `total` are about to be made.

    Until the record that makes the partitions known, or `FilesRemoved`, no command uses them, and a start may remove
    them.
    """

    namespace: str
    name: str
    first: int
    total: int

    @property
    def directory(self) -> str:
        return topic_directory(self.namespace, self.name, self.topic_id)


class FilesRemoved(_Record, frozen=True, tag=7):
    """The files of partitions from `first` on that were planned, or of the deleted topic, are gone for good."""

    first: int = 0


class PartitionEnds(_Record, frozen=True, tag=8):
    """How far the logs of a partition are durable: epoch, next offset, first offset kept, first offset of the epoch.

    Empty: there is no such log.

    `snapshot` is the offset of the newest one in the state log, below zero if there is none.
    """

    partition: int
    messages: tuple[int, ...]
    state: tuple[int, ...]
    delayed: tuple[int, ...] = ()
    snapshot: int = -1


class GenerationsUsed(_Record, frozen=True, tag=16):
    """No group was ever in this generation or a later one; the field of the others holds the number."""


TopicRecord = (
    TopicCreated
    | TopicConfigured
    | PartitionsAdded
    | TopicDeleted
    | IdsUsed
    | FilesPlanned
    | FilesRemoved
    | PartitionEnds
    | GenerationsUsed
)

# Of names that there are not; a hostile request may have thousands.
_NAMES_SHOWN = 5
_HINTS = get_type_hints(TopicConfig)
# What a setting is, in words.
_KINDS: dict[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
}


@dataclass(slots=True)
class TopicFacts:
    """What is known of one topic."""

    topic_id: int
    name: str
    partitions: int
    config: TopicConfig
    former: list[tuple[int, int]] = field(default_factory=list)
    namespace: str = DEFAULT_NAMESPACE

    @property
    def directory(self) -> str:
        return topic_directory(self.namespace, self.name, self.topic_id)

    def partition_directory(self, number: int) -> str:
        return f"{self.directory}/partition-{number}"


def config_from(settings: Mapping[str, Any]) -> TopicConfig:
    """Settings under the names that users write; everything that is wrong with them in one error."""
    known = {one.name for one in fields(TopicConfig)}
    problems = [_unknown_settings(sorted(set(settings) - known), sorted(known))]
    good: dict[str, Any] = {}
    for name in sorted(known & set(settings)):
        try:
            good[name] = _converted(name, settings[name])
        except InvalidConfig as error:
            problems.append(error.fresh())
    config = _configured(good, problems)
    wrong = [one for one in problems if one is not None]
    if wrong:
        raise wrong[0].fresh() if len(wrong) == 1 else _joined(wrong)
    return config


def _configured(good: dict[str, Any], problems: list[InvalidConfig | None]) -> TopicConfig:
    """A configuration; a setting that is refused is a problem, and the others are judged without it."""
    while True:
        try:
            return TopicConfig(**good)
        except InvalidConfig as error:
            problems.append(error.fresh())
            if good.pop(str(error.fields["setting"]), None) is None:
                # It is a default that does not go with them.
                return TopicConfig()


def _joined(wrong: list[InvalidConfig]) -> InvalidConfig:
    """One error for several settings; the fields are lists of theirs."""
    parts = {
        name: "; ".join(str(one.fields[name]) for one in wrong)
        for name in ("setting", "found", "expected")
    }
    said = "; ".join(map(str, wrong))
    return InvalidConfig(parts["setting"], parts["found"], parts["expected"], said=said)


def _converted(name: str, value: object) -> Any:
    """A setting as the configuration has it. InvalidConfig if it is of another kind."""
    try:
        number = setting_number(name, _storable(name, value))
        return msgspec.convert(_storable(name, number), _HINTS[name])
    except msgspec.ValidationError:
        raise InvalidConfig(name, value, _expected(name)) from None
    except Refused as error:
        raise InvalidConfig(name, value, _expected(name), said=str(error)) from None


def _unknown_settings(names: list[str], known: list[str]) -> InvalidConfig | None:
    if not names:
        return None
    listed = ", ".join(known)
    shown = ", ".join(name + _nearest(name, known) for name in names[:_NAMES_SHOWN])
    more = ", ..." if len(names) > _NAMES_SHOWN else ""
    said = f"there is no setting {shown}{more}; known: {listed}"
    return InvalidConfig(", ".join(names), "an unknown setting", f"one of {listed}", said=said)


def _nearest(name: str, known: list[str]) -> str:
    """The name that was meant, perhaps. To compare takes the square of the length, so not with what cannot be one."""
    is_short = len(name) <= max(map(len, known)) + 10
    near = get_close_matches(name, known, n=1, cutoff=0.6) if is_short else []
    return f" (did you mean {near[0]}?)" if near else ""


def _expected(name: str) -> str:
    """What a setting has to be, in words; the words of the reader of JSON are for programmers."""
    kind = next(one.type for one in fields(TopicConfig) if one.name == name)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(one.value for one in kind)
    return _KINDS[kind]


def _storable(name: str, value: object) -> object:
    """Returns the value of a setting. InvalidConfig if the journal of topics could not hold it."""
    if isinstance(value, int) and abs(value) >= _NUMBER_BEYOND:
        raise InvalidConfig(name, value, f"below {_NUMBER_BEYOND}")
    if isinstance(value, float) and not isfinite(value):
        raise InvalidConfig(name, value, "a finite number")
    if isinstance(value, str) and not value.isascii():
        raise InvalidConfig(name, ascii(value), "one of the words that there are")
    return str.__str__(value) if isinstance(value, str) else value


def stored_config(settings: dict[str, Any]) -> TopicConfig:
    """Settings from the journal. One that a later version stopped to know is left out, not a reason to stay down."""
    known = {one.name for one in fields(TopicConfig)}
    return msgspec.convert(
        {name: value for name, value in settings.items() if name in known}, TopicConfig
    )


def settings_of(config: TopicConfig) -> dict[str, Any]:
    """The opposite: plain values for a journal or an answer."""
    values = {one.name: getattr(config, one.name) for one in fields(config)}
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def created(facts: TopicFacts) -> TopicCreated:
    return TopicCreated(
        facts.topic_id,
        facts.namespace,
        facts.name,
        facts.partitions,
        settings_of(facts.config),
        tuple(facts.former),
    )


class Topics:
    """The machine. `apply` changes it; the other methods decide."""

    def __init__(self) -> None:
        self.by_id: dict[int, TopicFacts] = {}
        # By namespace and name.
        self.by_name: dict[tuple[str, str], TopicFacts] = {}
        # Files of these may be removed: being made, by topic id and first partition, and deleted, by topic id.
        self.planned: dict[tuple[int, int], FilesPlanned] = {}
        self.deleted: dict[int, TopicFacts] = {}
        # By topic id and partition.
        self.ends: dict[tuple[int, int], PartitionEnds] = {}
        self.next_id = 1
        self.next_generation = 1

    def apply(self, record: TopicRecord) -> None:
        match record:
            case TopicCreated(topic_id, namespace, name, partitions, settings, former):
                config = stored_config(settings)
                facts = TopicFacts(topic_id, name, partitions, config, list(former), namespace)
                self.by_id[topic_id] = self.by_name[namespace, name] = facts
                self.planned.pop((topic_id, 0), None)
                # One that was deleted and is adopted: its files are in use again.
                self.deleted.pop(topic_id, None)
                self.next_id = max(self.next_id, topic_id + 1)
            case TopicConfigured(topic_id, settings):
                self.by_id[topic_id].config = stored_config(settings)
            case PartitionsAdded(topic_id, partitions, at_ns):
                facts = self.by_id[topic_id]
                self.planned.pop((topic_id, facts.partitions), None)
                facts.former.append((facts.partitions, at_ns))
                facts.partitions = partitions
            case TopicDeleted(topic_id):
                facts = self.deleted[topic_id] = self.by_id.pop(topic_id)
                del self.by_name[facts.namespace, facts.name]
                for number in range(facts.partitions):
                    self.ends.pop((topic_id, number), None)
            case FilesPlanned(topic_id, _, _, first):
                self.planned[topic_id, first] = record
                self.next_id = max(self.next_id, topic_id + 1)
            case FilesRemoved(topic_id, first):
                self.planned.pop((topic_id, first), None)
                self.deleted.pop(topic_id, None)
            case PartitionEnds(topic_id, partition):
                self.ends[topic_id, partition] = record
            case IdsUsed(topic_id):
                self.next_id = max(self.next_id, topic_id)
            case GenerationsUsed(generation):
                self.next_generation = generation

    def snapshot(self) -> Iterable[TopicRecord]:
        yield IdsUsed(self.next_id)
        yield GenerationsUsed(self.next_generation)
        # First, because a later topic may have the same name.
        for facts in self.deleted.values():
            yield created(facts)
            yield TopicDeleted(facts.topic_id)
        for facts in self.by_id.values():
            yield created(facts)
        yield from self.planned.values()
        yield from self.ends.values()

    def get(self, name: str) -> TopicFacts | None:
        """The topic of a name, if there is one."""
        return self.by_name.get((DEFAULT_NAMESPACE, name))

    def find(self, name: str) -> TopicFacts:
        """The topic of a name. NotFound: there is none."""
        facts = self.get(name)
        if facts is None:
            raise NotFound("topic", name)
        return facts

    def create(
        self, name: str, partitions: int, config: TopicConfig
    ) -> Outcome[TopicRecord, TopicFacts]:
        """A new topic. Ids are never given twice."""
        name = check_name(name, "topic")
        if self.get(name) is not None:
            raise AlreadyExists("topic", name)
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise Refused(f"partitions must be in 1..{PARTITIONS_MAX}, got {partitions}")
        if self.next_id > TOPIC_ID_MAX:
            raise Refused(f"there is no id left for a topic: the last one is {TOPIC_ID_MAX}")
        facts = TopicFacts(self.next_id, name, partitions, config)
        return Outcome(facts, (created(facts),))

    def configure(self, name: str, changes: Mapping[str, Any]) -> tuple[TopicRecord, ...]:
        facts = self.find(name)
        config = config_from({**settings_of(facts.config), **changes})
        return (TopicConfigured(facts.topic_id, settings_of(config)),)

    def add_partitions(self, name: str, total: int, *, at_ns: int) -> tuple[TopicRecord, ...]:
        facts = self.find(name)
        if not facts.partitions < total <= PARTITIONS_MAX:
            raise Refused(
                f"{name} has {facts.partitions} partitions; the new total must be larger and at most "
                f"{PARTITIONS_MAX}, got {total}"
            )
        return (PartitionsAdded(facts.topic_id, total, at_ns),)

    def delete(self, name: str) -> tuple[TopicRecord, ...]:
        return (TopicDeleted(self.find(name).topic_id),)
