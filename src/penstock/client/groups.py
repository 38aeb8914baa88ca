"""Groups as the client shows them, and the offsets that are committed for them."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..api.arguments import partition_number, several
from ..api.groups import GroupFacts, GroupLag, PartitionOffset, ResetGroup
from ..api.json.groups import group_out
from ..api.units import Moment
from ..errors import Refused
from .commands import name_of, start_of


class GroupName(msgspec.Struct, frozen=True):
    group: str
    topics: list[str]


class Group(msgspec.Struct, frozen=True):
    """A group and its members. `modes` says by topic whether it is shared or assigned."""

    group: str
    state: str = ""
    generation: int = 0
    protocol: str = ""
    modes: dict[str, str] = {}
    topics: list[str] = []
    members: list[dict[str, Any]] = []


class PartitionLag(msgspec.Struct, frozen=True):
    """Everything below `floor` is finished; `lag` messages are not."""

    topic: str
    partition: int
    floor: int
    end: int
    lag: int
    lag_seconds: float | None = None
    in_flight: int = 0
    finished_above: int = 0


class FaultyPartition(msgspec.Struct, frozen=True):
    """A partition that cannot be used, and why. The lag of a group is not known there."""

    topic: str
    partition: int
    reason: str = ""


class Lag(msgspec.Struct, frozen=True):
    """`total` is without the partitions that are `faulty`."""

    group: str
    total: int
    partitions: list[PartitionLag]
    faulty: list[FaultyPartition] = []


def group_of(found: GroupFacts) -> Group:
    """A group. Of a shared one those members are known that polled of late, or hold messages."""
    return msgspec.convert(msgspec.to_builtins(group_out(found)), Group)


def lag_of(group: str, found: GroupLag) -> Lag:
    faulty = [FaultyPartition(one.topic, one.partition, one.reason) for one in found.faulty]
    parts = [PartitionLag(*one) for one in found.partitions]
    return Lag(group, sum(one.lag for one in parts), parts, faulty)


def floors_of(found: GroupLag) -> dict[str, dict[int, int]]:
    """The floor by topic and partition: the offset that is read next."""
    floors: dict[str, dict[int, int]] = {}
    for one in found.partitions:
        floors.setdefault(one.topic, {})[one.partition] = one.floor
    return floors


def reset_of(
    group: str,
    to: Moment,
    topic: str | None,
    partitions: Iterable[int] | None,
    *,
    is_forced: bool,
) -> ResetGroup:
    """Refused if a part of it is wrong."""
    numbers = None
    if partitions is not None:
        numbers = tuple(map(partition_number, several("partitions", partitions)))
    only = None if topic is None else name_of("topic", topic)
    return ResetGroup(
        name_of("group", group),
        topic=only,
        to=start_of(to, "to"),
        partitions=numbers,
        is_forced=is_forced,
    )


def committed_offsets(floors: Mapping[str, Mapping[int, int]]) -> tuple[PartitionOffset, ...]:
    """Refused if the floors are not by topic and partition, or if there are none."""
    try:
        found = tuple(
            PartitionOffset(name_of("topic", topic), partition_number(one), partition_number(floor))
            for topic, places in floors.items()
            for one, floor in places.items()
        )
    except AttributeError:
        raise Refused('offsets are given by topic and partition: {"orders": {0: 17}}') from None
    if not found:
        raise Refused("offsets is empty", field="offsets")
    return found
