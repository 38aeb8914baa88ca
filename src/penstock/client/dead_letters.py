"""Dead letters as the client shows them, and which of them are meant."""

from typing import NamedTuple

import msgspec

from ..api.arguments import choice, flag, instance, text, whole_number
from ..api.contents import Content, HeadersIn
from ..api.dead_letters import (
    REDRIVE_LIMIT,
    DiscardDeadLetters,
    GroupBy,
    RedriveDeadLetters,
    Target,
)
from ..api.dead_letters import DeadLetter as StoredLetter
from ..api.letters import ALL_LETTERS, Letters, edit_of, selection_of
from ..api.units import time_text
from ..model import Headers
from .commands import name_of

_RATE_MAX = 1_000_000
_CONTENT_BYTES_MAX = 1 << 30


class DeadLetter(msgspec.Struct, frozen=True):
    """A message that was given up, its place among the dead letters, and the reason."""

    partition: int
    offset: int
    original_topic: str
    original_partition: int
    original_offset: int
    delivery_attempts: int
    group: str
    last_error: str
    dlq_reason: str
    dlq_timestamp: str
    last_consumer: str
    original_timestamp: str
    # None if it was never delivered.
    first_delivery: str | None
    last_delivery: str | None
    priority: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def letter_of(found: StoredLetter) -> DeadLetter:
    died, message = found.provenance, found.message
    return DeadLetter(
        found.partition,
        found.offset,
        died.original_topic,
        died.original_partition,
        died.original_offset,
        died.delivery_attempts,
        died.group,
        died.last_error,
        died.dlq_reason,
        time_text(died.dlq_timestamp),
        died.last_consumer,
        time_text(died.original_timestamp),
        time_text(died.first_delivery) if died.first_delivery else None,
        time_text(died.last_delivery) if died.last_delivery else None,
        message.priority,
        message.key,
        message.value,
        message.headers,
    )


class Redrive(NamedTuple):
    """Sends dead letters back, to the `topic` or only to the `group` that failed, with some fields changed.

    With `rate`, so many a second; then a call ends after some seconds, and `Redriven.matched` says how many there were.
    """

    selection: Letters = ALL_LETTERS
    target: str = "topic"
    edit: dict[str, Content] | None = None
    limit: int | None = None
    dry_run: bool = False
    rate: int | None = None
    headers: HeadersIn | None = None


def redrive_command(topic: str, asked: Redrive) -> RedriveDeadLetters:
    """Refused if a part of the order is wrong."""
    for name in {} if asked.edit is None else instance("edit", asked.edit, dict):
        text("what edit changes", name)
    targets = {one.value: one for one in Target}
    target = choice("target", asked.target, targets)
    if asked.rate is not None:
        whole_number("rate", asked.rate, 1, _RATE_MAX)
    return RedriveDeadLetters(
        name_of("topic", topic),
        selection_of(asked.selection),
        target,
        edit_of(asked.edit, asked.headers),
        REDRIVE_LIMIT if asked.limit is None else whole_number("limit", asked.limit),
        flag("dry_run", asked.dry_run),
    )


def discard_command(
    topic: str, selection: Letters, limit: int | None, dry_run: bool
) -> DiscardDeadLetters:
    """Refused if a part of it is wrong."""
    return DiscardDeadLetters(
        name_of("topic", topic),
        selection_of(selection),
        REDRIVE_LIMIT if limit is None else whole_number("limit", limit, 1),
        flag("dry_run", dry_run),
    )


def group_by(by: str) -> GroupBy:
    names = {one.value: one for one in GroupBy}
    return choice("by", by, names)
