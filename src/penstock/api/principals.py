"""Principals: on whose behalf a command runs, and what kinds of commands there are to be allowed."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """What a key is for."""

    ADMIN = "admin"
    PRODUCER = "producer"
    CONSUMER = "consumer"
    READONLY = "readonly"


class Action(Enum):
    """What a command does, as rights are given: many commands share one action."""

    SEE_HEALTH = "see health"
    SEE_STATS = "see stats"
    SEE_TOPICS = "see topics"
    CREATE_TOPIC = "create a topic"
    CONFIGURE_TOPIC = "configure a topic"
    DELETE_TOPIC = "delete a topic"
    COMPACT_TOPIC = "compact a topic"
    PUBLISH = "publish"
    PUBLISH_BELOW_RESERVE = "publish to a disk that is nearly full"
    FETCH = "read by offset"
    CONSUME = "consume"
    ANSWER = "answer for messages"
    COMMIT = "commit offsets"
    SEE_GROUPS = "see groups"
    CHANGE_GROUP = "reset or delete a group"
    SEE_DELAYED = "see delayed messages"
    CHANGE_DELAYED = "cancel or reschedule delayed messages"
    SEE_SCHEDULES = "see schedules"
    CHANGE_SCHEDULES = "create, change, run or delete schedules"
    SEE_DEAD_LETTERS = "see dead letters"
    REDRIVE = "redrive dead letters"
    DISCARD = "discard dead letters"
    SEE_PIPELINES = "see pipelines"
    REPORT_PIPELINE = "report how a pipeline is"
    SEE_SETTINGS = "see settings"
    SEE_AUDIT = "see the audit log"
    SEE_KEYS = "see keys"
    CHANGE_KEYS = "create, rotate or revoke keys"
    SEE_SCHEMAS = "see schemas"
    REGISTER_SCHEMA = "register a schema"
    SEE_TRANSACTIONS = "see transactions"
    ABORT_TRANSACTION = "abort transactions of others"
    HAND_OVER = "let the standby lead"
    CHANGE_SCHEMAS = "delete schemas, or set their compatibility or mode"


NO_KEY = ""
"""The owner of what was made without keys."""
_OWNED_BY_EVERY_KEY = frozenset({NO_KEY, "local"})  # Records of earlier versions have the word.


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of a key. Without prefixes every topic is theirs; with some, only topics that begin with one.

    `key_id` is what records keep of an owner: a later key may have the name of a revoked one, and never its id. The
    process itself and clients of a server without keys have none.
    """

    name: str
    role: Role
    prefixes: tuple[str, ...] = ()
    key_id: str = NO_KEY

    def reaches(self, topic: str) -> bool:
        return not self.prefixes or topic.startswith(self.prefixes)

    def owns(self, owner: str) -> bool:
        """Whether it may speak for what the key with the id `owner` made: its own, what was made without keys, and for
        the administrator of all topics everything."""
        is_administrator = self.role is Role.ADMIN and not self.prefixes
        return is_administrator or owner == self.key_id or owner in _OWNED_BY_EVERY_KEY


def covers(within: tuple[str, ...], prefixes: Sequence[str]) -> bool:
    """Whether a key with these prefixes reaches nothing that one with the prefixes `within` does not."""
    return not within or (bool(prefixes) and all(one.startswith(within) for one in prefixes))


LOCAL = Principal("local", Role.ADMIN)
"""The process that embeds a broker, and every client of a server without keys: by default only this machine's."""
