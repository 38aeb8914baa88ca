"""Topics: created, configured, described, listed, grown, swept and deleted."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec

from .bounds import DISTINCT, NAMES_MAX, Names, items
from .command import EVERY_TOPIC, Command
from .principals import Action

PARTITIONS_DEFAULT = 3
SETTINGS_MAX = 1000


class PartitionFacts(NamedTuple):
    """Size of a partition: first offset kept, next offset to be written, messages between them, bytes on disk.

    `fault` says why a partition cannot be used; then nothing else is known of it.
    """

    number: int
    earliest: int
    latest: int
    messages: int
    size_bytes: int
    fault: str = ""


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic with its partitions and all of its settings, defaults included."""

    name: str
    partitions: tuple[PartitionFacts, ...]
    settings: dict[str, Any]


class TopicLayout(NamedTuple):
    """The identity of a topic, which no other topic ever has, and the epoch of each partition; -1 for a faulty one."""

    name: str
    topic_id: int
    epochs: tuple[int, ...]


class Swept(NamedTuple):
    """What a sweep did to a topic."""

    segments_removed: int
    bytes_freed: int
    groups_forgotten: tuple[str, ...]


def _subjects_in(settings: Mapping[str, Any]) -> Iterable[str]:
    """Subjects whose schemas a topic is to use: a principal has to reach them as it does the topic."""
    found = (settings.get(name) for name in ("key_subject", "value_subject"))
    return (one for one in found if isinstance(one, str) and one)


class CreateTopic(Command[None], frozen=True):
    """A new topic. `settings` are those that differ from the usual, under the names that users write.

    It is there once all of its partitions are, also if the client does not wait for that. AlreadyExists,
    InvalidConfig, Refused: there is no such topic then.
    """

    action: ClassVar[Action] = Action.CREATE_TOPIC
    is_long: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    is_repeatable: ClassVar[bool] = False
    audit_line: ClassVar[str] = "{command.name}"
    is_completed: ClassVar[bool] = True
    name: str
    partitions: int
    settings: Annotated[Mapping[str, Any], items(SETTINGS_MAX)] = {}

    def topics(self) -> Iterable[str]:
        return (self.name, *_subjects_in(self.settings))


class ConfigureTopic(Command[TopicDescription], frozen=True):
    """Change some settings of a topic; they hold from the next command on. NotFound, InvalidConfig."""

    action: ClassVar[Action] = Action.CONFIGURE_TOPIC
    is_structural: ClassVar[bool] = True
    audit_line: ClassVar[str] = "{command.name}"
    name: str
    changes: Annotated[Mapping[str, Any], items(SETTINGS_MAX)]

    def topics(self) -> Iterable[str]:
        return (self.name, *_subjects_in(self.changes))


class AddPartitions(Command[int], frozen=True):
    """More partitions, up to a new total; the reply is how many there were. NotFound, Refused: not more.

    All of them are there at once. Unavailable: the topic grows to another total at this moment.
    """

    action: ClassVar[Action] = Action.CONFIGURE_TOPIC
    is_long: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    is_repeatable: ClassVar[bool] = False
    audit_line: ClassVar[str] = "{command.name}: {reply} to {command.total} partitions"
    name: str
    total: int

    def topics(self) -> Iterable[str]:
        return (self.name,)


class DeleteTopic(Command[None], frozen=True):
    """Remove a topic with everything in it, dead letters included. NotFound; Unavailable: it grows at this moment.

    Its name is free at once; the files of many partitions go in the background.
    """

    action: ClassVar[Action] = Action.DELETE_TOPIC
    is_structural: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    is_repeatable: ClassVar[bool] = False
    audit_line: ClassVar[str] = "{command.name}"
    name: str

    def topics(self) -> Iterable[str]:
        return (self.name,)


class FinishTopics(Command[None], frozen=True):
    """Make what no client waits for any more, and remove files of topics that are gone."""

    action: ClassVar[Action] = Action.DELETE_TOPIC
    is_walk: ClassVar[bool] = True

    def topics(self) -> Iterable[str]:
        return EVERY_TOPIC


class SweepTopics(Command[dict[str, Swept]], frozen=True):
    """Remove what is old, compact what is to be compacted, forget idle groups: of one topic, or of all.

    Old is what is past the topic's retention, or older than `older_than_ns`. NoSpace: what could be done without is
    done.
    """

    action: ClassVar[Action] = Action.COMPACT_TOPIC
    is_structural: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    audit_line: ClassVar[str] = "{command.where}"
    name: str | None = None
    older_than_ns: int | None = None

    def topics(self) -> Iterable[str]:
        return EVERY_TOPIC if self.name is None else (self.name,)

    @property
    def where(self) -> str:
        """What is swept, in words."""
        return self.name or "all topics"


class SweepDue(Command[None], frozen=True):
    """Sweep the topics whose time has come. NoSpace, as of `SweepTopics`."""

    action: ClassVar[Action] = Action.COMPACT_TOPIC
    is_structural: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True

    def topics(self) -> Iterable[str]:
        return EVERY_TOPIC


class TrimPartition(Command[int], frozen=True):
    """Delete the messages of a partition below an offset; without one, all messages.

    The reply is the first offset that is kept. It is below the one asked for while a dead letter on its way, or a
    reader of files, needs what is there. Files go when nothing in them is kept. NotFound, OffsetOutOfRange, NoSpace.
    """

    action: ClassVar[Action] = Action.COMPACT_TOPIC
    is_structural: ClassVar[bool] = True
    topic: str
    partition: int
    before: int | None = None

    def topics(self) -> Iterable[str]:
        return (self.topic,)


class ListTopics(Command[list[str]], frozen=True):
    """The names of all topics that begin with one of the prefixes, sorted; without any prefix those of all topics."""

    action: ClassVar[Action] = Action.SEE_TOPICS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    scope_field: ClassVar[str] = "prefixes"
    prefixes: Names = ()

    def topics(self) -> Iterable[str]:
        return self.prefixes or EVERY_TOPIC


class DescribeTopic(Command[TopicDescription], frozen=True):
    """One topic. NotFound."""

    action: ClassVar[Action] = Action.SEE_TOPICS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    name: str

    def topics(self) -> Iterable[str]:
        return (self.name,)


class DescribeTopics(Command[list[TopicDescription]], frozen=True):
    """Some topics; those that are not there are left out."""

    action: ClassVar[Action] = Action.SEE_TOPICS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    names: Annotated[Sequence[str], items(NAMES_MAX), DISTINCT]

    def topics(self) -> Iterable[str]:
        return self.names


class DescribeLayouts(Command[list[TopicLayout]], frozen=True):
    """Identity and partitions of some topics; those that are not there are left out."""

    action: ClassVar[Action] = Action.SEE_TOPICS
    is_query: ClassVar[bool] = True
    is_walk: ClassVar[bool] = True
    names: Annotated[Sequence[str], items(NAMES_MAX), DISTINCT]

    def topics(self) -> Iterable[str]:
        return self.names
