"""Which dead letters a program means, what it changes in them, and what came of it: for the library and the client."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ..errors import Refused
from .arguments import instance, partition_number, several, shown, text, utf8
from .contents import Content, HeadersIn, bytes_of, pairs_of
from .dead_letters import ALL, Edit, RedriveReply, Selection
from .units import Moment, moment_ns

_CONTENT_BYTES_MAX = 1 << 30


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
            places = frozenset(map(_place_of, several("offsets", self.offsets)))
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


def _place_of(given: Any) -> tuple[int, int]:
    try:
        partition, offset = several("offsets", given)
    except (Refused, ValueError):
        raise Refused(
            f"offsets are pairs of a partition and an offset, not {shown(given)}"
        ) from None
    return partition_number(partition), partition_number(offset)


def selection_of(letters: Letters) -> Selection:
    return instance("selection", letters, Letters).selection()


class Redriven(msgspec.Struct, frozen=True):
    matched: int
    redriven: int
    failed: list[dict[str, Any]]
    dry_run: bool = False


class Discarded(msgspec.Struct, frozen=True):
    matched: int
    discarded: int
    dry_run: bool = False


def edit_of(changes: dict[str, Content] | None, headers: HeadersIn | None) -> Edit | None:
    """What is changed in a dead letter: its `key` and `value`, and headers that take the place of its own."""
    found = {} if changes is None else instance("edit", changes, dict)
    if not found and headers is None:
        return None
    if unknown := sorted(set(found) - {"key", "value"}):
        raise Refused(f"edit changes key and value, not {unknown[0]!r}")
    return Edit(
        "key" in found,
        bytes_of(found.get("key"), "key", _CONTENT_BYTES_MAX),
        "value" in found,
        bytes_of(found.get("value"), "value", _CONTENT_BYTES_MAX),
        None if headers is None else tuple(pairs_of(headers)),
    )


def failed_rows(reply: RedriveReply) -> list[dict[str, Any]]:
    return [
        {"partition": partition, "offset": offset, "reason": reason}
        for partition, offset, reason in reply.failed
    ]


def redriven_of(matched: int, replies: Sequence[RedriveReply], *, is_dry_run: bool) -> Redriven:
    failed = [one for reply in replies for one in failed_rows(reply)]
    redriven = sum(reply.redriven for reply in replies)
    return Redriven(matched, redriven, failed, is_dry_run)
