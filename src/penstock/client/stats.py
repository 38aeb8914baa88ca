"""The calls for statistics: sizes, deliveries, priority lanes, health."""

from typing import Any

import msgspec

from ..api.arguments import text
from .calls import Call, get, with_query


class Stats(msgspec.Struct, frozen=True):
    """Sizes of everything; `topic_stats` by topic: partitions, messages, size_bytes."""

    node_id: str
    uptime: float
    topics: int
    total_size_bytes: int
    topic_stats: dict[str, dict[str, int]]


class Reliability(msgspec.Struct, frozen=True):
    """Messages that are leased, wait for a retry, were given up, expired or were lost; in all and by group."""

    in_flight: int
    waiting: int
    dead: int
    expired: int
    skipped: int
    groups: dict[str, dict[str, int]]


class Lanes(msgspec.Struct, frozen=True):
    """The group of each topic and its partitions; each figure has a value for every priority, the most urgent first."""

    topics: dict[str, dict[str, Any]]
    totals: dict[str, dict[str, int]]


def lanes(group: str | None) -> Call[Lanes]:
    name = None if group is None else text("the name of a group", group)
    return get(with_query("/priority/stats", {"group": name}), Lanes)
