"""Who may do what: one table, asked by every door before a command reaches the node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from ..errors import Forbidden


class Role(Enum):
    """What a key is for."""

    ADMIN = "admin"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    READONLY = "readonly"


class Command(Enum):
    """Everything that a door can ask for. One that is not in `ALLOWED` fails the tests, and nobody may do it."""

    SEE_HEALTH = "see health"
    SEE_STATS = "see stats"
    SEE_TOPICS = "see topics"
    CREATE_TOPIC = "create a topic"
    CONFIGURE_TOPIC = "configure a topic"
    DELETE_TOPIC = "delete a topic"
    COMPACT_TOPIC = "compact a topic"
    PUBLISH = "publish"
    FETCH = "read by offset"
    CONSUME = "consume"
    ANSWER = "answer for messages"
    COMMIT = "commit offsets"
    SEE_GROUPS = "see groups"
    CHANGE_GROUP = "reset or delete a group"
    SEE_DELAYED = "see delayed messages"
    CHANGE_DELAYED = "cancel or reschedule delayed messages"
    SEE_DEAD_LETTERS = "see dead letters"
    REDRIVE = "redrive dead letters"
    SEE_PIPELINES = "see pipelines"
    REPORT_PIPELINE = "report how a pipeline is"
    SEE_KEYS = "see keys"
    CHANGE_KEYS = "create, rotate or revoke keys"


READING = frozenset(
    {
        Command.SEE_HEALTH,
        Command.SEE_STATS,
        Command.SEE_TOPICS,
        Command.FETCH,
        Command.SEE_GROUPS,
        Command.SEE_DELAYED,
        Command.SEE_DEAD_LETTERS,
        Command.SEE_PIPELINES,
        Command.SEE_KEYS,
    }
)
"""Commands that change nothing. All others do, whatever the method of their route: a poll leases and makes groups."""

_ADMIN = frozenset({Role.ADMIN})
_ALL = frozenset(Role)
_PRODUCERS = _ADMIN | {Role.PRODUCER}
_CONSUMERS = _ADMIN | {Role.CONSUMER}
_READERS = _CONSUMERS | {Role.READONLY}

ALLOWED: Mapping[Command, frozenset[Role]] = MappingProxyType(
    {
        Command.SEE_HEALTH: _ALL,
        Command.SEE_STATS: _ADMIN | {Role.READONLY},
        Command.SEE_TOPICS: _ALL,
        Command.CREATE_TOPIC: _ADMIN,
        Command.CONFIGURE_TOPIC: _ADMIN,
        Command.DELETE_TOPIC: _ADMIN,
        Command.COMPACT_TOPIC: _ADMIN,
        Command.PUBLISH: _PRODUCERS,
        Command.FETCH: _READERS,
        Command.CONSUME: _CONSUMERS,
        Command.ANSWER: _CONSUMERS,
        Command.COMMIT: _CONSUMERS,
        Command.SEE_GROUPS: _READERS,
        Command.CHANGE_GROUP: _ADMIN,
        Command.SEE_DELAYED: _ALL,
        # Who may have it come may also have it not come.
        Command.CHANGE_DELAYED: _PRODUCERS,
        Command.SEE_DEAD_LETTERS: _READERS,
        Command.REDRIVE: _ADMIN,
        Command.SEE_PIPELINES: _ALL,
        # An archive consumes, a load produces.
        Command.REPORT_PIPELINE: _PRODUCERS | _CONSUMERS,
        Command.SEE_KEYS: _ADMIN,
        Command.CHANGE_KEYS: _ADMIN,
    }
)


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who asks. Without prefixes every topic is theirs; with some, only those that begin with one."""

    name: str
    role: Role
    prefixes: tuple[str, ...] = ()

    def reaches(self, topic: str) -> bool:
        return not self.prefixes or topic.startswith(self.prefixes)

    def covers(self, prefixes: Sequence[str]) -> bool:
        """Whether a key with these prefixes reaches nothing that this one does not."""
        return not self.prefixes or (bool(prefixes) and all(map(self.reaches, prefixes)))


LOCAL = Principal("local", Role.ADMIN)
"""Whoever reaches a broker that has no keys: by default only this machine can."""


def authorise(principal: Principal, command: Command, topic: str | None = None) -> None:
    """Forbidden, unless the role has the command and the topic is one of theirs."""
    if principal.role not in ALLOWED.get(command, frozenset()):
        raise Forbidden(
            f"{principal.name} ({principal.role.value}) may not {command.value}",
            principal=principal.name,
            command=command.value,
        )
    if topic is not None and not principal.reaches(topic):
        raise Forbidden(
            f"{principal.name} may not reach topic {topic[:60]}",
            principal=principal.name,
            topic=topic[:60],
        )
