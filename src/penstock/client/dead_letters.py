"""Dead letters as the client shows them, and which of them are meant."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ..api.arguments import choice, flag, instance, text, whole_number
from ..api.dead_letters import (
    ALL,
    REDRIVE_LIMIT,
    DeadLetterCount,
    Edit,
    GroupBy,
    RedriveDeadLetters,
    RedriveReply,
    Selection,
    Target,
)
from ..api.dead_letters import DeadLetter as StoredLetter
from ..api.units import time_text
from ..errors import Refused
from ..model import Headers
from .commands import Content, Moment, moment_ns, name_of, partition_number, utf8
from .producer_batch import HeadersIn, bytes_of, pairs_of

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


class Letters(NamedTuple):
    """Selects dead letters: every condition that is given has to hold; without any, all are selected."""

    reason: str | None = None
    group: str | None = None
    error: str | None = None
    before: Moment | None = None
    after: Moment | None = None
    offsets: Sequence[tuple[int, int]] | None = None

    def selection(self) -> Selection:
        """Refused if a condition is none."""
        reason, group, error = (
            None if one is None else utf8(text(name, one), name)
            for name, one in zip(("reason", "group", "error"), self[:3], strict=True)
        )
        before_ns, after_ns = (
            None if one is None else moment_ns(one, name)
            for name, one in (("before", self.before), ("after", self.after))
        )
        places = None
        if self.offsets is not None:
            places = frozenset((partition_number(a), partition_number(b)) for a, b in self.offsets)
        if all(one is None for one in (reason, group, error, before_ns, after_ns, places)):
            return ALL
        return Selection(
            reason=reason,
            group=group,
            error=error,
            offsets=places,
            before_ns=before_ns,
            after_ns=after_ns,
        )


ALL_LETTERS = Letters()


def selection_of(letters: Letters) -> Selection:
    return instance("selection", letters, Letters).selection()


class Redriven(msgspec.Struct, frozen=True):
    matched: int
    redriven: int
    failed: list[dict[str, Any]]
    dry_run: bool = False


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
    targets = {one.value: one for one in Target}
    target = choice("target", asked.target, targets)
    if asked.rate is not None:
        whole_number("rate", asked.rate, 1, _RATE_MAX)
    return RedriveDeadLetters(
        name_of("topic", topic),
        selection_of(asked.selection),
        target,
        _edit_of(asked),
        REDRIVE_LIMIT if asked.limit is None else whole_number("limit", asked.limit),
        flag("dry_run", asked.dry_run),
    )


def _edit_of(order: Redrive) -> Edit | None:
    changes = {} if order.edit is None else instance("edit", order.edit, dict)
    if not changes and order.headers is None:
        return None
    if unknown := sorted(set(changes) - {"key", "value"}):
        raise Refused(f"edit changes key and value, not {unknown[0]!r}")
    return Edit(
        "key" in changes,
        bytes_of(changes.get("key"), "key", _CONTENT_BYTES_MAX),
        "value" in changes,
        bytes_of(changes.get("value"), "value", _CONTENT_BYTES_MAX),
        None if order.headers is None else tuple(pairs_of(order.headers)),
    )


def redriven_of(matched: int, replies: Sequence[RedriveReply], *, is_dry_run: bool) -> Redriven:
    failed = [
        {"partition": partition, "offset": offset, "reason": reason}
        for reply in replies
        for partition, offset, reason in reply.failed
    ]
    redriven = sum(reply.redriven for reply in replies)
    return Redriven(matched, redriven, failed, is_dry_run)


def group_by(by: str) -> GroupBy:
    names = {one.value: one for one in GroupBy}
    return choice("by", by, names)


def count_of(by: str, one: DeadLetterCount) -> dict[str, Any]:
    first, last = time_text(one.first_ns), time_text(one.last_ns)
    return {by: one.value, "count": one.count, "first": first, "last": last}
