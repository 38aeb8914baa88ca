"""Figures as the client shows them: sizes, deliveries, priority lanes."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ..api.frames import HelloReply
from ..api.groups import PartitionLanes, TopicLanes
from ..api.health import DeliveryFigures
from ..api.topics import TopicDescription
from ..api.units import time_text
from ..model import Priority

_S_NS = 1_000_000_000


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


def uptime_s(server: HelloReply) -> float:
    """How long the broker has run, by the clocks of both machines."""
    return round(max(0, time.time_ns() - server.started_at_ns) / _S_NS, 3)


def stats_of(node_id: str, uptime_s: float, topics: Sequence[TopicDescription]) -> Stats:
    shown = {
        one.name: {
            "partitions": len(one.partitions),
            "messages": sum(part.messages for part in one.partitions),
            "size_bytes": sum(part.size_bytes for part in one.partitions),
        }
        for one in topics
    }
    total = sum(one["size_bytes"] for one in shown.values())
    return Stats(node_id, uptime_s, len(shown), total, shown)


def reliability_of(found: dict[str, DeliveryFigures]) -> Reliability:
    names = DeliveryFigures.__struct_fields__
    totals = {name: sum(getattr(one, name) for one in found.values()) for name in names}
    groups = {group: msgspec.structs.asdict(one) for group, one in found.items()}
    return Reliability(**totals, groups=groups)


def lanes_of(found: dict[str, TopicLanes]) -> Lanes:
    everything = [part for one in found.values() for part in one.partitions]
    return Lanes(
        {topic: _topic_lanes(one) for topic, one in found.items()},
        {
            one.name.lower(): {
                "ready": sum(part.lanes[one].waiting for part in everything),
                "in_flight": sum(part.lanes[one].in_flight for part in everything),
                "served": sum(part.lanes[one].served for part in everything),
            }
            for one in Priority
        },
    )


def _topic_lanes(found: TopicLanes) -> dict[str, Any]:
    parts = {str(one.partition): _partition_lanes(one) for one in found.partitions}
    return {"group": found.group, "partitions": parts}


def _partition_lanes(found: PartitionLanes) -> dict[str, list[Any]]:
    lanes = found.lanes
    served_at = [one.served_at_ns for one in lanes]
    return {
        "ready": [one.waiting for one in lanes],
        "in_flight": [one.in_flight for one in lanes],
        "served": [one.served for one in lanes],
        "enqueue_rate": [round(one.enqueued_per_second, 3) for one in lanes],
        "dequeue_rate": [round(one.per_second, 3) for one in lanes],
        "last_served": [None if one is None else time_text(one) for one in served_at],
        "wait_ms": [round(one.wait_ms, 3) for one in lanes],
    }
