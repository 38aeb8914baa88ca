"""Calls for figures: sizes, what became of deliveries, and what waits in each lane."""

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
    """What is lent, waits for a retry, was given up, expired or was lost; in all and by group."""

    in_flight: int
    waiting: int
    dead: int
    expired: int
    skipped: int
    groups: dict[str, dict[str, int]]


class Lanes(msgspec.Struct, frozen=True):
    """By topic the group that was looked at and its partitions; five values for each figure, the most urgent first."""

    topics: dict[str, dict[str, Any]]
    totals: dict[str, dict[str, int]]


def stats() -> Call[Stats]:
    return get("/stats", Stats)


def reliability() -> Call[Reliability]:
    return get("/reliability/stats", Reliability)


def lanes(group: str | None) -> Call[Lanes]:
    name = None if group is None else text("the name of a group", group)
    return get(with_query("/priority/stats", {"group": name}), Lanes)
