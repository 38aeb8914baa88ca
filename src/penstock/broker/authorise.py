"""Which role may do what: one table, asked for every command before it is carried out."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ..api.command import Command
from ..api.principals import LOCAL, Action, Principal, Role
from ..errors import Forbidden

READING = frozenset(
    {
        Action.SEE_HEALTH,
        Action.SEE_STATS,
        Action.SEE_TOPICS,
        Action.FETCH,
        Action.SEE_GROUPS,
        Action.SEE_DELAYED,
        Action.SEE_SCHEDULES,
        Action.SEE_DEAD_LETTERS,
        Action.SEE_PIPELINES,
        Action.SEE_SETTINGS,
        Action.SEE_AUDIT,
        Action.SEE_KEYS,
        Action.SEE_SCHEMAS,
        Action.SEE_TRANSACTIONS,
    }
)
"""Actions that change nothing. All others do, whatever the method of their route: a poll leases and makes groups."""

_ADMIN = frozenset({Role.ADMIN})
_ALL = frozenset(Role)
_PRODUCERS = _ADMIN | {Role.PRODUCER}
_CONSUMERS = _ADMIN | {Role.CONSUMER}
_READERS = _CONSUMERS | {Role.READONLY}

ALLOWED: Mapping[Action, frozenset[Role]] = MappingProxyType(
    {
        Action.SEE_HEALTH: _ALL,
        Action.SEE_STATS: _ADMIN | {Role.READONLY},
        Action.SEE_TOPICS: _ALL,
        Action.CREATE_TOPIC: _ADMIN,
        Action.CONFIGURE_TOPIC: _ADMIN,
        Action.DELETE_TOPIC: _ADMIN,
        Action.COMPACT_TOPIC: _ADMIN,
        Action.PUBLISH: _PRODUCERS,
        Action.PUBLISH_BELOW_RESERVE: _ADMIN,
        Action.FETCH: _READERS,
        Action.CONSUME: _CONSUMERS,
        Action.ANSWER: _CONSUMERS,
        Action.COMMIT: _CONSUMERS,
        Action.SEE_GROUPS: _READERS,
        Action.CHANGE_GROUP: _ADMIN,
        Action.SEE_DELAYED: _ALL,
        # Who may have it come may also have it not come.
        Action.CHANGE_DELAYED: _PRODUCERS,
        Action.SEE_SCHEDULES: _ALL,
        # A schedule publishes, and no more.
        Action.CHANGE_SCHEDULES: _PRODUCERS,
        Action.SEE_DEAD_LETTERS: _READERS,
        Action.REDRIVE: _ADMIN,
        Action.DISCARD: _ADMIN,
        Action.SEE_PIPELINES: _ALL,
        # An archive consumes, a load produces.
        Action.REPORT_PIPELINE: _PRODUCERS | _CONSUMERS,
        Action.SEE_SETTINGS: _ADMIN,
        Action.SEE_AUDIT: _ADMIN,
        Action.SEE_KEYS: _ADMIN,
        Action.CHANGE_KEYS: _ADMIN,
        Action.SEE_SCHEMAS: _ALL,
        # They name topics, which a key with prefixes may not know.
        Action.SEE_TRANSACTIONS: _ADMIN | {Role.READONLY},
        Action.ABORT_TRANSACTION: _ADMIN,
        Action.HAND_OVER: _ADMIN,
        # A schema decides what a topic takes, as its settings do.
        Action.REGISTER_SCHEMA: _ADMIN,
        Action.CHANGE_SCHEMAS: _ADMIN,
    }
)


def authorise(principal: Principal, action: Action, topic: str | None = None) -> None:
    """Forbidden, unless the role has the command and the topic is one of theirs."""
    if principal.role not in ALLOWED.get(action, frozenset()):
        raise Forbidden(
            f"{principal.name} ({principal.role.value}) may not {action.value}",
            principal=principal.name,
            command=action.value,
        )
    if topic is not None and not principal.reaches(topic):
        not_all = f"{action.value}: its key does not reach all topics"
        what = f"reach topic {topic[:60]}" if topic else not_all
        raise Forbidden(
            f"{principal.name} may not {what}",
            principal=principal.name,
            topic=topic[:60],
        )


def authorise_command(principal: Principal, command: Command[Any]) -> None:
    """Forbidden, unless the role has the command's action, and every topic that the command names is one of theirs."""
    if principal is LOCAL:
        return
    authorise(principal, command.action)
    if principal.prefixes:
        for topic in command.topics():
            authorise(principal, command.action, topic)


def authorise_owner(principal: Principal, owner: str, what: str, name: str) -> None:
    """Forbidden, unless the principal owns it."""
    if principal.owns(owner):
        return
    raise Forbidden(
        f"{what} {name[:60]} is not of {principal.name}: another key made it",
        principal=principal.name,
        name=name[:60],
    )


def authorise_member(principal: Principal, member: str, topics: Iterable[str]) -> None:
    """Forbidden, unless the principal reaches every topic of a member; the topics are not named to it."""
    if not all(map(principal.reaches, topics)):
        raise Forbidden(
            f"{principal.name} does not reach the topics of member {member[:60]}",
            principal=principal.name,
        )
