"""Delayed messages as the client shows them."""

from typing import Any

import msgspec

from ..api.arguments import partition_number, text, utf8
from ..api.delays import DelayedId, DelayedMessage, DelayState
from ..api.delays import DelayStats as PartitionDelays
from ..api.json.delays import delay_stats_out
from ..api.units import Duration, Moment, duration_ns, moment_ns, time_text
from ..errors import Refused

_MS_NS = 1_000_000


class Delayed(msgspec.Struct, frozen=True):
    """A delayed message. `offset` is its place in the delay log, `time_remaining` in milliseconds.

    `state`: PENDING, DELIVERED, CANCELLED, EXPIRED, or LOST to damage. `damage`: why and where it cannot be read; then
    key, value and priority are None.
    """

    topic: str
    partition: int
    offset: int
    deliver_at: str
    time_remaining: int
    state: str
    priority: int | None = None
    delay_key: bytes | None = None
    key: bytes | None = None
    value: bytes | None = None
    damage: str | None = None


class DelayStats(msgspec.Struct, frozen=True):
    """Counts of delayed messages by state; `by_topic` has the counts of each topic."""

    pending: int
    delivered: int
    cancelled: int
    expired: int
    by_topic: dict[str, dict[str, Any]]
    wheel: list[int] = []
    lost: int = 0


def which_of(partition: int | None, offset: int | None, delay_key: str | None) -> DelayedId | bytes:
    """Which delayed message of a topic is meant. Refused unless it is named by its place or by its key."""
    if delay_key is not None and partition is None and offset is None:
        return utf8(text("delay_key", delay_key), "delay_key").encode()
    if delay_key is None and partition is not None and offset is not None:
        return DelayedId(partition_number(partition), partition_number(offset))
    raise Refused("a delayed message is named by its partition and offset, or by its delay_key")


def due_ns(delay: Duration | None, deliver_at: Moment | None, now_ns: int) -> int | None:
    """When a message is to come; None: at once. Refused if both are given."""
    if delay is not None and deliver_at is not None:
        raise Refused("give one of delay and deliver_at", field="delay")
    if deliver_at is not None:
        return max(1, moment_ns(deliver_at, "deliver_at"))
    return None if delay is None else min(now_ns + duration_ns(delay, "delay"), (1 << 63) - 1)


def delayed_of(found: DelayedMessage, now_ns: int) -> Delayed:
    message, remaining_ns = found.message, 0
    if found.state is DelayState.PENDING:
        remaining_ns = max(0, found.due_ns - now_ns)
    return Delayed(
        found.topic,
        found.partition,
        found.id,
        time_text(found.due_ns),
        remaining_ns // _MS_NS,
        found.state.value,
        None if message is None else message.priority,
        found.delay_key,
        None if message is None else message.key,
        None if message is None else message.value,
        None if found.damage is None else str(found.damage),
    )


def stats_of(found: dict[str, list[PartitionDelays]]) -> DelayStats:
    return DelayStats(**msgspec.structs.asdict(delay_stats_out(found)))
